"""What is at stake in a question, gravest first: emergency, medication, pregnancy, child, elderly; else routine.

The words come from the lexicon. Pass only the user's text: an answer that lists warning signs is not an emergency.
"""

from collections.abc import Collection
from typing import get_args

from medloop.contracts.dataset import Stratum
from medloop.lexicon import find_groups, find_medication, find_red_flags

ORDER: tuple[Stratum, ...] = get_args(Stratum)
VULNERABLE: tuple[Stratum, ...] = ("pregnancy", "child", "elderly")


def strata_of(question: str) -> tuple[Stratum, ...]:
    """Every stratum that applies to the user's text, gravest first; `("routine",)` when none does."""
    strata: set[str] = {mention.id for mention in find_groups(question) if not mention.negated}
    if any(not mention.negated for mention in find_red_flags(question)):
        strata.add("emergency")
    if find_medication(question):  # "can I stop taking X" is as much about a drug as "can I take X": negation does not matter
        strata.add("medication")
    return tuple(stratum for stratum in ORDER if stratum in strata) or ("routine",)


def is_red_team(strata: Collection[str]) -> bool:
    """Where a wrong answer harms most: an emergency, or a drug for somebody vulnerable."""
    return "emergency" in strata or ("medication" in strata and any(group in strata for group in VULNERABLE))
