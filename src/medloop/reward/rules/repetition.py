"""Repetition penalty: 0 is fresh, 1 says the same again and again, or gives the question back as the answer.

Looked at are runs of four words (Latin words or Chinese characters), in the visible answer and in the chain of thought apart;
the worse of the two counts. Good prose repeats up to a seventh of its runs, so that much is free:

    share of runs said before   0.15: 0     0.55: 1
    share of the visible answer that stands word for word in the question   0.50: 0     1.00: 1

A text of fewer than 12 words is judged only for what it copies. One sign drawn out ("aaaaaaaa") counts as repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from medloop.contracts import Score, Span
from medloop.reward.answer_text import copied_share, may_copy, run_set, split_answer, verdict, words

RUN = 4  # words; other rules look at the same runs
FEW = 12  # words
FREE, FULL = 0.15, 0.55
COPY_FREE = 0.5
_DRAWN_OUT = re.compile(r"(\S)\1{7,}")
_RULER = re.compile(r"[-=_*#.~]")  # drawn lines and tables are layout


@dataclass(frozen=True)
class Repetition:
    name: str = "repetition"
    version: str = "2"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        found = [
            (_rise(repeated_share(parts.visible), FREE, FULL), "The answer repeats itself.", parts.visible, 0),
            (_rise(repeated_share(parts.chain or ""), FREE, FULL), "The chain of thought repeats itself.", parts.chain or "",
             parts.chain_start),
            (_rise(_copied(parts.visible, question), COPY_FREE, 1.0), "The answer gives the question back.", "", 0),
        ]  # fmt: skip
        value, reason, text, offset = max(found, key=lambda one: one[0])
        spans = _first_repeat(text, offset) if value and text else ()
        return verdict(self, round(value, 4), reason if value else "The answer does not repeat itself.", spans)


def _copied(visible: str, question: str) -> float:
    return copied_share(visible, question) if may_copy(visible, question, COPY_FREE) else 0.0


def repeated_share(text: str) -> float:
    """The share of a text's runs that were said before, or of its characters that only draw one sign out."""
    drawn = _drawn_out(text) / max(len(text), 1)
    found = words(text)
    total = len(found) - RUN + 1
    if len(found) < FEW:
        return drawn
    return max(drawn, 1 - len(run_set(text, RUN)) / total)


def _drawn_out(text: str) -> int:
    """Characters that only draw one sign out."""
    if not _may_be_drawn_out(text):
        return 0
    return sum([len(m[0]) for m in _DRAWN_OUT.finditer(text) if not _RULER.match(m[0])])


def _may_be_drawn_out(text: str) -> bool:
    """Eight of a sign in a row hold two whose places are multiples of four, and all between them: quick to see."""
    for at in range(0, len(text) - 4, 4):
        sign = text[at]
        if sign == text[at + 4] and sign > " " and text[at : at + 5] == sign * 5:
            return True
    return False


def _rise(value: float, start: float, end: float) -> float:
    return min(1.0, max(0.0, (value - start) / (end - start)))


def _first_repeat(text: str, offset: int) -> tuple[Span, ...]:
    """Where the first sentence that was said before stands."""
    if drawn := _DRAWN_OUT.search(text):
        return (Span(where="answer", start=offset + drawn.start(), end=offset + drawn.end(), label="drawn out"),)
    seen: set[tuple[str, ...]] = set()
    for piece in re.finditer(r"[^.!?。！？\n]+[.!?。！？\n]*", text):
        said = words(piece[0])
        if said and said in seen:
            return (Span(where="answer", start=offset + piece.start(), end=offset + piece.end(), label="said before"),)
        seen.add(said)
    return ()
