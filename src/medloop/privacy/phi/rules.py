"""One row of a finder's table: a situation that is recognised, with examples."""

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Finder(NamedTuple):
    name: str
    kind: str
    examples: tuple[str, ...]
    """Texts in which the part in braces is found."""
    find: Callable[[str], Iterable[tuple[int, int]]]
    """Start and end of everything found in a folded text."""
