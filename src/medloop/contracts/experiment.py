"""Experiments on live traffic: the plan, what was observed of each user, what happened, and the report with its verdict.

An observation is a number about one record (a trace or a piece of feedback); it holds no text. `unit` is whom the arm was drawn
for: the keyed hash of the user, or the episode of somebody unknown. `site` is the place (a ward, a clinic) with a champion of
its own; one store may have many.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from medloop.contracts.assistant import Champion
from medloop.contracts.base import Contract, Json, Text, Timestamp, Unit, utc_now, uuid7

Metric = Literal["satisfaction", "completion", "quality"]
GuardName = Literal["critical", "unsafe", "error", "slow", "dissatisfied"]
Outcome = Literal["better", "not_better", "guard_stop", "no_evidence", "invalid"]
ExperimentState = Literal["planned", "running", "stopped", "decided"]
EventKind = Literal["started", "ramped", "stopped", "decided", "rolled_back", "rollback_failed"]
METRICS: tuple[Metric, ...] = ("satisfaction", "completion", "quality")
GUARDS: tuple[GuardName, ...] = ("critical", "unsafe", "error", "slow", "dissatisfied")
EXPOSED = "exposed"  # the observation of every answer, beside metrics and guards
DEFAULT_SITE = "main"


def version_name(text: str) -> str:
    """`med-assistant@3`, as traces name a version; the registry's `med-assistant/3` is the same one."""
    name, slash, number = text.rpartition("/")
    return f"{name}@{number}" if slash and number.isascii() and number.isdigit() else text


VersionName = Annotated[Text, AfterValidator(version_name)]


class GuardRule(Contract):
    """One guard: it stops when more users of the challenger meet its event than `tolerated` times as many of the champion's."""

    name: GuardName
    alpha: float = Field(gt=0, lt=1, description="Chance of a false stop by this guard over the whole experiment.")
    tolerated: float = Field(1.0, ge=1.0, le=10.0, description="Ratio of the rates that is still accepted.")


class ExperimentPlan(Contract):
    """What was decided before the first user came; nothing of it changes later."""

    experiment_id: Text = Field(default_factory=lambda: f"exp_{uuid7()}")
    name: Text
    site: Text = DEFAULT_SITE
    champion: VersionName
    challenger: VersionName
    primary: Metric
    min_effect: float = Field(gt=0, lt=1, description="Smallest improvement of the primary metric that is worth having.")
    spread: float = Field(gt=0, le=1, description="Standard deviation of the primary metric between users, as assumed.")
    split: float = Field(0.5, gt=0, lt=1, description="Share of the enrolled users who get the challenger; never changes.")
    alpha: float = Field(0.05, gt=0, lt=1, description="Chance of any false verdict, guards and sample-ratio check included.")
    primary_alpha: float = Field(gt=0, lt=1)
    srm_alpha: float = Field(gt=0, lt=1)
    power: float = Field(0.8, gt=0, lt=1)
    guards: tuple[GuardRule, ...] = ()
    slow_ms: int = Field(20_000, ge=1, description="An answer that takes longer is slow.")
    min_users: int = Field(50, ge=2, description="Users of each arm before the first verdict on the primary metric.")
    window_hours: float = Field(
        24.0,
        ge=0,
        le=24 * 90,
        description="Hours after a user's first value whose mean is their value, counted once they are over; 0: the first.",
    )
    fixed_users: int = Field(ge=1, description="What a test with one look would need for the same power.")
    planned_users: int = Field(ge=2, description="Users with a value of the primary metric at the planned end.")
    boundary_alpha: float = Field(gt=0, lt=1, description="Level of the boundary whose crossing until the end has primary_alpha.")
    planned_by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)

    @model_validator(mode="after")
    def _levels_add_up(self) -> ExperimentPlan:
        if self.champion == self.challenger:
            raise ValueError("champion and challenger are the same version")
        if len({guard.name for guard in self.guards}) < len(self.guards):
            raise ValueError("a guard is named twice")
        spent = self.primary_alpha + self.srm_alpha + sum(guard.alpha for guard in self.guards)
        if spent > self.alpha * (1 + 1e-9):
            raise ValueError(f"the levels of primary metric, guards and sample ratio add up to {spent:.4f}, over alpha")
        return self


class Observation(Contract):
    """One number about one record. `value` is None where it could not be measured; such a row counts as missing, never as 0."""

    experiment_id: Text
    site: Text
    unit: Text
    arm: Champion
    metric: Text
    value: float | None
    record_id: Text
    language: Text = "unknown"
    stratum: Text = "routine"
    timestamp: Timestamp


class ExperimentEvent(Contract):
    """What happened to an experiment, and who did it; `medloop` where the analysis did."""

    event_id: Text = Field(default_factory=lambda: f"eev_{uuid7()}")
    experiment_id: Text
    event: EventKind
    detail: Json = Field(default_factory=dict)
    by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)


class Estimate(Contract):
    """Difference of the arms (challenger less champion) with an interval that holds at every look; None with too few users."""

    metric: Text
    users: dict[Champion, int]
    means: dict[Champion, float | None]
    missing: dict[Champion, int]
    waiting: int = Field(0, ge=0, description="Users whose time window is still open.")
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    alpha: float
    group: Text = "all"


class CurvePoint(Contract):
    """The estimate after so many users."""

    users: int
    difference: float
    low: float
    high: float


class GuardReading(Contract):
    """How far a guard is from stopping: `e_value` of 1 / alpha stops. `level` is the way there, 0 to 1, on a log scale."""

    name: GuardName
    alpha: float
    tolerated: float
    users_hit: dict[Champion, int]
    users: dict[Champion, int]
    e_value: float
    level: Unit
    stops: bool


class RatioCheck(Contract):
    """Whether the arms have the share of users they should have."""

    expected: float
    users: dict[Champion, int]
    e_value: float
    alpha: float
    suspect: bool


class ShadowVotes(Contract):
    """Blind choices of reviewers between the answers of champion and challenger to the same question."""

    challenger: int = 0
    champion: int = 0
    ties: int = 0
    both_bad: int = 0
    share: float | None = Field(None, description="Of the challenger; a tie is half.")
    low: float | None = None
    high: float | None = None
    reviewers: int = 0
    shown_first: dict[Champion, int] = Field(default_factory=dict)


class ExperimentVerdict(Contract):
    """What came out, why, and who decided."""

    outcome: Outcome
    reason: Text
    guard: GuardName | None = None


class ExperimentReport(Contract):
    """Everything that a reader needs to check the verdict; numbers only."""

    plan: ExperimentPlan
    state: ExperimentState
    enrolled: Unit = Field(description="Share of all users who take part now.")
    verdict: ExperimentVerdict | None = None
    decided_by: Text | None = None
    events: tuple[ExperimentEvent, ...] = ()
    primary: Estimate
    curve: tuple[CurvePoint, ...] = ()
    others: tuple[Estimate, ...] = ()
    segments: tuple[Estimate, ...] = ()
    sites: tuple[Estimate, ...] = Field((), description="The same comparison at all sites where it ran, if there are several.")
    guards: tuple[GuardReading, ...] = ()
    ratio: RatioCheck
    answered_ratio: RatioCheck
    erased: int = Field(0, ge=0, description="Observations that an erasure emptied.")
    other_model: int = Field(0, ge=0, description="Answers that another version gave than the arm's.")
    shadow: ShadowVotes | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
