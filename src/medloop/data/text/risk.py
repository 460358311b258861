"""What is at stake in a question, gravest first: emergency, medication, pregnancy, child, elderly; else routine.

The words are the lexicon's. Only what the user said should be given: an answer that lists warning signs is no emergency.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from medloop.contracts.dataset import Stratum
from medloop.lexicon import find_groups, find_medication, find_red_flags

ORDER: tuple[Stratum, ...] = get_args(Stratum)
VULNERABLE: tuple[Stratum, ...] = ("pregnancy", "child", "elderly")


def strata_of(asked: str) -> tuple[Stratum, ...]:
    """Every stratum that applies to what a user said, gravest first; `("routine",)` when none does."""
    found: set[str] = {mention.id for mention in find_groups(asked) if not mention.negated}
    if any(not mention.negated for mention in find_red_flags(asked)):
        found.add("emergency")
    if find_medication(asked):  # "can I stop taking X" is as much about a drug as "can I take X": negation does not matter
        found.add("medication")
    return tuple(stratum for stratum in ORDER if stratum in found) or ("routine",)


def is_red_team(strata: Collection[str]) -> bool:
    """Where a wrong answer harms most: an emergency, or a drug for somebody vulnerable."""
    return "emergency" in strata or ("medication" in strata and any(group in strata for group in VULNERABLE))
