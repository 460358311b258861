"""BM25 (Robertson & Zaragoza 2009) over the words of chunks, in memory: built when the index is opened, never written.

ranking = BM25([["fever", "child"], ["dose"]])
ranking.scores(["fever"])      -> (N,) float32, 0 for a chunk without the words
ranking.coverage(["fever"])    -> (N,) share of the question's weight that a chunk has, 0 to 1
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
K1, B = 1.2, 0.6
FEWEST = 1000


class BM25:
    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        lengths = np.array([len(words) for words in texts], np.float32)
        mean = float(lengths.mean()) if len(texts) else 1.0
        norm = K1 * (1 - B + B * lengths / max(mean, 1.0))
        rows: dict[str, list[int]] = {}
        counts: dict[str, list[int]] = {}
        for index, words in enumerate(texts):
            for word, count in Counter(words).items():
                rows.setdefault(word, []).append(index)
                counts.setdefault(word, []).append(count)
        self.size = len(texts)
        self._postings: dict[str, tuple[NDArray[np.int32], Floats]] = {}
        for word, indices in rows.items():
            at = np.array(indices, np.int32)
            tf = np.array(counts[word], np.float32)
            self._postings[word] = (at, (tf * (K1 + 1) / (tf + norm[at])).astype(np.float32))

    def idf(self, word: str, size: int | None = None) -> float:
        """A word in no chunk weighs most: it says that the question may be about something else."""
        n = len(self._postings[word][0]) if word in self._postings else 0
        return math.log(1 + ((self.size if size is None else size) - n + 0.5) / (n + 0.5))

    def scores(self, words: Sequence[str]) -> Floats:
        total = np.zeros(self.size, np.float32)
        for word in words:
            if (posting := self._postings.get(word)) is not None:
                total[posting[0]] += np.float32(self.idf(word)) * posting[1]
        return total

    def coverage(self, words: Sequence[str]) -> Floats:
        """Words weigh as among FEWEST chunks at least: in a small library the words of its documents would weigh nothing."""
        weights = {word: self.idf(word, max(self.size, FEWEST)) for word in words}
        covered = np.zeros(self.size, np.float32)
        for word, weight in weights.items():
            if (posting := self._postings.get(word)) is not None:
                covered[posting[0]] += np.float32(weight)
        return covered / np.float32(max(sum(weights.values()), 1e-6))
