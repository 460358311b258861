"""Two models on the same questions: paired bootstrap differences, second minus first.

`verdict` looks at the pairs: better or worse when the interval of the differences leaves out 0, in the direction that is
good for the metric. `separated` is the stricter question: do the two models' own intervals not even touch?
With fewer than MIN_PAIRS pairs the verdict is always "no clear difference": a bootstrap of a handful of samples is too sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from medloop.bootstrap import RESAMPLES, interval
from medloop.contracts import Difference, Interval, ModelResult, ScoredSample
from medloop.evaluate.run import WORST, Scored, loss

MIN_PAIRS = 10

Verdict = Literal["better", "worse", "no clear difference"]


def compare(
    first: ModelResult,
    first_scored: Sequence[Scored],
    second: ModelResult,
    second_scored: Sequence[Scored],
    *,
    penalties: frozenset[str],
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[Difference, ...]:
    """Every metric on every split that both models have."""
    mine = {(s.sample.split, s.sample.prompt_id): s for s in first_scored}
    pairs = [(mine[key], s) for s in second_scored if (key := (s.sample.split, s.sample.prompt_id)) in mine]
    found = []
    for split in first.metrics:
        for metric in first.metrics[split]:
            if metric not in second.metrics.get(split, {}):
                continue
            values, lost = _differences([pair for pair in pairs if pair[0].sample.split == split], metric)
            between = interval(values, seed=seed, name=f"{split}/{metric}/paired", missing=lost, resamples=resamples)
            found.append(
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
    return tuple(found)


def _differences(pairs: Sequence[tuple[Scored, Scored]], metric: str) -> tuple[list[float], int]:
    """Second minus first where both have a number; and how many pairs lost theirs because a score is missing."""
    values, lost = [], 0
    for one, other in pairs:
        before, after = one.value(metric), other.value(metric)
        if before is not None and after is not None:
            values.append(after - before)
        elif before is not None or after is not None:
            lost += 1
    return values, lost


def are_separated(one: Interval, other: Interval) -> bool:
    """Do the two intervals not overlap?"""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.high < other.low or other.high < one.low


def verdict(difference: Interval, *, penalty: bool) -> Verdict:
    low, high = difference.low, difference.high
    if low is None or high is None or difference.n < MIN_PAIRS or low <= 0 <= high:
        return "no clear difference"
    return "better" if (low > 0) != penalty else "worse"


def degraded(
    first: Sequence[Scored], second: Sequence[Scored], penalties: frozenset[str], count: int = WORST
) -> list[tuple[ScoredSample, ScoredSample]]:
    """(before, after) of the questions whose answer lost most, worst first; only where both have every score."""
    mine = {(s.sample.split, s.sample.prompt_id): s for s in first if s.sample.answer is not None}
    pairs = [
        (mine[key], s) for s in second if s.sample.answer is not None and (key := (s.sample.split, s.sample.prompt_id)) in mine
    ]
    fallen = [(loss(after, penalties) - loss(before, penalties), before, after) for before, after in pairs]
    fallen.sort(key=lambda found: (-found[0], found[2].sample.split, found[2].sample.prompt_id))
    return [(before.contract(), after.contract()) for lost, before, after in fallen[:count] if lost > 0]
