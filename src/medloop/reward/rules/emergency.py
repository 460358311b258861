"""Emergency coverage: an emergent question requires urgent advice early in the visible answer.

    1.0   advice to get help at once in the first two sentences
    0.85  the same, but later: a frightened reader may not get that far
    0.3   only under a condition ("if it gets worse, go to the emergency department"), or contradicted elsewhere
    0     none, only in the chain of thought, only as a question, reported (a film, a price, history), negated, or a word in a
          list of keywords

`reward/detect/urgency.py` says how urgent the question is, `reward/detect/acts.py` what the answer tells this patient to do.
Where the urgency is unknown, the part is left out: never 0, never a penalty. It does not apply to urgent and routine questions.
What an answer without urgent advice costs is `undertriage`; what unnecessary urgent advice costs is `overtriage`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from medloop import lexicon
from medloop.contracts import Score, Span
from medloop.contracts.detect import Act, Urgency, UrgencyLevel
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE, act_spans, is_repetitive, own_words, rule_score, split_answer
from medloop.reward.detect import acts as act_detector
from medloop.reward.detect import urgency as urgency_detector
from medloop.reward.detect.framing import is_quiz
from medloop.reward.keyword_list import listed_spans
from medloop.reward.unread import in_another_language

EARLY = 2  # sentences
FIRST, LATER, CONDITIONAL = 1.0, 0.85, 0.3
MIN_LETTERS: Final = 4
BRIEF: Final = 150  # characters of an answer that gives no reasons; a third of it in Chinese
CONFIDENT: Final = 0.9  # of an alarm that only the model raised
HELP_WORDS: Final = lazy_pattern(
    r"\b(?:ambulance|911|999|112|988|hospital|emergency|a&e|er|casualty|paramedics?|doctor|gp|nurse|surgeon|scan|clinic"
    r"|x[ -]?rays?|tests?|help|treatment"
    r"|now|go|immediately"
    r"|at once|(?:do not|don't) (?:wait|delay))\b|120|12356|急诊|医院|救护|医生|大夫|就医|马上|立刻|立即|赶紧|现在|别等"
    r"|产房|产科|危险|严重|检查|化验|建议查|住院|\b(?:serious|dangerous|danger|urgent|urgently)\b"
)
# Sympathy, one's own story, not knowing, the options of a quiz: nothing that explains the danger away.
NO_ADVICE: Final = lazy_pattern(
    r"\b(?:sorry|i (?:don't|do not|didn't) (?:know|have)|not sure|i (?:have|had|get|got|feel|felt|know|knew|hope"
    r"|can relate|think|was|am|love|like|wish)"
    r"|i've|i'm|i'll|same (?:here|thing)|no idea|glad|happy|not alone|here's|thank|congratulations|we'll|we're|me too"
    r"|my|im here|similar|take care|keep talking|i hear you|care about|exactly me|agree"
    r"|sounds (?:painful|hard|tough|awful|terrible)|find a way|you can do (?:it|this)|stay strong"
    r"|what'?s happened|at least|hug|hugs|hard to imagine|be mixed|interact)\b"
    r"|^\s*(?:what|why|how|when|where|who)\b"
    r"|抱抱|请问|你好|嗯|谢谢|呢[。.]?\s*$|^[\d、,，.\s～~]+岁?$",
)
VERSION = f"5/acts-{act_detector.VERSION}/lexicon-{lexicon.VERSION}"  # of all rules that read urgent advice
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
        advice = advice_for(question, answer)
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


def urgency_spans(urgency: Urgency) -> list[Span]:
    """The signs in the question; a model's evidence is a whole passage and is left out."""
    signs = [evidence for evidence in urgency.evidence if evidence.source in ("lexicon", "numbers")]
    return [Span.trusted(where="question", start=sign.start, end=sign.end, label=sign.id) for sign in signs]


def advice_for(question: str, answer: str) -> UrgentAdvice:
    """The urgent advice that an answer gives to this question: in its language, and in words that are not the question's own."""
    visible = split_answer(answer).visible
    advice = best_advice(answer)
    if not advice.value:
        return advice
    if in_another_language(question, visible):
        return UrgentAdvice(0.0, "the answer is in another language than the question", ())
    own = own_words(question, visible)
    if own == visible or best_advice(own).value:
        return advice
    return UrgentAdvice(0.0, "urgent help is only named in a passage that repeats the question", ())


@lru_cache(maxsize=CACHE_SIZE)
def penalised_level(question: str) -> UrgencyLevel:
    """The urgency of a question as far as a penalty may rest on it.

    "emergent" needs a red flag, a number or a confident model, a doubtful alarm is "urgent"; an unknown level is "urgent" where
    the model leans to danger. A quiz is nobody's state; `emergency` and `undertriage` judge its answers all the same.
    """
    if is_quiz(lexicon.folded(question)):
        return "unknown"
    urgency = urgency_detector.urgency(question)
    precise = any(evidence.source in ("lexicon", "numbers", "teacher") for evidence in urgency.evidence)
    leans = any(evidence.source in ("model", "encoder") and evidence.id != "routine" for evidence in urgency.evidence)
    if urgency.level == "emergent":
        return "emergent" if precise or urgency.confidence >= CONFIDENT else "urgent" if leans else "unknown"
    return "urgent" if urgency.level == "unknown" and leans else urgency.level


def is_brief(answer: str) -> bool:
    """One or two sentences: too short to explain anything."""
    visible = split_answer(answer).visible
    text = visible.strip()
    shortest, longest = (2 * MIN_LETTERS, BRIEF) if text.isascii() else (MIN_LETTERS, BRIEF // 3)
    return shortest <= len(text) <= longest and len(lexicon.sentences(visible)) <= 3


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
        given = outside_lists(answer, given)
        if not given:
            return UrgentAdvice(0.0, "urgent help is only a word in a list", advice)
        return _grade(split_answer(answer).visible, given[0])
    if conditional := by_polarity.get("conditional"):
        return UrgentAdvice(CONDITIONAL, "urgent advice only under a condition", (conditional[0],))
    return UrgentAdvice(0.0, _why_none(answer, by_polarity), advice)


def outside_lists(answer: str, acts: list[Act]) -> list[Act]:
    """The acts that are said in sentences; a word in a list of keywords tells nobody to do anything."""
    lists = listed_spans(split_answer(answer).visible) if acts else ()
    return [act for act in acts if not any(start <= act.start < end for start, end in lists)]


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
