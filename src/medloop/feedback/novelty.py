"""How much of a question is new against what was seen: the share of its short word runs that nothing seen has.

    seen = Seen(); seen.add("chest pain since this morning")
    seen.novelty("chest pain since yesterday")         # 0 nothing new, 1 all new

Runs are pairs of neighbouring words, of Chinese text triples of neighbouring characters, and single words once: enough to tell a
rephrased question from another one, without a model. They are kept as hashes in one table of bits of fixed size (128 kB), so
memory does not grow; with 100,000 runs in it one unseen run in eleven is taken for a seen one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BITS = 20
_WORD = re.compile(r"[\u3400-\u9fff]+|[^\W_]+")


class Seen:
    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bits = np.zeros(1 << BITS, dtype=np.bool_)
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        self.add_runs(runs(text))

    def add_runs(self, found: NDArray[np.uint32]) -> None:
        self._bits[found] = True

    def novelty(self, text: str) -> float:
        return self.novelty_of(runs(text))

    def novelty_of(self, found: NDArray[np.uint32]) -> float:
        return float(1 - self._bits[found].mean()) if len(found) else 0.0


def runs(text: str) -> NDArray[np.uint32]:
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
