"""The queue as people use it: list, look, cancel, resume. The folders under `jobs/` are the queue; there is no other.

    job_row.status_json(status_of(job_id, settings))        # as `GET /api/train/status/{job_id}` answers

A job's id begins with its pool (`train_…`, `data_…`; kinds.py); pools do not wait for each other. `submit.py` puts jobs in.
"""

import json
import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from medloop.contracts import JobDetail, JobRuntime, JobStatus, Objective, TrainRequest
from medloop.contracts.job import TaskRequest
from medloop.errors import IntegrityError, explain_os_errors
from medloop.jobs import job_row, lease
from medloop.jobs.job_row import FINAL, JobRow, StateError, UnknownJobError, unknown
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.artifacts import sweep
from medloop.store.files.atomic import atomic_write, claim_temp, fsync_folder

log = logging.getLogger("medloop.jobs")
JOB_ID = re.compile(r"([a-z]+)_(\d{8}T\d{6}Z)(?:-(\d{1,6}))?")
RESULT = "result.json"  # of a job that does not train: ids, hashes and counts, no text
STOP_S = 20.0  # a worker that was told to end is gone by then; it promises ten seconds
POLL_S = 0.1


def put(request: TrainRequest | TaskRequest, row: JobRow, settings: Settings, objective: Objective | None = None) -> str:
    """Make the folder of a new job, whose id begins with `row.job_id`. It appears under its name in one rename, so a process
    that is killed here leaves no half job."""
    home = settings.workspace.jobs
    with explain_os_errors(home, writing=True):
        home.mkdir(parents=True, exist_ok=True)
        sweep(home)
        temp, fd = claim_temp(home / row.job_id, _make_folder)
        try:
            return _publish(temp, home, request, row, settings, objective)
        finally:
            os.close(fd)


def _make_folder(path: Path) -> int:
    while True:
        path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another's sweep came between: nobody had locked it yet
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _publish(
    temp: Path, home: Path, request: TrainRequest | TaskRequest, row: JobRow, settings: Settings, objective: Objective | None
) -> str:
    """Fill the folder and give it the first free name of this second."""
    if objective is not None:
        job_row.write_objective(temp, objective)
    stamp, number = f"{row.job_id}_{row.submitted:%Y%m%dT%H%M%SZ}", 1
    while True:
        job_id = stamp if number == 1 else f"{stamp}-{number}"
        _fill(temp, request, row.model_copy(update={"job_id": job_id}), settings)
        try:
            os.rename(temp, home / job_id)  # refuses a folder that has something in it
        except OSError:
            if not (home / job_id).exists():
                raise
            number += 1
            continue
        fsync_folder(home)
        return job_id


def _fill(folder: Path, request: TrainRequest | TaskRequest, row: JobRow, settings: Settings) -> None:
    content = json.dumps(request.model_dump(mode="json", exclude_none=True), ensure_ascii=False, indent=2) + "\n"
    for name in (job_row.REQUEST, "config.json"):  # the trainer adds the resolved config to config.json when it begins
        atomic_write(folder / name, content)
    atomic_write(folder / job_row.QUEUE, row.canonical_json() + "\n")
    job_row.make_reserve(folder)
    runtime = JobRuntime(device=settings.device, unsloth_available=has_unsloth())
    job_row.write_status(folder, row, JobDetail(runtime=runtime))


def has_unsloth() -> bool:
    return find_spec("unsloth") is not None


def folder_of(job_id: str, settings: Settings) -> Path:
    """The folder of a job; a name that is not a job id never becomes a path."""
    if not JOB_ID.fullmatch(job_id):
        raise UnknownJobError("There is no job of that name", "A job id looks like train_20260203T120000Z, or data_…")
    folder = settings.workspace.jobs / job_id
    if not (folder / job_row.QUEUE).is_file():
        raise unknown(job_id)
    return folder


def request_of(folder: Path) -> TrainRequest:
    return TrainRequest.from_json((folder / job_row.REQUEST).read_text(encoding="utf-8"))


def task_of(folder: Path) -> TaskRequest:
    return TaskRequest.from_json((folder / job_row.REQUEST).read_text(encoding="utf-8"))


def ids(settings: Settings, pools: tuple[str, ...] | None = None) -> list[str]:
    """All jobs, or those of these pools, newest first."""
    home = settings.workspace.jobs
    names = os.listdir(home) if home.is_dir() else []
    matches = [match for name in names if (match := JOB_ID.fullmatch(name)) and (pools is None or match[1] in pools)]
    return [match[0] for match in sorted(matches, key=lambda match: (match[2], int(match[3] or 1), match[0]), reverse=True)]


