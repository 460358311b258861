"""Metrics of a model that prefers one answer to another: pure functions of margins (logit of chosen - of rejected)."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from medloop.bootstrap import RESAMPLES, Numbers, percentile_interval, spearman, wilson
from medloop.train.examples.pairs import Pair

EQUAL = 0.10  # two answers are about equally long when they differ by at most this share of the longer answer
BINS = 10


def accuracy(margins: Numbers) -> dict[str, float]:
    """Share of pairs in the right order, with its 95 % interval; a tie is half right."""
    right = float(_right(margins).sum())
    low, high = wilson(right, len(margins))
    return {"value": right / len(margins) if len(margins) else math.nan, "low": low, "high": high, "n": len(margins)}


def accuracy_difference(first: Numbers, second: Numbers, questions: Sequence[str], seed: int) -> dict[str, float]:
    """How much more often the first is right than the second on the same pairs, with a 95 % bootstrap over questions."""
    return question_mean(_right(first) - _right(second), questions, seed)


def question_mean(values: Numbers, questions: Sequence[str], seed: int) -> dict[str, float]:
    """The mean over pairs, with a 95 % bootstrap interval over questions: pairs of one question are no independent evidence."""
    groups = np.unique(np.asarray(questions), return_inverse=True)[1]
    sums, sizes = np.bincount(groups, values), np.bincount(groups)
    draws = np.random.default_rng([seed, 11]).integers(0, len(sums), (RESAMPLES, len(sums)))
    low, high = percentile_interval(sums[draws].sum(1) / sizes[draws].sum(1))
    return {"value": float(values.mean()), "low": low, "high": high, "n": len(values)}


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
    close = equally_long(long_chosen, long_rejected)
    parts = {"shorter": ~close & (differences < 0), "longer": ~close & (differences > 0), "about equal": close}
    return {
        "margin_and_difference": spearman(margins, differences) or 0.0,
        "score_and_length": spearman(np.concatenate([chosen, rejected]), np.concatenate([long_chosen, long_rejected])) or 0.0,
        "longer_scored_higher": float((_right(margins * np.sign(differences)))[differences != 0].mean())
        if (differences != 0).any()
        else math.nan,
        "accuracy_where_chosen_is": {name: accuracy(margins[where]) for name, where in parts.items() if where.any()},
    }


def equally_long(first: Numbers, second: Numbers) -> NDArray[np.bool_]:
    return np.asarray(np.abs(first - second) <= EQUAL * np.maximum(first, second))


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
