"""One matcher for every word list: all phrases are found in one pass (`scan.py`), then patterns join them.

A pattern is written as people read it:

    chest pain                 a phrase; English needs whole words, '-' and any white space count as one blank
    (lips|face) [turning] blue alternatives in round brackets, an optional part in square ones
    {sudden} weakness          {name} is a word list of the same file
    chest pain ~ left arm      the second follows the first in the same sentence, at most GAP characters later (~6: at most 6)
    fever & stiff neck         both in any order, at most NEAR characters apart, even across sentences

The cost grows with the length of the text, not with the number of patterns.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from medloop.lexicon.scan import MAX_PLACES, Found, Place, Plain, Scanner, Slot, fold, sentence_ends

__all__ = ["GAP", "MAX_PLACES", "NEAR", "Hit", "Matcher", "Pattern", "fold", "parse_pattern"]

GAP = 40  # characters between the parts of `a ~ b`
NEAR = 90  # characters between the parts of `a & b`
MAX_PHRASES = 1500  # phrases one part may expand to: more is a slip in the word list


@dataclass(frozen=True, slots=True)
class Pattern:
    """`parts` in order (`near=False`) or in any order (`near=True`); each part is a set of phrases."""

    kind: str
    id: str
    parts: tuple[frozenset[str], ...]
    near: bool
    gaps: tuple[int, ...] = ()


class Hit:
    """A found pattern with the place of each of its parts."""

    __slots__ = ("end", "id", "places", "start")

    def __init__(self, id: str, start: int, end: int, places: tuple[Place, ...]) -> None:
        self.id = id
        self.start = start
        self.end = end
        self.places = places


def parse_pattern(kind: str, id: str, source: str, words: Mapping[str, str]) -> Pattern:
    """Expand one written pattern; raises ValueError with the pattern when it is malformed."""
    source = re.sub(r"\{(\w+)\}", lambda found: f"({words[found[1]]})" if found[1] in words else found[0], source)
    near = " & " in source
    if near and "~" in source:
        raise ValueError(f"{id}: '~' and '&' cannot be mixed in '{source}'")
    if found := re.search(r"[*+?^$\\{}]", source):
        raise ValueError(f"{id}: '{found[0]}' means nothing in the pattern '{source}'")
    pieces = re.split(" & " if near else r"~\d*", source)
    parts = tuple(frozenset(_expand(piece)) for piece in pieces)
    if any(not part or "" in part or len(part) > MAX_PHRASES for part in parts):
        raise ValueError(f"{id}: '{source}' has an unbalanced bracket, an empty part, or expands too far")
    return Pattern(kind, id, parts, near, tuple(int(gap or GAP) for gap in re.findall(r"~(\d*)", source)))


def _expand(source: str) -> Iterator[str]:
    """Every phrase that alternatives and optional parts allow, folded, single blanks; none when a bracket is unbalanced."""
    found, at = _alternatives(source, 0)
    for phrase in found if at == len(source) else ():
        yield " ".join(fold(phrase).replace("-", " ").split())


def _alternatives(source: str, at: int) -> tuple[list[str], int]:
    """Phrases of `a|b|c` from `at` to the closing bracket or the end, and where that is."""
    done: list[str] = []
    current = [""]
    while at < len(source) and source[at] not in ")]":
        if source[at] == "|":
            done, current, at = done + current, [""], at + 1
        elif source[at] in "([":
            optional = source[at] == "["
            inner, at = _alternatives(source, at + 1)
            if at >= len(source):  # no closing bracket
                return [], at
            current = [left + right for left in current for right in (*inner, *([""] if optional else []))]
            at += 1
        else:
            current, at = [left + source[at] for left in current], at + 1
    return done + current, at


Places = dict[Slot, list[Place]]  # places of the phrases of a slot, by position


class Compiled:
    """A pattern whose parts are slots."""

    __slots__ = ("gaps", "id", "kind", "near", "others", "slots")

    def __init__(self, pattern: Pattern, slots: tuple[Slot, ...]) -> None:
        self.kind, self.id, self.near, self.gaps = pattern.kind, pattern.id, pattern.near, pattern.gaps
        self.slots = slots
        self.others = slots[1:]

    def may_stand_in(self, places: Places) -> bool:
        """Are all its parts somewhere in the text? Asked when the first one is."""
        for slot in self.others:
            if slot not in places:
                return False
        return True

    def add_hits(self, hits: list[Hit], places: Places, ends: list[int]) -> None:
        if not self.others:
            for place in places[self.slots[0]]:
                hits.append(Hit(self.id, place[0], place[1], (place,)))
            return
        columns = [places[slot] for slot in self.slots]
        for way in _join_near(columns) if self.near else _join_ordered(columns, self.gaps, ends):
            hits.append(Hit(self.id, min([start for start, _ in way]), max([end for _, end in way]), way))


class Matcher:
    """All patterns compiled into one scanner. A slot is one set of phrases, shared by the patterns that need it.

    The scanner looks for sets of cues on the same way; what they mean is known to who handed them in.
    """

    def __init__(self, patterns: Iterable[Pattern], cues: Sequence[Iterable[str]] = ()) -> None:
        self.patterns = tuple(patterns)
        self._begins: dict[Slot, list[Compiled]] = {}  # by their first part
        slots: dict[frozenset[str], Slot] = {}
        for pattern in self.patterns:
            compiled = Compiled(pattern, tuple([slots.setdefault(part, Slot()) for part in pattern.parts]))
            self._begins.setdefault(compiled.slots[0], []).append(compiled)
        slots_of: dict[str, list[Slot]] = {}
        for part, slot in slots.items():
            for phrase in part:
                slots_of.setdefault(phrase, []).append(slot)
        self._scanner = Scanner(slots_of, cues)

    def scan(self, plain: Plain) -> Found:
        return self._scanner.scan(plain)

    def find(self, folded: str) -> list[Hit]:
        """Every pattern in `folded` (see `fold`), unsorted; overlaps are kept."""
        places = self.scan(Plain(folded)).places
        ends = sentence_ends(folded)
        return [hit for patterns in self.candidates(places).values() for hit in find_hits(patterns, places, ends)]

    def candidates(self, places: Places) -> dict[str, list[Compiled]]:
        """Kind -> patterns all of whose parts are somewhere in the text."""
        found: dict[str, list[Compiled]] = {}
        for slot in places:
            patterns = self._begins.get(slot)
            if patterns is None:
                continue
            for pattern in patterns:
                if not pattern.others or pattern.may_stand_in(places):
                    same = found.get(pattern.kind)
                    if same is None:
                        found[pattern.kind] = [pattern]
                    else:
                        same.append(pattern)
        return found


def find_hits(patterns: list[Compiled], places: Places, ends: list[int]) -> list[Hit]:
    """Where these patterns stand in a text whose sentences end at `ends`, unsorted; overlaps are kept."""
    hits: list[Hit] = []
    for pattern in patterns:
        pattern.add_hits(hits, places, ends)
    return hits


def _join_ordered(columns: list[list[Place]], gaps: tuple[int, ...], ends: list[int]) -> list[tuple[Place, ...]]:
    """For each first part the nearest following parts, within the gap and the same sentence."""
    ways = []
    for first in columns[0]:
        way = [first]
        for number, gap in enumerate(gaps, 1):
            column, here = columns[number], way[-1][1]
            at = bisect_left(column, (here, 0))
            if at == len(column) or column[at][0] - here > gap or _crosses(ends, here, column[at][0]):
                break
            way.append(column[at])
        else:
            ways.append(tuple(way))
    return ways


def _join_near(columns: list[list[Place]]) -> list[tuple[Place, ...]]:
    """For each first part the nearest of the other parts, on either side."""
    ways = []
    for first in columns[0]:
        way = [first]
        for column in columns[1:]:
            nearest = _nearest(column, first)
            if nearest is None or _distance(first, nearest) > NEAR:
                break
            way.append(nearest)
        else:
            ways.append(tuple(way))
    return ways


def _nearest(column: list[Place], first: Place) -> Place | None:
    at = bisect_left(column, first)
    around = [place for place in column[max(0, at - 2) : at + 2] if place[0] >= first[1] or place[1] <= first[0]]
    return min(around, key=lambda place: _distance(first, place), default=None)


def _distance(a: Place, b: Place) -> int:
    return max(b[0] - a[1], a[0] - b[1])


def _crosses(ends: list[int], start: int, stop: int) -> bool:
    """Does a sentence end between two places? `ends` are the places behind its last sign."""
    at = bisect_right(ends, start)
    return at < len(ends) and ends[at] <= stop
