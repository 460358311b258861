"""Measured quality: metrics with intervals, comparisons, the gate."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Json, Text, Timestamp, Unit
from medloop.contracts.model import ModelRef
from medloop.contracts.score import Missing, Score


class Interval(Contract):
    """A mean with its bootstrap interval; `n` counts the samples the metric applies to, `missing` those without a score."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = Field(ge=0)
    missing: int = Field(0, ge=0)
    level: Unit = 0.95


class ScoredSample(Contract):
    """One answer with all its scores."""

    prompt_id: Text
    split: Text
    question: str
    answer: str
    scores: tuple[Score | Missing, ...]


class ModelResult(Contract):
    """One model on all splits: metrics[split][metric]."""

    label: Text
    model: ModelRef | None = None
    metrics: dict[str, dict[str, Interval]]
    by_stratum: dict[str, dict[str, dict[str, Interval]]] = Field(default_factory=dict)
    worst: tuple[ScoredSample, ...] = ()


class Difference(Contract):
    """Second minus first on the same prompts (paired bootstrap): on a whole split, or on one stratum or language of it.

    `before` and `after` are the means of both models. `holm` says whether the difference also holds when all strata are tested
    at once (Holm's correction); None on a whole split.
    """

    first: Text
    second: Text
    split: Text
    metric: Text
    difference: Interval
    separated: bool
    verdict: Literal["better", "worse", "no clear difference"]
    stratum: Text | None = None
    before: float | None = None
    after: float | None = None
    holm: bool | None = None


class EvalReport(Contract):
    """What `eval_report.json` holds; its content id goes into the registry."""

    name: Text
    results: tuple[ModelResult, ...] = Field(min_length=1)
    differences: tuple[Difference, ...] = ()
    stratum_differences: tuple[Difference, ...] = ()
    inputs: dict[str, Hash]
    rules: dict[str, str]
    config: Json
    timestamp: Timestamp
