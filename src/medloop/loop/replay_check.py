"""Which rows may be replayed: the rules of the reward read each answer, because what is replayed is learnt once more.

    check = replay_check(SFTConfig(data="corrections.jsonl", replay_data="train.jsonl"))
    check("I feel nervous.", "Take diazepam 20 mg whenever you feel nervous.")     -> "risk"

An answer stays out where one of these rules has a serious value, sure or not: a row too few costs little, a row too many teaches
its mistake. How much the rules find, and what they leave out wrongly: docs/log.md#repair. They read English and Chinese, and are
no review: a row that stays in was judged by rules alone.
"""

from dataclasses import dataclass
from typing import Any

from medloop.contracts import Score
from medloop.contracts.score import SERIOUS
from medloop.reward.rules import load_rules

RULES = ("risk", "undertriage", "false_reassurance")


@dataclass(frozen=True)
class RuleCheck:
    """The name of the first rule that finds a serious fault."""

    @property
    def version(self) -> str:
        return "; ".join(f"{rule.name} {rule.version}" for rule in load_rules(RULES))

    def __call__(self, question: str, answer: str) -> str | None:
        for rule in load_rules(RULES):
            score = rule.score(question, answer)
            if isinstance(score, Score) and score.applies and score.value >= SERIOUS:
                return rule.name
        return None


def replay_check(config: Any) -> RuleCheck | None:
    """The check of a run; None where nothing is replayed, or the check is switched off."""
    return RuleCheck() if getattr(config, "replay_data", None) and getattr(config, "replay_check", False) else None
