"""Which labels would teach a reward model most, chosen as a batch: the learning lane of the queue.

    ways = directions(texts_of_candidates)               # where each answer, or each pair, points; no model is needed
    for at, worth in lessons(ways, doubts, taught=directions(texts_of_labelled), most=60): ...

A candidate points somewhere: one answer to where its words are, a pair from one answer to the other. All directions have length
1, so that neither long answers nor odd ones count for more. As in a Bayesian linear model, a label makes predictions surer in its
own direction and in those near it. Of the most doubtful candidates the one goes in that lowers the uncertainty about *all* that
waits by most (V-optimal design); it counts as labelled at once, and the next is chosen. So

- a copy of what was chosen is worth little: its direction is known by then;
- an outlier is worth little: it makes few others surer, however new it is;
- a pair of nearly equal answers is left out: it looks doubtful because nobody can tell the two apart.

docs/stages/queue.md has what this saves against random choice, and where it saves nothing.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from medloop.feedback.review.novelty import alike, runs, words

Array = NDArray[np.float64]
WIDTH = 256  # of a direction; collisions of hashed words average out
TRUST = 16.0  # prior variance of a direction against the noise of one label
UNKNOWN = 0.25  # p(1 - p) where nothing is known about p
SAME = 0.9  # answers this much alike (share of common word runs) differ in nothing that a rater could prefer


def directions(given: Sequence[Sequence[str]]) -> Array:
    """(N, WIDTH), one row for each candidate's answers: hashed words, rare ones count more. Rows of 0: nothing to learn."""
    kept = [[words(answer) for answer in answers] for answers in given]
    seen = Counter(word for answers in kept for said in answers for word in said)
    total = sum(len(answers) for answers in kept)
    weight = {word: float(np.log1p(total / n)) for word, n in seen.items()}
    found = np.zeros((len(given), WIDTH))
    for row, answers in zip(found, kept, strict=True):
        for sign, said in zip((1.0, -1.0), answers, strict=False):
            row += sign * _unit(_hashed(said, weight))
    dull = [len(answers) > 1 and alike(runs(answers[0]), runs(answers[1])) >= SAME for answers in given]
    found[np.array(dull, dtype=bool)] = 0
    return _unit(found)


def _hashed(said: frozenset[str], weight: dict[str, float]) -> Array:
    row = np.zeros(WIDTH)
    for word in said:
        code = zlib.crc32(word.encode())
        row[code % WIDTH] += weight[word] if code >> 31 else -weight[word]
    return row


def _unit(rows: Array) -> Array:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 0))


def lessons(
    ways: Array, doubts: Sequence[float | None], *, taught: Array, most: int, doubtful: float = 0.2
) -> Iterator[tuple[int, float]]:
    """Places of candidates with their worth (1 the first), best first, at most `most`; only from the most doubtful share."""
    chance = _label_noise(doubts)
    order = np.lexsort((np.arange(len(ways)), -chance))
    able = order[np.linalg.norm(ways[order], axis=1) > 0]
    able = able[: max(2 * most, round(doubtful * len(able)))]
    spread = ways.T @ ways / max(1, len(ways))
    cover = np.asarray(np.linalg.inv(np.eye(WIDTH) / TRUST + UNKNOWN * taught.T @ taught), dtype=np.float64)
    first = 0.0
    for at, worth in _design(ways[able], chance[able], cover, spread, most):
        first = first or worth
        yield int(able[at]), worth / first if first else 0.0


def _label_noise(doubts: Sequence[float | None]) -> Array:
    """p(1 - p) of each, from 1 - |2p - 1|; a missing doubt takes nothing away and adds nothing: it is as the others' mean."""
    known = [value for value in doubts if value is not None]
    middle = float(np.mean(known)) if known else 1.0
    filled = np.array([middle if value is None else value for value in doubts], dtype=np.float64)
    return np.asarray((2 - filled) * filled / 4)


def _design(ways: Array, chance: Array, cover: Array, spread: Array, most: int) -> Iterator[tuple[int, float]]:
    """The greedy choice. `cover` is the covariance of the weights; a label in direction z takes c·vvᵀ off it, v = cover·z."""
    cover = cover.copy()
    own = np.einsum("ij,ij->i", ways @ cover, ways)  # variance of each one's own margin
    shared = np.einsum("ij,ij->i", ways @ (cover @ spread @ cover), ways)  # what its label tells about all
    left = np.ones(len(ways), dtype=bool)
    for _ in range(min(most, len(ways))):
        worth = np.where(left, chance * shared / (1 + chance * own), -np.inf)
        at = int(worth.argmax())
        yield at, float(worth[at])
        left[at] = False
        step = cover @ ways[at]
        share = chance[at] / (1 + chance[at] * own[at])
        on_step, on_spread = ways @ step, ways @ (cover @ (spread @ step))
        shared += -2 * share * on_step * on_spread + share**2 * float(step @ spread @ step) * on_step**2
        own -= share * on_step**2
        cover -= share * np.outer(step, step)
