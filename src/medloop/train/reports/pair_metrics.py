"""Metrics of a model that prefers one answer to another: pure functions of margins (logit of chosen - of rejected)."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from medloop.train.examples.pairs import Pair

Numbers = NDArray[np.float64]
Z = 1.959964  # 95 %
EQUAL = 0.10  # two answers are about equally long when they differ by at most this share of the longer answer
BINS = 10
RESAMPLES = 2000


def accuracy(margins: Numbers) -> dict[str, float]:
    """Share of pairs in the right order, with its 95 % interval; a tie is half right."""
    right = float((margins > 0).sum() + 0.5 * (margins == 0).sum())
    low, high = wilson(right, len(margins))
    return {"value": right / len(margins) if len(margins) else math.nan, "low": low, "high": high, "n": len(margins)}


def wilson(right: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; unlike the plain one it is right near 0 and 1 and for small counts.

    https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval
    """
    if count == 0:
        return 0.0, 1.0
    share, scale = right / count, 1 + Z**2 / count
    middle = (share + Z**2 / (2 * count)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def accuracy_difference(first: Numbers, second: Numbers, seed: int) -> dict[str, float]:
    """How much more often the first is right than the second on the same pairs, with a 95 % bootstrap interval over pairs."""
    gaps = _right(first) - _right(second)
    rng = np.random.default_rng(seed)
    means = np.array([gaps[rng.integers(0, len(gaps), len(gaps))].mean() for _ in range(RESAMPLES)])
    low, high = np.quantile(means, (0.025, 0.975))
    return {"value": float(gaps.mean()), "low": float(low), "high": float(high)}


def histogram(margins: Numbers, bars: int = 20) -> list[dict[str, float]]:
    """Counts over equal steps from the least to the greatest margin."""
    counts, edges = np.histogram(margins, bins=bars)
    return [
        {"from": float(low), "to": float(high), "pairs": int(count)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def calibration(margins: Numbers, seed: int) -> dict[str, Any]:
    """Does sigmoid(margin) mean what it says? Each pair is shown in a random order, else every outcome would be 'first'.

    `table` has a row per tenth of the forecast; `ece` is the mean gap between forecast and outcome over those rows,
    `brier` the mean squared error of the forecast (0.25: chance).
    """
    flip = np.random.default_rng(seed).integers(0, 2, len(margins)).astype(bool)
    forecast = _sigmoid(np.where(flip, -margins, margins))
    outcome = (~flip).astype(np.float64)
    bins = np.minimum((forecast * BINS).astype(int), BINS - 1)
    table = []
    for number in range(BINS):
        inside = bins == number
        if inside.any():
            row = {"from": number / BINS, "to": (number + 1) / BINS, "pairs": int(inside.sum())}
            table.append(row | {"forecast": float(forecast[inside].mean()), "outcome": float(outcome[inside].mean())})
    ece = sum(row["pairs"] * abs(row["forecast"] - row["outcome"]) for row in table) / len(margins)
    return {"table": table, "ece": ece, "brier": float(((forecast - outcome) ** 2).mean())}


def length_bias(chosen: Numbers, rejected: Numbers, long_chosen: Numbers, long_rejected: Numbers) -> dict[str, Any]:
    """Does the model prefer long answers? `long_*` are the lengths of the answers in characters.

    `margin_and_difference` is over pairs, `score_and_length` over answers, both Spearman: 0 is no bias, 1 is length alone. The
    accuracy is also given apart for pairs whose chosen answer is the shorter one, the longer one, or about equal.
    """
    margins, differences = chosen - rejected, long_chosen - long_rejected
    close = np.abs(differences) <= EQUAL * np.maximum(long_chosen, long_rejected)
    parts = {"shorter": ~close & (differences < 0), "longer": ~close & (differences > 0), "about equal": close}
    return {
        "margin_and_difference": spearman(margins, differences),
        "score_and_length": spearman(np.concatenate([chosen, rejected]), np.concatenate([long_chosen, long_rejected])),
        "longer_scored_higher": float((_right(margins * np.sign(differences)))[differences != 0].mean())
        if (differences != 0).any()
        else math.nan,
        "accuracy_where_chosen_is": {name: accuracy(margins[where]) for name, where in parts.items() if where.any()},
    }


def spearman(a: Numbers, b: Numbers) -> float:
    """Rank correlation; 0 where one of the two is constant."""
    ranks = [_ranks(a), _ranks(b)]
    if min(r.std() for r in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Numbers) -> Numbers:
    """Ranks from 0; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - counts + ends - 1) / 2.0)[place]


def _right(margins: Numbers) -> Numbers:
    return np.asarray((margins > 0) + 0.5 * (margins == 0), dtype=np.float64)


def _sigmoid(x: Numbers) -> Numbers:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def percent(share: dict[str, float]) -> str:
    """`62.5% (38.6% to 81.5%)`: a share with its interval."""
    return f"{share['value']:.1%} ({share['low']:.1%} to {share['high']:.1%})"


def answer_lengths(pairs: Sequence[Pair], side: Literal["chosen", "rejected"]) -> Numbers:
    """In characters."""
    return np.array([len(getattr(pair, side)) for pair in pairs], dtype=np.float64)
