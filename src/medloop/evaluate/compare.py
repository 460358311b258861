"""Models on the same questions, two at a time: paired bootstrap differences, second minus first.

`verdict` is better or worse when the interval of the paired differences excludes 0, in the direction that is good for the metric.
`separated` is stricter: the two models' own intervals do not overlap. With fewer than MIN_PAIRS pairs the verdict is always
"no clear difference", because a bootstrap of a handful of samples is too narrow.

A report compares many things: models, splits, metrics, strata. Of 40 comparisons, one looks worse by chance where nothing
changed. A missed regression costs more than a second look, so every one of them is reported; `holm` marks those that hold for all
comparisons of the report together, and only those count as an improvement in a headline.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from medloop.bootstrap import LEVEL, RESAMPLES, interval, student_tail
from medloop.contracts import Difference, Interval, ModelResult, PairedSpread, ScoredSample
from medloop.evaluate.run import WORST, EvalScores, loss

MIN_PAIRS = 10

DifferenceVerdict = Literal["better", "worse", "no clear difference"]
Pairs = Sequence[tuple[EvalScores, EvalScores]]
Metrics = Mapping[str, Interval]


def compare(
    first: ModelResult,
    first_scored: Sequence[EvalScores],
    second: ModelResult,
    second_scored: Sequence[EvalScores],
    *,
    penalties: frozenset[str],
    seed: int,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> list[tuple[Difference, float]]:
    """Every metric on every split that both models have, and on every stratum and language of these splits; with its p-value."""
    pairs = pairs_of(first_scored, second_scored)

    def differences(split: str, group: str | None, mine: Metrics, theirs: Metrics) -> Iterator[tuple[Difference, float]]:
        here = [p for p in pairs if p[0].answer.split == split and (group is None or group in p[0].answer.groups)]
        for metric in (name for name in mine if name in theirs):
            values, missing = paired_differences(here, metric)
            name = f"{split}/{metric}/paired" if group is None else f"{split}/{group}/{metric}/paired"
            between = interval(values, seed=seed, name=name, missing=missing, resamples=resamples, level=level)
            difference = Difference(
                first=first.label, second=second.label, split=split, metric=metric, difference=between, stratum=group,
                separated=are_separated(mine[metric], theirs[metric]), before=mine[metric].mean, after=theirs[metric].mean,
                verdict=verdict(between, penalty=metric in penalties), spread=paired_spread(values),
            )  # fmt: skip
            yield difference, p_value(values)

    splits = [split for split in first.metrics if split in second.metrics]
    whole = [row for split in splits for row in differences(split, None, first.metrics[split], second.metrics[split])]
    return whole + [
        row
        for split in splits
        for group, metrics in first.by_stratum.get(split, {}).items()
        for row in differences(split, group, metrics, second.by_stratum.get(split, {}).get(group, {}))
    ]


def pairs_of(first: Sequence[EvalScores], second: Sequence[EvalScores]) -> list[tuple[EvalScores, EvalScores]]:
    by_key = {scores.answer.key: scores for scores in first}
    return [(by_key[scores.answer.key], scores) for scores in second if scores.answer.key in by_key]


def with_holm(rows: Sequence[tuple[Difference, float]], level: float = LEVEL) -> tuple[Difference, ...]:
    """All comparisons of a report, corrected together. Differences with too few pairs are not tested."""
    tested = [index for index, (row, _) in enumerate(rows) if row.difference.n >= MIN_PAIRS]
    holds = {tested[place] for place in holm([rows[index][1] for index in tested], 1 - level)}
    return tuple(
        row.model_copy(update={"holm": index in holds and row.verdict != "no clear difference"})
        for index, (row, _) in enumerate(rows)
    )


def holm(p_values: Sequence[float], level: float) -> set[int]:
    """Holm (1979): the smallest p against level / n, the next against level / (n - 1), up to the first that fails."""
    holds = set()
    for rank, (p, index) in enumerate(sorted((p, index) for index, p in enumerate(p_values))):
        if p > level / (len(p_values) - rank):
            break
        holds.add(index)
    return holds


def p_value(values: Sequence[float]) -> float:
    """Of a mean of 0, two-sided, by Student's t; equal differences without spread by the sign test."""
    data = np.asarray(values)
    if len(data) < 2 or not data.any():
        return 1.0
    error = float(data.std(ddof=1)) / math.sqrt(len(data))
    return min(1.0, 2 * student_tail(abs(float(data.mean())) / error, len(data) - 1)) if error else 2.0 ** (1 - len(data))


def regressions(differences: Sequence[Difference], first: str, second: str) -> list[Difference]:
    """What got worse in a stratum or a language, the largest change first."""
    worse = [row for row in differences if (row.first, row.second) == (first, second) and row.verdict == "worse"]
    return sorted(worse, key=lambda row: -abs(row.difference.mean or 0.0))


def paired_differences(pairs: Pairs, metric: str) -> tuple[list[float], int]:
    """Second minus first where both have a value; and how many pairs have only one."""
    values, missing = [], 0
    for first, second in pairs:
        before, after = first.value(metric), second.value(metric)
        if before is not None and after is not None:
            values.append(after - before)
        elif before is not None or after is not None:
            missing += 1
    return values, missing


def paired_spread(values: Sequence[float]) -> PairedSpread | None:
    if len(values) < 2:
        return None
    data = np.asarray(values)
    rose, fell = int((data > 0).sum()), int((data < 0).sum())
    whole = bool(np.isin(data, (-1.0, 0.0, 1.0)).all())
    return PairedSpread(n=len(data), mean=float(data.mean()), sd=float(data.std(ddof=1)), rose=rose, fell=fell, whole=whole)


def are_separated(first: Interval, second: Interval) -> bool:
    """Whether the two intervals do not overlap."""
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return False
    return first.high < second.low or second.high < first.low


def verdict(difference: Interval, *, penalty: bool) -> DifferenceVerdict:
    low, high = difference.low, difference.high
    if low is None or high is None or difference.n < MIN_PAIRS or low <= 0 <= high:
        return "no clear difference"
    return "better" if (low > 0) != penalty else "worse"


def degraded(
    first: Sequence[EvalScores], second: Sequence[EvalScores], penalties: frozenset[str], count: int = WORST
) -> list[tuple[ScoredSample, ScoredSample]]:
    """(before, after) of the questions whose answer lost most, worst first; only where both models answered."""
    by_key = {scores.answer.key: scores for scores in first if scores.answer.sample.answer is not None}
    pairs = [
        (by_key[scores.answer.key], scores)
        for scores in second
        if scores.answer.sample.answer is not None and scores.answer.key in by_key
    ]
    losses = [(loss(after, penalties) - loss(before, penalties), before, after) for before, after in pairs]
    losses.sort(key=lambda row: (-row[0], *row[2].answer.key))
    return [(before.contract(), after.contract()) for lost, before, after in losses[:count] if lost > 0]
