"""The language of a text, detected from its script: zh, en, mixed or other."""

import re

from medloop.contracts.dataset import Language

_LOOK_AT = 2_000  # characters; more does not change the answer
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f][A-Za-z\u00c0-\u024f'’-]*")
_OTHER = re.compile(r"[\u0370-\u1fff]+")  # Greek, Cyrillic, Arabic, Devanagari, Thai, ...
_ENGLISH = frozenset(
    "a an and are as at be by can do for from has have how i in is it my not of on or should that the this to was what when"
    " which who with you your".split()
)
_CHARS_A_WORD = 1.6  # Chinese characters that say as much as one English word


def detect_language(text: str) -> Language:
    """Chinese with drug names and lab values in Latin letters is still zh; it takes three tenths of English to be mixed."""
    text = text[:_LOOK_AT]
    han = len(_HAN.findall(text)) / _CHARS_A_WORD
    foreign = len(_KANA_HANGUL.findall(text)) / _CHARS_A_WORD + len(_OTHER.findall(text))
    words = [word.lower() for word in _LATIN.findall(text) if len(word) > 1 or word in "aAI"]
    latin = float(len(words))
    total = han + foreign + latin
    if total == 0 or foreign > 0.3 * total:
        return "other"
    if han >= 0.7 * total:
        return "zh"
    if han > 0.2 * total:
        return "mixed"
    return "en" if len(words) < 12 or sum(word in _ENGLISH for word in words) * 8 > len(words) else "other"
