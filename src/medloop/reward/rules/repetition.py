"""Repetition penalty: 0 is fresh, 1 repeats itself again and again, or repeats the question as the answer.

It counts 4-grams (Latin words or Chinese characters) in the visible answer and in the chain of thought; the worse of the two
counts. Good prose repeats up to a seventh of its 4-grams, so that much is free:

    share of repeated 4-grams                                         0.15: 0     0.55: 1
    share of the visible answer that is copied from the question      0.50: 0     1.00: 1

A text of fewer than 12 words is judged only by what it copies. A repeated character ("aaaaaaaa") counts as repetition.

The value is `unsure` where the question asks for its own words (to repeat, correct, translate, choose, call true or false), where
an answer is a few of them or a yes, or goes on with words of its own (`reward/detect/asked_form.py`), where it holds code or the
key of an exam, and where its own words reach less than 0.35: a summary repeats, and so does an answer that takes up the question
twice. Sentences that only begin or end alike are no loop: a fifth of the text must be clauses or items that came before, whole.
"""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import compress, count
from operator import eq

from medloop.contracts import Score, Span
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import copied_share, may_be_copied, ngram_set, own_words, rule_score, split_answer, words
from medloop.reward.detect.asked_form import asks_for_code, asks_for_refrain, holds_code, is_echo, is_exam_key
from medloop.reward.rules.length import ramp

NGRAM = 4  # words; other rules use the same n-grams
MIN_WORDS = 12
FREE, FULL = 0.15, 0.55
COPY_FREE = 0.5
CLEARLY = 0.35  # the value from which on a text that repeats itself is a verdict, ...
WHOLE = 0.2  # ... if this share of its words is in clauses that came before
CLAUSE = 3  # words of a clause that is somebody's sentence; shorter ones count from the third time on
ITEMS, OWN_ITEM = 3, 0.4  # numbered items of a list, and the share of new words from which on one says something of its own
COPIES = "The answer repeats the question."
_REPEATED_CHARACTER = lazy_pattern(r"(\S)\1{7,}")
_ITEM = lazy_pattern(r"\n+|\s[-•*]\s|(?<=[.;。；])\s*")
_CLAUSE_END = lazy_pattern(r"\n+|\s[-•*]\s|[.;!?:,](?=\s|$)|[。；！？：，、]|\b\d{1,2}[.)、]")
_NUMBER = lazy_pattern(r"(?:^|\n)\s*\d{1,2}\s?[.、)．]\s*")
_PLACEHOLDER = lazy_pattern(r"([×xX?？…·])\1{3,}")  # what is left blank
_DRAWN_OUT = lazy_pattern(r"([。，、！!～~.?？…·])\1{3,}")  # dots and marks say nothing, so that they do not say it again
_RULER = lazy_pattern(r"[-=_*#.~]")  # drawn lines and tables are layout


@dataclass(frozen=True)
class Repetition:
    name: str = "repetition"
    version: str = "7"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        penalties = [
            (ramp(repeated_share(parts.visible), FREE, FULL), "The answer repeats itself.", parts.visible, 0),
            (ramp(repeated_share(parts.chain or ""), FREE, FULL), "The chain of thought repeats itself.", parts.chain or "",
             parts.chain_start),
            (ramp(_copied(parts.visible, question), COPY_FREE, 1.0), COPIES, "", 0),
        ]  # fmt: skip
        value, reason, text, offset = max(penalties, key=lambda penalty: penalty[0])
        spans = _first_repeat(text, offset) if value and text else ()
        reason = reason if value else "The answer does not repeat itself."
        unsure = bool(value) and not _is_sure(question, text or parts.visible, reason)
        return rule_score(self, round(value, 4), reason, spans, unsure=unsure)


def _is_sure(question: str, text: str, reason: str) -> bool:
    if reason == COPIES:
        return is_echo(question, text)
    text = _DRAWN_OUT.sub(" ", text)
    if holds_code(text) or is_exam_key(text) or _lists_alike(text) or asks_for_refrain(question) or asks_for_code(question):
        return False
    if _whole_repeats(text) < WHOLE or _items_differ(text):
        return False
    own = own_words(question, text)  # a text that takes up the question twice is no loop
    return ramp(repeated_share(_PLACEHOLDER.sub(" ", own)), FREE, FULL) >= CLEARLY


def _lists_alike(text: str) -> bool:
    """Whether half of a text are items that begin alike and go on differently, as sources and addresses do."""
    items = [words(item) for item in _ITEM.split(text) if item.strip()]
    beginnings = Counter(item[:NGRAM] for item in set(items) if len(item) > NGRAM)
    alike = sum(len(item) for item in set(items) if beginnings[item[:NGRAM]] > 2)
    return alike > sum(map(len, items)) / 2


def _whole_repeats(text: str) -> float:
    """The share of words in clauses or items that came before, word by word; a drawn-out character is all of them."""
    if _repeated_characters(text):
        return 1.0
    clauses = [words(clause) for clause in _CLAUSE_END.split(text)]
    seen: Counter[tuple[str, ...]] = Counter()
    repeated = 0
    for clause in clauses:
        if seen[clause] > (0 if len(clause) >= CLAUSE else 1):
            repeated += len(clause)
        seen[clause] += 1
    return repeated / max(1, sum(map(len, clauses)))


def _items_differ(text: str) -> bool:
    """Whether a text is a numbered list whose items mostly say something of their own, though they end alike."""
    items = [[words(clause) for clause in _CLAUSE_END.split(item)] for item in _NUMBER.split(text)[1:]]
    seen: set[tuple[str, ...]] = set()
    own = total = 0
    for item in items:
        new = sum(len(clause) for clause in item if clause not in seen)
        size = sum(map(len, item))
        own += size if new >= size * OWN_ITEM else 0
        total += size
        seen.update(item)
    return len(items) >= ITEMS and own > total / 2


def _copied(visible: str, question: str) -> float:
    return copied_share(visible, question) if may_be_copied(visible, question, COPY_FREE) else 0.0


def repeated_share(text: str) -> float:
    """The share of a text's 4-grams that came before, or of its characters that only repeat one character."""
    same_character = _repeated_characters(text) / max(len(text), 1)
    size = len(words(text))
    if size < MIN_WORDS:
        return same_character
    return max(same_character, 1 - len(ngram_set(text, NGRAM)) / (size - NGRAM + 1))


def _repeated_characters(text: str) -> int:
    """Characters in runs of one character."""
    if not _may_repeat_characters(text):
        return 0
    return sum([len(m[0]) for m in _REPEATED_CHARACTER.finditer(text) if not _RULER.match(m[0])])


def _may_repeat_characters(text: str) -> bool:
    """A quick test: eight equal characters in a row include two at multiples of four, and all between them."""
    equal = map(eq, text[::4], text[4::4])
    return any(text[index] > " " and text[index : index + 5] == text[index] * 5 for index in compress(count(0, 4), equal))


def _first_repeat(text: str, offset: int) -> tuple[Span, ...]:
    """The first sentence that came before."""
    if match := _REPEATED_CHARACTER.search(text):
        return (Span(where="answer", start=offset + match.start(), end=offset + match.end(), label="drawn out"),)
    seen: set[tuple[str, ...]] = set()
    for sentence in re.finditer(r"[^.!?。！？\n]+[.!?。！？\n]*", text):
        tokens = words(sentence[0])
        if tokens and tokens in seen:
            return (Span(where="answer", start=offset + sentence.start(), end=offset + sentence.end(), label="said before"),)
        seen.add(tokens)
    return ()
