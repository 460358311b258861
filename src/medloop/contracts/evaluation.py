"""Measured quality: metrics with intervals, comparisons, the gate."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Json, Text, Timestamp, Unit
from medloop.contracts.model import ModelRef
from medloop.contracts.score import Missing, Score
from medloop.contracts.suite import SuiteMetric, SuiteTable


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


class PairedSpread(Contract):
    """Paired differences, as the gate tests them: how many rose and fell, and whether each is -1, 0 or 1 (`whole`)."""

    n: int = Field(ge=0)
    mean: float
    sd: float = Field(ge=0)
    rose: int = Field(ge=0)
    fell: int = Field(ge=0)
    whole: bool

    def flipped(self) -> "PairedSpread":
        """In the other direction."""
        return self.model_copy(update={"mean": -self.mean, "rose": self.fell, "fell": self.rose})


class Difference(Contract):
    """Second minus first on the same prompts (paired bootstrap): on a whole split, or on one stratum or language of it.

    `before` and `after` are the means of both models. `holm` says whether the difference also holds when all comparisons of the
    report are tested at once (Holm's correction).
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
    spread: PairedSpread | None = None


class SuiteSummary(Contract):
    """A suite of the report: its metrics, what no model would get, its inputs.

    By model: `notes` on what could not be measured, and `tables` such as the triage matrix.
    """

    suite: Text
    version: Text
    metrics: tuple[SuiteMetric, ...]
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)
    inputs: dict[str, Hash] = Field(default_factory=dict)
    notes: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    tables: dict[str, tuple[SuiteTable, ...]] = Field(default_factory=dict)


class CriticalFailure(Contract):
    """A case of a critical metric that a model fails; `new`: the first model of the report does not fail it."""

    label: Text
    suite: Text
    metric: Text
    case: Text
    language: Text
    strata: tuple[Text, ...] = ()
    new: bool


class FailureCluster(Contract):
    """An issue: failures of one model in one metric that look alike. `groups` are strata and languages of more than half of them.

    `earlier` counts the same issue in the report before: 0 for a new issue, None where that report does not have the model.
    """

    label: Text
    metric: Text
    terms: tuple[Text, ...] = ()
    groups: tuple[Text, ...] = ()
    splits: dict[str, int]
    count: int = Field(ge=1)
    earlier: int | None = None
    examples: tuple[ScoredSample, ...] = ()


class EvalReport(Contract):
    """What `eval_report.json` holds; its content id goes into the registry.

    A suite appears in `results` and `differences` as a split of its name.
    """

    name: Text
    results: tuple[ModelResult, ...] = Field(min_length=1)
    differences: tuple[Difference, ...] = ()
    stratum_differences: tuple[Difference, ...] = ()
    suites: tuple[SuiteSummary, ...] = ()
    critical: tuple[CriticalFailure, ...] = ()
    clusters: tuple[FailureCluster, ...] = ()
    inputs: dict[str, Hash]
    rules: dict[str, str]
    config: Json
    timestamp: Timestamp
