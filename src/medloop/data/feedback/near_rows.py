"""Near-copies among rows made from feedback: of one another and of held-out prompts, and which prompts belong together."""

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

MAX_COMPARED = 1_000  # answers to one prompt that a new one is compared with
TextHashes = list[tuple[int, Hashes]]  # key and shingles of each text of a row


def find_duplicates(
    clusters: Indexes, texts_of: Callable[[int], Sequence[str]], threshold: float, step: Step = lambda count: None
) -> dict[int, str]:  # fmt: skip
    """Rows that say the same as an earlier one: prompts of one cluster, and each answer like its counterpart.

    Answers are compared one by one, because beside a long prompt a short answer would not count. The order decides which row
    stays. Texts are read cluster by cluster, and not at all for rows that are alone in their cluster.
    """
    duplicates: dict[int, str] = {}
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(clusters[order]) != 0)))
    for cluster in np.split(order, starts[1:]):
        step(len(cluster))
        earlier: list[TextHashes] = []
        for row in cluster.tolist() if len(cluster) > 1 else ():
            hashes = [text_marks(text) for text in texts_of(row)]
            like = next((other for other in earlier if _is_near(other, hashes, threshold)), None)
            if like is not None:
                same = [key for key, _ in like] == [key for key, _ in hashes]
                duplicates[row] = "exact_duplicate" if same else "near_duplicate"
            elif len(earlier) < MAX_COMPARED:
                earlier.append(hashes)
    return duplicates


def _is_near(first: TextHashes, second: TextHashes, threshold: float) -> bool:
    return len(first) == len(second) and all(
        key == other_key or jaccard(shingles, other_shingles) >= threshold
        for (key, shingles), (other_key, other_shingles) in zip(first, second, strict=True)
    )


class DistinctPrompts:
    """Every different prompt once, as what a comparison needs of it: a key and its features."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._numbers: dict[int, int] = {}
        self._features, self._keys = QuestionFeaturesBuilder(), array("Q")
        self.total = 0  # prompts, repetitions included
        for text in texts:
            self.number(text)

    def number(self, text: str) -> int:
        """The number of a prompt; the same words have the same number."""
        self.total += 1
        digest = hashlib.blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()
        identity = int.from_bytes(digest, "big")
        if identity not in self._numbers:
            key, features = question_marks(text)
            self._numbers[identity] = len(self._keys)
            self._keys.append(key)
            self._features.add(features if len(features) else np.array([1], dtype=np.uint32))
        return self._numbers[identity]

    def keys(self) -> NDArray[np.uint64]:
        return np.array(self._keys, dtype=np.uint64)

    def features(self) -> QuestionFeatures:
        return self._features.questions()


class PromptComparison:
    """The prompts of some rows, compared as data/text/near.py defines it, with one another and with held-out ones.

    `numbers` has the number of each row's prompt. Rarity is counted over rows; each different prompt is compared once.
    """

    def __init__(self, prompts: DistinctPrompts, numbers: Indexes, held_out: DistinctPrompts, nearness: Nearness) -> None:
        distinct, self._of_row, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        self._keys, self._own = prompts.keys()[distinct], prompts.features().take(distinct)
        self._held_keys, self._held = held_out.keys(), held_out.features()
        counts = np.concatenate((counts, np.ones(len(self._held), dtype=np.int64)))
        self._vocabulary = Vocabulary(_joined(self._own, self._held), counts)
        self._nearness = nearness

    def near_held_out(self) -> Mask:
        """Per row, whether its prompt is a near-copy of a held-out one."""
        near = np.isin(self._keys, self._held_keys)
        if len(self._held) and len(self._own):
            own = NearIndex(self._own, self._vocabulary, self._nearness)
            held = NearIndex(self._held, self._vocabulary, self._nearness)
            near |= np.array([len(held.holding(own, index)) > 0 for index in range(len(self._own))])
            for index in range(len(self._held)):
                near[own.holding(held, index)] = True
        return np.asarray(near[self._of_row])

    def clusters(self) -> Indexes:
        """Per row a number, the same for prompts that belong together: near-copies must stay on one side of a split."""
        clusters = Clusters(len(self._keys))
        first: dict[int, int] = {}
        for row, key in enumerate(self._keys.tolist()):
            if (earlier := first.setdefault(key, row)) != row:
                clusters.join(row, earlier)
        for row, others in near_pairs(self._own, self._vocabulary, self._nearness):
            for other in others.tolist():
                clusters.join(row, other)
        return np.asarray(clusters.labels()[self._of_row])


def assign_test_side(clusters: Indexes, keys: NDArray[np.uint64], forced: Mask, share: float, seed: int) -> Mask:
    """Per row whether it goes to the test side, the same for all of a cluster; `forced` rows take their cluster there.

    A cluster's side depends on the seed and its own words alone, so it does not move when other prompts are added. With two
    clusters or more neither side stays empty. `keys` are those of the rows' prompts.
    """
    key: dict[int, int] = {}
    for cluster, own in zip(clusters.tolist(), keys.tolist(), strict=True):
        key[cluster] = min(key.get(cluster, own), own)
    draw = {cluster: priority(seed, own) / 2**64 for cluster, own in key.items()}
    required = set(clusters[forced].tolist())
    test = {cluster for cluster, value in draw.items() if value < share} | required
    if share > 0 and len(draw) > 1:
        free = sorted(draw.keys() - required, key=lambda cluster: draw[cluster])
        if not test and free:
            test.add(free[0])
        if free and test >= draw.keys():
            test.discard(free[-1])
    return np.isin(clusters, list(test))


def _joined(first: QuestionFeatures, second: QuestionFeatures) -> QuestionFeatures:
    return QuestionFeatures(
        np.concatenate((first.features, second.features)), np.concatenate((first.starts, second.starts[1:] + first.starts[-1]))
    )
