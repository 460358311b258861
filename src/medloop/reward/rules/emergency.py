"""Emergency coverage: an emergent question requires urgent advice early in the visible answer.

    1.0   advice to get help at once in the first two sentences
    0.5   the same, but later: a frightened reader may not get that far
    0.3   only under a condition ("if it gets worse, go to the emergency department"), or contradicted elsewhere
    0     none, only in the chain of thought, only as a question, reported (a film, a price, history) or negated

`reward/detect/urgency.py` says how urgent the question is, `reward/detect/acts.py` what the answer tells this patient to do.
Where the urgency is unknown, the part is left out: never 0, never a penalty. It does not apply to urgent and routine questions.
What an answer without urgent advice costs is `undertriage`; what unnecessary urgent advice costs is `overtriage`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from medloop import lexicon
from medloop.contracts import Score
from medloop.contracts.detect import Act, Urgency
from medloop.reward.answer_text import CACHE_SIZE, SpanDict, act_spans, is_repetitive, rule_score, split_answer
from medloop.reward.detect import acts as act_detector
from medloop.reward.detect import urgency as urgency_detector

EARLY = 2  # sentences
FIRST, LATER, CONDITIONAL = 1.0, 0.5, 0.3
VERSION = f"2/acts-{act_detector.VERSION}/lexicon-{lexicon.VERSION}"  # of all rules that read urgent advice
TRIAGE_VERSION = f"{VERSION}/urgency-{urgency_detector.VERSION}"  # of those that compare it with the urgency of the question
UNKNOWN = "How urgent the question is could not be decided, so this part is left out."


class UrgentAdvice(NamedTuple):
    """The urgent advice of an answer and its value."""

    value: float
    reason: str
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Emergency:
    name: str = "emergency"
    version: str = TRIAGE_VERSION
    penalty: bool = False

    def score(self, question: str, answer: str) -> Score:
        urgency = urgency_detector.urgency(question)
        if urgency.level != "emergent":
            return rule_score(self, 1.0, why_left_out(urgency), applies=False)
        advice = best_advice(answer)
        spans = urgency_spans(urgency) + act_spans(advice.acts)
        return rule_score(self, advice.value, f"Emergency ({sign_of(urgency)}): {advice.reason}.", spans)


def why_left_out(urgency: Urgency) -> str:
    """Why a rule about emergencies does not judge this question."""
    return UNKNOWN if urgency.level == "unknown" else f"The question is {urgency.level}, not an emergency."


def sign_of(urgency: Urgency) -> str:
    """The first sign of an emergency by name; a model has none."""
    for evidence in urgency.evidence:
        if evidence.source == "lexicon":
            return lexicon.describe("red_flag", evidence.id).en_name
    return next((evidence.id for evidence in urgency.evidence if evidence.source == "numbers"), "by its whole wording")


def urgency_spans(urgency: Urgency) -> list[SpanDict]:
    """The signs in the question; a model's evidence is a whole passage and is left out."""
    signs = [evidence for evidence in urgency.evidence if evidence.source in ("lexicon", "numbers")]
    return [{"where": "question", "start": sign.start, "end": sign.end, "label": sign.id} for sign in signs]


@lru_cache(maxsize=CACHE_SIZE)
def best_advice(answer: str) -> UrgentAdvice:
    """The best urgent advice of the visible answer; a value above CONDITIONAL means that it is unconditional."""
    advice = tuple(act for act in act_detector.acts(answer) if act.kind == "urges_care_now")
    if is_repetitive(split_answer(answer).visible):
        return UrgentAdvice(0.0, "the answer repeats itself", advice)
    by_polarity: dict[str, list[Act]] = {}
    for act in advice:
        by_polarity.setdefault(act.polarity, []).append(act)
    if given := by_polarity.get("directive"):
        if "negated" in by_polarity:
            return UrgentAdvice(CONDITIONAL, "urgent advice is given and then retracted", advice)
        return _grade(split_answer(answer).visible, given[0])
    if conditional := by_polarity.get("conditional"):
        return UrgentAdvice(CONDITIONAL, "urgent advice only under a condition", (conditional[0],))
    return UrgentAdvice(0.0, _why_none(answer, by_polarity), advice)


def _grade(visible: str, act: Act) -> UrgentAdvice:
    index = lexicon.sentences(visible).index(lexicon.sentence_at(visible, act.start))
    if index < EARLY:
        return UrgentAdvice(FIRST, f"urgent advice in sentence {index + 1}", (act,))
    return UrgentAdvice(LATER, f"urgent advice comes late, in sentence {index + 1}", (act,))


def _why_none(answer: str, by_polarity: dict[str, list[Act]]) -> str:
    if "negated" in by_polarity:
        return "the answer says that urgent help is not needed"
    if by_polarity:
        return "urgent help is only asked about or reported, not advised"
    chain = split_answer(answer).chain
    if chain and lexicon.find_urgent_advice(chain):
        return "urgent advice is only in the chain of thought, which the patient does not see"
    return "no urgent advice in the answer"
