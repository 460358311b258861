"""The queue as people use it: submit, look, cancel, resume. The folders under `jobs/` are the queue; there is no other.

    job_id = submit(TrainRequest(stage="GRPO", model_id="embedded:tiny", config={"steps": 40}), settings)
    shown(status_of(job_id, settings))        # as `GET /api/train/status/{job_id}` answers

A folder appears under its name in one rename, so a submit that was killed leaves no half job. Training jobs are called `train_…`;
errands (datasets, erasures) are called `data_…` and do not wait for training: see `errands.py`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from medloop.contracts import JobDetail, JobRuntime, JobStatus, TrainRequest, utc_now
from medloop.contracts.job import Errand, ErrandRequest
from medloop.errors import IntegrityError, speaking_of
from medloop.jobs import job_row as rows
from medloop.jobs import lease, preflight
from medloop.jobs.job_row import OVER, Entry, StateError, UnknownJobError
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.artifacts import sweep
from medloop.store.files.atomic import atomic_write, claim_temp, fsync_folder

log = logging.getLogger("medloop.jobs")
JOB_ID = re.compile(r"(train|data)_(\d{8}T\d{6}Z)(?:-(\d{1,6}))?")
ERRANDS: tuple[str, ...] = get_args(Errand)
ENDS_S = 20.0  # a worker that was asked to end is gone by then; it promises ten seconds


@dataclass(frozen=True)
class Submitted:
    job_id: str
    expected: preflight.Preflight


def submit(request: TrainRequest, settings: Settings, *, by: str = "", now: datetime | None = None) -> Submitted:
    """Put a job into the queue, for the person `by`; what cannot work is refused with a sentence, and leaves nothing behind."""
    found, when = preflight.look(request, settings), now or utc_now()
    row = Entry(
        job_id="train", stage=request.stage, state="queued", submitted=when, submitter=by, changed=when,
        needs_bytes=found.needs_bytes,
    )  # fmt: skip
    return Submitted(_put(request, row, settings), found)


def submit_errand(request: ErrandRequest, settings: Settings) -> str:
    """Put an errand into the queue; one that waits already, asked for in the same words, is not asked for twice."""
    for row in entries(settings):
        with suppress(ValueError, OSError, UnknownJobError):  # another one that is damaged, or was removed meanwhile
            if row.stage == request.stage and row.state == "queued" and errand_of(folder_of(row.job_id, settings)) == request:
                return row.job_id
    now = utc_now()
    row = Entry(job_id="data", stage=request.stage, state="queued", submitted=now, submitter=request.actor, changed=now)
    return _put(request, row, settings)


def _put(request: TrainRequest | ErrandRequest, row: Entry, settings: Settings) -> str:
    home = settings.workspace.jobs
    with speaking_of(home):
        home.mkdir(parents=True, exist_ok=True)
        sweep(home)
        temp, fd = claim_temp(home / row.job_id, _make)
        try:
            return _publish(temp, home, request, row, settings)
        finally:
            os.close(fd)


def _make(path: Path) -> int:
    while True:
        path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another's sweep came between: nobody had locked it yet
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _publish(temp: Path, home: Path, request: TrainRequest | ErrandRequest, row: Entry, settings: Settings) -> str:
    """Fill the folder and give it the first free name of this second."""
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


def _fill(folder: Path, request: TrainRequest | ErrandRequest, row: Entry, settings: Settings) -> None:
    asked = json.dumps(request.model_dump(mode="json", exclude_none=True), ensure_ascii=False, indent=2) + "\n"
    for name in (rows.REQUEST, "config.json"):  # the trainer adds what it made of it to config.json when it begins
        atomic_write(folder / name, asked)
    atomic_write(folder / rows.QUEUE, row.canonical_json() + "\n")
    rows.make_reserve(folder)
    rows.put_status(folder, row, JobDetail(runtime=JobRuntime(device=settings.device, unsloth_available=has_unsloth())))


def has_unsloth() -> bool:

    return find_spec("unsloth") is not None


def folder_of(job_id: str, settings: Settings) -> Path:
    """The folder of a job; a name that is no job id never becomes a path."""
    if not JOB_ID.fullmatch(job_id):
        raise UnknownJobError("There is no job of that name", "A job id looks like train_20260203T120000Z, or data_…")
    folder = settings.workspace.jobs / job_id
    if not (folder / rows.QUEUE).is_file():
        raise unknown(job_id)
    return folder


def unknown(job_id: str) -> UnknownJobError:
    return UnknownJobError(f"There is no job {job_id}", "See the jobs there are with: medloop jobs list")


def request_of(folder: Path) -> TrainRequest:
    return TrainRequest.from_json((folder / rows.REQUEST).read_text(encoding="utf-8"))


def errand_of(folder: Path) -> ErrandRequest:
    return ErrandRequest.from_json((folder / rows.REQUEST).read_text(encoding="utf-8"))


def ids(settings: Settings, kinds: tuple[str, ...] = ("train",)) -> list[str]:
    """Training jobs, or those of these kinds, newest first."""
    home = settings.workspace.jobs
    names = os.listdir(home) if home.is_dir() else []
    found = [(m[2], int(m[3] or 1), name) for name in names if (m := JOB_ID.fullmatch(name)) and m[1] in kinds]
    return [name for *_, name in sorted(found, reverse=True)]


def entries(settings: Settings) -> Iterator[Entry]:
    """The rows of all jobs. One that was removed meanwhile, or is damaged, does not keep the others from being seen."""
    for job_id in ids(settings, ("train", "data")):
        try:
            yield rows.read(folder_of(job_id, settings))
        except UnknownJobError:
            continue
        except IntegrityError as error:
            log.error("%s", error)


@dataclass(frozen=True)
class Page:
    jobs: list[JobStatus]
    after: str | None  # hand it in to get the next page; None on the last one


def page(settings: Settings, *, limit: int = 20, after: str | None = None, errands: bool = True) -> Page:
    """Jobs, newest first, with or without errands; `after` is the last job of the page before."""
    names = [row.job_id for row in entries(settings) if errands or row.stage not in ERRANDS]
    if after is not None:
        rows.read(folder_of(after, settings))
        if after not in names:
            raise unknown(after)
        names = names[names.index(after) + 1 :]
    some = names[:limit]
    return Page([status_of(name, settings) for name in some], some[-1] if len(names) > limit else None)


def status_of(job_id: str, settings: Settings) -> JobStatus:
    return rows.status(folder_of(job_id, settings))


def metrics_of(job_id: str, settings: Settings) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a torn last line is left out."""
    path = folder_of(job_id, settings) / "metrics.jsonl"
    return list(jsonl.read(path)) if path.is_file() else []


