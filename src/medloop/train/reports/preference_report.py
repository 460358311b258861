"""What DPO or KTO did to the held-out rows: pure functions from log-probabilities to numbers and a page.

The implicit reward of an answer is beta times log(policy / reference). It is 0 for every answer before the first step, so the
accuracy before is that of a coin by definition. Beside it stands what the reference itself finds likelier, before and after.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.train.examples.pairs import Pair
from medloop.train.examples.thumbs import Thumb
from medloop.train.reports import pair_numbers as numbers
from medloop.train.reports.pair_numbers import Numbers

RESAMPLES = 1000
DIGITS = 5  # rewards closer than that are the same: sums of float32 differ with the company a row is read in


@dataclass(frozen=True)
class Read:
    """Log-probabilities of answers, in nats: under the policy, and under the reference."""

    policy: Numbers
    reference: Numbers

    def rewards(self, beta: float) -> Numbers:
        return np.asarray(np.round(beta * (self.policy - self.reference), DIGITS))


def of_pairs(pairs: Sequence[Pair], chosen: Read, rejected: Read, beta: float) -> dict[str, Any]:
    """Accuracy, margins and leaning to length over held-out pairs."""
    up, down = chosen.rewards(beta), rejected.rewards(beta)
    lengths = [np.array([len(getattr(p, side)) for p in pairs], dtype=np.float64) for side in ("chosen", "rejected")]
    return {
        "test": numbers.accuracy(up - down),
        "likelier_before": numbers.accuracy(chosen.reference - rejected.reference),
        "likelier_after": numbers.accuracy(chosen.policy - rejected.policy),
        "longer": numbers.accuracy(lengths[0] - lengths[1]),
        "margin": {"mean": float((up - down).mean()), "std": float((up - down).std())},
        "rewards": {"chosen": float(up.mean()), "rejected": float(down.mean())},
        "length": numbers.length_bias(up, down, *lengths),
    }


def of_thumbs(thumbs: Sequence[Thumb], read: Read, beta: float, seed: int) -> dict[str, Any]:
    """Accuracy, order and leaning to length over held-out thumbs."""
    rewards, liked = read.rewards(beta), np.array([thumb.liked for thumb in thumbs])
    lengths = np.array([len(thumb.answer) for thumb in thumbs], dtype=np.float64)
    up, down = rewards[liked], rewards[~liked]
    return {
        "test": numbers.accuracy(np.where(liked, rewards, -rewards)),
        "order": _order(rewards, liked, seed),
        "order_before": _order(read.reference, liked, seed),
        "margin": {"mean": float(up.mean() - down.mean()) if len(up) and len(down) else float("nan")},
        "rewards": {"chosen": float(up.mean()) if len(up) else 0.0, "rejected": float(down.mean()) if len(down) else 0.0},
        "length": {
            "reward_and_length": numbers.spearman(rewards, lengths),
            "label_and_length": numbers.spearman(liked.astype(np.float64), lengths),
        },
    }


def area(values: Numbers, liked: NDArray[np.bool_]) -> float:
    """How often a liked answer has the higher value than one that was not; a tie is half. 0.5 is a coin (area under the ROC)."""
    up, down = values[liked], np.sort(values[~liked])
    below, upto = np.searchsorted(down, up, "left"), np.searchsorted(down, up, "right")
    return float(((below + upto) / 2).sum() / (len(up) * len(down)))


def files(found: dict[str, Any]) -> dict[str, bytes]:
    return {"report.json": (json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()}


def summary(found: dict[str, Any]) -> list[str]:
    """The report in some lines, for a terminal and for README.md."""
    words, long = found["rewards"], found["length"]
    lines = [f"implicit reward: chosen {words['chosen']:+.3f}, rejected {words['rejected']:+.3f}"]
    if "order" in found:
        before, after = found["order_before"], found["order"]
        lines += [
            f"a liked answer has the higher reward than one not liked: {_share(after)}",
            f"a liked answer is the likelier one to the reference: {_share(before)}",
            f"length correlates {long['reward_and_length']:+.2f} with the reward, {long['label_and_length']:+.2f} with thumbs",
        ]
        return lines
    return [
        *lines,
        f"chosen is the likelier one: before {_share(found['likelier_before'])}, after {_share(found['likelier_after'])}",
        f"always the longer answer: {_share(found['longer'])}",
        f"margin and length difference correlate {long['margin_and_difference']:+.2f}",
    ]


def _share(part: dict[str, float]) -> str:
    return f"{part['value']:.1%} ({part['low']:.1%} to {part['high']:.1%})"


def _order(values: Numbers, liked: NDArray[np.bool_], seed: int) -> dict[str, float]:
    """The area with its 95 % bootstrap interval over answers, liked and not liked drawn apart."""
    rng, up, down = np.random.default_rng(seed), np.flatnonzero(liked), np.flatnonzero(~liked)
    if not len(up) or not len(down):
        return {"value": 0.5, "low": 0.0, "high": 1.0}
    drawn = []
    for _ in range(RESAMPLES):
        some = np.concatenate([rng.choice(up, len(up)), rng.choice(down, len(down))])
        drawn.append(area(values[some], liked[some]))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return {"value": area(values, liked), "low": float(low), "high": float(high)}