def submitted(job_id: str) -> datetime:
    """When a job was put in, to the second, by its id."""
    match = JOB_ID.fullmatch(job_id)
    assert match is not None, "a job of the queue"
    return datetime.strptime(match[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def rows(settings: Settings, pools: tuple[str, ...] | None = None) -> Iterator[JobRow]:
    """The rows of all jobs, or of these pools, newest first. One that was removed meanwhile, or is damaged, hides no other."""
    for job_id in ids(settings, pools):
        try:
            yield job_row.read(folder_of(job_id, settings))
        except UnknownJobError:
            continue
        except IntegrityError as error:
            log.error("%s", error)


@dataclass(frozen=True)
class JobPage:
    jobs: list[JobStatus]
    after: str | None  # the `after` of the next page; None on the last one


def page(settings: Settings, *, limit: int = 20, after: str | None = None, pools: tuple[str, ...] | None = None) -> JobPage:
    """Jobs, or those of these pools, newest first; `after` is the last job of the page before."""
    names = [row.job_id for row in rows(settings, pools)]
    if after is not None:
        job_row.read(folder_of(after, settings))
        if after not in names:
            raise unknown(after)
        names = names[names.index(after) + 1 :]
    some = names[:limit]
    return JobPage([status_of(name, settings) for name in some], some[-1] if len(names) > limit else None)


def status_of(job_id: str, settings: Settings) -> JobStatus:
    return job_row.status(folder_of(job_id, settings))


@dataclass(frozen=True)
class TaskStatus:
    """The status of a job that does not train; `result` is there when it has succeeded."""

    status: JobStatus
    result: dict[str, Any] | None


def task_status(job_id: str, kind: str, settings: Settings, *, wait_s: float = 0.0) -> TaskStatus:
    """Where a job of this kind is; waits up to `wait_s` seconds for its end. A job of another kind is unknown here."""
    folder, deadline = folder_of(job_id, settings), time.monotonic() + wait_s
    while True:
        status = status_of(job_id, settings)
        if status.stage != kind:
            raise UnknownJobError(f"There is no job {job_id} here", "Check the job id")
        if status.state in FINAL or time.monotonic() >= deadline:
            has_result = status.state == "succeeded" and (folder / RESULT).is_file()
            return TaskStatus(status, json.loads((folder / RESULT).read_bytes()) if has_result else None)
        time.sleep(POLL_S)


def metrics_of(job_id: str, settings: Settings) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a torn last line is left out."""
    path = folder_of(job_id, settings) / "metrics.jsonl"
    return list(jsonl.read(path)) if path.is_file() else []


def cancel(job_id: str, settings: Settings, reason: str | None = None) -> JobStatus:
    """End a job: one that waits ends at once, one that runs within some seconds, after a checkpoint.

    The request and its reason are one change: whoever is killed after it has lost neither.
    """
    folder = folder_of(job_id, settings)

    def end(row: JobRow) -> JobRow:
        if not row.cancellable:
            raise StateError(f"A job of the kind {row.stage} cannot be cancelled", "This kind of job always runs to the end")
        if row.state == "cancelled":
            return row
        if row.has_ended:
            raise StateError(f"{job_id} has {row.state} already", "Only a job that waits or runs can be cancelled")
        why = reason or row.cancel_reason
        if row.state == "running" and job_row.has_worker(folder):
            return row.model_copy(update={"cancel_requested": True, "cancel_reason": why})
        cleared = {"waits_for": None, "cancel_requested": False, "cancel_reason": None}
        return row.model_copy(update={"state": "cancelled", "reason": why, **cleared})

    row = job_row.change(folder, end)
    if row.cancel_requested:
        lease.send_signal(row, signal.SIGTERM)  # it would see the request by itself, two seconds later
    return job_row.status(folder)


def stop(job_id: str, settings: Settings, reason: str) -> JobRow:
    """Cancel a job for a reason that its record keeps, and wait for its end; one that does not end in time is still `running`."""
    folder, deadline = folder_of(job_id, settings), time.monotonic() + STOP_S
    with suppress(StateError):  # it ended by itself
        cancel(job_id, settings, reason)
        while job_row.read(folder).state == "running" and job_row.has_worker(folder) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if job_row.read(folder).state == "running" and not job_row.has_worker(folder):
            cancel(job_id, settings, reason)  # its worker died of it
    return job_row.read(folder)


def resume(job_id: str, settings: Settings) -> JobStatus:
    """Put a paused, failed or cancelled job back into the queue; it continues from its newest checkpoint."""
    folder = folder_of(job_id, settings)

    def requeue(row: JobRow) -> JobRow:
        if row.state in ("queued", "running", "succeeded"):
            raise StateError(f"{job_id} is {row.state}", "Only a paused, failed or cancelled job can be resumed")
        cleared = {"reason": None, "waits_for": None, "cancel_requested": False, "cancel_reason": None}
        return row.model_copy(update={"state": "queued", **cleared, "restarts": 0, "pauses": 0, "ready_at": 0.0})

    job_row.change(folder, requeue)
    return job_row.status(folder)
