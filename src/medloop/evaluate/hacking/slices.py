"""What got worse, and where: every measure in every slice of the questions, paired with the first round.

A slice is a language, a stratum or a red flag in a language, or the questions in a language that share a word ("en, “urinary”").
A slice that collapses is an alarm although the mean rises. There are many slices and many looks, so each fall has to be large
(PanelConfig) and has to hold after Holm's correction over all of them, at a level that is divided by the number of looks. Triage
over all questions, all other measures over all questions, and the slices are three families with a third of the level each, so
that many slices cannot hide a general fall, nor many measures patients who are sent to the wrong place.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import numpy as np

from medloop.bootstrap import LEVEL, student_tail
from medloop.evaluate.compare import MIN_PAIRS, holm
from medloop.evaluate.hacking.measures import Measures, PanelRow, TextTools
from medloop.lexicon.language import detect_language

ALL = "all questions"
LARGEST_WORD_SLICE = 0.5  # of the questions; a word in more of them says nothing
SCORES = ("reward", "judge")  # higher is better; the others are faults
TRIAGE = ("overtriage", "undertriage")
FAMILIES = 3
SAME = 0.7  # shared questions of two slices, as a share of both together, from which they are one
MIN_SPREAD = 0.05  # a first round with equal scores would make every later change look huge


@dataclass(frozen=True)
class SliceChange:
    """A measure that got worse in a slice by more than its bound, too clearly for chance."""

    measure: str
    slice: str
    before: float
    now: float
    bound: float
    questions: int


@dataclass(frozen=True)
class Slices:
    """Ids of questions by slice: all of them, the known groups, and those that share a word."""

    whole: dict[str, frozenset[str]]
    groups: dict[str, frozenset[str]]
    by_word: dict[str, frozenset[str]]


def find_slices(first: Sequence[PanelRow], ids: Collection[str], tools: TextTools) -> Slices:
    """The slices with enough of these questions; of slices that hold nearly the same questions only the first.

    A word counts when the question or an answer of the first round has it: questions about one illness differ in their words,
    and the answers name it.
    """
    groups: dict[str, set[str]] = {}
    by_word: dict[str, set[str]] = {}
    for row in first:
        if row.id not in ids:
            continue
        language = detect_language(row.question)
        for name in (language, *(f"{language}, {name}" for name in (*tools.strata(row.question), *tools.flags(row.question)))):
            groups.setdefault(name, set()).add(row.id)
        for word in tools.content_words(row.question) | tools.content_words(row.answer or ""):
            by_word.setdefault(f"{language}, “{word}”", set()).add(row.id)
    known = _distinct(groups, {ALL: frozenset(ids)}, len(ids))
    words = {name: by_word[name] for name in sorted(by_word, key=lambda name: (-len(by_word[name]), name))}
    whole = {ALL: known.pop(ALL)}
    return Slices(whole, known, _distinct(words, {**whole, **known}, math.floor(LARGEST_WORD_SLICE * len(ids)), only_new=True))


def _distinct(
    slices: Mapping[str, Collection[str]], taken: Mapping[str, frozenset[str]], largest: int, *, only_new: bool = False
) -> dict[str, frozenset[str]]:
    """Slices of a size that can be tested, none nearly the same as an earlier one."""
    distinct = dict(taken)
    for name, members in slices.items():
        ids = frozenset(members)
        if MIN_PAIRS <= len(ids) <= largest and all(len(ids & o) < SAME * len(ids | o) for o in distinct.values()):
            distinct[name] = ids
    return {name: ids for name, ids in distinct.items() if not only_new or name not in taken}


def worse_slices(
    before: Mapping[str, Measures], now: Mapping[str, Measures], slices: Slices, bounds: Mapping[str, float], *, looks: int = 1
) -> list[SliceChange]:
    """Measures by question -> the changes beyond their bound that hold after the correction."""
    scale = {name: _scale(name, before) for name in bounds}
    level = (1 - LEVEL) / FAMILIES / max(looks, 1)
    scores = {name: bounds[name] for name in SCORES if name in bounds}
    whole = list(_tests(before, now, slices.whole, bounds, scale))
    triage = [test for test in whole if test[0].measure in TRIAGE]
    everywhere = [*_holding(triage, level), *_holding([test for test in whole if test not in triage], level)]
    tests = [*_tests(before, now, slices.groups, bounds, scale), *_tests(before, now, slices.by_word, scores, scale)]
    told = {change.measure for change in everywhere}
    worst: dict[str, SliceChange] = {}
    for change in _holding(tests, level):  # slices overlap: of each measure the clearest one, unless all questions show it
        if change.measure not in told:
            worst.setdefault(change.measure, change)
    return [*everywhere, *worst.values()]


def _holding(tests: Sequence[tuple[SliceChange, bool, float]], level: float) -> list[SliceChange]:
    """The changes beyond their bound that hold after Holm's correction, the clearest first."""
    holds = holm([p for _, _, p in tests], level)
    rows = sorted((p, index) for index, (_, beyond, p) in enumerate(tests) if index in holds and beyond)
    return [tests[index][0] for _, index in rows]


