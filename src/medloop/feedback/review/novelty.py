"""How much of a question is new against what was seen: the share of its short word runs that nothing seen has.

    seen = Seen(); seen.add("chest pain since this morning")
    seen.novelty("chest pain since yesterday")         # 0 nothing new, 1 all new

Runs are pairs of neighbouring words, of Chinese text triples of neighbouring characters, and single words once: enough to tell a
rephrased question from another one, without a model. They are kept as hashes in one table of bits of fixed size (128 kB), so
memory does not grow; with 100,000 runs in it one unseen run in eleven is taken for a seen one.

`Near` holds whole texts instead, and says whether one of them is nearly the same as a given one.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BITS = 20
COPY = 0.8  # share of common runs from which on two texts count as near copies
_WORD = re.compile(r"[\u3400-\u9fff]+|[^\W_]+")

Runs = NDArray[np.uint32]


class Seen:
    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bits = np.zeros(1 << BITS, dtype=np.bool_)
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        self.add_runs(runs(text))

    def add_runs(self, found: Runs) -> None:
        self._bits[found] = True

    def novelty(self, text: str) -> float:
        return self.novelty_of(runs(text))

    def novelty_of(self, found: Runs) -> float:
        return float(1 - self._bits[found].mean()) if len(found) else 0.0


class Near:
    """Texts by their runs. A look-up touches only texts that share a run with the asked one."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._having: dict[int, list[int]] = {}

    def add(self, found: Runs) -> None:
        for run in found.tolist():
            self._having.setdefault(run, []).append(len(self._sizes))
        self._sizes.append(len(found))

    def has(self, found: Runs, *, bound: float = COPY) -> bool:
        """Whether a text here shares at least this part of its runs with the asked one (Jaccard)."""
        common = Counter(at for run in found.tolist() for at in self._having.get(run, ()))
        return any(n >= bound * (len(found) + self._sizes[at] - n) for at, n in common.items())


def alike(one: Runs, two: Runs) -> float:
    """Share of the runs that both have, of those that either has."""
    both = len(np.intersect1d(one, two, assume_unique=True))
    return both / max(1, len(one) + len(two) - both)


def runs(text: str) -> Runs:
    """Places of the runs of a text in the table of bits."""
    found: set[str] = set()
    before = ""
    for word in _WORD.findall(text.lower()):
        if "\u3400" <= word[0] <= "\u9fff":
            found.update(word[at : at + 3] for at in range(max(1, len(word) - 2)))
        else:
            found.update((word, f"{before} {word}"))
        before = word
    places = {zlib.crc32(run.encode()) & ((1 << BITS) - 1) for run in found}
    return np.array(sorted(places), dtype=np.uint32)


def words(text: str) -> frozenset[str]:
    """The words of a text; of Chinese text pairs of neighbouring characters."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if "\u3400" <= word[0] <= "\u9fff":
            found.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            found.add(word)
    return frozenset(found)
