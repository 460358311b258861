"""One row of a finder's table: a situation that is recognised, with examples."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Finder(NamedTuple):
    name: str
    kind: str
    examples: tuple[str, ...]
    """Texts in which the part in braces is found."""
    find: Callable[[str], Iterable[tuple[int, int]]]
    """Start and end of everything found in a folded text."""


def spans_where(regex: re.Pattern[str], text: str, is_wanted: Callable[[int, int], object]) -> Iterator[tuple[int, int]]:
    """Start and end of the group "name" of every match for which the condition holds."""
    for match in regex.finditer(text):
        start, end = match.span("name")
        if is_wanted(start, end):
            yield start, end
