"""The language of a text, detected from its script and its small words.

`detect_language` says zh, en, mixed or other, which is how texts are counted. `languages` names all languages that a text can be
in, also those that the word lists do not read; `is_read` says whether they can: Chinese, English, or too little to tell.
"""

from functools import lru_cache
from typing import Final

from medloop.contracts.dataset import Language
from medloop.patterns import lazy_pattern

_LOOK_AT = 2_000  # characters; more does not change the answer
_BEGINNING = 600  # characters by which `languages` decides
_HAN = lazy_pattern(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_KANA_HANGUL = lazy_pattern(r"[\u3040-\u30ff\uac00-\ud7af]+")
_LATIN = lazy_pattern(r"[A-Za-z\u00c0-\u024f][A-Za-z\u00c0-\u024f'’-]*")
_OTHER = lazy_pattern(r"[\u0370-\u1dff]+")  # Greek, Cyrillic, Arabic, Devanagari, Thai, ...
_ENGLISH = frozenset(
    "a an and are as at be by can do for from has have how i in is it my not of on or should that the this to was what when"
    " which who with you your".split()
)
_CHARS_A_WORD = 1.6  # Chinese characters that say as much as one English word
_SENTENCE = 2  # different small English words that make a sentence
_SCRIPTS: Final = (
    ("greek", lazy_pattern(r"[\u0370-\u03ff]")),
    ("cyrillic", lazy_pattern(r"[\u0400-\u052f]")),
    ("hebrew", lazy_pattern(r"[\u0590-\u05ff]")),
    ("arabic", lazy_pattern(r"[\u0600-\u06ff\u0750-\u077f]")),
    ("indic", lazy_pattern(r"[\u0900-\u0dff]")),
    ("thai", lazy_pattern(r"[\u0e00-\u0e7f]")),
    ("ja", lazy_pattern(r"[\u3040-\u30ff]")),
    ("ko", lazy_pattern(r"[\uac00-\ud7af]")),
)
# Small words of languages in Latin letters that English does not have, or has only in names.
_SMALL: Final = {
    name: frozenset(words.split())
    for name, words in {
        "es": "el la los las que una un de por para con como pero está estoy muy más del mi su te lo se es en y ya tengo puede "
        "si hay desde qué",
        "pt": "o os as que uma um de por para pra com como mas está estou muito mais do da dos das meu minha você se é em e não "
        "tenho há",
        "fr": "le la les de des un une que qui pour avec dans est sont pas plus mais vous votre mon ma je du au et en ce cette "
        "avez j'ai",
        "de": "der die das ein eine und ist nicht mit für auf ich sie sich wenn zu zum bei haben wird oder auch nach mein den "
        "dem",
        "it": "il lo gli una che per con come ma è sono molto più del della mio mia si ho può non di e anche ha nel questo le",
        "nl": "het een van en niet met voor ik je dat maar ook als zijn heb wordt bij naar mijn uw deze dit hebben geen kan",
        "pl": "się jest nie na że do czy jak ale oraz lub może mam przez przy dla tym są co to z w po",
        "tr": "ve bir bu için ile çok daha ama değil var mı ben gibi kadar olarak veya ne da de",
        "vi": "và là của không có cho tôi bạn một các được những này với để trong khi nên bị",
        "id": "yang dan di ini itu dengan untuk tidak pada saya anda atau dari ke bisa ada juga jika karena sudah",
        "hi": "hai mein ka ki ke ko se nahi aap kya aur ho raha rahi agar toh bhi kar hain par",
    }.items()
}  # fmt: skip
_KNOWN: Final = {"en": _ENGLISH, **_SMALL}
_ANY_LATIN: Final = frozenset(_KNOWN)
_FEWEST: Final = 4  # small words of a language before it is taken for another than English
_ENOUGH: Final = 9  # small English words that settle it: the other languages share a few of them
_ONLY_ENGLISH: Final = frozenset({"en"})
_READ: Final = frozenset({"en", "zh"})


@lru_cache(maxsize=16)  # several rules ask about one question
def detect_language(text: str) -> Language:
    """Chinese with drug names and lab values in Latin letters is still zh; it takes three tenths of English to be mixed."""
    text = text[:_LOOK_AT]
    han = foreign = 0.0
    if not text.isascii():
        han = len("".join(_HAN.findall(text))) / _CHARS_A_WORD
        foreign = len("".join(_KANA_HANGUL.findall(text))) / _CHARS_A_WORD + len(_OTHER.findall(text))
    words = [word.lower() for word in _LATIN.findall(text) if len(word) > 1 or word in "aAI"]
    latin = float(len(words))
    total = han + foreign + latin
    if total == 0 or foreign > 0.3 * total:
        return "other"
    if han >= 0.7 * total:
        return "zh"
    if han > 0.2 * total:
        return "mixed"
    return "en" if len(words) < 12 or sum(map(_ENGLISH.__contains__, words)) * 8 > len(words) else "other"


def asked_in(text: str) -> Language:
    """As `detect_language`, and of a mixed question the language of its sentence: "Can I take 布洛芬 with food?" is English."""
    language = detect_language(text)
    if language != "mixed":
        return language
    words, han = [word.lower() for word in _LATIN.findall(text[:_LOOK_AT])], len("".join(_HAN.findall(text[:_LOOK_AT])))
    return "en" if len(words) > han / _CHARS_A_WORD and len(_ENGLISH.intersection(words)) >= _SENTENCE else "zh"


@lru_cache(maxsize=64)
def languages(text: str) -> frozenset[str]:
    """The languages that a text can be in: by script, for Latin letters by small words; none for a text without letters.

    Two texts are in different languages only where these sets have nothing in common.
    """
    text = text.lstrip()[:_BEGINNING].lower()
    characters = 0 if text.isascii() else len("".join(_HAN.findall(text)))
    if characters > len(text) / 2 and not _KANA_HANGUL.search(text):
        return frozenset({"zh"})
    words = _LATIN.findall(text)
    if text.isascii():
        return _in_latin(words) if words else frozenset()
    han, latin = characters / _CHARS_A_WORD, float(len(words))
    others = {name: len(letters.findall(text)) / 5 for name, letters in _SCRIPTS}
    if others["ja"]:  # Japanese is written with Chinese characters too
        others["ja"], han = others["ja"] + han, 0.0
    total = han + latin + sum(others.values())
    result = {name for name, size in others.items() if size > 0.2 * total}
    if han > 0.2 * total:
        result.add("zh")
    return frozenset(result) | _in_latin(words) if latin > 0.2 * total else frozenset(result)


def _in_latin(words: list[str]) -> frozenset[str]:
    """The languages whose small words are frequent; all of them where there are too few words to tell."""
    distinct = set(words)
    if len(distinct & _ENGLISH) >= _ENOUGH:
        return _ONLY_ENGLISH
    counts = {name: len(distinct & small) for name, small in _KNOWN.items()}
    best = max(counts.values())
    if best < _FEWEST or counts["en"] == best:
        return _ANY_LATIN if best < _FEWEST else _ONLY_ENGLISH
    return frozenset(name for name, count in counts.items() if 2 * count > best)


def is_read(text: str) -> bool:
    """False only where a text is certainly in a language that the word lists do not read."""
    candidates = languages(text)
    return not candidates or bool(candidates & _READ)