def by_question(rows: Sequence[PanelRow], measures: Sequence[Measures]) -> dict[str, Measures]:
    """The mean of each measure over the answers to a question, with the reward and the second judge's score."""
    values: dict[str, dict[str, list[float]]] = {}
    for row, measured in zip(rows, measures, strict=True):
        scores = {"reward": row.reward.value, "judge": row.held_out}
        for name, value in {**measured, **{n: s for n, s in scores.items() if s is not None}}.items():
            values.setdefault(row.id, {}).setdefault(name, []).append(value)
    return {id_: {name: fmean(column) for name, column in columns.items()} for id_, columns in values.items()}


def _scale(name: str, before: Mapping[str, Measures]) -> float:
    """Scores are counted in standard deviations of the first round, faults as they are.

    A policy that was sure of its words is broken sooner: with less than half a nat per token, incoherence is counted in two times
    what it was, and at least in 0.4.
    """
    values = [row[name] for row in before.values() if name in row]
    if not values or name not in (*SCORES, "incoherence"):
        return 1.0
    return max(MIN_SPREAD, pstdev(values)) if name in SCORES else min(1.0, max(0.4, 2 * fmean(values)))


def _tests(
    before: Mapping[str, Measures], now: Mapping[str, Measures], slices: Mapping[str, frozenset[str]],
    bounds: Mapping[str, float], scale: Mapping[str, float],
) -> Iterator[tuple[SliceChange, bool, float]]:  # fmt: skip
    """The change, whether it is beyond its bound, and its p; for every measure with enough pairs in a slice."""
    for slice_, ids in slices.items():
        for name, bound in bounds.items():
            if name == "reward" and slice_ == ALL:
                continue  # whether the reward fell as a whole is the held-out verdict of the run
            pairs = [(before[i][name], now[i][name]) for i in sorted(ids) if name in before[i] and name in now[i]]
            if len(pairs) < MIN_PAIRS:
                continue
            sign = -1 if name in SCORES else 1
            rises = [sign * (new - old) for old, new in pairs]
            first, last = fmean(old for old, _ in pairs), fmean(new for _, new in pairs)
            change = SliceChange(name, slice_, first, last, bound, len(pairs))
            yield change, fmean(rises) > bound * scale[name], rise_p(rises)


def rise_p(values: Sequence[float]) -> float:
    """One-sided p of a mean above 0: Student's t, never below that of n equal signs."""
    data = np.asarray(values)
    n, mean = len(data), float(data.mean())
    if n < 2 or mean <= 0:
        return 1.0
    error, df = float(data.std(ddof=1)) / math.sqrt(n), n - 1
    if not error:
        return float(0.5**n)
    return max(student_tail(mean / error, df), float(0.5**n))
