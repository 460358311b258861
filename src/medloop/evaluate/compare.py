"""Two models on the same questions: paired bootstrap differences, second minus first.

`verdict` is better or worse when the interval of the paired differences excludes 0, in the direction that is good for the metric.
`separated` is stricter: the two models' own intervals do not overlap. With fewer than MIN_PAIRS pairs the verdict is always
"no clear difference", because a bootstrap of a handful of samples is too narrow.
"""

from collections.abc import Sequence
from typing import Literal

from medloop.bootstrap import RESAMPLES, interval
from medloop.contracts import Difference, Interval, ModelResult, ScoredSample
from medloop.evaluate.run import WORST, EvalScores, loss

MIN_PAIRS = 10

DifferenceVerdict = Literal["better", "worse", "no clear difference"]


def compare(
    first: ModelResult,
    first_scored: Sequence[EvalScores],
    second: ModelResult,
    second_scored: Sequence[EvalScores],
    *,
    penalties: frozenset[str],
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[Difference, ...]:
    """Every metric on every split that both models have."""
    by_key = {scores.answer.key: scores for scores in first_scored}
    pairs = [(by_key[scores.answer.key], scores) for scores in second_scored if scores.answer.key in by_key]
    differences = []
    for split in first.metrics:
        for metric in first.metrics[split]:
            if metric not in second.metrics.get(split, {}):
                continue
            values, missing = _paired_differences([pair for pair in pairs if pair[0].answer.split == split], metric)
            between = interval(values, seed=seed, name=f"{split}/{metric}/paired", missing=missing, resamples=resamples)
            differences.append(
                Difference(
                    first=first.label,
                    second=second.label,
                    split=split,
                    metric=metric,
                    difference=between,
                    separated=are_separated(first.metrics[split][metric], second.metrics[split][metric]),
                    verdict=verdict(between, penalty=metric in penalties),
                )
            )
    return tuple(differences)


def _paired_differences(pairs: Sequence[tuple[EvalScores, EvalScores]], metric: str) -> tuple[list[float], int]:
    """Second minus first where both have a value; and how many pairs have only one."""
    values, missing = [], 0
    for first, second in pairs:
        before, after = first.value(metric), second.value(metric)
        if before is not None and after is not None:
            values.append(after - before)
        elif before is not None or after is not None:
            missing += 1
    return values, missing


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
