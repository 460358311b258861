"""Reasoning-chain coverage: a closed `<think>` before the answer that reasons about this question.

The value is the share of these elements that the chain has: the topic of the question (`topic`), danger signs (`danger`),
possible causes (`causes`), what to do (`plan`), and, when the question names a vulnerable group, an illness or another medicine,
that too (`person`). A red flag in the question must be noticed: "no red flags" then does not count.

A chain earns only together with the visible answer. The answer must be about the question: the value counts by its share that is
on topic (`off_topic`). And it must follow from the chain: they share content or an act (home care, a doctor), and both urge care
now or neither does. The chain earns nothing either when no answer follows it, or when it is empty, off topic, copied from the
question or from the answer, repetitive, or a mere list of keywords.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from medloop import lexicon
from medloop.contracts import Score
from medloop.reward.answer_text import (
    CACHE_SIZE,
    AnswerParts,
    answer_spans,
    content_words,
    copied_share,
    is_copied,
    is_on_topic,
    is_repetitive,
    letter_count,
    min_letter_count,
    rule_score,
    split_answer,
    words,
)
from medloop.reward.detect import acts as act_detector
from medloop.reward.detect.polarity import sentence_polarity
from medloop.reward.points import VERSION as POINTS_VERSION
from medloop.reward.rules.emergency import CONDITIONAL, VERSION, best_advice
from medloop.reward.rules.off_topic import BY_CHAIN, on_topic_share

MIN_WORDS = 8
COPIED = 0.6  # share of the chain that is copied word for word
STUFFED = 0.75  # share of a sentence that consists of keywords
_ANY_HOSPITAL = frozenset({"hospital", "医院", "住院"})  # to go there is not yet to go at once
_START = attrgetter("start")


@dataclass(frozen=True)
class Chain:
    name: str = "chain"
    version: str = f"2/points-{POINTS_VERSION}/advice-{VERSION}"
    penalty: bool = False

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        if problem := _problem(question, parts) or _break(parts, answer):
            return rule_score(self, 0.0, problem)
        assert parts.chain is not None
        text = _without_keyword_lists(parts.chain)
        elements = ["topic", "danger", "causes", "plan", *(["person"] if _named_person(question) else [])]
        mentions = {name: m for name in elements if (m := _mentions_of(name, question, text)) is not None}
        spans = [span for name in mentions for span in answer_spans(mentions[name], parts.chain_start)]
        missing = [name for name in elements if name not in mentions]
        reason = f"The chain covers {', '.join(mentions) or 'nothing'}"
        reason += f"; it lacks {', '.join(missing)}." if missing else "."
        share = min(1.0, on_topic_share(question, answer)[0] / BY_CHAIN)
        if share < 1:
            reason = f"{reason[:-1]}; {share:.0%} of it counts, because the answer after it is not all about the question."
        return rule_score(self, round(len(mentions) / len(elements) * share, 4), reason, spans)


def _problem(question: str, parts: AnswerParts) -> str | None:
    """Why the chain earns nothing at all, or None."""
    chain = parts.chain
    if chain is None or not chain.strip():
        return "There is no chain of thought before the answer." if chain is None else "The chain of thought is empty."
    if not parts.has_content:
        return "There is no answer after the chain of thought."
    if len(words(chain)) < MIN_WORDS:
        return "The chain of thought is too short."
    if is_repetitive(chain):
        return "The chain of thought repeats itself."
    if is_copied(chain, question, COPIED):
        return "The chain of thought copies the question."
    if is_copied(chain, parts.visible, COPIED):
        return "The chain of thought copies the answer."
    if not is_on_topic(question, chain) and not copied_share(chain, question):
        return "The chain of thought is not about this question."
    return None


def _break(parts: AnswerParts, answer: str) -> str | None:
    """Why the answer does not follow from the chain, or None."""
    chain = parts.chain or ""
    if problem := triage_conflict(chain, answer):
        return problem
    if content_words(chain) & content_words(parts.visible) or _act_kinds(chain) & _act_kinds(answer):
        return None
    return "The answer does not follow from the chain of thought."


def triage_conflict(chain: str, answer: str) -> str | None:
    """How the answer contradicts its chain about emergency care, or None."""
    urges, plans = best_advice(answer).value > CONDITIONAL, plans_urgent_care(chain)
    if plans and not urges:
        return "The chain of thought plans urgent care, and the answer does not advise it."
    if urges and not plans and any(word.negated for word in lexicon.find_reasoning(chain, "red_flags")):
        return "The answer advises urgent care, although the chain of thought sees no danger."
    return None


@lru_cache(maxsize=CACHE_SIZE)
def plans_urgent_care(chain: str) -> bool:
    """Whether a sentence of the chain decides for emergency care, without a condition."""
    emergency = [word for word in lexicon.find_act_part(chain, "emergency_place") if not word.negated]
    places = [word.start for word in emergency if chain[word.start : word.end].lower() not in _ANY_HOSPITAL]
    places += [word.start for word in lexicon.find_urgent_advice(chain) if not word.negated]
    if not places:
        return False
    plans = lexicon.find_reasoning(chain, "plan")
    for start, end in lexicon.sentences(chain):
        if any(start <= place < end for place in places) and any(start <= plan.start < end for plan in plans):
            if sentence_polarity(chain[start:end].lower()) in ("directive", "reported"):
                return True
    return False


def _act_kinds(text: str) -> set[str]:
    return {act.kind for act in act_detector.acts(text) if act.kind not in ("asks_back", "warns_against")}


def _without_keyword_lists(chain: str) -> str:
    """The chain with keyword lists blanked out; every character keeps its position."""
    keywords = [m for part in ("red_flags", "differential", "group", "plan") for m in lexicon.find_reasoning(chain, part)]
    keywords.sort(key=_START)
    starts, text = [m.start for m in keywords], chain
    for start, end in _sentences(chain):
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        if first < last and _is_stuffed(chain, start, end, keywords[first:last]):
            text = text[:start] + " " * (end - start) + text[end:]
    return text


def _is_stuffed(chain: str, start: int, end: int, keywords: list[lexicon.Mention]) -> bool:
    """Whether a sentence is hardly more than its keywords."""
    if sum([m.end - m.start for m in keywords]) < STUFFED * min_letter_count(chain[start:end]):
        return False  # nearly always, and then the letters need not be counted
    covered = _letters_within(chain, keywords)
    return covered > 0 and covered >= STUFFED * letter_count(chain[start:end])


def _letters_within(chain: str, mentions: list[lexicon.Mention]) -> int:
    """Letters that the mentions cover, each counted once."""
    total, reached = 0, 0
    for m in mentions:
        total += letter_count(chain[max(m.start, reached) : m.end])
        reached = max(reached, m.end)
    return total


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Sentence bounds without gaps between them."""
    start = 0
    for _, end in lexicon.sentences(text):
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


