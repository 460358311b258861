"""Degraded mode, declared: which parts of the reward were missing, for how many answers, and why.

`state.saved["scored"]` holds the counts, so they survive a stop. A part that was never given (`absent`) is not counted here: the
objective names it before the run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from medloop.contracts import Missing, Reward
from medloop.contracts.score import ABSENT

SHOWN_REASONS = 3


def missing_parts(rewards: Iterable[Reward]) -> dict[str, int]:
    """How many of these answers lack each part that should have scored them."""
    return dict(sorted(Counter(part.name for reward in rewards for part in missing_of(reward)).items()))


def count_missing(saved: dict[str, Any], rewards: Sequence[Reward], given: Iterable[str]) -> None:
    """Add the rewards of one batch to the counts of the run; a given part is counted even when nothing of it is missing."""
    scored = saved.setdefault("scored", {"answers": 0, "missing": {}})
    scored["answers"] += len(rewards)
    for name in given:
        scored["missing"].setdefault(name, {})
    for reward in rewards:
        for part in missing_of(reward):
            reasons = scored["missing"].setdefault(part.name, {})
            kind = part.reason.partition(":")[0][:60]  # the rest of a reason has numbers that differ from answer to answer
            reasons[kind] = reasons.get(kind, 0) + 1


def degraded_sentence(saved: Mapping[str, Any]) -> str | None:
    """What the reader of a result must know first; None when every part scored every answer."""
    scored = saved.get("scored", {"answers": 0, "missing": {}})
    parts: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for name, reasons in scored["missing"].items():
        if reasons:
            parts.setdefault(tuple(sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))), []).append(name)
    sentences = []
    for reasons, names in parts.items():
        count = sum(number for _, number in reasons)
        why = ", ".join(f"{kind} {number:,}" for kind, number in reasons[:SHOWN_REASONS])
        sentences.append(f"{count:,} of {scored['answers']:,} answers have no score from {', '.join(names)} ({why})")
    return (
        f"Degraded: {'; '.join(sentences)}. Their rewards, where they have one, rest on the other parts." if sentences else None
    )


def judge_metrics(saved: Mapping[str, Any]) -> dict[str, float]:
    """For the card: `scored_answers` and `missing_PART`; of a teacher that ranks, how far its rankings in both orders agree."""
    metrics: dict[str, float] = {}
    if (scored := saved.get("scored")) and scored["missing"]:
        metrics["scored_answers"] = scored["answers"]
        metrics |= {f"missing_{name}": sum(reasons.values()) for name, reasons in scored["missing"].items()}
    if agreements := saved.get("agreements"):
        metrics |= {"teacher_agreement": sum(agreements) / len(agreements), "teacher_groups_checked": len(agreements)}
    return metrics


def missing_of(reward: Reward) -> Iterable[Missing]:
    """The parts that should have scored this answer and did not."""
    return (part for part in reward.parts if isinstance(part, Missing) and part.version != ABSENT)
