"""A job's row in the queue: one small file in the job's folder, changed under a lock, whole or not at all.

    queue.json     the row: state, fencing token, restarts, what it waits for
    status.json    the same state with the progress, as the training API answers; for people and programs
    request.json   what was asked for; never changed
    objective.json what an RL job is rewarded for: as known when it was submitted, then as its worker found it
    .lock          held for milliseconds while the row changes
    .worker        held by the worker for as long as it lives: the kernel drops it however the worker ends
    .heartbeat     an empty file whose modification time is the worker's monotonic clock: a beat needs no space on the disk
    .reserve       some kilobytes that are given up so that "the disk is full" can still be written down

A running job whose `.worker` lock is free has a dead worker: no clock is read, so no pause is taken for a death.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from medloop.contracts import JobDetail, JobStatus, Objective, utc_now
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.contracts.job import JobState
from medloop.errors import BusyError, ConfigError, InputError, IntegrityError, NoSpaceError
from medloop.store.files.atomic import atomic_write
from medloop.store.files.lock import locked_file

QUEUE, STATUS, REQUEST, OBJECTIVE = "queue.json", "status.json", "request.json", "objective.json"
LOCK, WORKER, HEARTBEAT, RESERVE = ".lock", ".worker", ".heartbeat", ".reserve"
RESERVE_BYTES = 256 * 1024
ROW_WAIT_S = 10.0
TRIGGER = "retrain-trigger"  # the submitter of jobs that no person asked for
FINAL = ("succeeded", "failed", "cancelled")  # states in which a job has ended


class JobRow(Contract):
    """The row. `token` grows with every worker: the holder of an older one may not write any more.

    `cancellable`, `checkpointed` and `urgent` are copied from the job's kind, so that the queue can be read without the kinds.
    """

    job_id: Text
    stage: Text
    state: JobState
    submitted: Timestamp
    submitter: str = ""  # the id of whoever sent it over HTTP; empty: at the keyboard; TRIGGER: nobody
    changed: Timestamp
    cancellable: bool = True
    checkpointed: bool = True
    urgent: bool = False
    token: int = Field(0, ge=0)
    restarts: int = Field(0, ge=0)
    cancel_requested: bool = False
    cancel_reason: str | None = None  # becomes the reason when the job ends
    waits_for: Literal["space"] | None = None
    pauses: int = Field(0, ge=0)  # for lack of space, since somebody submitted or resumed it
    needs_bytes: int = Field(0, ge=0)
    reason: str | None = None
    ready_at: float = 0.0
    boot: str = ""
    pid: int | None = None
    pid_created: int | None = None

    @property
    def pool(self) -> str:
        """The jobs that it shares its slots with: the first part of its id."""
        return self.job_id.partition("_")[0]

    @property
    def has_ended(self) -> bool:
        return self.state in FINAL

    @property
    def is_waiting(self) -> bool:
        """For its turn, or for space on the disk."""
        return self.state == "queued" or self.waits_for is not None

    @property
    def cancelled_message(self) -> str:
        if self.cancel_reason:
            return self.cancel_reason
        return "Cancelled; the newest checkpoint is kept." if self.checkpointed else "Cancelled; nothing was published."


class UnknownJobError(InputError):
    """There is no such job."""


class StateError(ConfigError):
    """The job is not in a state in which this can be done."""


class LostLeaseError(BusyError):
    """Another worker has the job now; this one may not write any more."""


def unknown(job_id: str) -> UnknownJobError:
    return UnknownJobError(f"There is no job {job_id}", "List the jobs with: medloop jobs list")


def read(folder: Path) -> JobRow:
    file = folder / QUEUE
    try:
        return JobRow.from_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise unknown(folder.name) from None
    except ValueError:  # not a row, not JSON, or not even text
        raise IntegrityError(f"{file} cannot be read", "Restore it from a copy, or submit the job again") from None


def change(folder: Path, update: Callable[[JobRow], JobRow]) -> JobRow:
    """The row after `update`; the status file follows. A full disk gives up the reserve, so that a state is never lost to it."""
    with row_lock(folder):
        before = read(folder)
        after = update(before)
        if after == before:
            return before
        after = after.model_copy(update={"changed": utc_now()})
        try:
            _write_both(folder, after)
        except NoSpaceError:
            (folder / RESERVE).unlink(missing_ok=True)
            _write_both(folder, after)
        return after


def _write_both(folder: Path, row: JobRow) -> None:
    _write(folder, QUEUE, row)
    write_status(folder, row)


def write_status(folder: Path, row: JobRow, detail: JobDetail | None = None) -> None:
    """Write status.json; without a new `detail` the last one stays. Under the row's lock."""
    newest = detail or read_detail(folder) or JobDetail()
    message = row.reason if row.reason else newest.message if detail else None
    shown = newest.model_copy(update={"message": message})
    objective = read_objective(folder)
    _write(folder, STATUS, JobStatus(job_id=row.job_id, stage=row.stage, state=row.state, detail=shown, objective=objective))


def status(folder: Path) -> JobStatus:
    """State and progress: the row knows the state, status.json the rest."""
    row = read(folder)
    detail = read_detail(folder) or JobDetail()
    if row.state == "running" and not has_worker(folder) and read(folder) == row:
        rest = "continues from the newest checkpoint" if row.checkpointed else "starts again"
        message = f"Its worker is gone; the job {rest} with the next one: medloop jobs work."
        detail = detail.model_copy(update={"message": message})
    return JobStatus(job_id=row.job_id, stage=row.stage, state=row.state, detail=detail, objective=read_objective(folder))


def status_json(status: JobStatus) -> dict[str, Any]:
    """The JSON of the training API: every field is there, but `message` and `objective` only when there is one."""
    value = status.model_dump(mode="json")
    if value["detail"]["message"] is None:
        del value["detail"]["message"]
    if value["objective"] is None:
        del value["objective"]
    return value


def read_detail(folder: Path) -> JobDetail | None:
    try:
        return JobStatus.model_validate(json.loads((folder / STATUS).read_text(encoding="utf-8"))).detail
    except (OSError, ValueError):
        return None  # it is only a view: the next report writes it anew


def read_objective(folder: Path) -> Objective | None:
    try:
        return Objective.from_json((folder / OBJECTIVE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # a job without a reward, or of an older medloop


def write_objective(folder: Path, objective: Objective) -> None:
    atomic_write(folder / OBJECTIVE, objective.model_dump_json(indent=2) + "\n")


def make_reserve(folder: Path) -> None:
    if not (folder / RESERVE).exists():
        atomic_write(folder / RESERVE, b"\0" * RESERVE_BYTES)


@contextmanager
def row_lock(folder: Path) -> Iterator[None]:
    with locked_file(lock_path(folder, LOCK), wait_s=ROW_WAIT_S, what=f"The queue entry of {folder.name}", mode=0o600):
        yield


def has_worker(folder: Path) -> bool:
    """Whether a living process holds the job. A shared lock, so that two who look do not see each other."""
    try:
        with locked_file(lock_path(folder, WORKER), wait_s=0, mode=0o600, shared=True):
            return False
    except BusyError:
        return True


def lock_path(folder: Path, name: str) -> Path:
    """A lock file of a job; UnknownJobError where there is no such job."""
    if not folder.is_dir():
        raise unknown(folder.name)
    return folder / name


def _write(folder: Path, name: str, value: JobRow | JobStatus) -> None:
    shape = status_json(value) if isinstance(value, JobStatus) else value.model_dump(mode="json", exclude_none=True)
    atomic_write(folder / name, json.dumps(shape, ensure_ascii=False, indent=2) + "\n")
