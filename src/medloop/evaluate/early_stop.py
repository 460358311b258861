"""Stop asking when the numbers are precise enough, without the bias of peeking.

The looks are declared before the first answer: after an eighth, a quarter, half and all of the questions (`EvalConfig.looks`).
Each look uses the level 1 - 0.05/looks (Bonferroni), so the intervals of all looks hold together with 95 %, whichever look ends
the evaluation; the report shows intervals of that level. Whether a model is better plays no part: only widths stop it.
"""

import math
from collections.abc import Mapping, Sequence

from medloop.bootstrap import interval
from medloop.evaluate.compare import paired_differences, pairs_of
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.run import EvalScores


def is_precise(scored: Mapping[str, Sequence[EvalScores]], config: EvalConfig) -> bool:
    """Whether every metric on every whole split is known to `config.precision`.

    It looks at the first model and at each other one's difference to it. A metric that applies to no question is not waited for.
    """
    assert config.precision is not None
    return all(_half_width(values, name, config) <= config.precision for name, values in _measured(scored).items() if values)


def _measured(scored: Mapping[str, Sequence[EvalScores]]) -> dict[str, list[float]]:
    first, *others = scored.values()
    metrics = dict.fromkeys((row.answer.split, score.name) for row in first for score in row.scores)
    values = {}
    for split, metric in metrics:
        mine = (row.value(metric) for row in first if row.answer.split == split)
        values[f"{split}/{metric}"] = [value for value in mine if value is not None]
        for place, other in enumerate(others):
            here = [pair for pair in pairs_of(first, other) if pair[0].answer.split == split]
            values[f"{split}/{metric}/{place}"] = paired_differences(here, metric)[0]
    return values


def _half_width(values: Sequence[float], name: str, config: EvalConfig) -> float:
    """Half the bootstrap interval. Equal values give it no width; then the rule of three says how rare another value may be."""
    if len(set(values)) == 1:
        return -math.log(1 - config.level) / len(values)
    row = interval(values, seed=config.seed, name=name, resamples=config.resamples, level=config.level)
    return ((row.high or 0.0) - (row.low or 0.0)) / 2
