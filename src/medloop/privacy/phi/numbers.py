"""Numbers that a check digit or their structure identifies, however they are grouped: resident ids, mobiles, bank cards."""

import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import NamedTuple

from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.spans import Span

_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECKS = "10X98765432"
# First two digits of a resident id: provinces, with Taiwan, Hong Kong, Macau and residence permits.
_REGIONS = frozenset(
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83 91".split()
)
_RUN = lazy_pattern(r"(?<!\d)\+?\d(?:[ \-.·/*_|]{0,3}\d){7,39}(?:[ -]?[Xx](?![A-Za-z0-9]))?")
# 140-160/90-100: two ranges of a blood pressure.
_RANGES = lazy_pattern(r"\d{2,3}-\d{2,3} ?/ ?\d{2,3}-\d{2,3}(?!\d)")
MIN_DIGITS = 8  # of a run
_LONG = 9  # so many digits in one piece are not a dose, a laboratory value or a year: removed even if nothing explains them
_MOST_GROUPS = 8  # neighbouring groups of digits that are tried as one number


def is_resident_id(digits: str) -> bool:
    """18 characters with region, birth date and check digit (GB 11643, mod 11-2), or the old form of 15."""
    if digits[:2] not in _REGIONS:
        return False
    if len(digits) == 15 and digits.isdigit():
        return is_day("19" + digits[6:12])
    if len(digits) != 18 or not digits[:17].isdigit() or not is_day(digits[6:14]):
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


def is_day(digits: str) -> bool:
    """Year, month and day in eight digits."""
    try:
        day = date(int(digits[:4]), int(digits[4:6]), int(digits[6:8]))
    except ValueError:
        return False
    return 1850 <= day.year <= 2100


class NumberKind(NamedTuple):
    kind: str
    is_valid: Callable[[str], bool]
    example: str


_LENGTHS = range(11, 20)  # of any of the kinds
NUMBER_KINDS = (  # the first that is valid gives the kind
    NumberKind("ID", is_resident_id, "证件 {1101 0519 4912 3100 2X}"),
    NumberKind("PHONE", is_mobile, "call {138 0013 8000} now"),
    NumberKind("CARD", is_bank_card, "卡 {6222021234567894}"),
)


def find_numbers(folded: str) -> Iterator[Span]:
    """Runs of digits that are one of the kinds above, alone or in part; other digits in one long piece are a NUMBER."""
    for run in _RUN.finditer(folded):
        if _RANGES.fullmatch(run[0]):
            continue
        kind = _kind_of(re.sub(r"[^\dXx]", "", run[0]))
        if kind:
            yield run.start(), run.end(), kind
        else:
            yield from _find_in_run(run)


def _find_in_run(run: re.Match[str]) -> Iterator[Span]:
    """Numbers side by side: any neighbours that together are an identifier, and whatever is long in one piece."""
    groups = list(re.finditer(r"\d+[Xx]?", run[0]))
    for first in range(len(groups)):
        digits = ""
        for group in groups[first : first + _MOST_GROUPS]:
            digits += group[0]
            kind = _kind_of(digits)
            if kind is None and digits[-1] in "Xx":  # the X may be no part of the number
                kind = _kind_of(digits[:-1])
            if kind:
                yield run.start() + groups[first].start(), run.start() + group.end(), kind
    for group in groups:
        if len(group[0]) >= _LONG:
            yield run.start() + group.start(), run.start() + group.end(), "NUMBER"


def _kind_of(digits: str) -> str | None:
    if len(digits) not in _LENGTHS:
        return None
    for number in NUMBER_KINDS:
        if number.is_valid(digits):
            return number.kind
    return None
