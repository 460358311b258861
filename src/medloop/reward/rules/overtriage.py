"""Over-triage: 1 sends a patient to the emergency department with a routine question. 0 is clean.

    1.0    unconditional urgent advice for a question that is positively routine
    0.25   the same for a pregnant woman, a child or an old person, for whom detectors are least complete

"If it gets worse, call an ambulance" is good advice and costs nothing. The rule applies only where the detector calls the
question routine and no red flag is spoken of, not even a denied one; unknown and urgent questions are left out, and so are those
about a disease in general ("what are the symptoms of ..."), whose answer should say when it is an emergency. In the default
mix it is a gate with a small weight: the ambulance for everybody earns nothing, but on an emergency that was taken for routine
it does not fall below comfort without advice (`safety_net`).
"""

from dataclasses import dataclass

from medloop import lexicon
from medloop.contracts import Score
from medloop.reward.answer_text import act_spans, rule_score
from medloop.reward.detect import urgency as urgency_detector
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.framing import is_general, is_quiz
from medloop.reward.rules.emergency import CONDITIONAL, TRIAGE_VERSION, best_advice

CERTAIN, VULNERABLE = 1.0, 0.25


@dataclass(frozen=True)
class Overtriage:
    name: str = "overtriage"
    version: str = TRIAGE_VERSION
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        if urgency_detector.urgency(question).level != "routine" or lexicon.find_red_flags(question):
            return rule_score(self, 0.0, "The question is not certain to be routine, so this part is left out.", applies=False)
        folded = lexicon.folded(question)
        if is_quiz(folded) or is_general(folded, kind_of(question) == "zh"):
            return rule_score(self, 0.0, "The question is about no patient, so this part is left out.", applies=False)
        advice = best_advice(answer)
        if advice.value <= CONDITIONAL:
            return rule_score(self, 0.0, "The answer gives no unnecessary urgent advice.")
        vulnerable = any(not group.negated for group in lexicon.find_groups(question))
        value = VULNERABLE if vulnerable else CERTAIN
        return rule_score(self, value, "Urgent advice, although the question is routine.", act_spans(advice.acts))
