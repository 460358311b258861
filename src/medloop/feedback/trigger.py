"""When to train again: after enough new usable records, or on evidence that the model or its raters have changed.

    trigger = trigger_if_due(store, settings)                          # cheap enough after every commit; None most of the time
    check_trigger(store, config, evidence=measure_evidence(store))     # also considers drift and agreement; the command does this

A trigger is stored with its evidence before a job is submitted, and it covers all rows so far: no record is a reason twice,
whoever checks and however often. `jobs/retrain.py` turns triggers into jobs.

One person alone starts no training: critical flags count only from two raters on, and of many records (`volume`, `schedule`)
the busiest rater's count for no more than their share. Records of a program that names no rater are of nobody. After a trigger
there is no other one before its jobs have ended and the cooldown is over, whatever the reason.

Usable records are those that training may use: with consent of the record and of the person it is about, not superseded, and not
held back in quarantine. The others are counted too, so that one sees what waits for consent.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Interval, TrainRequest, utc_now
from medloop.contracts.job import StageName
from medloop.feedback.insight.metrics import MetricsConfig, drifted_since, measure, measure_agreement
from medloop.privacy.consent import Register
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import marks, triggers
from medloop.store.records.triggers import NewRecords, Trigger
from medloop.store.records.users import RATERS, list_users

Reason = Literal["volume", "critical", "schedule", "drift", "agreement"]


class TriggerConfig(BaseModel):
    """When to train again, and what."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    every: int = Field(1000, ge=1, description="New usable records that trigger training.")
    critical: int = Field(3, ge=1, description="New critical flags that trigger training.")
    critical_raters: int = Field(2, ge=1, description="Different raters who must have set these flags.")
    raters: int = Field(2, ge=1, le=100, description="Raters that new records take: none counts for more than their share.")
    cooldown_hours: float = Field(24, ge=0, le=8760, description="Hours after a trigger in which there is no other one; 0: none.")
    drifting: int = Field(2, ge=1, description="Raters with a new drift alarm that trigger training.")
    agreement_fall: float = Field(0.15, gt=0, le=2, description="Fall of alpha since the last trigger that triggers training.")
    days: int = Field(7, ge=0, description="Days since the last trigger after which fewer records are enough; 0: never.")
    least: int = Field(50, ge=1, description="New usable records that are enough after so many days.")
    stages: tuple[StageName, ...] = Field(
        ("REWARD", "SFT"), min_length=1, description="What is trained, one job each: REWARD, SFT, DPO, KTO, PPO, GRPO or IRS."
    )
    model: str | None = Field(None, description="Base model of the jobs; empty means the workspace's.")
    config: dict[str, Any] = Field(default_factory=dict, description="Settings of the stages.")


DEFAULT = TriggerConfig()
NEVER = 10**12  # records


@dataclass(frozen=True)
class TriggerEvidence:
    """Raters who drifted since the last trigger, and agreement before and after it, by name."""

    drifting: tuple[str, ...] = ()
    agreement: tuple[tuple[str, Interval, Interval], ...] = ()


