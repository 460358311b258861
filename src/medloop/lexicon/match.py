"""One matcher for every word list: `scan.py` finds all phrases in one pass, then patterns join them.

A pattern is written as people read it:

    chest pain                 a phrase; English needs whole words, '-' and any white space count as one blank
    (lips|face) [turning] blue alternatives in round brackets, an optional part in square ones
    {sudden} weakness          {name} is a word list of the same file
    chest pain ~ left arm      the second follows the first in the same sentence, at most GAP characters later (~6: at most 6)
    fever & stiff neck         both in any order, at most NEAR characters apart, even across sentences

The cost grows with the length of the text, not with the number of patterns.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from medloop.lexicon.scan import NormalizedText, Offsets, PhraseSet, Scanner, ScanResult, fold, sentence_ends
from medloop.patterns import lazy_pattern

GAP = 40  # characters between the parts of `a ~ b`
NEAR = 90  # characters between the parts of `a & b`
_PLAIN = lazy_pattern(r"[^()\[\]|]+")
MAX_PHRASES = 1500  # phrases one part may expand to: more is a mistake in the word list


@dataclass(frozen=True, slots=True)
class Pattern:
    """`parts` in order (`near=False`) or in any order (`near=True`); each part is a set of phrases."""

    kind: str
    id: str
    parts: tuple[frozenset[str], ...]
    near: bool
    gaps: tuple[int, ...] = ()


class PatternMatch:
    """A match of a pattern with the span of each of its parts."""

    __slots__ = ("end", "id", "spans", "start")

    def __init__(self, id: str, start: int, end: int, spans: tuple[Offsets, ...]) -> None:
        self.id = id
        self.start = start
        self.end = end
        self.spans = spans


def parse_pattern(kind: str, id: str, source: str, words: Mapping[str, str]) -> Pattern:
    """Expand one written pattern; raises ValueError with the pattern when it is malformed."""
    source = re.sub(r"\{(\w+)\}", lambda name: f"({words[name[1]]})" if name[1] in words else name[0], source)
    near = " & " in source
    if near and "~" in source:
        raise ValueError(f"{id}: '~' and '&' cannot be mixed in '{source}'")
    if sign := re.search(r"[*+?^$\\{}]", source):
        raise ValueError(f"{id}: '{sign[0]}' means nothing in the pattern '{source}'")
    pieces = re.split(" & " if near else r"~\d*", source)
    parts = tuple([_expand(piece) for piece in pieces])
    if any(not part or "" in part or len(part) > MAX_PHRASES for part in parts):
        raise ValueError(f"{id}: '{source}' has an unbalanced bracket, an empty part, or expands too far")
    return Pattern(kind, id, parts, near, tuple(int(gap or GAP) for gap in re.findall(r"~(\d*)", source)))


def _expand(source: str) -> frozenset[str]:
    """Every phrase that alternatives and optional parts allow, folded, single blanks; none when a bracket is unbalanced."""
    phrases, end = _alternatives(source, 0)
    return frozenset([" ".join(phrase.split()) for phrase in phrases]) if end == len(source) else frozenset()


@lru_cache(maxsize=4096)  # many patterns have the same words
def _plain(text: str) -> str:
    return fold(text).replace("-", " ")


def _alternatives(source: str, index: int) -> tuple[list[str], int]:
    """Phrases of `a|b|c` from `index` to the closing bracket or the end, and where that is."""
    done: list[str] = []
    current = [""]
    while index < len(source) and source[index] not in ")]":
        if source[index] == "|":
            done, current, index = done + current, [""], index + 1
        elif source[index] in "([":
            optional = source[index] == "["
            inner, index = _alternatives(source, index + 1)
            if index >= len(source):  # no closing bracket
                return [], index
            current = [left + right for left in current for right in (*inner, *([""] if optional else []))]
            index += 1
        else:
            plain = _PLAIN.match(source, index)
            assert plain is not None  # every other sign was read above
            right = _plain(plain[0])
            current, index = [left + right for left in current], plain.end()
    return done + current, index


class CompiledPattern:
    """A pattern whose parts are phrase sets."""

    __slots__ = ("gaps", "id", "kind", "near", "others", "parts")

    def __init__(self, pattern: Pattern, parts: tuple[PhraseSet, ...]) -> None:
        self.kind, self.id, self.near, self.gaps = pattern.kind, pattern.id, pattern.near, pattern.gaps
        self.parts = parts
        self.others = tuple(dict.fromkeys(parts[1:]))

    def add_matches(self, matches: list[PatternMatch], scan: ScanResult, ends: list[int]) -> None:
        if not self.others:
            for span in scan.spans_of(self.parts[0]):
                matches.append(PatternMatch(self.id, span[0], span[1], (span,)))
            return
        columns = [scan.spans_of(part) for part in self.parts]
        for joined in _join_near(columns) if self.near else _join_ordered(columns, self.gaps, ends):
            start, end = min([start for start, _ in joined]), max([end for _, end in joined])
            matches.append(PatternMatch(self.id, start, end, joined))


class Matcher:
    """All patterns compiled into one scanner. Patterns share the phrase sets they have in common.

    The scanner looks for the cue sets in the same pass; only the caller knows what they mean.
    """

    def __init__(self, patterns: Iterable[Pattern], cue_sets: Sequence[Iterable[str]] = ()) -> None:
        self.patterns = tuple(patterns)
        self._by_first_part: dict[PhraseSet, list[CompiledPattern]] = {}
        phrase_sets: dict[frozenset[str], PhraseSet] = {}
        for pattern in self.patterns:
            parts = tuple([phrase_sets.setdefault(part, PhraseSet()) for part in pattern.parts])
            compiled = CompiledPattern(pattern, parts)
            self._by_first_part.setdefault(parts[0], []).append(compiled)
        sets_of: dict[str, list[PhraseSet]] = defaultdict(list)
        for part, phrase_set in phrase_sets.items():
            for phrase in part:
                sets_of[phrase].append(phrase_set)
        self._scanner = Scanner(sets_of, cue_sets)

    def scan(self, normalized: NormalizedText) -> ScanResult:
        return self._scanner.scan(normalized)

    def find(self, folded: str) -> list[PatternMatch]:
        """Every pattern in `folded` (see `fold`), unsorted and with overlaps."""
        scan, ends = self.scan(NormalizedText(folded)), sentence_ends(folded)
        return [match for patterns in self.candidates(scan).values() for match in find_matches(patterns, scan, ends)]

    def candidates(self, scan: ScanResult) -> dict[str, list[CompiledPattern]]:
        """Kind -> patterns all of whose parts are somewhere in the text."""
        candidates: dict[str, list[CompiledPattern]] = {}
        present = scan.present
        for phrase_set in filter(self._by_first_part.__contains__, present):
            for pattern in self._by_first_part[phrase_set]:
                for other in pattern.others:
                    if other not in present:
                        break
                else:
                    same_kind = candidates.get(pattern.kind)
                    if same_kind is None:
                        candidates[pattern.kind] = [pattern]
                    else:
                        same_kind.append(pattern)
        return candidates


def find_matches(patterns: list[CompiledPattern], scan: ScanResult, ends: list[int]) -> list[PatternMatch]:
    """Matches of these patterns in a text whose sentences end at `ends`, unsorted and with overlaps."""
    matches: list[PatternMatch] = []
    for pattern in patterns:
        pattern.add_matches(matches, scan, ends)
    return matches


def _join_ordered(columns: list[list[Offsets]], gaps: tuple[int, ...], ends: list[int]) -> list[tuple[Offsets, ...]]:
    """For each first part the nearest following parts, within the gap and the same sentence."""
    result = []
    for first in columns[0]:
        joined = [first]
        for number, gap in enumerate(gaps, 1):
            column, end = columns[number], joined[-1][1]
            index = bisect_left(column, (end, 0))
            if index == len(column) or column[index][0] - end > gap or _crosses_sentence(ends, end, column[index][0]):
                break
            joined.append(column[index])
        else:
            result.append(tuple(joined))
    return result


def _join_near(columns: list[list[Offsets]]) -> list[tuple[Offsets, ...]]:
    """For each first part the nearest of the other parts, on either side."""
    result = []
    for first in columns[0]:
        joined = [first]
        for column in columns[1:]:
            nearest = _nearest(column, first)
            if nearest is None or _distance(first, nearest) > NEAR:
                break
            joined.append(nearest)
        else:
            result.append(tuple(joined))
    return result


def _nearest(column: list[Offsets], first: Offsets) -> Offsets | None:
    index = bisect_left(column, first)
    around = [span for span in column[max(0, index - 2) : index + 2] if span[0] >= first[1] or span[1] <= first[0]]
    return min(around, key=lambda span: _distance(first, span), default=None)


def _distance(a: Offsets, b: Offsets) -> int:
    return max(b[0] - a[1], a[0] - b[1])


def _crosses_sentence(ends: list[int], start: int, stop: int) -> bool:
    """Whether a sentence ends between two offsets; `ends` are the offsets behind its last character."""
    index = bisect_right(ends, start)
    return index < len(ends) and ends[index] <= stop
