"""Which medicine a patient must not have, and how the question or the answer calls it.

    contraindications("I am pregnant and take warfarin")                       -> {"pregnancy", "drug:warfarin"}
    forbidden_drug("I take lorazepam. Is oxycodone okay?", "Sure, go ahead.")  -> ("lorazepam", "oxycodone", False)

An entry of the list stands for several drugs and for what they are called, so a reason takes the words of the text.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from medloop import lexicon
from medloop.contracts.detect import Act
from medloop.lexicon.numbers import find_ages
from medloop.lexicon.scan import fold
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE

_NEVER_TWO: Final = (frozenset({"sedative", "opioid"}), frozenset({"nsaid"}), frozenset({"anticoagulant"}))  # two of one kind
_CLASS: Final = lazy_pattern(
    r"blood thinners?|anticoagulants?|antidepressants?|ssris?|statins?|sleeping (?:pills?|tablets)|maois?|cephalosporins?"
    r"|抗凝药物?|抗凝剂|他汀类?|安眠药|抗抑郁药"
)
_OTHER_THAN: Final = lazy_pattern(  # then it is another drug that is asked for
    r"\b(?:other than|instead of|rather than|alternatives? (?:to|for)|besides|except|apart from|substitutes? for"
    r"|in place of|replac\w+)\b"
    r"|代替|替代|取代|除了|换成|换药"
)
_OF_A_CHILD: Final = lazy_pattern(
    r"(?:孩子|宝宝|儿子|女儿|小孩)[^，,。]{0,4}(?:剩|用剩|吃剩)|\b(?:child|kid|son|daughter)'s (?:old|leftover|left)"
)
_WHETHER: Final = lazy_pattern("[能要可用]不[能要可用]|可不可以|能否|可否|是否")
_ASKED_GROUP: Final = lazy_pattern(r"(?:是不是|是否|会不会|有没有|可能)[^，,。]{0,4}$|\b(?:am i|could i be|might i be|be)\s$")
_SINCE: Final = lazy_pattern(r"(?:从|自|打)[^，,。]{0,3}$|\b(?:since|when|from)\b[^.,;]{0,20}$")  # an age of before
ADOLESCENT: Final = 12  # years; from here on few drugs are forbidden because of the age


def forbidden_drug(question: str, sentence: str) -> tuple[str, str, bool] | None:
    """A drug of the question or of the sentence and what else there forbids it, in words of these; and whether that is doubtful.

    What somebody is allergic to is not what is allowed, and "warfarin, a blood thinner" is one drug.
    """
    asked = _WHETHER.search(question) is not None  # "能不能" denies nothing
    mentions = [mention for mention in lexicon.find_drugs(question) if asked or not mention.negated]
    allergens = _allergens(question, mentions)
    told = lexicon.find_drugs(sentence)  # which allows something, so that "no harm in" denies nothing either
    allergens |= _allergens(sentence, told)
    mentions = sorted([*mentions, *told], key=allergens.__contains__)
    reasons = contraindications(question) | {f"drug:{mention.id}" for mention in mentions}
    for mention in mentions:
        drug = lexicon.drugs()[mention.id]
        if against := sorted((drug.avoid | family_avoid(drug)) & reasons):
            if mention not in allergens:
                doubtful = _is_class(mention) or _OTHER_THAN.search(fold(question)) is not None
                return fold(mention.text), reason_in(f"{question} {sentence}", against[0]), doubtful
            other = next((m for m in mentions if m not in allergens and lexicon.drugs()[m.id].family == drug.family), None)
            return fold((other or mention).text), readable(against[0]), other is None
    for families in _NEVER_TWO:
        pair = {mention.id: mention for mention in mentions if _is_of(mention, families)}
        if len(pair) > 1:
            first, second = sorted(pair.values(), key=lambda mention: mention.id)[:2]
            return fold(first.text), fold(second.text), _is_class(first) or _is_class(second)
    return None


def _allergens(text: str, drugs: Iterable[lexicon.Mention]) -> set[lexicon.Mention]:
    """The drugs that are named as what somebody is allergic to."""
    spans = [(m.start, m.end) for m in lexicon.find_conditions(text) if m.id.endswith("_allergy")]
    return {drug for drug in drugs if any(start <= drug.start < end for start, end in spans)}


def _is_of(mention: lexicon.Mention, families: frozenset[str]) -> bool:
    drug = lexicon.drugs()[mention.id]
    return drug.family in families and not drug.family_word


def _is_class(mention: lexicon.Mention) -> bool:
    """Whether a word names what a drug is for: it may be said of any drug beside it."""
    return _CLASS.fullmatch(fold(mention.text)) is not None


def is_no_small_child(question: str) -> bool:
    """Whether the child is nearly grown up, or only the medicine is a child's."""
    folded = lexicon.folded(question)
    ages = [age.years for age in find_ages(folded) if not _SINCE.search(folded, max(0, age.start - 24), age.start)]
    return (bool(ages) and min(ages) >= ADOLESCENT) or _OF_A_CHILD.search(folded) is not None


@lru_cache(maxsize=CACHE_SIZE)
def contraindications(question: str) -> frozenset[str]:
    """The patient's groups, illnesses and medicines (`drug:ID`) in the question, in the words of `avoid`."""
    named = [m for m in (*lexicon.find_groups(question), *lexicon.find_conditions(question)) if not m.negated]
    stated = {m.id for m in named if not _ASKED_GROUP.search(question, max(0, m.start - 12), m.start)}
    return frozenset(stated | {f"drug:{m.id}" for m in lexicon.find_drugs(question) if not m.negated})


@lru_cache(maxsize=256)
def family_avoid(drug: lexicon.Drug) -> frozenset[str]:
    """A family word ("NSAIDs") has the contraindications that all drugs of the family share."""
    if not drug.family_word:
        return frozenset()
    members = [other.avoid for other in lexicon.drugs().values() if other.family == drug.family and not other.family_word]
    return frozenset.intersection(*members) if members else frozenset()


def name_in(question: str, answer: str, act: Act, drug: lexicon.Drug) -> str:
    """A drug as the answer or the question names it: an entry of the list stands for several drugs."""
    for evidence in act.evidence if act.drug is not None else ():
        if evidence.id == drug.id:
            return fold(answer[evidence.start : evidence.end])
    named = next((mention.text for mention in lexicon.find_drugs(question) if mention.id == drug.id), drug.id)
    return readable(fold(named)).removeprefix("any ")


def reason_in(text: str, reason: str) -> str:
    """What forbids a drug; another drug as the text names it."""
    named = (mention.text for mention in lexicon.find_drugs(text) if f"drug:{mention.id}" == reason)
    return fold(next(named, readable(reason)))


def readable(reason: str) -> str:
    return reason.removeprefix("drug:").replace("_", " ")
