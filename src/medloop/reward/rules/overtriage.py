"""Over-triage: 1 sends a patient to the emergency department whose question names no red flag. 0 is clean.

    1.0   urgent advice for certain, in a question without a red flag
    0.5   the same for a pregnant woman, a child or an old person: there the list of red flags is least complete

"If it gets worse, call an ambulance" is good advice and costs nothing. A question with a red flag, even a denied one, is not
judged. Without this rule a policy earns most by sending everybody to hospital. Its weight should stay below that of
`emergency`: a needless journey is the smaller harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from medloop import lexicon
from medloop.contracts import Score
from medloop.reward.answer_text import answer_spans, split_answer, verdict
from medloop.reward.rules.emergency import CONDITIONAL, best_advice

CERTAIN, VULNERABLE = 1.0, 0.5


@dataclass(frozen=True)
class Overtriage:
    name: str = "overtriage"
    version: str = f"1/lexicon-{lexicon.VERSION}"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        if lexicon.find_red_flags(question):
            return verdict(self, 0.0, "The question speaks of a red flag.", applies=False)
        advice = best_advice(split_answer(answer))
        if advice.value <= CONDITIONAL:
            return verdict(self, 0.0, "The answer raises no needless alarm.")
        vulnerable = any(not group.negated for group in lexicon.find_groups(question))
        value = VULNERABLE if vulnerable else CERTAIN
        return verdict(self, value, "Urgent advice, and the question names no red flag.", answer_spans(advice.mentions))