@dataclass(frozen=True)
class RecordCounts:
    """The new records, each in one place; superseded ones in none. `by_one_rater`: of the usable ones, those of the busiest."""

    usable: int = 0
    waiting_for_consent: int = 0
    quarantined: int = 0
    by_one_rater: int = 0

    def counted(self, raters: int) -> int:
        """How many count for a trigger that takes so many raters: the busiest one's for their share of all, at most."""
        others = self.usable - self.by_one_rater
        return self.usable if raters == 1 else min(self.usable, others * raters // (raters - 1))


@dataclass(frozen=True)
class TriggerWait:
    """Why there is no trigger now, whatever the reason: one still has work to do, or the last one was not long ago."""

    because: Literal["pending", "cooldown"]
    trigger_id: str
    until: datetime | None = None
    ran: datetime | None = None

    @property
    def words(self) -> str:
        if self.because == "pending":
            return f"{self.trigger_id} comes first: its jobs wait or run, or could not be submitted yet"
        ran, until = (f"{moment:%Y-%m-%d at %H:%M} UTC" for moment in (self.ran, self.until))
        return f"{self.trigger_id} ran on {ran}; the next trigger may come on {until}"


@dataclass(frozen=True)
class TriggerCheck:
    """The result of a check: which new records count and which do not, and the trigger if there was a reason for one.

    With `waits`, there is none for now even if there is a reason.
    """

    records: RecordCounts
    rows: int
    critical: int
    critical_raters: int
    trigger: Trigger | None
    reason: Reason | None
    words: str
    waits: TriggerWait | None = None


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
    feedback = settings.feedback
    every, hours = feedback.retrain_every or NEVER, feedback.retrain_cooldown_hours
    return TriggerConfig(every=every, days=feedback.retrain_days, cooldown_hours=hours, raters=feedback.retrain_raters)


def trigger_if_due(
    store: Store, settings: Settings | None = None, *, config: TriggerConfig | None = None, pending: bool = False,
    actor: str = "medloop",
) -> Trigger | None:  # fmt: skip
    """The new trigger, if the number of records, critical flags or the time that has passed is a reason for one."""
    config = config or trigger_config(settings or store.settings)
    new = triggers.new_records(store)
    if _waits(new, config, pending):
        return None
    if new.rows < config.every and not _is_critical(new, config) and not _long_ago(new, new.rows, config):
        return None
    return _check(store, new, config, TriggerEvidence(), pending=pending, actor=actor, write=True).trigger


def trigger_wait(
    store: Store, config: TriggerConfig = DEFAULT, *, pending: bool = False
) -> tuple[NewRecords, TriggerWait | None]:  # fmt: skip
    """What came in since the last trigger, and why there is no other one now; by row numbers, so it is cheap to ask."""
    new = triggers.new_records(store)
    return new, _waits(new, config, pending)


def check_trigger(
    store: Store, config: TriggerConfig = DEFAULT, *, evidence: TriggerEvidence | None = None, pending: bool = False,
    actor: str = "medloop", write: bool = True,
) -> TriggerCheck:  # fmt: skip
    """All reasons considered; with `write` False nothing is stored. `pending`: jobs of the last trigger have not ended."""
    new, evidence = triggers.new_records(store), evidence or TriggerEvidence()
    return _check(store, new, config, evidence, pending=pending, actor=actor, write=write)


def _check(
    store: Store, new: NewRecords, config: TriggerConfig, evidence: TriggerEvidence, *, pending: bool, actor: str, write: bool
) -> TriggerCheck:  # fmt: skip
    records, waits = count_records(store, new), _waits(new, config, pending)
    reason, words = _reason(records, new, config, evidence)
    trigger = None
    if reason is not None and write and waits is None:
        requests = [TrainRequest(stage=stage, model_id=config.model, config=config.config) for stage in config.stages]
        asked = [request.model_dump(mode="json", exclude_none=True) for request in requests]  # jobs get the trigger's name
        details = _details(records, new, evidence, words) | {"requests": asked}
        trigger = triggers.add_trigger(store, new, reason, details, records.usable, actor=actor)
    return TriggerCheck(records, new.rows, new.critical, len(new.flags), trigger, reason, words, waits)


def _waits(new: NewRecords, config: TriggerConfig, pending: bool) -> TriggerWait | None:
    last = new.since
    if last is None:
        return None
    if pending or not last.jobs:
        return TriggerWait("pending", last.trigger_id)
    until = last.timestamp + timedelta(hours=config.cooldown_hours)
    return TriggerWait("cooldown", last.trigger_id, until, last.timestamp) if utc_now() < until else None


def _is_critical(new: NewRecords, config: TriggerConfig) -> bool:
    return new.critical >= config.critical and len(new.flags) >= config.critical_raters


def count_records(store: Store, new: NewRecords) -> RecordCounts:
    """New records that training may use, and those that it may not yet; reads no text."""
    held, register = triggers.held_back_ids(store), Register.of(store)
    programs = {None, *(user.user_id for user in list_users(store) if user.role not in RATERS)}
    counts: Counter[str] = Counter()
    by_rater: Counter[str | None] = Counter()
    for mark in marks.iterate_marks(store, after=new.seen):
        consented = register.covers(mark, "training")
        place = "waiting_for_consent" if not consented else "quarantined" if mark.record_id in held else "usable"
        counts[place] += 1
        by_rater[mark.rater] += place == "usable" and mark.rater not in programs
    return RecordCounts(**counts, by_one_rater=max(by_rater.values(), default=0))


def _long_ago(new: NewRecords, records: int, config: TriggerConfig) -> bool:
    """Whether the schedule is a reason: so many days since the last trigger, and enough records to be worth it."""
    due = new.waiting_since is not None and utc_now() - new.waiting_since >= timedelta(days=config.days)
    return bool(config.days) and records >= config.least and due


def _reason(
    records: RecordCounts, new: NewRecords, config: TriggerConfig, evidence: TriggerEvidence
) -> tuple[Reason | None, str]:
    """The most serious reason first."""
    usable, counted = records.usable, records.counted(config.raters)
    if _is_critical(new, config):
        return "critical", f"{new.critical} new critical flags by {len(new.flags)} raters (threshold {config.critical})"
    if counted >= config.every:
        return "volume", f"{usable:,} new usable records (threshold {config.every:,})"
    if _long_ago(new, counted, config):
        return "schedule", f"{usable:,} new usable records after {config.days} days"
    if len(evidence.drifting) >= config.drifting:
        return "drift", f"{len(evidence.drifting)} raters have drifted (threshold {config.drifting})"
    for name, before, after in evidence.agreement:
        if _fell(before, after, config.agreement_fall):
            return "agreement", f"agreement on {name} fell from {before.mean:.2f} to {after.mean:.2f}"
    words = f"{usable:,} of {config.every:,} new usable records, {new.critical} of {config.critical} critical flags"
    if counted < usable:
        words += f"; {records.by_one_rater:,} of the records are by one rater, so {counted:,} count"
    if new.critical >= config.critical:
        words += f", which come from {len(new.flags)} of the {config.critical_raters} raters that it takes"
    return None, words


def _fell(before: Interval, after: Interval, by: float) -> bool:
    """By enough, and by more than chance: the new interval lies below the old value."""
    if before.mean is None or after.mean is None or after.high is None:
        return False
    return before.mean - after.mean >= by and after.high < before.mean


def _details(records: RecordCounts, new: NewRecords, evidence: TriggerEvidence, words: str) -> dict[str, Any]:
    alphas = {name: {"before": b.mean, "after": a.mean, "units": a.n} for name, b, a in evidence.agreement}
    return {
        "words": words, **asdict(records), "new_rows": new.rows, "critical": new.critical, "critical_raters": len(new.flags),
        "drifting": len(evidence.drifting), "agreement": alphas,
    }  # fmt: skip
