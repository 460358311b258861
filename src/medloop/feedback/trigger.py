"""When to train again: after enough new usable records, or on evidence that the model or its raters have changed.

    trigger = trigger_if_due(store, settings)                          # cheap enough after every commit; None most of the time
    check_trigger(store, config, evidence=measure_evidence(store))     # also considers drift and agreement; the command does this

A trigger is stored with its evidence before a job is submitted, and it covers all rows so far: no record is a reason twice,
whoever checks and however often. `jobs/retrain.py` turns triggers into jobs.

Usable records are those that training may use: with consent of the record and of the person it is about, not superseded, and not
held back in quarantine.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Interval, TrainRequest
from medloop.contracts.job import StageName
from medloop.feedback.insight.metrics import MetricsConfig, drifted_since, measure, measure_agreement
from medloop.privacy.consent import Register
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import marks, triggers
from medloop.store.records.triggers import NewRecords, Trigger

Reason = Literal["volume", "critical", "drift", "agreement"]


class TriggerConfig(BaseModel):
    """When to train again, and what."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    every: int = Field(1000, ge=1, description="New usable records that trigger training.")
    critical: int = Field(3, ge=1, description="New critical flags that trigger training.")
    drifting: int = Field(2, ge=1, description="Raters with a new drift alarm that trigger training.")
    agreement_fall: float = Field(0.15, gt=0, le=2, description="Fall of alpha since the last trigger that triggers training.")
    stage: StageName = Field("REWARD", description="What the job trains: REWARD, DPO, KTO, SFT, PPO, GRPO or IRS.")
    model: str | None = Field(None, description="Base model of the job; empty means the workspace's.")
    config: dict[str, Any] = Field(default_factory=dict, description="Settings of the stage.")


DEFAULT = TriggerConfig()
NEVER = 10**12  # records


@dataclass(frozen=True)
class TriggerEvidence:
    """Raters who drifted since the last trigger, and agreement before and after it, by name."""

    drifting: tuple[str, ...] = ()
    agreement: tuple[tuple[str, Interval, Interval], ...] = ()


@dataclass(frozen=True)
class TriggerCheck:
    """The result of a check: new usable records, and the trigger if there was a reason for one."""

    usable: int
    rows: int
    critical: int
    trigger: Trigger | None
    reason: Reason | None
    words: str


def measure_evidence(store: Store) -> TriggerEvidence:
    """What changed since the last trigger: which raters drift, and agreement before and after it. Reads all feedback."""
    new = triggers.new_records(store)
    drifting = drifted_since(measure(store, MetricsConfig(traces=0)), new.seen["feedback"])
    if new.since is None:  # nothing to compare with yet
        return TriggerEvidence(drifting)
    before = measure_agreement(store, MetricsConfig(until=new.since.timestamp))
    after = {result.name: result.alpha for result in measure_agreement(store, MetricsConfig(since=new.since.timestamp))}
    changes = ((result.name, result.alpha, after[result.name]) for result in before if result.name in after)
    return TriggerEvidence(drifting, tuple(changes))


def trigger_config(settings: Settings) -> TriggerConfig:
    """The workspace's settings; `feedback.retrain_every` 0 leaves only the other reasons."""
    return TriggerConfig(every=settings.feedback.retrain_every or NEVER)


def trigger_if_due(
    store: Store, settings: Settings | None = None, *, config: TriggerConfig | None = None, actor: str = "medloop"
) -> Trigger | None:
    """The new trigger, if the number of records or critical flags is a reason for one."""
    config = config or trigger_config(settings or store.settings)
    new = triggers.new_records(store)
    if new.rows < config.every and new.critical < config.critical:
        return None
    return _check(store, new, config, TriggerEvidence(), actor=actor, write=True).trigger


def check_trigger(
    store: Store, config: TriggerConfig = DEFAULT, *, evidence: TriggerEvidence | None = None, actor: str = "medloop",
    write: bool = True,
) -> TriggerCheck:  # fmt: skip
    """All reasons considered; with `write` False nothing is stored."""
    return _check(store, triggers.new_records(store), config, evidence or TriggerEvidence(), actor=actor, write=write)


def _check(
    store: Store, new: NewRecords, config: TriggerConfig, evidence: TriggerEvidence, *, actor: str, write: bool
) -> TriggerCheck:  # fmt: skip
    usable = count_usable(store, new)
    reason, words = _reason(usable, new, config, evidence)
    trigger = None
    if reason is not None and write:
        request = TrainRequest(
            stage=config.stage, model_id=config.model, config=config.config
        )  # the job will have the trigger's name
        details = _details(usable, new, evidence, words) | {"request": request.model_dump(mode="json", exclude_none=True)}
        trigger = triggers.add_trigger(store, new, reason, details, usable, actor=actor)
    return TriggerCheck(usable, new.rows, new.critical, trigger, reason, words)


def count_usable(store: Store, new: NewRecords) -> int:
    """New records that training may use; reads no text."""
    held, register = triggers.held_back_ids(store), Register.of(store)
    records = marks.iterate_marks(store, after=new.seen)
    return sum(mark.record_id not in held and register.covers(mark, "training") for mark in records)


def _reason(usable: int, new: NewRecords, config: TriggerConfig, evidence: TriggerEvidence) -> tuple[Reason | None, str]:
    """The most serious reason first."""
    if new.critical >= config.critical:
        return "critical", f"{new.critical} new critical flags (threshold {config.critical})"
    if usable >= config.every:
        return "volume", f"{usable:,} new usable records (threshold {config.every:,})"
    if len(evidence.drifting) >= config.drifting:
        return "drift", f"{len(evidence.drifting)} raters have drifted (threshold {config.drifting})"
    for name, before, after in evidence.agreement:
        if _fell(before, after, config.agreement_fall):
            return "agreement", f"agreement on {name} fell from {before.mean:.2f} to {after.mean:.2f}"
    return None, f"{usable:,} of {config.every:,} new usable records, {new.critical} of {config.critical} critical flags"


def _fell(before: Interval, after: Interval, by: float) -> bool:
    """By enough, and by more than chance: the new interval lies below the old value."""
    if before.mean is None or after.mean is None or after.high is None:
        return False
    return before.mean - after.mean >= by and after.high < before.mean


def _details(usable: int, new: NewRecords, evidence: TriggerEvidence, words: str) -> dict[str, Any]:
    alphas = {name: {"before": b.mean, "after": a.mean, "units": a.n} for name, b, a in evidence.agreement}
    return {
        "words": words, "usable": usable, "new_rows": new.rows, "critical": new.critical,
        "drifting": len(evidence.drifting), "agreement": alphas,
    }  # fmt: skip
