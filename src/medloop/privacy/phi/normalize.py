"""The text as the finders read it: plain digits, spaces and dashes, without invisible characters."""

import re
import unicodedata

MASK = "\ue000"  # replaces each character of a placeholder: not a letter, not a digit, not a space

# Where the digits of other scripts begin (Unicode Nd in the basic plane, and the mathematical ones).
_ZEROS = [
    int(code, 16)
    for code in """0660 06F0 07C0 0966 09E6 0A66 0AE6 0B66 0BE6 0C66 0CE6 0D66 0DE6 0E50 0ED0 0F20 1040 1090 17E0 1810 1946 19D0
    1A80
    1A90 1B50 1BB0 1C40 1C50 A620 A8D0 A900 A9D0 A9F0 AA50 ABF0 FF10 1D7CE 1D7D8 1D7E2 1D7EC 1D7F6""".split()
]
_FOLD = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_FOLD.update({zero + n: ord("0") + n for zero in _ZEROS for n in range(10)})
_FOLD.update(dict.fromkeys((0x3000, 0xA0, 0x2007, 0x202F, 0x2002, 0x2003, 0x2009), ord(" ")))
_FOLD.update(dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), ord("-")))
# Digits in circles and brackets, raised and lowered ones, and the letters of mathematics: plain to a reader.
for _one in (0x2460, 0x2474, 0x2488, 0x24F5, 0x2776, 0x2780, 0x278A):
    _FOLD.update({_one + n: ord("1") + n for n in range(9)})
_FOLD.update(dict.fromkeys((0x24EA, 0x24FF, 0x1F10B, 0x1F10C), ord("0")))
_FOLD.update({0x2080 + n: ord("0") + n for n in range(10)} | {0x2074 + n: ord("4") + n for n in range(6)})
_FOLD.update({0x2070: ord("0"), 0xB9: ord("1"), 0xB2: ord("2"), 0xB3: ord("3")})
for _code in (*range(0x1D400, 0x1D7CE), *range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A)):
    if len(_plain := unicodedata.normalize("NFKC", chr(_code))) == 1 and _plain.isascii():
        _FOLD[_code] = ord(_plain)
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u20e3\ufe00-\ufe0f\ufeff]")


def fold(text: str) -> str:
    """Full-width and foreign digits, unusual spaces and dashes in their plain form; every character keeps its offset."""
    return text.translate(_FOLD)


def remove_invisible(text: str) -> tuple[str, list[int] | None]:
    """The text without characters that take no room, and the original offset of each character and of the end.

    None instead of offsets where nothing was removed. A number with such characters between its digits looks whole to a reader.
    """
    if not _INVISIBLE.search(text):
        return text, None
    offsets = [offset for offset, char in enumerate(text) if not _INVISIBLE.match(char)]
    return "".join(text[offset] for offset in offsets), [*offsets, len(text)]
