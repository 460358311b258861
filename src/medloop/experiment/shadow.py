"""Blind choices between the answers of champion and challenger to the same questions, summed up.

    votes = count_votes(choices, champion="med-assistant/3", challenger="med-assistant/4")

An item is one question with two answers; its value is the mean of its reviews (challenger 1, equal 0.5, champion 0),
so that two reviewers of one pair do not count as two pairs. Where both answers are bad, neither has won.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from medloop.bootstrap import wilson
from medloop.contracts.assistant import Champion
from medloop.contracts.experiment import ShadowVotes
from medloop.contracts.feedback import ChoiceOutcome


@dataclass(frozen=True)
class ShadowChoice:
    """What one reviewer chose, and which version stood on which side."""

    item: str
    reviewer: str
    models: tuple[str, str]  # of the answers a and b
    preferred: ChoiceOutcome
    shown_first: str | None


def count_votes(choices: Iterable[ShadowChoice], *, champion: str, challenger: str) -> ShadowVotes:
    """The votes with Wilson's interval of the challenger's share; choices between other versions are left out."""
    counts = {"challenger": 0, "champion": 0, "tie": 0, "both_bad": 0}
    first: dict[Champion, int] = {"champion": 0, "challenger": 0}
    by_item: dict[str, list[float]] = {}
    reviewers = set()
    for choice in choices:
        if set(choice.models) != {champion, challenger}:
            continue
        arms: dict[str, Champion] = {
            side: "challenger" if model == challenger else "champion" for side, model in zip("ab", choice.models, strict=True)
        }
        outcome = arms.get(choice.preferred, choice.preferred)
        counts[outcome] += 1
        reviewers.add(choice.reviewer)
        if choice.shown_first in arms:
            first[arms[choice.shown_first]] += 1
        if outcome != "both_bad":
            by_item.setdefault(choice.item, []).append({"challenger": 1.0, "tie": 0.5, "champion": 0.0}[outcome])
    hits, n = sum(sum(votes) / len(votes) for votes in by_item.values()), len(by_item)
    low, high = wilson(hits, n) if n else (None, None)
    return ShadowVotes(
        challenger=counts["challenger"], champion=counts["champion"], ties=counts["tie"], both_bad=counts["both_bad"],
        share=hits / n if n else None, low=low, high=high, reviewers=len(reviewers), shown_first=first,
    )  # fmt: skip
