"""Near-copies among rows made from feedback: of each other, of what is held out, and which questions belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medloop.data.gather import priority
from medloop.data.near import Clusters, Growing, NearIndex, Nearness, Questions, Vocabulary, near_pairs
from medloop.data.shingles import Hashes, jaccard, question_marks, text_marks

MOST = 1_000  # answers to one question that a new one is held against
Marks = list[tuple[int, Hashes]]


def repeats(labels: Sequence[int], texts: Sequence[Sequence[str]], threshold: float) -> dict[int, tuple[str, int]]:
    """Rows that say the same as an earlier one: questions of one cluster, and each answer like its counterpart.

    Answers are compared one by one, for beside a long question a short answer would not count. The order says who stays.
    """
    marks = [[text_marks(text) for text in row] for row in texts]
    kept: dict[int, list[int]] = {}
    found: dict[int, tuple[str, int]] = {}
    for row, label in enumerate(labels):
        like = next((other for other in kept.get(label, [])[:MOST] if _alike(marks[other], marks[row], threshold)), None)
        if like is None:
            kept.setdefault(label, []).append(row)
        else:
            same = [key for key, _ in marks[like]] == [key for key, _ in marks[row]]
            found[row] = ("exact_duplicate" if same else "near_duplicate", like)
    return found


def _alike(one: Marks, other: Marks, threshold: float) -> bool:
    return len(one) == len(other) and all(
        mine == theirs or jaccard(shingles, others) >= threshold
        for (mine, shingles), (theirs, others) in zip(one, other, strict=True)
    )


class Asked:
    """Questions and held-out questions, compared by the definition of data/near.py."""

    def __init__(self, questions: Sequence[str], held_out: Sequence[str], nearness: Nearness) -> None:
        self._keys, self._own = _marks(questions)
        self._held_keys, self._held = _marks(held_out)
        self._vocabulary = Vocabulary(_joined(self._own, self._held))
        self._nearness = nearness

    def copies(self) -> set[int]:
        """Questions that are a near-copy of a held-out one."""
        keys = set(self._held_keys)
        found = {at for at, key in enumerate(self._keys) if key in keys}
        if not len(self._held) or not len(self._own):
            return found
        own = NearIndex(self._own, self._vocabulary, self._nearness)
        held = NearIndex(self._held, self._vocabulary, self._nearness)
        found |= {at for at in range(len(self._own)) if len(held.holding(own, at))}
        for at in range(len(self._held)):
            found.update(own.holding(held, at).tolist())
        return found

    def clusters(self) -> list[int]:
        """Per question the first one of those it belongs with: near-copies must stay on one side of a split."""
        clusters = Clusters(len(self._keys))
        first: dict[int, int] = {}
        for row, key in enumerate(self._keys):
            clusters.join(row, first.setdefault(key, row))
        for row, found in near_pairs(self._own, self._vocabulary, self._nearness):
            for other in found.tolist():
                clusters.join(row, other)
        return [int(label) for label in clusters.labels()]


def sides(labels: Sequence[int], questions: Sequence[str], forced: set[int], share: float, seed: int) -> list[str]:
    """`train` or `test` per question, the same for all of a cluster; `forced` questions take their cluster to test.

    A cluster's side depends on the seed and its own words alone, so that it keeps it when other questions are added. With two
    clusters or more neither side stays empty.
    """
    key: dict[int, int] = {}
    for label, text in zip(labels, questions, strict=True):
        own = question_marks(text)[0]
        key[label] = min(key.get(label, own), own)
    draw = {label: priority(seed, own) / 2**64 for label, own in key.items()}
    must = {labels[at] for at in forced}
    test = {label for label, value in draw.items() if value < share} | must
    if share > 0 and len(draw) > 1:
        free = sorted(draw.keys() - must, key=lambda label: draw[label])
        if not test and free:
            test.add(free[0])
        if free and test >= draw.keys():
            test.discard(free[-1])
    return ["test" if label in test else "train" for label in labels]


def _marks(texts: Sequence[str]) -> tuple[list[int], Questions]:
    growing, keys = Growing(), []
    for text in texts:
        key, features = question_marks(text)
        keys.append(key)
        growing.add(features if len(features) else np.array([1], dtype=np.uint32))
    return keys, growing.questions()


def _joined(*parts: Questions) -> Questions:
    rows: list[Hashes] = [part.row(at) for part in parts for at in range(len(part))]
    return Questions.of(rows)
