"""What makes a number an identifier: check digits, regions, dates. Pure functions on folded text."""

from __future__ import annotations

import re
from datetime import date

_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECKS = "10X98765432"
# First two digits of a resident id: provinces, with Taiwan, Hong Kong, Macau and residence permits.
_REGIONS = frozenset(
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83 91".split()
)
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


def fold(text: str) -> str:
    """Full-width and foreign digits, odd spaces and dashes in their plain form; every character keeps its place."""
    return text.translate(_FOLD)


# Characters that take no room: a number written with them between its digits looks whole to a reader.
_NO_ROOM = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff]")


def squeeze(text: str) -> tuple[str, list[int] | None]:
    """The text without characters that take no room, and where each kept character stood (None: nothing was taken out)."""
    if not _NO_ROOM.search(text):
        return text, None
    places = [at for at, char in enumerate(text) if not _NO_ROOM.match(char)]
    return "".join(text[at] for at in places), [*places, len(text)]


def is_resident_id(digits: str) -> bool:
    """18 characters with region, birth date and check digit (GB 11643, mod 11-2), or the old form of 15."""
    if digits[:2] not in _REGIONS:
        return False
    if len(digits) == 15 and digits.isdigit():
        return _is_date("19" + digits[6:12])
    if len(digits) != 18 or not digits[:17].isdigit() or not _is_date(digits[6:14]):
        return False
    total = sum(int(digit) * weight for digit, weight in zip(digits, _WEIGHTS, strict=False))
    return _CHECKS[total % 11] == digits[17].upper()


def is_mobile(digits: str) -> bool:
    """A Chinese mobile number, with or without the country code."""
    for prefix in ("0086", "86"):
        digits = digits.removeprefix(prefix) if len(digits) == 11 + len(prefix) else digits
    return len(digits) == 11 and digits[0] == "1" and digits[1] in "3456789"


def is_bank_card(digits: str) -> bool:
    """13 to 19 digits, a card network's first digit, and Luhn's check."""
    return digits.isdigit() and 13 <= len(digits) <= 19 and digits[0] in "3456" and luhn(digits)


def luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(int(digit) for digit in digits[-1::-2])) % 10 == 0


def _is_date(digits: str) -> bool:
    try:
        found = date(int(digits[:4]), int(digits[4:6]), int(digits[6:8]))
    except ValueError:
        return False
    return 1850 <= found.year <= 2100
