"""Batch active learning: which labels would teach a reward model most. This is the learning lane of the queue.

    vectors = directions(texts_of_candidates)             # of each answer, or of each pair; no model is needed
    for index, gain in select_labels(vectors, uncertainty, labelled=directions(texts_of_labelled), count=60): ...

A candidate is a unit vector of hashed words: one answer by its words, a pair by the difference of its answers. Length 1 means
that neither long nor odd answers count for more. As in a Bayesian linear model, a label makes predictions surer in its own
direction and in those near it. Among the most uncertain candidates the one is chosen whose label lowers the mean variance over
*all* candidates by most (V-optimal design); it counts as labelled at once, and the next is chosen. So

- a copy of a chosen candidate gains little: its direction is known by then;
- an outlier gains little: it makes few others surer, however new it is;
- a pair of nearly equal answers is left out: it looks uncertain because nobody can tell the two apart.

docs/stages/queue.md has what this saves against random choice, and where it saves nothing.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from medloop.feedback.review.novelty import jaccard, shingles, word_set

Array = NDArray[np.float64]
DIM = 256  # of a vector; collisions of hashed words average out
PRIOR_VARIANCE = 16.0  # of a direction, against the noise of one label
UNKNOWN = 0.25  # p(1 - p) where nothing is known about p
SAME = 0.9  # answers this similar (Jaccard) differ in nothing that a rater could prefer


def directions(candidates: Sequence[Sequence[str]]) -> Array:
    """(N, DIM), one row for the answers of each candidate: hashed words, rare ones count more. Zero rows: nothing to learn."""
    words = [[word_set(answer) for answer in answers] for answers in candidates]
    counts = Counter(word for answers in words for answer in answers for word in answer)
    total = sum(len(answers) for answers in words)
    weights = {word: float(np.log1p(total / count)) for word, count in counts.items()}
    vectors = np.zeros((len(candidates), DIM))
    for row, answers in zip(vectors, words, strict=True):
        for sign, answer in zip((1.0, -1.0), answers, strict=False):
            row += sign * _unit(_hashed(answer, weights))
    equal = [len(answers) > 1 and jaccard(shingles(answers[0]), shingles(answers[1])) >= SAME for answers in candidates]
    vectors[np.array(equal, dtype=bool)] = 0
    return _unit(vectors)


def _hashed(words: frozenset[str], weights: dict[str, float]) -> Array:
    row = np.zeros(DIM)
    for word in words:
        code = zlib.crc32(word.encode())
        row[code % DIM] += weights[word] if code >> 31 else -weights[word]
    return row


def _unit(rows: Array) -> Array:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 0))


def select_labels(
    vectors: Array, uncertainty: Sequence[float | None], *, labelled: Array, count: int, uncertain_share: float = 0.2
) -> Iterator[tuple[int, float]]:
    """Indexes of up to `count` candidates with their gain (1 for the first), best first; only from the most uncertain share."""
    variance = _label_variance(uncertainty)
    order = np.lexsort((np.arange(len(vectors)), -variance))
    able = order[np.linalg.norm(vectors[order], axis=1) > 0]
    able = able[: max(2 * count, round(uncertain_share * len(able)))]
    mean_outer = vectors.T @ vectors / max(1, len(vectors))
    precision = np.eye(DIM) / PRIOR_VARIANCE + UNKNOWN * labelled.T @ labelled
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    first = 0.0
    for index, gain in _greedy_design(vectors[able], variance[able], covariance, mean_outer, count):
        first = first or gain
        yield int(able[index]), gain / first if first else 0.0


def _label_variance(uncertainty: Sequence[float | None]) -> Array:
    """p(1 - p) of each, from 1 - |2p - 1|; where the uncertainty is missing, the mean of the others stands in."""
    known = [value for value in uncertainty if value is not None]
    mean = float(np.mean(known)) if known else 1.0
    filled = np.array([mean if value is None else value for value in uncertainty], dtype=np.float64)
    return np.asarray((2 - filled) * filled / 4)


def _greedy_design(
    vectors: Array, variance: Array, covariance: Array, mean_outer: Array, count: int
) -> Iterator[tuple[int, float]]:  # fmt: skip
    """V-optimal, one by one. A label in direction z takes c·vvᵀ off the covariance of the weights, v = covariance·z."""
    covariance = covariance.copy()
    own = np.einsum("ij,ij->i", vectors @ covariance, vectors)  # variance of each candidate's own margin
    shared = np.einsum("ij,ij->i", vectors @ (covariance @ mean_outer @ covariance), vectors)  # what its label tells about all
    left = np.ones(len(vectors), dtype=bool)
    for _ in range(min(count, len(vectors))):
        gains = np.where(left, variance * shared / (1 + variance * own), -np.inf)
        best = int(gains.argmax())
        yield best, float(gains[best])
        left[best] = False
        step = covariance @ vectors[best]
        share = variance[best] / (1 + variance[best] * own[best])
        on_step, on_mean = vectors @ step, vectors @ (covariance @ (mean_outer @ step))
        shared += -2 * share * on_step * on_mean + share**2 * float(step @ mean_outer @ step) * on_step**2
        own -= share * on_step**2
        covariance -= share * np.outer(step, step)
