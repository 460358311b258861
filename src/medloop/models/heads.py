"""An ensemble of small linear heads that judge answers, and how sure it is: numpy, thousands of answers a second.

    heads = load_heads(folder / HEADS)
    judged = combine(weights, members=heads.members(rows), distances=heads.distances(rows))
    judged.mean, judged.spread, judged.lowered        # one number per answer; lowered = mean - caution * uncertainty

Each head was trained on its own resample of the questions, so the heads agree where the pairs decide and differ where they do
not: the *spread* is the standard deviation of the heads. The *distance* says how far an answer lies outside of what training has
seen: unknown words, unknown pairs of words, another script than the question, repetition, and the looks of synthetic broken
answers (another question's answer, truncated, shuffled, repeated); in standard deviations of training answers, those up to NEAR
left out. Both together are the uncertainty, and `caution` says how much it lowers the reward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from medloop.contracts import Contract
from medloop.errors import ModelError
from medloop.models.answer_features import BITS, SEEN_BITS, SHAPE, AnswerFeatures, Floats, Ints

HEADS = "heads.safetensors"
NEAR = 2.0  # standard deviations from the training answers that still count as near
FAR = 5.0  # and beyond this, further is not worse
COUNTED = (0, 1, 2, 3, -1)  # the oddities that are a distance on their own; the shape only helps to see what is broken
PRIOR, PRIOR_COUNT = (0.25, 0.6), 8  # shares of unknown words and pairs in few words are drawn to these, as by so many words
VECTOR_SCALE = 4.0  # vectors have length 1; their coordinates are brought nearer to 1


class HeadWeights(Contract):
    """How heads and the fine-tuned base become one number, and how much doubt lowers it."""

    head_weight: float = Field(0.0, ge=0)
    base_weight: float = Field(1.0, ge=0)
    caution: float = Field(0.0, ge=0)
    unit: float = Field(1.0, gt=0)
    """The standard deviation of the combined number on training answers: one unit of distance."""


@dataclass(frozen=True)
class Judged:
    """Per answer: the mean, the spread of the heads, the distance, the mean lowered by both, and the two parts of the mean."""

    mean: Floats
    spread: Floats
    distance: Floats
    lowered: Floats
    from_base: Floats
    from_heads: Floats


@dataclass(frozen=True)
class Heads:
    """K linear heads over the same features; `offsets` centre each of them on the training answers."""

    words: NDArray[np.float32]  # (2**BITS, K)
    shape: NDArray[np.float32]  # (SHAPE, K), of standardised numbers
    vectors: NDArray[np.float32]  # (D, K), of the encoder's vectors; D is 0 without one
    offsets: NDArray[np.float32]  # (K,)
    scaling: NDArray[np.float32]  # (4, SHAPE): mean, std, least and greatest of each number in training
    seen: NDArray[np.uint8]  # (2, 2**SEEN_BITS / 8): words and pairs of words that training has seen, one bit each
    broken: NDArray[np.float32]  # (ODDITIES,): by which synthetic broken answers differ from whole ones
    odd_scaling: NDArray[np.float32]  # (2, ODDITIES): mean and std of each oddity in training
    usual: NDArray[np.float32]  # (2, ODDITIES + 1): median and scale of each oddity and of looking broken

    @property
    def count(self) -> int:
        return len(self.offsets)

    def members(self, rows: Sequence[AnswerFeatures], vectors: NDArray[np.float32] | None = None) -> Floats:
        """(N, K): what each head thinks of each answer."""
        scores = np.zeros((len(rows), self.count))
        for number, row in enumerate(rows):
            scores[number] = self.words[row.buckets].sum(0, dtype=np.float64) / np.sqrt(max(len(row.buckets), 1))
        if rows:
            scores += standardise(np.stack([row.shape for row in rows]), self.scaling) @ self.shape
        if vectors is not None and len(self.vectors):
            scores += vectors @ self.vectors
        return scores - self.offsets

    def distances(self, rows: Sequence[AnswerFeatures]) -> Floats:
        """(N,): from 0 (like the training answers) to FAR - NEAR."""
        if not rows:
            return np.zeros(0)
        oddities = np.stack([oddity(row, self._unseen(0, row.words), self._unseen(1, row.word_pairs)) for row in rows])
        deviations = (with_broken(oddities, self.odd_scaling, self.broken) - self.usual[0]) / self.usual[1]
        return np.asarray(np.clip(deviations[:, COUNTED].max(1) - NEAR, 0, FAR - NEAR), np.float64)

    def _unseen(self, kind: int, hashes: Ints) -> NDArray[np.bool_]:
        bits = self.seen[kind][hashes >> 3] >> (hashes & 7).astype(np.uint8)
        return np.asarray(bits & 1 == 0)

    def to_bytes(self) -> bytes:
        """The same heads give the same bytes."""
        return bytes(save({name: np.ascontiguousarray(getattr(self, name)) for name in self.__dataclass_fields__}))


def oddity(row: AnswerFeatures, unseen_words: NDArray[np.bool_], unseen_pairs: NDArray[np.bool_]) -> Floats:
    """Numbers that grow with strangeness (shares of unknown words and pairs, gap of scripts, repetition), then the shape."""
    unseen = zip((unseen_words, unseen_pairs), PRIOR, strict=True)
    shares = [float(flags.sum() + PRIOR_COUNT * prior) / (len(flags) + PRIOR_COUNT) for flags, prior in unseen]
    return np.array([*shares, row.script_gap, row.repetition, *row.shape])


def with_broken(oddities: Floats, scaling: NDArray[np.float32], broken: NDArray[Any]) -> Floats:
    """The oddities and, as a last column, how broken the answer looks."""
    standardised = np.clip((oddities - scaling[0]) / scaling[1], -FAR, FAR)
    return np.concatenate([oddities, standardised @ broken[:, None]], 1)


def standardise(shapes: Floats, scaling: NDArray[np.float32]) -> Floats:
    """Numbers are kept within what training has seen: an answer longer than all of them gains nothing by it."""
    mean, std, least, greatest = scaling
    return np.asarray((np.clip(shapes, least, greatest) - mean) / std, np.float64)


def combine(
    weights: HeadWeights, *, base: Floats | None = None, members: Floats | None = None, distances: Floats | None = None
) -> Judged:
    """One number per answer from the fine-tuned base's logits, from the heads, or from both."""
    size = len(base) if base is not None else len(members) if members is not None else 0
    nothing: Floats = np.zeros(size)
    from_base = from_heads = spread = far = nothing
    if base is not None:
        from_base = weights.base_weight * base
    if members is not None and distances is not None:
        from_heads, spread, far = weights.head_weight * members.mean(1), weights.head_weight * members.std(1, ddof=1), distances
    mean = from_base + from_heads
    lowered = mean - weights.caution * np.hypot(spread, weights.unit * far)
    return Judged(mean, spread, far, lowered, from_base, from_heads)


def load_heads(path: Path) -> Heads:
    """Heads that medloop wrote; plain numbers, no code."""
    try:
        heads = Heads(**load_file(path))
        sizes = (len(heads.words), len(heads.shape), heads.seen.shape[1])
        if sizes != (1 << BITS, len(SHAPE), (1 << SEEN_BITS) // 8):
            raise ValueError(f"sizes {sizes}")
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise ModelError(f"{path} does not hold the heads of a reward model", "Train it again") from error
    return heads
