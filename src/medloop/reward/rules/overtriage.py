"""Over-triage: 1 sends a patient to the emergency department with a routine question. 0 is clean.

    1.0    unconditional urgent advice for a question that is positively routine
    0.25   the same for a pregnant woman, a child or an old person, for whom detectors are least complete

"If it gets worse, call an ambulance" is good advice and costs nothing. The rule applies only where the detector calls the
question routine and no red flag is spoken of, not even a denied one; unknown and urgent questions are left out, and so are those
about a disease in general ("what are the symptoms of ..."), whose answer should say when it is an emergency. In the default
mix it is a gate with a small weight: the ambulance for everybody earns nothing, but on an emergency that was taken for routine
it does not fall below comfort without advice (`safety_net`). It is a verdict only for one or two sentences of alarm to a short
question that names nothing worrying, otherwise `unsure`.
"""

from dataclasses import dataclass
from typing import Final

from medloop import lexicon
from medloop.contracts import Score
from medloop.lexicon.scan import fold
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import act_spans, rule_score
from medloop.reward.detect import urgency as urgency_detector
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.certainty import VERSION as CERTAINTY_VERSION
from medloop.reward.detect.certainty import is_short, names_illness, speaks_of_patient
from medloop.reward.detect.framing import is_general, is_quiz
from medloop.reward.rules.emergency import CONDITIONAL, FIRST, TRIAGE_VERSION, best_advice, is_brief

CERTAIN, VULNERABLE = 1.0, 0.25
_AMBULANCE: Final = lazy_pattern(r"\b(?:ambulance|911|999|112)\b|120|救护车")
_WORRYING: Final = lazy_pattern(
    r"\b(?:blood\w*|bleed\w*|severe|sudden\w*|worse\w*|heart|chest|breath\w*|faint\w*|swell\w*|swollen|numb\w*|seizures?|poison\w*|lump"
    r"|covid|cancer|tumou?rs?|serious|overdos\w+|suicid\w+|hurt myself|thank|thanks|ok(?:ay)?)\b"
    r"|血|剧|突然|严重|越来越|心[脏口慌]|胸|呼吸|晕|肿|麻|抽|癫|中毒|梗|癌|瘤|急|好的|谢谢|我会|怀孕"
)
_SYMPTOMS: Final = lazy_pattern(r"\bsymptoms?\b")
_COMPLAINT: Final = lazy_pattern(  # what the words of illness lack
    r"\b(?:colds?|flu|allerg\w+|sinus\w*|sneez\w*|runny|stuffy|congest\w*|heartburn|indigestion|reflux|bloat\w*|cramps?|constipat\w*"
    r"|diarrh\w*|nausea\w*|hangover|menopaus\w*|periods?|pms|insomnia|anxiety|itch\w*)\b"
)


@dataclass(frozen=True)
class Overtriage:
    name: str = "overtriage"
    version: str = f"{TRIAGE_VERSION}/certainty-{CERTAINTY_VERSION}/worrying-2"
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
        plain = advice.value >= FIRST and _is_plain(question, answer, vulnerable)
        reason = "Urgent advice, although the question is routine."
        return rule_score(self, value, reason, act_spans(advice.acts), unsure=not plain)


def _is_plain(question: str, answer: str, vulnerable: bool) -> bool:
    """One or two sentences of alarm for a short question that names nothing dangerous; an ambulance for the vulnerable."""
    if (
        not (is_short(question) and is_brief(answer))
        or not speaks_of_patient(question)
        or _WORRYING.search(lexicon.folded(question))
    ):
        return False
    named, vague = _SYMPTOMS.subn(" ", lexicon.folded(question))
    if vague and not (names_illness(named) or _COMPLAINT.search(named)):
        return False  # symptoms of what?
    return not vulnerable or _AMBULANCE.search(fold(answer)) is not None
