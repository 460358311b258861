"""One identifier by its form: a regular expression over folded text, with a name and an example.

Every repetition has an upper bound and starts with a distinct character, so that long hostile text costs no more than plain text.
"""

import re
from typing import NamedTuple

from medloop.privacy.phi.guards import lazy_pattern


class PhiPattern(NamedTuple):
    """The last four fields are necessary conditions: checking them first saves most texts from most expressions."""

    name: str
    kind: str
    example: str
    """A text that matches; the part in braces is removed."""
    regex: re.Pattern[str]
    group: int | str
    """The part that is removed: the group `phi`, or the whole match."""
    min_digits: int
    """The fewest digits a match can have."""
    hints: tuple[str, ...]
    """One of these must be in the text, in lower case."""
    needs_code: bool
    """A match contains `CODE`."""
    needs_month: bool
    """A match contains `MONTH`."""


CODE = lazy_pattern(r"\d[A-Za-z0-9_\-/]{2}|[A-Za-z0-9_\-/]\d[A-Za-z0-9_\-/]|[A-Za-z0-9_\-/]{2}\d")
"""Three letters or digits in a row, one of them a digit."""
MONTH = lazy_pattern(r"(?<![A-Za-z])(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}(?![A-Za-z])", re.I)
"""The name of a month."""


def pattern(
    name: str,
    kind: str,
    example: str,
    regex: str,
    *,
    digits: int = 0,
    hints: tuple[str, ...] = (),
    flags: int = 0,
    code: bool = False,
    month: bool = False,
) -> PhiPattern:
    group = "phi" if "(?P<phi>" in regex else 0
    return PhiPattern(name, kind, example, lazy_pattern(regex, flags), group, digits, hints, code, month)


def by_first_letter(words: str) -> str:
    """The same alternatives grouped by their first letter: most positions then fail after one comparison."""
    letters: dict[str, list[str]] = {}
    for word in words.split("|"):
        letters.setdefault(word[0].lower(), []).append(word[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in letters.items())
