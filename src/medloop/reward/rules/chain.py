"""Reasoning-chain coverage: a closed `<think>` before the answer that thinks about this question.

The value is the share of parts found: what was asked (`topic`), danger signs (`danger`), possible causes (`causes`), what
to do (`plan`), and, when the question names a vulnerable group, an illness or another medicine, that too (`person`).
A danger sign in the question must be seen: "no red flags" then counts as not found.

Nothing is earned without an answer after the chain, or by a chain that is empty, off topic, copied from the question or
from the answer, repeated, or a mere list of keywords.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from medloop import lexicon
from medloop.contracts import Score
from medloop.reward.answer_text import (
    KEPT,
    Parts,
    answer_spans,
    copied_share,
    copies,
    is_repetitive,
    letters,
    letters_at_least,
    on_topic,
    split_answer,
    verdict,
    words,
)

MIN_WORDS = 8
COPIED = 0.6  # share of the chain that stands word for word elsewhere
STUFFED = 0.75  # share of a sentence that is nothing but keywords
_START = attrgetter("start")


@dataclass(frozen=True)
class Chain:
    name: str = "chain"
    version: str = f"1/lexicon-{lexicon.VERSION}"
    penalty: bool = False

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        if problem := _problem(question, parts):
            return verdict(self, 0.0, problem)
        assert parts.chain is not None
        text = _what_says_something(parts.chain)
        wanted = ["topic", "danger", "causes", "plan", *(["person"] if _named_person(question) else [])]
        found = {name: seen_at for name in wanted if (seen_at := _look(name, question, text)) is not None}
        seen = [name for name in wanted if name in found]
        spans = [span for name in seen for span in answer_spans(found[name], parts.chain_start)]
        lacking = [name for name in wanted if name not in found]
        reason = f"The chain covers {', '.join(seen) or 'nothing'}" + (f"; it lacks {', '.join(lacking)}." if lacking else ".")
        return verdict(self, len(seen) / len(wanted), reason, spans)


def _problem(question: str, parts: Parts) -> str | None:
    """Why the chain earns nothing at all, if so."""
    chain = parts.chain
    if chain is None or not chain.strip():
        return "There is no chain of thought before the answer." if chain is None else "The chain of thought is empty."
    if not parts.says_something:
        return "There is no answer after the chain of thought."
    if len(words(chain)) < MIN_WORDS:
        return "The chain of thought is too short to be one."
    if is_repetitive(chain):
        return "The chain of thought repeats itself."
    if copies(chain, question, COPIED):
        return "The chain of thought copies the question."
    if copies(chain, parts.visible, COPIED):
        return "The chain of thought copies the answer."
    if not on_topic(question, chain) and not copied_share(chain, question):
        return "The chain of thought is not about this question."
    return None


def _what_says_something(chain: str) -> str:
    """The chain with keyword lists blanked out; every character keeps its place."""
    keywords = [m for part in ("red_flags", "differential", "group", "plan") for m in lexicon.find_reasoning(chain, part)]
    keywords.sort(key=_START)
    said = chain
    for start, end in _whole(chain):
        here = keywords[bisect_left(keywords, start, key=_START) : bisect_left(keywords, end, key=_START)]
        if here and _is_stuffed(chain, start, end, here):
            said = said[:start] + " " * (end - start) + said[end:]
    return said


def _is_stuffed(chain: str, start: int, end: int, keywords: list[lexicon.Mention]) -> bool:
    """Is a sentence hardly more than its keywords?"""
    if sum([m.end - m.start for m in keywords]) < STUFFED * letters_at_least(chain[start:end]):
        return False  # nearly always, and then letters need not be counted one by one
    covered = _letters_within(chain, keywords)
    return covered > 0 and covered >= STUFFED * letters(chain[start:end])


def _letters_within(chain: str, mentions: list[lexicon.Mention]) -> int:
    """Letters that any mention covers, each counted once."""
    total, reached = 0, 0
    for m in mentions:
        total += letters(chain[max(m.start, reached) : m.end])
        reached = max(reached, m.end)
    return total


def _whole(text: str) -> Iterator[tuple[int, int]]:
    """Sentence bounds without gaps between them."""
    at = 0
    for _, end in lexicon.sentences(text):
        yield at, end
        at = end
    if at < len(text):
        yield at, len(text)


def _look(part: str, question: str, chain: str) -> tuple[lexicon.Mention, ...] | None:
    """What was found for one part, or None."""
    if part == "topic":
        return ()  # that the chain is on topic was seen before
    if part == "danger":
        return _danger(question, chain)
    if part == "causes":
        return lexicon.find_reasoning(chain, "differential")[:1] or None
    if part == "plan":
        return lexicon.find_reasoning(chain, "plan")[-1:] or None
    return _person(question, chain)


def _danger(question: str, chain: str) -> tuple[lexicon.Mention, ...] | None:
    asked = {flag.id for flag in lexicon.find_red_flags(question) if not flag.negated}
    said = lexicon.find_reasoning(chain, "red_flags")
    if not asked:
        return said[:1] or None
    named = tuple(flag for flag in lexicon.find_red_flags(chain) if flag.id in asked and not flag.negated)
    if any(word.negated for word in said) and not named:
        return None
    return (*named, *(word for word in said if not word.negated))[:2] or None


@lru_cache(maxsize=KEPT)
def _named_person(question: str) -> frozenset[str]:
    """Vulnerable groups, illnesses and medicines that the question names."""
    groups = {m.id for m in (*lexicon.find_groups(question), *lexicon.find_conditions(question)) if not m.negated}
    taken = (lexicon.drugs()[m.id] for m in lexicon.find_drugs(question))
    return frozenset(groups | {drug.id for drug in taken if drug.access == "rx" and not drug.family_word})


def _person(question: str, chain: str) -> tuple[lexicon.Mention, ...] | None:
    named = _named_person(question)
    groups = {m.id for m in lexicon.find_groups(question) if not m.negated}
    seen = (*lexicon.find_groups(chain), *lexicon.find_conditions(chain), *lexicon.find_drugs(chain))
    same = tuple(m for m in seen if m.id in named)
    if groups:
        return tuple(m for m in same if m.id in groups)[:2] or None
    return same[:2] or lexicon.find_reasoning(chain, "group")[:1] or None
