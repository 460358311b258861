"""Rows learnt before that make the corrected mistake: they ask what several corrections ask, and lack the sentence these add.

    making_the_mistake([("我怀孕9周，便秘。", "多喝水。请在三天后复诊。"), ...], [("我怀孕12周，失眠。", "早点睡。"), ...])  # {0}

A new sentence is one that at least `LEAST` corrections (and a tenth of them) say, word for word, and next to no row. Its
questions are known by what at least half of them have in common and other questions have half as often or less. Corrections
that say it each in other words leave nothing out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import log
from statistics import quantiles

from medloop import lexicon
from medloop.models.template import END_THINK

LEAST, LEAST_SHARE = 3, 0.1  # corrections with the same new sentence
MOST_ROWS = 0.002  # share of the rows whose answers may have a sentence that is new
COMMON, LIFT = 0.5, 2.0  # a mark of the question: in so many of them, and so many times as often as in other rows
_WORD = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]")
Exchange = tuple[str, str]  # question, answer


def making_the_mistake(corrections: Sequence[Exchange], rows: Sequence[Exchange]) -> set[int]:
    """The numbers of the rows."""
    said = [_sentences(answer) for _, answer in rows]
    known = Counter(sentence for sentences in said for sentence in sentences)
    fixes = [(grams(question), _sentences(answer)) for question, answer in corrections]
    count = Counter(sentence for _, sentences in fixes for sentence in sentences)
    least = max(LEAST, LEAST_SHARE * len(corrections))
    new = [text for text, times in count.items() if times >= least and known[text] <= MOST_ROWS * len(rows)]
    if not new:
        return set()
    asked = [grams(question) for question, _ in rows]
    frequency = Counter(gram for one in asked for gram in one)
    found: set[int] = set()
    for text in new:
        questions = [one for one, sentences in fixes if text in sentences]
        marks = dict(_marks(questions, frequency, len(rows)))
        if marks:
            own = [_weight(one, marks) for one in questions]
            enough = quantiles(own, n=4)[0]
            found |= {n for n, one in enumerate(asked) if text not in said[n] and _weight(one, marks) >= enough}
    return found


def grams(text: str) -> set[str]:
    """Words and pairs of words; of Chinese, characters."""
    words = _WORD.findall(text.casefold())
    return {*words, *(f"{left} {right}" for left, right in pairwise(words))}


def _marks(questions: Sequence[set[str]], frequency: Mapping[str, int], rows: int) -> Iterator[tuple[str, float]]:
    for gram, times in Counter(gram for one in questions for gram in one).items():
        share, usual = times / len(questions), (frequency.get(gram, 0) + 0.5) / rows
        if share >= COMMON and share >= LIFT * usual:
            yield gram, log(share / usual)


def _weight(question: set[str], marks: Mapping[str, float]) -> float:
    return sum(weight for gram, weight in marks.items() if gram in question)


def _sentences(answer: str) -> set[str]:
    visible = answer.rpartition(END_THINK)[2].strip()
    return {visible[start:end].strip().casefold() for start, end in lexicon.sentences(visible)}
