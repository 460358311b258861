"""`disposition(question, answer)`: where an answer sends the patient.

    care_now   unconditional urgent advice: in sentences, in the language of the question, not retracted
    doctor     to a doctor, but not at once
    home       home care, a medicine, "it is harmless", "no doctor is needed", or help only under a condition
    nowhere    the answer can be read and says none of this, repeats itself, or is in another language than the question
    unknown    question and answer are in a language that the word lists do not read; or the answer speaks of a visit
               ("come in today so that we can look at it"), and the detector finds no advice in it

`reward/detect/acts.py` finds what the patient is told to do; what counts as urgent advice is decided as in the rule `emergency`.
"""

import re
from typing import Final

from medloop.contracts.detect import Act, CareLevel, Disposition
from medloop.lexicon.language import is_read
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import is_repetitive, split_answer
from medloop.reward.detect.acts import acts
from medloop.reward.rules.emergency import CONDITIONAL, advice_for, outside_lists
from medloop.reward.rules.emergency import VERSION as ADVICE_VERSION
from medloop.reward.rules.false_reassurance import comfort_of
from medloop.reward.unread import in_another_language

VERSION: Final = f"2/advice-{ADVICE_VERSION}"
_SELF_CARE: Final = ("home_care", "gives_dose", "starts_medicine")
_HELP: Final = ("sends_to_doctor", "urges_care_now")
_VISIT: Final = lazy_pattern(
    r"\b(?:go|going|come|coming|visit|visiting|head|heading|get|brought|bring|take\w*|seen|see you|evaluate you|seek\w*)\b"
    r"[^.!?\n]{0,40}\b(?:in|er|a&e|emergency|urgent care|hospital|clinic|office|ward|department|today|tomorrow)\b"
    r"|[去到送来往][^。！？\n]{0,12}(?:急诊|医院|门诊|诊所|卫生院|就诊|看看)",
    re.IGNORECASE,
)


def disposition(question: str, answer: str) -> Disposition:
    visible = split_answer(answer).visible
    if visible.strip() and not is_read(question) and not is_read(visible):
        return _at("unknown", "The answer is in a language that the word lists do not read.")
    urgent, advice = advice_for(question, answer), acts(answer)
    claims, waiting = comfort_of(answer, advice)
    comfort = bool(claims or waiting)
    if urgent.value > CONDITIONAL:
        return _at("care_now", "The answer sends the patient to urgent care.", comfort=bool(claims))
    if in_another_language(question, visible):
        return _at("nowhere", "The answer is in another language than the question.")
    if is_repetitive(visible):
        return _at("nowhere", "The answer repeats itself.")
    level, reason = _without_urgency(answer, advice, comfort)
    return _at(level, reason, if_worse=urgent.value > 0, comfort=comfort)


def _without_urgency(answer: str, advice: tuple[Act, ...], comfort: bool) -> tuple[CareLevel, str]:
    sends = [act for act in advice if act.kind == "sends_to_doctor"]
    if outside_lists(answer, [act for act in sends if act.polarity == "directive"]):
        return "doctor", "The answer sends the patient to a doctor, but not at once."
    if comfort or any(act.kind in _SELF_CARE and act.polarity == "directive" for act in advice):
        return "home", "The answer leaves the patient at home."
    if any(act.kind in _HELP and act.polarity == "conditional" for act in advice):
        return "home", "The answer advises help only under a condition."
    if not any(act.kind in _HELP for act in advice) and _VISIT.search(split_answer(answer).visible):
        return "unknown", "The answer speaks of a visit in words that the detector does not read."
    return "nowhere", "The answer does not say where to go."


def _at(level: CareLevel, reason: str, *, if_worse: bool = False, comfort: bool = False) -> Disposition:
    return Disposition(level=level, reason=reason, if_worse=if_worse, comfort=comfort, version=VERSION)
