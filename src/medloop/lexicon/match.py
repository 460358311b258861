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
from typing import NamedTuple

from medloop.lexicon.scan import MAX_PLACES, Place, Plain, Scanner, fold, sentence_ends

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


class Hit(NamedTuple):
    """A found pattern with the place of each of its parts."""

    id: str
    start: int
    end: int
    places: tuple[Place, ...]


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


Places = dict[int, list[Place]]  # slot -> places of its phrases, by position


class Matcher:
    """All patterns compiled into one scanner. A slot is one set of phrases, shared by the patterns that need it."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self._slots: dict[frozenset[str], int] = {}
        # Slot -> (kind, pattern, the other slots it needs): what a text may hold is decided without touching a pattern.
        self._begins: list[list[tuple[str, int, tuple[int, ...]]]] = []
        self._parts: list[tuple[int, ...]] = []
        slots_of: dict[str, list[int]] = {}
        for number, pattern in enumerate(self.patterns):
            ids = tuple(self._slot(part, slots_of) for part in pattern.parts)
            self._parts.append(ids)
            self._begins[ids[0]].append((pattern.kind, number, ids[1:]))
        self.scan = Scanner(slots_of).scan

    def _slot(self, part: frozenset[str], slots_of: dict[str, list[int]]) -> int:
        if part not in self._slots:
            self._slots[part] = len(self._begins)
            self._begins.append([])
            for phrase in part:
                slots_of.setdefault(phrase, []).append(self._slots[part])
        return self._slots[part]

    def find(self, folded: str) -> list[Hit]:
        """Every pattern in `folded` (see `fold`), unsorted; overlaps are kept."""
        places = self.scan(Plain(folded))
        ends = sentence_ends(folded)
        return [hit for numbers in self.candidates(places).values() for hit in self.hits(places, numbers, ends)]

    def candidates(self, places: Places) -> dict[str, list[int]]:
        """Kind -> patterns all of whose parts are somewhere in the text."""
        found: dict[str, list[int]] = {}
        for slot in places:
            for kind, number, others in self._begins[slot]:
                if not others or all(other in places for other in others):
                    if kind in found:
                        found[kind].append(number)
                    else:
                        found[kind] = [number]
        return found

    def hits(self, places: Places, numbers: Iterable[int], ends: list[int]) -> list[Hit]:
        """Where these patterns stand in a text whose sentences end at `ends`, unsorted; overlaps are kept."""
        hits: list[Hit] = []
        for number in numbers:
            pattern, slots = self.patterns[number], self._parts[number]
            if len(slots) == 1:
                hits += [Hit(pattern.id, *place, (place,)) for place in places[slots[0]]]
                continue
            columns = [places[slot] for slot in slots]
            joined = _join_near(columns) if pattern.near else _join_ordered(columns, pattern.gaps, ends)
            hits += [Hit(pattern.id, min(way)[0], max(end for _, end in way), way) for way in joined]
        return hits


def _join_ordered(columns: Sequence[list[Place]], gaps: Sequence[int], ends: list[int]) -> Iterator[tuple[Place, ...]]:
    """For each first part the nearest following parts, within the gap and the same sentence."""
    for first in columns[0]:
        way = [first]
        for column, gap in zip(columns[1:], gaps, strict=True):
            here = way[-1][1]
            at = bisect_left(column, (here, 0))
            if at == len(column) or column[at][0] - here > gap or _crosses(ends, here, column[at][0]):
                break
            way.append(column[at])
        else:
            yield tuple(way)


def _join_near(columns: Sequence[list[Place]]) -> Iterator[tuple[Place, ...]]:
    """For each first part the nearest of the other parts, on either side."""
    for first in columns[0]:
        way = [first]
        for column in columns[1:]:
            at = bisect_left(column, first)
            around = [place for place in column[max(0, at - 2) : at + 2] if place[0] >= first[1] or place[1] <= first[0]]
            nearest = min(around, key=lambda place: _distance(first, place), default=None)
            if nearest is None or _distance(first, nearest) > NEAR:
                break
            way.append(nearest)
        else:
            yield tuple(way)


def _distance(a: Place, b: Place) -> int:
    return max(b[0] - a[1], a[0] - b[1])


def _crosses(ends: list[int], start: int, stop: int) -> bool:
    """Does a sentence end between two places? `ends` are the places behind its last sign."""
    at = bisect_right(ends, start)
    return at < len(ends) and ends[at] <= stop
