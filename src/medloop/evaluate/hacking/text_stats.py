"""What training does to texts: how long they are, how much they repeat, and how much of them is said to everybody.

Latin words and single Chinese characters count alike as words, so that one yardstick serves both languages. All functions are
pure and linear in the length of the texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

RUN = 5  # words in a row that are called the same phrase
LEAST_QUESTIONS = 3  # a phrase said to fewer questions than this is nobody's habit
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[\u3400-\u9fff]")


Words = tuple[str, ...]


def words(text: str) -> Words:
    return tuple(_WORD.findall(text.lower()))


def runs(found: Words, size: int) -> Iterator[Words]:
    return zip(*(found[at:] for at in range(size)), strict=False)


def distinct(said: Words, size: int) -> float | None:
    """Different runs of `size` words as a share of all; None for a text too short to have one."""
    found = list(runs(said, size))
    return len(set(found)) / len(found) if found else None


def repeated(said: Words, size: int = 4) -> float:
    """Share of runs of four words that stood in the text before; 0 for a short text."""
    share = distinct(said, size)
    return 0.0 if share is None else 1 - share


def stock_shares(answers: Sequence[tuple[str, Words]], habit: float) -> list[float]:
    """Of each (question, answer): how much of the answer is said to many other questions too, 0-1.

    A run of words is stock when it stands in answers to at least a share `habit` of the questions, and to three. Words quoted
    from the question do not count: a fixed text with the question put in front is still all stock.
    """
    texts = [_own_runs(question, said) for question, said in answers]
    asked: dict[str, set[Words]] = {}
    for (question, _), own in zip(answers, texts, strict=True):
        asked.setdefault(question, set()).update(own)
    spoken = Counter(run for own in asked.values() for run in own)
    bound = max(LEAST_QUESTIONS, habit * len(asked))
    stock = {run for run, count in spoken.items() if count >= bound}
    return [len(own & stock) / len(own) if own else 0.0 for own in texts]


def _own_runs(question: str, said: Words) -> set[Words]:
    """What the answer says by itself; a text shorter than a run is one run."""
    return (set(runs(said, RUN)) or ({said} if said else set())) - set(runs(words(question), RUN))


def mean_of(values: Iterator[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None
