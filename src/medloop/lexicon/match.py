"""One matcher for every word list: a trie finds all phrases in one pass, then patterns join them.

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
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

GAP = 40  # characters between the parts of `a ~ b`
NEAR = 90  # characters between the parts of `a & b`
MAX_PLACES = 16  # of one word list in a text: more of the same says nothing new, and repeated text must not cost more
MAX_PHRASES = 1500  # phrases one part may expand to: more is a slip in the word list

_FOLD = {c: c + 0x20 for c in range(ord("A"), ord("Z") + 1)}
_FOLD |= {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)}  # full-width forms
_FOLD |= {c: c - 0xFEE0 + 0x20 for c in range(0xFF21, 0xFF3B)}  # full-width capitals
_FOLD |= {0x3000: 0x20, 0x2018: 0x27, 0x2019: 0x27, 0x2010: 0x2D, 0x2011: 0x2D, 0x2013: 0x2D, 0x2014: 0x2D}
_FOLD_TEXT = {chr(sign): chr(to) for sign, to in _FOLD.items()}
_FOLDED = frozenset(_FOLD_TEXT)
SENTENCE_END = re.compile(r"[!?。\n.](?:(?<!\.)|(?=\s|$))")  # on folded text; a point ends one only before a blank
TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[^\s\-a-z0-9]")  # a word, or one character of anything else
_PIECES = re.compile(f"({TOKEN.pattern})")


def fold(text: str) -> str:
    """Lower case, half width, plain quotes; every character keeps its place, so offsets stay true."""
    if text.isascii():
        return text.lower()
    for sign in _FOLDED.intersection(text):  # a text holds a handful of them: replacing each beats a look at every character
        text = text.replace(sign, _FOLD_TEXT[sign])
    return text


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

    __slots__ = ("end", "id", "kind", "places", "start")

    def __init__(self, kind: str, id: str, places: tuple[tuple[int, int], ...]) -> None:
        self.kind = kind
        self.id = id
        self.places = places
        if len(places) == 1:
            self.start, self.end = places[0]
        else:
            self.start = min(places)[0]
            self.end = max(place[1] for place in places)


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


Places = dict[int, list[tuple[int, int]]]  # slot -> places of its phrases, by position, at most MAX_PLACES


class Matcher:
    """All patterns compiled into one trie. A slot is one set of phrases, shared by the patterns that need it."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self._slots: dict[frozenset[str], int] = {}
        self._uses: list[list[int]] = []  # slot -> patterns whose first listed part it is
        self._parts: list[tuple[int, ...]] = []
        slots_of: dict[str, list[int]] = {}
        for number, pattern in enumerate(self.patterns):
            ids = tuple(self._slot(part, slots_of) for part in pattern.parts)
            self._parts.append(ids)
            self._uses[ids[0]].append(number)
        self._trie = _build_trie(slots_of)
        self._single = frozenset(token for token, node in self._trie.items() if node.slots)
        self._openings = frozenset(token + second for token, node in self._trie.items() for second in node.deeper)
        # Slot -> (kind, pattern, the other slots it needs): what a text may hold is decided without touching a pattern.
        self._begins = [[(self.patterns[n].kind, n, self._parts[n][1:]) for n in uses] for uses in self._uses]

    def _slot(self, part: frozenset[str], slots_of: dict[str, list[int]]) -> int:
        if part not in self._slots:
            self._slots[part] = len(self._uses)
            self._uses.append([])
            for phrase in part:
                slots_of.setdefault(phrase, []).append(self._slots[part])
        return self._slots[part]

    def find(self, folded: str) -> list[Hit]:
        """Every pattern in `folded` (see `fold`), unsorted; overlaps are kept."""
        places = self.scan(folded)
        return self.hits(folded, places, [number for numbers in self.candidates(places).values() for number in numbers])

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

    def hits(self, folded: str, places: Places, numbers: Sequence[int]) -> list[Hit]:
        """Where these patterns stand, unsorted; overlaps are kept."""
        ends: list[int] | None = None
        hits: list[Hit] = []
        for number in numbers:
            pattern, slots = self.patterns[number], self._parts[number]
            if len(slots) == 1:
                hits += [Hit(pattern.kind, pattern.id, (place,)) for place in places[slots[0]]]
                continue
            if ends is None:
                ends = [found.start() for found in SENTENCE_END.finditer(folded)]
            columns = [places[slot] for slot in slots]
            joined = _join_near(columns) if pattern.near else _join_ordered(columns, pattern.gaps, ends)
            hits += [Hit(pattern.kind, pattern.id, way) for way in joined]
        return hits

    def scan(self, folded: str) -> Places:
        """Where the phrases of all patterns stand in `folded` (see `fold`)."""
        pieces = _PIECES.split(folded)  # gap, token, gap, token, ..., gap
        tokens = pieces[1::2]
        tokens.append("")  # no phrase goes on here
        bounds = list(accumulate(map(len, pieces)))  # where pieces end
        places: Places = {}
        for at in self._starts(tokens):
            node = self._trie[tokens[at]]
            if node.slots:
                _note(places, node.slots, (bounds[2 * at], bounds[2 * at + 1]))
            end = at + 1
            while tokens[end] in node.deeper:
                node = node.deeper[tokens[end]]
                if node.slots:
                    _note(places, node.slots, (bounds[2 * at], bounds[2 * end + 1]))
                end += 1
        return places

    def _starts(self, tokens: list[str]) -> list[int]:
        """Where a phrase may begin: a phrase of one word, or the first two words of a longer one.

        Two look-ups in flat sets decide it for most tokens; walking the trie from each would touch far more memory.
        """
        single, openings = self._single, self._openings
        pairs = map(add, tokens, tokens[1:])
        return [
            at for at, (token, pair) in enumerate(zip(tokens, pairs, strict=False))
            if (pair in openings or token in single) and token in self._trie
        ]  # fmt: skip


def _note(places: Places, slots: tuple[int, ...], place: tuple[int, int]) -> None:
    for slot in slots:
        known = places.get(slot)
        if known is None:
            places[slot] = [place]
        elif len(known) < MAX_PLACES:
            known.append(place)


class _Node:
    """What may follow, by word or Chinese character, and the slots of the phrase that ends here."""

    __slots__ = ("deeper", "slots")

    def __init__(self) -> None:
        self.deeper: dict[str, _Node] = {}
        self.slots: tuple[int, ...] = ()


def _build_trie(slots_of: Mapping[str, Sequence[int]]) -> dict[str, _Node]:
    root = _Node()
    for phrase, slots in slots_of.items():
        for spelling in {phrase, phrase.replace("'", "")}:  # patients write "cant" too
            node = root
            for token in TOKEN.findall(spelling):
                node = node.deeper.setdefault(token, _Node())
            node.slots = (*node.slots, *slots)
    return root.deeper


def _join_ordered(
    columns: Sequence[list[tuple[int, int]]], gaps: Sequence[int], ends: list[int]
) -> Iterator[tuple[tuple[int, int], ...]]:
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


def _join_near(columns: Sequence[list[tuple[int, int]]]) -> Iterator[tuple[tuple[int, int], ...]]:
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


def _distance(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(b[0] - a[1], a[0] - b[1])


def _crosses(ends: list[int], start: int, stop: int) -> bool:
    at = bisect_left(ends, start)
    return at < len(ends) and ends[at] < stop
