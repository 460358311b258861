"""The effect of DPO or KTO on the held-out rows: pure functions from log-probabilities to a report.

The implicit reward of an answer is beta times log(policy / reference). It is 0 for every answer before the first step, so the
accuracy before training is chance by definition. The report also says which answer the model itself finds likelier, before and
after.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.bootstrap import Numbers, percentile_interval, spearman
from medloop.train.examples.pairs import Pair
from medloop.train.examples.thumbs import Thumb
from medloop.train.reports.pair_metrics import accuracy, answer_lengths, length_bias, percent

RESAMPLES = 1000
DIGITS = 5  # rewards closer than that are equal: float32 sums differ with the batch that a row is in


@dataclass(frozen=True)
class AnswerLogprobs:
    """Log-probabilities of whole answers, in nats, under the policy and under the reference."""

    policy: Numbers
    reference: Numbers

    def rewards(self, beta: float) -> Numbers:
        return np.asarray(np.round(beta * (self.policy - self.reference), DIGITS))


def report_pairs(pairs: Sequence[Pair], chosen: AnswerLogprobs, rejected: AnswerLogprobs, beta: float) -> dict[str, Any]:
    """Accuracy, margins and length bias over held-out pairs."""
    up, down = chosen.rewards(beta), rejected.rewards(beta)
    lengths = answer_lengths(pairs, "chosen"), answer_lengths(pairs, "rejected")
    return {
        "test": accuracy(up - down), "likelier_before": accuracy(chosen.reference - rejected.reference),
        "likelier_after": accuracy(chosen.policy - rejected.policy), "longer": accuracy(lengths[0] - lengths[1]),
        "margin": {"mean": float((up - down).mean()), "std": float((up - down).std())},
        "rewards": {"chosen": float(up.mean()), "rejected": float(down.mean())}, "length": length_bias(up, down, *lengths),
    }  # fmt: skip


def report_thumbs(thumbs: Sequence[Thumb], answers: AnswerLogprobs, beta: float, seed: int) -> dict[str, Any]:
    """Accuracy, AUC and length bias over held-out thumbs."""
    rewards, liked = answers.rewards(beta), np.array([thumb.liked for thumb in thumbs])
    lengths = np.array([len(thumb.answer) for thumb in thumbs], dtype=np.float64)
    up, down = rewards[liked], rewards[~liked]
    return {
        "test": accuracy(np.where(liked, rewards, -rewards)),
        "auc": _auc_with_interval(rewards, liked, seed),
        "auc_before": _auc_with_interval(answers.reference, liked, seed),
        "margin": {"mean": float(up.mean() - down.mean()) if len(up) and len(down) else float("nan")},
        "rewards": {"chosen": float(up.mean()) if len(up) else 0.0, "rejected": float(down.mean()) if len(down) else 0.0},
        "length": {
            "reward_and_length": spearman(rewards, lengths) or 0.0,
            "label_and_length": spearman(liked.astype(np.float64), lengths) or 0.0,
        },
    }


def roc_auc(values: Numbers, liked: NDArray[np.bool_]) -> float:
    """Area under the ROC curve: how often a liked answer has a higher value than a disliked one; a tie counts half."""
    up, down = values[liked], np.sort(values[~liked])
    below, upto = np.searchsorted(down, up, "left"), np.searchsorted(down, up, "right")
    return float(((below + upto) / 2).sum() / (len(up) * len(down)))


def files(report: dict[str, Any]) -> dict[str, bytes]:
    return {"report.json": (json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()}


def summary(report: dict[str, Any]) -> list[str]:
    """The report in a few lines, for a terminal and for README.md."""
    rewards, length = report["rewards"], report["length"]
    lines = [f"Implicit reward: chosen {rewards['chosen']:+.3f}, rejected {rewards['rejected']:+.3f}"]
    if "auc" in report:
        reward, label = length["reward_and_length"], length["label_and_length"]
        return [
            *lines,
            f"A liked answer has a higher reward than a disliked one (AUC): {percent(report['auc'])}",
            f"The reference finds a liked answer likelier than a disliked one (AUC): {percent(report['auc_before'])}",
            f"Correlation with length: {reward:+.2f} for the reward, {label:+.2f} for the thumbs",
        ]
    return [
        *lines,
        f"The chosen answer is likelier: before {percent(report['likelier_before'])}, after {percent(report['likelier_after'])}",
        f"Baseline, always the longer answer: {percent(report['longer'])}",
        f"Correlation of margin and length difference: {length['margin_and_difference']:+.2f}",
    ]


def _auc_with_interval(values: Numbers, liked: NDArray[np.bool_], seed: int) -> dict[str, float]:
    """The AUC with its 95 % bootstrap interval over answers, liked and not liked drawn apart."""
    rng, up, down = np.random.default_rng(seed), np.flatnonzero(liked), np.flatnonzero(~liked)
    if not len(up) or not len(down):
        return {"value": 0.5, "low": 0.0, "high": 1.0}
    resampled = []
    for _ in range(RESAMPLES):
        rows = np.concatenate([rng.choice(up, len(up)), rng.choice(down, len(down))])
        resampled.append(roc_auc(values[rows], liked[rows]))
    low, high = percentile_interval(np.array(resampled))
    return {"value": roc_auc(values, liked), "low": low, "high": high}
