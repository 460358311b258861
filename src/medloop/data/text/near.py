"""When two questions are near-copies of each other, and a quick way to find all such pairs.

A question is a set of features: its words (characters in Chinese) and pairs of neighbouring words. The set with fewer
words, S, is held against the other, L. They are near-copies when L holds most of S, counted two ways at once:

- plainly, so that questions with one rare word in common ("treatments of X", "symptoms of X") stay apart;
- weighted by rarity (squared log of inverse frequency), so that one template over two diseases stays apart.

`Most` is 0.75 of words and pairs. Or, for changed word order, 0.9 of the words with 0.35 of words and pairs, or 0.9 of
the words of both. What L has on top (greetings, thanks, another sentence) does not count as long as it is not more than
half of S plus 30 words, or plus three times S where S is short: a few words are in many long questions. Numbers are all
alike. Two very short or generic questions are near only when their features are the same.

Finding is exact, not probabilistic: L holds `most` of S by weight, so it holds some of the rarest features that make up
the rest of S and a bit more (prefix filtering). Only rows with those features are compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medloop.data.text.shingles import Hashes, is_single

Indexes = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
BLOCK = 4_096  # rows


@dataclass(frozen=True)
class Nearness:
    """The thresholds; see the top of the file."""

    both: float = 0.75
    words: float = 0.9
    both_when_words: float = 0.35
    longer: float = 1.5
    slack: int = 30
    min_words: int = 3

    def longest(self, words: Floats) -> Floats:
        """How many words L may have when S has so many."""
        return np.asarray(self.longer * words + np.minimum(self.slack, 3 * words))


@dataclass(frozen=True)
class QuestionFeatures:
    """Feature sets of many questions, one after the other: row i is `features[starts[i]:starts[i + 1]]`, never empty."""

    features: Hashes
    starts: Indexes

    @classmethod
    def of(cls, rows: Sequence[Hashes]) -> QuestionFeatures:
        starts = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
        return cls(np.concatenate([np.empty(0, dtype=np.uint32), *rows]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, index: int) -> Hashes:
        return self.features[self.starts[index] : self.starts[index + 1]]

    def take(self, rows: Indexes) -> QuestionFeatures:
        lengths = self.starts[rows + 1] - self.starts[rows]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], lengths)
        return QuestionFeatures(self.features[positions], starts)

    def sums(self, values: Floats) -> Floats:
        """Per row, the sum of one value per feature."""
        return np.add.reduceat(values, self.starts[:-1]) if len(self) else np.empty(0)

    def blocks(self) -> Iterator[tuple[slice, QuestionFeatures]]:
        """A few thousand rows at a time, to bound the memory of what is computed per feature."""
        for start in range(0, len(self), BLOCK):
            end = min(start + BLOCK, len(self))
            first, last = self.starts[start], self.starts[end]
            yield slice(start, end), QuestionFeatures(self.features[first:last], self.starts[start : end + 1] - first)


class QuestionFeaturesBuilder:
    """Collects questions one by one in one array."""

    def __init__(self) -> None:
        self._features, self._starts = array("I"), array("q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, features: Hashes) -> None:
        self._features.frombytes(features.tobytes())
        self._starts.append(len(self._features))

    def questions(self) -> QuestionFeatures:
        return QuestionFeatures(np.frombuffer(self._features, dtype=np.uint32), np.frombuffer(self._starts, dtype=np.int64))


class Vocabulary:
    """How rare each feature is among the questions it was counted over; `times` says how often each of these was asked."""

    def __init__(self, questions: QuestionFeatures, times: Indexes | None = None) -> None:
        if times is None:
            self._known, counts = np.unique(questions.features, return_counts=True)
        else:
            self._known, place = np.unique(questions.features, return_inverse=True)
            counts = np.bincount(place, np.repeat(times, np.diff(questions.starts)), minlength=len(self._known))
        self._counts = counts.astype(np.uint32)
        self._rows = len(questions) if times is None else int(times.sum())

    def weights(self, features: Hashes) -> Floats:
        return np.asarray(np.log((self._rows + 1) / (self._count(features) + 0.5)) ** 2)

    def generic(self, questions: QuestionFeatures) -> Mask:
        """Questions of common words only: even the rarest feature is in more than 100 questions, or one in 500."""
        result = np.zeros(len(questions), dtype=np.bool_)
        for rows, block in questions.blocks():
            rarest = np.minimum.reduceat(self._count(block.features), block.starts[:-1])
            result[rows] = rarest > max(100, self._rows // 500)
        return result

    def _count(self, features: Hashes) -> NDArray[np.uint32]:
        """In how many questions each feature occurs; 0 for one that was never seen."""
        places = np.minimum(np.searchsorted(self._known, features), len(self._known) - 1)
        return np.where(self._known[places] == features, self._counts[places], np.uint32(0))


class MeasuredQuestions:
    """Questions with their sums, shape (4, rows): number of features, their weight, number of words, their weight."""

    def __init__(self, questions: QuestionFeatures, vocabulary: Vocabulary, nearness: Nearness) -> None:
        self.questions, self.vocabulary, self.nearness = questions, vocabulary, nearness
        self.sums = np.empty((4, len(questions)))
        for rows, block in questions.blocks():
            weights, single = vocabulary.weights(block.features), is_single(block.features)
            for index, values in enumerate((np.ones(len(weights)), weights, single.astype(np.float64), weights * single)):
                self.sums[index, rows] = block.sums(values)
        self.strict = (self.sums[2] < nearness.min_words) | vocabulary.generic(questions)

    def shared(self, features: Hashes, rows: Indexes) -> Floats:
        """The same four sums over the features that each of `rows` shares with `features`."""
        subset = self.questions.take(rows)
        places = np.minimum(np.searchsorted(features, subset.features), len(features) - 1)
        hit = (features[places] == subset.features).astype(np.float64)
        heavy, single = hit * self.vocabulary.weights(features)[places], is_single(features)[places]
        return np.stack([subset.sums(value) for value in (hit, heavy, hit * single, heavy * single)])

    def near(self, other: MeasuredQuestions, row: int, rows: Indexes) -> Mask:
        """Which of `rows` are near-copies of row `row` of `other`, whichever of the two is smaller."""
        shared = self.shared(other.questions.row(row), rows)
        mine, theirs = self.sums[:, rows], other.sums[:, row : row + 1]
        smaller = covers(theirs, mine, shared, other.strict[row : row + 1], self.nearness)
        return smaller | covers(mine, theirs, shared, self.strict[rows], self.nearness)


class NearIndex(MeasuredQuestions):
    """Questions made searchable: `holding` returns the rows that contain most of a smaller question."""

    def __init__(self, questions: QuestionFeatures, vocabulary: Vocabulary, nearness: Nearness) -> None:
        super().__init__(questions, vocabulary, nearness)
        keys = questions.features.astype(np.uint64) << np.uint64(32)
        keys |= np.repeat(np.arange(len(questions), dtype=np.uint32), np.diff(questions.starts))
        keys.sort()
        self._rows = keys.astype(np.uint32)
        keys >>= np.uint64(32)
        begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else np.empty(0, dtype=np.int64)
        self._names, self._begins = keys[begins].astype(np.uint32), np.concatenate((begins, [len(keys)]))

    def holding(self, other: MeasuredQuestions, row: int) -> Indexes:
        """Rows with at least as many words that are near-copies of row `row` of `other`, in order."""
        small, sums, near = other.questions.row(row), other.sums[:, row : row + 1], self.nearness
        weights, single = self.vocabulary.weights(small), is_single(small)
        rows = self._sharing(small, weights, 1 - near.both)
        if not other.strict[row]:
            rows = np.union1d(rows, self._sharing(small[single], weights[single], 1 - near.words))
        words = self.sums[2][rows]
        rows = rows[(words >= sums[2]) & (words <= near.longest(sums[2]))]
        if len(rows):
            rows = rows[covers(sums, self.sums[:, rows], self.shared(small, rows), other.strict[row : row + 1], near)]
        return np.asarray(rows)

    def _sharing(self, small: Hashes, weights: Floats, missing: float) -> Indexes:
        """Rows that may hold all of `small` but this share of its weight: they hold enough of its rarest features."""
        if not len(self._names):
            return np.empty(0, dtype=np.int64)
        order = np.argsort(-weights, kind="stable")
        options = rarest_features_needed(weights[order], missing)
        rarest = small[order[: options[0][0]]]
        places = np.minimum(np.searchsorted(self._names, rarest), len(self._names) - 1)
        begin = self._begins[places]
        end = np.where(self._names[places] == rarest, self._begins[places + 1], begin)
        volume = np.cumsum(end - begin)
        # Asking for more features leaves fewer rows to compare, but means going through longer lists.
        count, least = next(o for o in options if volume[o[0] - 1] <= 8 * volume[options[-1][0] - 1] + 200)
        rows = np.sort(np.concatenate([self._rows[b:e] for b, e in zip(begin[:count], end[:count], strict=True)]))
        rows = rows[least - 1 :][rows[least - 1 :] == rows[: max(0, len(rows) - least + 1)]]
        return np.asarray(np.unique(rows).astype(np.int64))


def covers(small: Floats, large: Floats, shared: Floats, strict: Mask, near: Nearness) -> Mask:
    """The definition: whether the larger question holds most of the smaller one. Sums of shape (4, rows) or (4, 1)."""
    share = np.round(shared / small, 9)  # the order of adding up must not decide
    back = np.round(np.minimum(shared[2] / large[2], shared[3] / large[3]), 9)
    similarity, words = np.minimum(share[0], share[1]), np.minimum(share[2], share[3])
    reordered = (words >= near.words) & ((similarity >= near.both_when_words) | (back >= near.words))
    fits = (large[2] >= small[2]) & (large[2] <= near.longest(small[2]))
    same = (shared[0] == small[0]) & (large[0] == small[0])
    return np.asarray(np.where(strict, same, fits & ((similarity >= near.both) | reordered)))


def rarest_features_needed(heavy: Floats, missing: float) -> list[tuple[int, int]]:
    """How many of the rarest features to look at, and how many of those a near-copy must hold; the strictest first.

    A near-copy lacks at most the share `missing` of the weight. So if the features looked at outweigh that share by more
    than the heaviest two of them, it holds three or more. Weights in falling order.
    """
    sums = np.cumsum(heavy)
    options = []
    for least in (3, 2, 1):
        enough = missing * sums[-1] * (1 + 1e-9) + (sums[least - 2] if least > 1 and len(heavy) >= least else 0.0)
        if sums[-1] > enough and len(heavy) >= least:
            options.append((int(np.searchsorted(sums, enough, side="right")) + 1, least))
    return options


def near_pairs(questions: QuestionFeatures, vocabulary: Vocabulary, nearness: Nearness) -> Iterator[tuple[int, Indexes]]:
    """Every question in turn with its near-copies of the same size or larger."""
    index = NearIndex(questions, vocabulary, nearness)
    for row in range(len(questions)):
        rows = index.holding(index, row)
        yield row, rows[rows != row]


class Clusters:
    """Clusters of rows: union-find over row numbers."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        self._parent[max(a, b)] = min(a, b)

    def find(self, row: int) -> int:
        parent = self._parent
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    def labels(self) -> Indexes:
        """The smallest row of each row's cluster."""
        return np.array([self.find(row) for row in range(len(self._parent))], dtype=np.int64)