def cancel(job_id: str, settings: Settings, why: str | None = None) -> JobStatus:
    """Ask a job to end: one that waits ends at once, one that runs after a checkpoint, within some seconds.

    The wish and its reason are one change: whoever is killed after it has lost neither.
    """
    folder = folder_of(job_id, settings)

    def end(row: Entry) -> Entry:
        if row.stage == "ERASE":
            raise StateError("An erasure that was asked for is carried out", "It cannot be cancelled")
        if row.state == "cancelled":
            return row
        if row.state in OVER:
            raise StateError(f"{job_id} is {row.state} already", "Only a job that waits or runs can be cancelled")
        if row.state == "running" and rows.is_worked_on(folder):
            return row.model_copy(update={"wish": "cancel", "why": why or row.why})
        return row.model_copy(
            update={"state": "cancelled", "reason": why or row.why, "waits_for": None, "wish": None, "why": None}
        )

    row = rows.change(folder, end)
    if row.wish == "cancel":
        lease.send(row, signal.SIGTERM)  # it would see the wish itself, two seconds later
    return rows.status(folder)


def stop(job_id: str, settings: Settings, reason: str) -> Entry:
    """Cancel a job for a reason that its record keeps, and see it end; one that does not end in time is still `running`."""
    folder, deadline = folder_of(job_id, settings), time.monotonic() + ENDS_S
    with suppress(StateError):  # it ended by itself
        cancel(job_id, settings, reason)
        while rows.read(folder).state == "running" and rows.is_worked_on(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        if rows.read(folder).state == "running" and not rows.is_worked_on(folder):
            cancel(job_id, settings, reason)  # its worker died of it
    return rows.read(folder)


def resume(job_id: str, settings: Settings) -> JobStatus:
    """Put a paused, failed or cancelled job back into the queue; it goes on from its newest checkpoint."""
    folder = folder_of(job_id, settings)

    def again(row: Entry) -> Entry:
        if row.state in ("queued", "running", "succeeded"):
            raise StateError(f"{job_id} is {row.state}", "Only a paused, failed or cancelled job can be resumed")
        fresh = {"state": "queued", "reason": None, "waits_for": None, "wish": None, "why": None}
        counts = {"restarts": 0, "pauses": 0, "ready_at": 0.0}
        return row.model_copy(update={**fresh, **counts})

    rows.change(folder, again)
    return rows.status(folder)
