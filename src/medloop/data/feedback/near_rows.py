"""Near-copies among rows made from feedback: of each other, of what is held out, and which questions belong together."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from medloop.data.prepare.collect import priority
from medloop.data.progress import Step
from medloop.data.text.near import (
    Clusters,
    Indexes,
    Mask,
    NearIndex,
    Nearness,
    QuestionFeatures,
    QuestionFeaturesBuilder,
    Vocabulary,
    near_pairs,
)
from medloop.data.text.shingles import Hashes, jaccard, question_marks, text_marks

MOST = 1_000  # answers to one question that a new one is held against
Marks = list[tuple[int, Hashes]]


def repeats(
    labels: Indexes, texts_of: Callable[[int], Sequence[str]], threshold: float, step: Step = lambda count: None
) -> dict[int, str]:  # fmt: skip
    """Rows that say the same as an earlier one: questions of one cluster, and each answer like its counterpart.

    Answers are compared one by one, for beside a long question a short answer would not count. The order says who stays. Texts
    are asked for cluster by cluster, and of rows that are alone in theirs not at all.
    """
    found: dict[int, str] = {}
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(labels[order]) != 0)))
    for cluster in np.split(order, starts[1:]):
        step(len(cluster))
        kept: list[Marks] = []
        for row in cluster.tolist() if len(cluster) > 1 else ():
            marks = [text_marks(text) for text in texts_of(row)]
            like = next((other for other in kept if _alike(other, marks, threshold)), None)
            if like is not None:
                found[row] = "exact_duplicate" if [key for key, _ in like] == [key for key, _ in marks] else "near_duplicate"
            elif len(kept) < MOST:
                kept.append(marks)
    return found


def _alike(one: Marks, other: Marks, threshold: float) -> bool:
    return len(one) == len(other) and all(
        mine == theirs or jaccard(shingles, others) >= threshold
        for (mine, shingles), (theirs, others) in zip(one, other, strict=True)
    )


class Wordings:
    """Every different question once, as what comparing needs of it: a key and its features."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._numbers: dict[int, int] = {}
        self._growing, self._keys = QuestionFeaturesBuilder(), array("Q")
        self.given = 0  # questions, with those that were there before
        for text in texts:
            self.number(text)

    def number(self, text: str) -> int:
        """The number of a question; the same words have the same one."""
        self.given += 1
        said = int.from_bytes(hashlib.blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=16).digest(), "big")
        if said not in self._numbers:
            key, features = question_marks(text)
            self._numbers[said] = len(self._keys)
            self._keys.append(key)
            self._growing.add(features if len(features) else np.array([1], dtype=np.uint32))
        return self._numbers[said]

    def keys(self) -> NDArray[np.uint64]:
        return np.array(self._keys, dtype=np.uint64)

    def questions(self) -> QuestionFeatures:
        return self._growing.questions()


class Asked:
    """The questions of some rows, compared by the definition of data/text/near.py, with one another and with held-out ones.

    `numbers` says per row which of the wordings it asks. Rarity is counted over rows, comparing is done once per wording.
    """

    def __init__(self, wordings: Wordings, numbers: Indexes, held_out: Wordings, nearness: Nearness) -> None:
        self._different, self._of_row, times = np.unique(numbers, return_inverse=True, return_counts=True)
        self._keys, self._own = wordings.keys()[self._different], wordings.questions().take(self._different)
        self._held_keys, self._held = held_out.keys(), held_out.questions()
        self._vocabulary = Vocabulary(
            _joined(self._own, self._held), np.concatenate((times, np.ones(len(self._held), dtype=np.int64)))
        )
        self._nearness = nearness

    def copies(self) -> Mask:
        """Per row, whether its question is a near-copy of a held-out one."""
        found = np.isin(self._keys, self._held_keys)
        if len(self._held) and len(self._own):
            own = NearIndex(self._own, self._vocabulary, self._nearness)
            held = NearIndex(self._held, self._vocabulary, self._nearness)
            found |= np.array([len(held.holding(own, at)) > 0 for at in range(len(self._own))])
            for at in range(len(self._held)):
                found[own.holding(held, at)] = True
        return np.asarray(found[self._of_row])

    def clusters(self) -> Indexes:
        """Per row a number, the same for questions that belong together: near-copies must stay on one side of a split."""
        clusters = Clusters(len(self._keys))
        first: dict[int, int] = {}
        for row, key in enumerate(self._keys.tolist()):
            clusters.join(row, first.setdefault(key, row))
        for row, found in near_pairs(self._own, self._vocabulary, self._nearness):
            for other in found.tolist():
                clusters.join(row, other)
        return np.asarray(clusters.labels()[self._of_row])


def sides(labels: Indexes, keys: NDArray[np.uint64], forced: Mask, share: float, seed: int) -> Mask:
    """Per row whether it goes to the test side, the same for all of a cluster; `forced` rows take their cluster there.

    A cluster's side depends on the seed and its own words alone, so that it keeps it when other questions are added. With two
    clusters or more neither side stays empty. `keys` are those of the rows' questions.
    """
    key: dict[int, int] = {}
    for label, own in zip(labels.tolist(), keys.tolist(), strict=True):
        key[label] = min(key.get(label, own), own)
    draw = {label: priority(seed, own) / 2**64 for label, own in key.items()}
    must = set(labels[forced].tolist())
    test = {label for label, value in draw.items() if value < share} | must
    if share > 0 and len(draw) > 1:
        free = sorted(draw.keys() - must, key=lambda label: draw[label])
        if not test and free:
            test.add(free[0])
        if free and test >= draw.keys():
            test.discard(free[-1])
    return np.isin(labels, list(test))


def _joined(one: QuestionFeatures, other: QuestionFeatures) -> QuestionFeatures:
    return QuestionFeatures(
        np.concatenate((one.features, other.features)), np.concatenate((one.starts, other.starts[1:] + one.starts[-1]))
    )
