"""Over-triage: 1 sends a patient to the emergency department although the question names no red flag. 0 is clean.

    1.0   unconditional urgent advice, without a red flag in the question
    0.5   the same for a pregnant woman, a child or an old person, for whom the list of red flags is least complete

"If it gets worse, call an ambulance" is good advice and costs nothing. The rule does not apply to a question with a red flag,
even a negated one. Without this rule a policy earns most by sending everybody to hospital. Its weight should stay below that of
`emergency`, because an unnecessary visit is the smaller harm.
"""

from dataclasses import dataclass

from medloop import lexicon
from medloop.contracts import Score
from medloop.reward.answer_text import act_spans, rule_score
from medloop.reward.rules.emergency import CONDITIONAL, VERSION, best_advice

CERTAIN, VULNERABLE = 1.0, 0.5


@dataclass(frozen=True)
class Overtriage:
    name: str = "overtriage"
    version: str = VERSION
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        if lexicon.find_red_flags(question):
            return rule_score(self, 0.0, "The question mentions a red flag.", applies=False)
        advice = best_advice(answer)
        if advice.value <= CONDITIONAL:
            return rule_score(self, 0.0, "The answer gives no unnecessary urgent advice.")
        vulnerable = any(not group.negated for group in lexicon.find_groups(question))
        value = VULNERABLE if vulnerable else CERTAIN
        return rule_score(self, value, "Urgent advice, although the question names no red flag.", act_spans(advice.acts))
