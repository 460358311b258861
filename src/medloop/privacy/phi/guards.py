"""Regular expressions that are not tried on a text that lacks what each of their matches contains.

    note(text)                                # once, by whoever has a text searched by hundreds of expressions
    lazy_pattern("姓名[:：]").search(text)       # nothing is searched unless the text has 姓 and 名 side by side

Of each expression its required pieces are worked out: of one to three characters in a row, in lower case, one of which is in
every match. They come from the expression's own syntax tree, so the result is always that of the expression. A text that
was not noted is searched as it is.
"""

import re
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from medloop.privacy.phi.required import SHAPES, SIZE, required

_LONGEST = 4000  # characters; nearly every piece is somewhere in a longer text
_KEPT = 128  # texts
_HASH_BITS = 20
_OFTEN = 100  # searches after which an expression is worth a guard: working it out takes milliseconds
_MANY = 20  # expressions compiled since, for which the table is built again
# Letters that are equal to an ASCII letter when case is ignored, though their lower case is another.
_ODD = re.compile("[\u0130\u0131\u017f\u212a\u03a3]")


class NotedText(NamedTuple):
    absent: int
    """A bit for each clause of the index of which the text has no piece."""
    shapes: str | None
    """The shapes of its characters, where all are ASCII."""


class _Index:
    """All clauses of the expressions that are compiled: a bit for each, and a table from pieces to the bits of their clauses.

    Pieces of equal hash share a row, so that now and then a clause counts as present that is not.
    """

    def __init__(self) -> None:
        self.clauses = list[frozenset[str]]()
        self.known = 0  # clauses that are in the table
        self.rows = np.zeros(1 << _HASH_BITS, np.uint16)
        self.bits = np.zeros((1, 1), np.uint64)
        self.noted: dict[str, NotedText] = {}

    def add(self, clauses: Iterable[frozenset[str]]) -> int:
        """The bits of these clauses."""
        wanted = 0
        for clause in clauses:
            wanted |= 1 << len(self.clauses)
            self.clauses.append(clause)
        return wanted

    def build(self) -> None:
        """Take all clauses into the table."""
        of_piece, of_hash = dict[str, int](), dict[int, int]()
        for number, clause in enumerate(self.clauses):
            for piece in clause:
                of_piece[piece] = of_piece.get(piece, 0) | 1 << number
        for size in range(1, SIZE + 1):
            pieces = [piece for piece in of_piece if len(piece) == size]
            points = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32).reshape(-1, size).T
            for piece, at in zip(pieces, _hashes(list(points))[-1].tolist(), strict=True):
                of_hash[at] = of_hash.get(at, 0) | of_piece[piece]
        words = len(self.clauses) // 64 + 1
        rows, bits = np.zeros(1 << _HASH_BITS, np.uint16), np.zeros((len(of_hash) + 1, words), np.uint64)
        for row, (at, mask) in enumerate(of_hash.items(), 1):
            rows[at] = row
            bits[row] = np.frombuffer(mask.to_bytes(8 * words, "little"), np.uint64)
        self.rows, self.bits, self.known = rows, bits, len(self.clauses)
        self.noted.clear()


def _hashes(columns: Sequence[NDArray[np.uint32]]) -> list[NDArray[np.uint32]]:
    """Of the characters of the first column, of those with the ones beside them in the second, and so on, a number each."""
    hashes = list[NDArray[np.uint32]]()
    mixed = np.zeros(len(columns[0]), np.uint32)
    with np.errstate(over="ignore"):
        for number, column in enumerate(columns):
            mixed = (mixed[: len(column)] ^ _SALTS[number]) * _FACTORS[0] + column * _FACTORS[number]
            hashes.append((mixed ^ (mixed >> np.uint32(15))) >> np.uint32(32 - _HASH_BITS))
    return hashes


_SALTS = np.array((0x5BD1E995, 0x2545F491, 0x1B873593, 0x27D4EB2F), np.uint32)
_FACTORS = np.array((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0xCC9E2D51), np.uint32)
_index, _lock = _Index(), Lock()


def note(*texts: str) -> None:
    """Searches of these texts look at their pieces first."""
    new = [text for text in texts if SIZE <= len(text) <= _LONGEST and text not in _index.noted]
    new = [text for text in new if text.isascii() or not _ODD.search(text)]
    if not new:
        return
    with _lock:
        if len(_index.clauses) - _index.known > _MANY:
            _index.build()
        rows, bits, known = _index.rows, _index.bits, _index.known
    lower = [text.lower() for text in new]
    points = np.frombuffer("".join(lower).encode("utf-32-le", "replace"), np.uint32)
    hits = [rows.take(hashed) for hashed in _hashes([points[size:] for size in range(SIZE)])]
    everything, start = (1 << known) - 1, 0
    if len(_index.noted) + len(new) > _KEPT:
        _index.noted.clear()
    for text, form in zip(new, lower, strict=True):
        end = start + len(form)
        found = np.concatenate([rows_of[start : end - size] for size, rows_of in enumerate(hits)])
        present = int.from_bytes(np.bitwise_or.reduce(bits.take(found[found.nonzero()], axis=0), axis=0).tobytes(), "little")
        shapes = text.translate(SHAPES) if text.isascii() else None
        _index.noted[text] = NotedText(everything & ~present, shapes)
        start = end


class _GuardedPattern:
    """Stands in for `re.Pattern`. Compiled when it is first used, and guarded when it has been used often."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._given_flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._given_flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        self.__dict__["search"] = self._counted(compiled.search)
        self.__dict__["finditer"] = self._counted(compiled.finditer)
        return self.__dict__[name]

    def _counted(self, search: Any) -> Any:
        left = _OFTEN

        def counted(text: str, *window: int) -> Any:
            nonlocal left
            left -= 1
            if not left:
                self._guard()
            return search(text, *window)

        return counted

    def _guard(self) -> None:
        compiled, needed = re.compile(self.pattern, self._given_flags), required(self.pattern, self._given_flags)
        wanted = _index.add(needed.pieces)
        self.__dict__["search"] = _guarded(compiled.search, wanted, needed.shapes, None)
        self.__dict__["finditer"] = _guarded(compiled.finditer, wanted, needed.shapes, _NO_MATCHES)


def _guarded(search: Any, wanted: int, shapes: list[tuple[str, ...]], nothing: Any) -> Any:
    if not wanted and not shapes:
        return search
    known = _index.noted.get

    def guarded(text: str, *window: int) -> Any:
        noted = known(text)
        if noted is not None:
            absent, form = noted
            if absent & wanted:
                return nothing
            if form is not None:
                for one_of in shapes:
                    for shape in one_of:
                        if shape in form:
                            break
                    else:
                        return nothing
        return search(text, *window)

    return guarded


_NO_MATCHES = iter(())  # is always at its end
_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split", "flags", "groups", "groupindex")


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Like `medloop.patterns.lazy_pattern`, and guarded."""
    return cast(re.Pattern[str], _GuardedPattern(pattern, flags))