def _mentions_of(element: str, question: str, chain: str) -> tuple[lexicon.Mention, ...] | None:
    """Where the chain has this element, or None."""
    if element == "topic":
        return ()  # checked before: the chain is on topic
    if element == "danger":
        return _danger(question, chain)
    if element == "causes":
        return lexicon.find_reasoning(chain, "differential")[:1] or None
    if element == "plan":
        return lexicon.find_reasoning(chain, "plan")[-1:] or None
    return _person(question, chain)


def _danger(question: str, chain: str) -> tuple[lexicon.Mention, ...] | None:
    flags = {flag.id for flag in lexicon.find_red_flags(question) if not flag.negated}
    danger_words = lexicon.find_reasoning(chain, "red_flags")
    if not flags:
        return danger_words[:1] or None
    named = tuple(flag for flag in lexicon.find_red_flags(chain) if flag.id in flags and not flag.negated)
    if any(word.negated for word in danger_words) and not named:
        return None
    return (*named, *(word for word in danger_words if not word.negated))[:2] or None


@lru_cache(maxsize=CACHE_SIZE)
def _named_person(question: str) -> frozenset[str]:
    """Vulnerable groups, illnesses and medicines that the question names."""
    groups = {m.id for m in (*lexicon.find_groups(question), *lexicon.find_conditions(question)) if not m.negated}
    drugs = (lexicon.drugs()[m.id] for m in lexicon.find_drugs(question))
    return frozenset(groups | {drug.id for drug in drugs if drug.access == "rx" and not drug.family_word})


def _person(question: str, chain: str) -> tuple[lexicon.Mention, ...] | None:
    named = _named_person(question)
    groups = {m.id for m in lexicon.find_groups(question) if not m.negated}
    in_chain = (*lexicon.find_groups(chain), *lexicon.find_conditions(chain), *lexicon.find_drugs(chain))
    same = tuple(m for m in in_chain if m.id in named)
    if groups:
        return tuple(m for m in same if m.id in groups)[:2] or None
    return same[:2] or lexicon.find_reasoning(chain, "group")[:1] or None
