"""Put a job into the queue: the one way in for HTTP, the keyboard and the retrain trigger.

submitted = submit_training(TrainRequest(stage="GRPO", model_id="embedded:tiny", config={"steps": 40}), settings)
job_id = submit_build(FeedbackConfig(name="week46"), settings, seed=7, actor="usr_1")
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from medloop.contracts import TrainRequest, utc_now
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.job import TaskRequest
from medloop.data.feedback.build import FeedbackConfig
from medloop.errors import ConfigError
from medloop.jobs import preflight, queue, requests
from medloop.jobs.job_row import JobRow, UnknownJobError
from medloop.jobs.kinds import Channel, Kind, kind_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.settings import Settings


@dataclass(frozen=True)
class Submitted:
    job_id: str
    preflight: preflight.Preflight


def submit_training(
    request: TrainRequest, settings: Settings, *, channel: Channel = "keyboard", by: str = "", now: datetime | None = None
) -> Submitted:
    """Queue a training job for the person `by`. What cannot work is refused with a sentence, and leaves nothing behind."""
    kind = _kind(request.stage, channel)
    checked = preflight.check(request, settings)
    row = _row(kind, now or utc_now(), by).model_copy(update={"needs_bytes": checked.needs_bytes})
    return Submitted(queue.put(request, row, settings, checked.objective), checked)


def submit_build(config: FeedbackConfig, settings: Settings, *, seed: int, actor: str) -> str:
    values = {"seed": seed, "settings": config.model_dump(mode="json")}
    return submit_task(TaskRequest(stage="BUILD", actor=actor, config=values), settings, channel="http")


def submit_erasure(erasure: ErasureRequest, settings: Settings, *, actor: str, dry_run: bool) -> str:
    """`erasure.subject` must be the hash already: a patient's number does not belong into the folder of a job."""
    values = {
        "reason": erasure.reason, "records": list(erasure.records), "keep_jobs": erasure.keep_jobs, "dry_run": dry_run,
        **({} if erasure.subject is None else {"subject": erasure.subject}),
    }  # fmt: skip
    if erasure.approved_by is not None:
        values |= {name: getattr(erasure, name) for name in ("approved_by", "approved_ids", "request_id")}
    return submit_task(TaskRequest(stage="ERASE", actor=actor, config=values), settings, channel="http")


def submit_gate(model: str, baseline: str | None, config: GateConfig, settings: Settings, *, actor: str) -> str:
    """A verdict on a model; names that lead out of the workspace, to code or to nothing are refused here."""
    requests.check_gate(config)
    requests.gate_models(model, baseline, settings)
    values = {"model": model, "settings": config.model_dump(mode="json")} | ({} if baseline is None else {"baseline": baseline})
    return submit_task(TaskRequest(stage="GATE", actor=actor, config=values), settings, channel="http")


def submit_inspection(week: str, settings: Settings, *, actor: str) -> str:
    """The sample of this week; one that waits or is being drawn is not drawn twice."""
    for row in queue.rows(settings, ("inspect",)):
        if not row.has_ended:
            return row.job_id
    return submit_task(TaskRequest(stage="INSPECT", actor=actor, config={"week": week}), settings, channel="http")


def submit_task(request: TaskRequest, settings: Settings, *, channel: Channel) -> str:
    """Queue a job that does not train; an equal request that waits already is not queued twice."""
    kind = _kind(request.stage, channel)
    for row in queue.rows(settings, (kind.pool.name,)):
        with suppress(ValueError, OSError, UnknownJobError):  # another job that is damaged, or was removed meanwhile
            if row.state == "queued" and queue.task_of(queue.folder_of(row.job_id, settings)) == request:
                return row.job_id
    return queue.put(request, _row(kind, utc_now(), request.actor), settings)


def _kind(name: str, channel: Channel) -> Kind:
    kind = kind_of(name)
    if channel not in kind.filed_by:
        channels = ", ".join(sorted(kind.filed_by))
        raise ConfigError(f"A job of the kind {name} cannot be submitted by {channel}", f"It can be submitted by: {channels}")
    return kind


def _row(kind: Kind, now: datetime, submitter: str) -> JobRow:
    return JobRow(
        job_id=kind.pool.name, stage=kind.name, state="queued", submitted=now, submitter=submitter, changed=now,
        cancellable=kind.cancellable, checkpointed=kind.checkpointed, urgent=kind.urgent,
    )  # fmt: skip
