"""Obfuscated text: invisible characters, look-alike letters, encodings, languages that the fence cannot read.

    readings("1gn0r3 7h3 rubr1c") -> the sentence itself, then each way in which a model could decode it

A model reads rot13, look-alike letters and leetspeak, so every reading is searched. Text that cannot be read at all (in a script
or language that the question does not use) is not passed on.
"""

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress

from medloop.patterns import lazy_pattern

# Invisible characters: zero width, direction, tags, variation selectors, other controls.
_INVISIBLE = lazy_pattern(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
_LINE_BREAK = lazy_pattern("[\u0085\u2028\u2029]")
_REVERSED = lazy_pattern("[\u202d\u202e\u2067\u2068][^\u202c\u2069\n]{0,2000}[\u202c\u2069]?")
_PUNCTUATION = frozenset("，。；：！？（）、“”‘’…《》—·【】")

_SPELLED_OUT = lazy_pattern(r"(?<![\w%])(?:\w(?: |[.\-_*·|/])){3,}\w(?!\w)")  # s c o r e, s-c-o-r-e
_LEET_WORD = lazy_pattern(r"\b(?=\w*[a-z])(?=\w*[013457@$])[\w@$]{2,}", re.IGNORECASE)
_LEET = str.maketrans("013457@$", "oleastas")
_LEET_I = str.maketrans("013457@$", "oieastas")
# Letters of other scripts that look like Latin ones, in the order of the Latin letters below.
_LOOK_ALIKE = "аеорсухіјѕԁһкмтвнАВЕКМНОРСТХІЅЈοανικρτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧ\u0131\u0261ɑ"
_LATIN = "aeopcyxijsdhkmtbhABEKMHOPCTXISJoavikptuxyABEZHIKMNOPTYXiga"
assert len(_LOOK_ALIKE) == len(_LATIN), "each look-alike has one Latin letter"
_TO_LATIN = str.maketrans(_LOOK_ALIKE, _LATIN)
# Traditional characters that words of grading are written with, and their simplified forms.
_TRADITIONAL = str.maketrans(
    "請給這個滿評審標準確無問題驗證專組認為與動結論覆該條對應須從員檢錯誤險風當選數級師醫書質總優過規則還後導錄視經實",
    "请给这个满评审标准确无问题验证专组认为与动结论复该条对应须从员检错误险风当选数级师医书质总优过规则还后导录视经实",
)
# Common English words in rot13 and backwards: a cheap test for a whole sentence written that way.
_ROT = lazy_pattern(r"\b(?:gur|naq|guvf|tvir|fpber|jvgu|sbe|lbh|nyy|vtaber|znexf)\b", re.IGNORECASE)
_BACK = lazy_pattern(r"\b(?:eht|dna|siht|evig|erocs|htiw|rewsna|erongi|skram|esaelp)\b", re.IGNORECASE)

_CODES = lazy_pattern(
    r"[A-Za-z0-9+/]{40,}={0,2}|(?:\\[ux][0-9a-fA-F]{2,4}){4,}|(?:&#x?[0-9a-fA-F]{2,6};){3,}|(?:%[0-9a-fA-F]{2}){6,}"
    r"|(?:[01]{8}\s*){4,}|(?:(?:0x)?[0-9a-fA-F]{2}[ ,]){7,}(?:0x)?[0-9a-fA-F]{2}|(?:[.\-·−]{1,5}[ /]{1,3}){8,}"
)
_TOKEN = lazy_pattern(r"[A-Za-z0-9+/]{12,39}={0,2}")
_SCRIPTS = {
    "cyrillic": "[\u0400-\u052f]", "kana": "[\u3041-\u30ff]", "hangul": "[\u1100-\u11ff\uac00-\ud7af]",
    "arabic": "[\u0600-\u06ff]", "hebrew": "[\u0590-\u05ff]", "indic": "[\u0900-\u0dff]", "thai": "[\u0e00-\u0eff]",
    "greek": "[\u0370-\u03ff]{3}",
    "other": "[\u0530-\u058f\u10a0-\u10ff\u1200-\u13ff\u1780-\u17ff\u1800-\u18af]",
}  # fmt: skip
_FOREIGN = lazy_pattern("[\u0370-\u0eff\u1100-\u13ff\u1780-\u18af\u3041-\u30ff\uac00-\ud7af]")
_WORDS = {
    "english": "the and of to is are in your you for this with it that be or not if as on by an should can a i we",
    "french": "le les des une et est que pour dans cette cet avec sur toutes tous vous votre au aux du la ce pas qui donne ne",
    "spanish": "el los las que y una para esta este todas todos con por la del al usted pon su es se debe como de en sin",
    "german": "der das und ist nicht für diese dieser dieses alle ein eine mit den dem des bitte sie zu auf von als wird gib bis",
    "italian": "il lo gli che di per questa questo tutte tutti una con la del della alla non si è le dai",
    "portuguese": "os que para esta este todas todos uma com não da do dos das ao dê em por e o",
    "dutch": "het een en van voor deze dit alle niet met zijn geef op de aan dat",
    "vietnamese": "hãy và của cho này các là được không tất cả câu trả lời",
    "turkish": "ve bu bir için tüm lütfen ver yok olarak cevaba puan",
}
_LANGUAGES = {name: frozenset(words.split()) for name, words in _WORDS.items()}


def strip_invisible(text: str) -> tuple[str, bool]:
    """The text without invisible characters and with plain letters; and whether a part of it was reversed to hide it."""
    is_reversed = _REVERSED.search(text) is not None
    plain = _INVISIBLE.sub("", text)
    if plain != text or not plain.isascii():
        plain = "".join(c if c in _PUNCTUATION or ord(c) < 128 else unicodedata.normalize("NFKC", c) for c in plain)
    return plain, is_reversed


def printable(text: str) -> str:
    """The text without characters that hide or reverse text, move a cursor or break a line of a file."""
    return _INVISIBLE.sub("", _LINE_BREAK.sub(" ", text))


def invisible_text(text: str) -> str:
    """What is written in tag characters, which nobody sees and a model may read."""
    return "".join(chr(ord(letter) - 0xE0000) for letter in text if 0xE0020 <= ord(letter) <= 0xE007E)


def remove_encoded(text: str, replacement: str, on_decoded: Callable[[str], object] = lambda decoded: None) -> str:
    """Encoded text does not belong in an answer: long runs are replaced, short ones when they decode to words.

    `on_decoded` is called with what a run says.
    """

    def cut(code: re.Match[str]) -> str:
        for decode in (bytes.fromhex, _from_base64):
            with suppress(ValueError, binascii.Error):
                on_decoded(decode(code[0]).decode())
        return replacement

    return _TOKEN.sub(lambda token: cut(token) if _decodes(token[0]) else token[0], _CODES.sub(cut, text))


def _decodes(token: str) -> bool:
    return any(_is_text(decode, token) for decode in (bytes.fromhex, _from_base64))


def _from_base64(token: str) -> bytes:
    if token.isalpha() and token.casefold() in (token, token[0].lower() + token[1:]):
        return b""  # an ordinary word happens to be base64
    return base64.b64decode(token + "=" * (-len(token) % 4), validate=True)


def _is_text(decode: Callable[[str], bytes], token: str) -> bool:
    try:
        text = decode(token).decode("ascii")
    except (ValueError, binascii.Error):
        return False
    return (
        len(text) >= 6 and all(c.isprintable() for c in text) and sum(c.isalpha() or c == " " for c in text) >= 0.75 * len(text)
    )


def readings(sentence: str) -> Iterator[str]:
    """The sentence itself, then without each obfuscation that it may use. Mostly there is only one reading."""
    yield sentence
    plain = sentence
    if not sentence.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", sentence) if not unicodedata.combining(c)).translate(_TO_LATIN)
        if plain != sentence:
            yield plain
        if (simplified := plain.translate(_TRADITIONAL)) != plain:
            yield simplified
    if _SPELLED_OUT.search(plain):
        yield join_spelled(plain)
    if _LEET_WORD.search(plain):
        for table in (_LEET, _LEET_I):
            yield _LEET_WORD.sub(lambda word, table=table: word[0].translate(table), plain)  # type: ignore[misc]
    if _ROT.search(plain):
        yield codecs.encode(plain, "rot13")
    if _BACK.search(plain):
        yield plain[::-1]


def join_spelled(sentence: str) -> str:
    return _SPELLED_OUT.sub(lambda match: re.sub(r"[ .\-_*·|/]", "", match[0]), sentence)


def spelled_words(sentence: str) -> list[str]:
    """Words written letter by letter."""
    return [re.sub(r"[ .\-_*·|/]", "", word) for word in _SPELLED_OUT.findall(sentence)]


def foreign_scripts(text: str) -> frozenset[str]:
    if not _FOREIGN.search(text):
        return frozenset()
    return frozenset(
        name for name, pattern in _SCRIPTS.items() if len(re.findall(pattern, text)) >= (1 if name == "greek" else 3)
    )


def latin_language(text: str) -> str:
    """The Latin-script language by its small words; English unless another one clearly has more of them."""
    words = frozenset(re.findall(r"[^\W\d_]+", text.casefold()))
    counts = {name: len(words & known) for name, known in _LANGUAGES.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] >= 3 and counts[best] > counts["english"] else "english"
