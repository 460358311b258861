"""Which pieces of the guarded expressions a text has, looked up in one pass; for guards.py.

note(*texts)      # searches of these texts by guarded expressions look at their pieces first
"""

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from medloop.patterns import lazy_pattern
from medloop.privacy.phi.guards import LONGEST, NotedText, clauses, noted
from medloop.privacy.phi.required import SHAPES, SIZE

_KEPT = 128  # texts
_HASH_BITS = 20
_MANY = 20  # expressions compiled since, for which the table is built again
# Letters that are equal to an ASCII letter when case is ignored, though their lower case is another.
_ODD = lazy_pattern("[\u0130\u0131\u017f\u212a\u03a3]")


class _PieceTable:
    """From pieces to the bits of their clauses.

    Pieces of equal hash share a row, so that now and then a clause counts as present that is not.
    """

    def __init__(self) -> None:
        self.known = 0  # clauses that are in the table
        self.rows = np.zeros(1 << _HASH_BITS, np.uint16)
        self.bits = np.zeros((1, 1), np.uint64)

    def build(self) -> None:
        """Take all clauses into the table, as they are now: a thread may add some meanwhile."""
        listed = list(clauses)
        of_piece, of_hash = dict[str, int](), dict[int, int]()
        for number, clause in enumerate(listed):
            for piece in clause:
                of_piece[piece] = of_piece.get(piece, 0) | 1 << number
        for size in range(1, SIZE + 1):
            pieces = [piece for piece in of_piece if len(piece) == size]
            points = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32).reshape(-1, size).T
            for piece, at in zip(pieces, _hashes(list(points))[-1].tolist(), strict=True):
                of_hash[at] = of_hash.get(at, 0) | of_piece[piece]
        words = len(listed) // 64 + 1
        rows, bits = np.zeros(1 << _HASH_BITS, np.uint16), np.zeros((len(of_hash) + 1, words), np.uint64)
        for row, (at, mask) in enumerate(of_hash.items(), 1):
            rows[at] = row
            bits[row] = np.frombuffer(mask.to_bytes(8 * words, "little"), np.uint64)
        self.rows, self.bits, self.known = rows, bits, len(listed)
        noted.clear()


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
_table, _lock = _PieceTable(), Lock()


def note(*texts: str) -> None:
    """Searches of these texts look at their pieces first."""
    new = [text for text in texts if SIZE <= len(text) <= LONGEST and text not in noted]
    new = [text for text in new if text.isascii() or not _ODD.search(text)]
    if not new:
        return
    with _lock:
        if len(clauses) - _table.known > _MANY:
            _table.build()
        rows, bits, known = _table.rows, _table.bits, _table.known
    lower = [text.lower() for text in new]
    points = np.frombuffer("".join(lower).encode("utf-32-le", "replace"), np.uint32)
    hits = [rows.take(hashed) for hashed in _hashes([points[size:] for size in range(SIZE)])]
    everything, start = (1 << known) - 1, 0
    if len(noted) + len(new) > _KEPT:
        noted.clear()
    for text, form in zip(new, lower, strict=True):
        end = start + len(form)
        found = np.concatenate([rows_of[start : end - size] for size, rows_of in enumerate(hits)])
        present = int.from_bytes(np.bitwise_or.reduce(bits.take(found[found.nonzero()], axis=0), axis=0).tobytes(), "little")
        shapes = text.translate(SHAPES) if text.isascii() else None
        noted[text] = NotedText(everything & ~present, shapes)
        start = end
