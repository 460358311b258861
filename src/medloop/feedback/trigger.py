"""When to train again: after so many new usable records, or on evidence that the model or its raters have changed.

    trigger = maybe_trigger(store, settings)         # cheap enough to ask after every commit; None most of the time
    look(store, config, measured=weigh(store))       # also weighs drift and agreement; the command does this

A trigger is written down before a job is filed, with its evidence, and takes all rows up to now with it: no record is a reason
twice, whoever asks and however often. `jobs/retrain.py` turns triggers into jobs.

Usable is what training may take: consent to training by the record and by whom it is about, not superseded, not held back in
quarantine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Interval, TrainRequest
from medloop.contracts.job import StageName
from medloop.feedback.insight.metrics import MetricsConfig, agreement_of, drifted_since, measure
from medloop.privacy.consent import Register
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import marks, triggers
from medloop.store.records.triggers import NewRecords, Trigger

Reason = Literal["volume", "critical", "drift", "agreement"]


class TriggerConfig(BaseModel):
    """When to train again, and what."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    every: int = Field(1000, ge=1, description="New usable records that are reason enough.")
    critical: int = Field(3, ge=1, description="New critical flags that are reason enough.")
    drifting: int = Field(2, ge=1, description="Raters with a new drift alarm that are reason enough.")
    agreement_fall: float = Field(0.15, gt=0, le=2, description="Fall of alpha since the last trigger that is reason enough.")
    stage: StageName = Field("REWARD", description="What the job trains: REWARD, DPO, KTO, SFT, PPO, GRPO or IRS.")
    model: str | None = Field(None, description="Base model of the job; empty means the workspace's.")
    config: dict[str, Any] = Field(default_factory=dict, description="Settings of the stage.")


DEFAULT = TriggerConfig()
NEVER = 10**12  # records


@dataclass(frozen=True)
class Measured:
    """What the metrics say about the time since the last trigger; agreement before and after it, by name."""

    drifting: tuple[str, ...] = ()
    agreement: tuple[tuple[str, Interval, Interval], ...] = ()


@dataclass(frozen=True)
class Look:
    """What a look found: new usable records, and the trigger if there was reason for one."""

    usable: int
    rows: int
    critical: int
    trigger: Trigger | None
    reason: Reason | None
    words: str


def weigh(store: Store) -> Measured:
    """What raters did since the last trigger: who drifts, and agreement before and after it. Reads the whole feedback."""
    found = triggers.new_records(store)
    numbers = measure(store, MetricsConfig(traces=0))
    drifting = drifted_since(numbers, found.seen["feedback"])
    if found.since is None:  # nothing to compare with yet
        return Measured(drifting)
    before = agreement_of(store, MetricsConfig(until=found.since.timestamp))
    after = {one.name: one.alpha for one in agreement_of(store, MetricsConfig(since=found.since.timestamp))}
    return Measured(drifting, tuple((one.name, one.alpha, after[one.name]) for one in before if one.name in after))


def config_of(settings: Settings) -> TriggerConfig:
    """As the workspace has it; `feedback.retrain_every` 0 leaves the other reasons."""
    return TriggerConfig(every=settings.feedback.retrain_every or NEVER)


def maybe_trigger(
    store: Store, settings: Settings | None = None, *, config: TriggerConfig | None = None, actor: str = "medloop"
) -> Trigger | None:
    """The new trigger, if the number of records or critical flags is a reason for one."""
    config = config or config_of(settings or store.settings)
    found = triggers.new_records(store)
    if found.rows < config.every and found.critical < config.critical:
        return None
    return _look(store, found, config, Measured(), actor=actor, write=True).trigger


def look(
    store: Store, config: TriggerConfig = DEFAULT, *, measured: Measured | None = None, actor: str = "medloop", write: bool = True
) -> Look:
    """All reasons weighed; with `write` False nothing is written down."""
    return _look(store, triggers.new_records(store), config, measured or Measured(), actor=actor, write=write)


def _look(store: Store, found: NewRecords, config: TriggerConfig, measured: Measured, *, actor: str, write: bool) -> Look:
    usable = count_usable(store, found)
    reason, words = _reason(usable, found, config, measured)
    made = None
    if reason is not None and write:
        evidence = _evidence(usable, found, measured, words)
        evidence["request"] = request_of(config).model_dump(mode="json", exclude_none=True)
        made = triggers.add_trigger(store, found, reason, evidence, usable, actor=actor)
    return Look(usable, found.rows, found.critical, made, reason, words)


def count_usable(store: Store, found: NewRecords) -> int:
    """New records that training may take; reads no text."""
    held, register = triggers.held_back_ids(store), Register.of(store)
    new = marks.iterate_marks(store, after=found.seen)
    return sum(mark.record_id not in held and register.covers(mark, "training") for mark in new)


def _reason(usable: int, found: NewRecords, config: TriggerConfig, measured: Measured) -> tuple[Reason | None, str]:
    """The gravest reason first."""
    if found.critical >= config.critical:
        return "critical", f"{found.critical} new critical flags (from {config.critical} on)"
    if usable >= config.every:
        return "volume", f"{usable:,} new usable records (from {config.every:,} on)"
    if len(measured.drifting) >= config.drifting:
        return "drift", f"{len(measured.drifting)} raters have changed their manner (from {config.drifting} on)"
    for name, before, after in measured.agreement:
        if _fell(before, after, config.agreement_fall):
            return "agreement", f"agreement on {name} fell from {before.mean:.2f} to {after.mean:.2f}"
    return None, f"{usable:,} of {config.every:,} new usable records, {found.critical} of {config.critical} critical flags"


def _fell(before: Interval, after: Interval, by: float) -> bool:
    """By enough, and by more than chance: the new interval lies below the old value."""
    if before.mean is None or after.mean is None or after.high is None:
        return False
    return before.mean - after.mean >= by and after.high < before.mean


def _evidence(usable: int, found: NewRecords, measured: Measured, words: str) -> dict[str, Any]:
    alphas = {name: {"before": b.mean, "after": a.mean, "units": a.n} for name, b, a in measured.agreement}
    return {
        "words": words, "usable": usable, "new_rows": found.rows, "critical": found.critical,
        "drifting": len(measured.drifting), "agreement": alphas,
    }  # fmt: skip


def request_of(config: TriggerConfig) -> TrainRequest:
    """The job as it will be filed; its name is the trigger's."""
    return TrainRequest(stage=config.stage, model_id=config.model, config=config.config)
