"""What makes a number an identifier: check digits, regions, dates. Pure functions on folded text."""

from __future__ import annotations

from datetime import date

_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECKS = "10X98765432"
# First two digits of a resident id: provinces, with Taiwan, Hong Kong, Macau and residence permits.
_REGIONS = frozenset(
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83 91".split()
)
_ZEROS = (0xFF10, 0x0660, 0x06F0, 0x0966, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6)
_FOLD = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_FOLD.update({zero + n: ord("0") + n for zero in _ZEROS for n in range(10)})
_FOLD.update(dict.fromkeys((0x3000, 0xA0, 0x2007, 0x202F, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xAD), ord(" ")))
_FOLD.update(dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), ord("-")))


def fold(text: str) -> str:
    """Full-width and foreign digits, odd spaces and dashes in their plain form; every character keeps its place."""
    return text.translate(_FOLD)


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
