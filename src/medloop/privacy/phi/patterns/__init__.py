"""Identifiers that their form gives away, one file per family. `PATTERNS` is the whole table."""

from collections.abc import Iterator

from medloop.privacy.phi.patterns.addresses import ADDRESSES
from medloop.privacy.phi.patterns.ages import AGES
from medloop.privacy.phi.patterns.contacts import CONTACTS
from medloop.privacy.phi.patterns.dates import DATES
from medloop.privacy.phi.patterns.pattern import CODE, MONTH, PhiPattern
from medloop.privacy.phi.patterns.records import RECORDS
from medloop.privacy.phi.spans import Span

PATTERNS: tuple[PhiPattern, ...] = (*CONTACTS, *RECORDS, *DATES, *AGES, *ADDRESSES)
_MOST_DIGITS = max(pattern.min_digits for pattern in PATTERNS)
_BY_DIGITS = [tuple(pattern for pattern in PATTERNS if pattern.min_digits <= digits) for digits in range(_MOST_DIGITS + 1)]


def find_patterns(folded: str, digits: int) -> Iterator[Span]:
    """Every match of every pattern that can match; `digits` is how many the text has."""
    lower, has_code = folded.lower(), digits > 0 and CODE.search(folded) is not None
    has_month = digits > 0 and MONTH.search(folded) is not None
    for pattern in _BY_DIGITS[min(digits, _MOST_DIGITS)]:
        if (pattern.needs_code and not has_code) or (pattern.needs_month and not has_month):
            continue
        for hint in pattern.hints:
            if hint in lower:
                break
        else:
            if pattern.hints:
                continue
        for match in pattern.regex.finditer(folded):
            yield match.start(pattern.group), match.end(pattern.group), pattern.kind
