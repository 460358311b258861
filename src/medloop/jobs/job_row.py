"""A job's row in the queue: one small file in the job's folder, changed under a lock, whole or not at all.

    queue.json     the row: state, fencing token, restarts, what it waits for
    status.json    the same state with the progress, as document 003 writes it; for people and for the API
    request.json   what was asked for; never changed
    .lock          held for milliseconds while the row changes
    .worker        held by the worker for as long as it lives: the kernel lets go of it however the worker ends
    .heartbeat     an empty file whose modification time is the worker's monotonic clock: a beat needs no space on the disk
    .reserve       some kilobytes that are given up so that "the disk is full" can still be written down

Running with `.worker` free means that the worker is dead, and nothing else: no clock is asked, so no pause is taken for a death.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from medloop.contracts import JobDetail, JobStatus, utc_now
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.contracts.job import Errand, JobState, StageName
from medloop.errors import BusyError, ConfigError, InputError, IntegrityError, NoSpaceError
from medloop.store.files.atomic import atomic_write
from medloop.store.files.lock import locked_file

QUEUE, STATUS, REQUEST = "queue.json", "status.json", "request.json"
LOCK, WORKER, HEARTBEAT, RESERVE = ".lock", ".worker", ".heartbeat", ".reserve"
RESERVE_BYTES = 256 * 1024
ROW_WAIT_S = 10.0
OVER = ("succeeded", "failed", "cancelled")


class Entry(Contract):
    """The row. `token` grows with every worker: who holds an older one may not write any more."""

    job_id: Text
    stage: StageName | Errand
    state: JobState
    submitted: Timestamp
    submitter: str = ""  # the id of whoever sent it over HTTP; empty: at the keyboard, or by the retrain trigger
    changed: Timestamp
    token: int = Field(0, ge=0)
    restarts: int = Field(0, ge=0)
    wish: Literal["cancel"] | None = None
    why: str | None = None  # of the wish: whoever ends the job makes it the reason
    waits_for: Literal["space"] | None = None
    pauses: int = Field(0, ge=0)  # for want of space, since somebody submitted or resumed it
    needs_bytes: int = Field(0, ge=0)
    reason: str | None = None
    ready_at: float = 0.0
    boot: str = ""
    pid: int | None = None
    pid_born: int | None = None

    @property
    def is_errand(self) -> bool:
        """A dataset or an erasure: it has no checkpoints and no settings of a run."""
        return self.stage in get_args(Errand)

    @property
    def waits(self) -> bool:
        """For its turn, or for space on the disk."""
        return self.state == "queued" or self.waits_for is not None


def cancelled_words(row: Entry) -> str:
    return "Cancelled; nothing was published." if row.is_errand else "Cancelled; the newest checkpoint is kept."


class UnknownJobError(InputError):
    """There is no such job."""


class StateError(ConfigError):
    """The job is not in a state in which this can be done."""


class LostLeaseError(BusyError):
    """Another worker has the job now; this one may not write a word more."""


def read(folder: Path) -> Entry:
    file = folder / QUEUE
    try:
        return Entry.from_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnknownJobError(f"There is no job {folder.name}", "See the jobs there are with: medloop jobs list") from None
    except ValueError:  # not the row, not JSON, or not even text
        raise IntegrityError(f"{file} cannot be read", "Restore it from a copy, or submit the job again") from None


def change(folder: Path, how: Callable[[Entry], Entry]) -> Entry:
    """The row after `how`; the status file follows. A full disk gives up the reserve, so that a state is never lost to it."""
    with row_lock(folder):
        before = read(folder)
        after = how(before)
        if after == before:
            return before
        after = after.model_copy(update={"changed": utc_now()})
        try:
            _put_both(folder, after)
        except NoSpaceError:
            (folder / RESERVE).unlink(missing_ok=True)
            _put_both(folder, after)
        return after


def _put_both(folder: Path, row: Entry) -> None:
    _put(folder, QUEUE, row)
    put_status(folder, row)


def put_status(folder: Path, entry: Entry, detail: JobDetail | None = None) -> None:
    """Write status.json; without a new `detail` the last one stays. Under the row's lock."""
    kept = detail or read_detail(folder) or JobDetail()
    said = kept.model_copy(update={"message": entry.reason if entry.reason else kept.message if detail else None})
    _put(folder, STATUS, JobStatus(job_id=entry.job_id, stage=entry.stage, state=entry.state, detail=said))


def status(folder: Path) -> JobStatus:
    """State and progress: the row knows the state, status.json the rest."""
    entry = read(folder)
    detail = read_detail(folder) or JobDetail()
    if entry.state == "running" and not is_worked_on(folder) and read(folder) == entry:
        how = "the next takes it up" if entry.is_errand else "it goes on from the newest checkpoint with the next"
        gone = f"Its worker is gone; {how}: medloop jobs work."
        detail = detail.model_copy(update={"message": gone})
    return JobStatus(job_id=entry.job_id, stage=entry.stage, state=entry.state, detail=detail)


def shown(found: JobStatus) -> dict[str, Any]:
    """The JSON of document 003: every field of it is there, our `message` only when there is something to say."""
    value = found.model_dump(mode="json")
    if value["detail"]["message"] is None:
        del value["detail"]["message"]
    return value


def read_detail(folder: Path) -> JobDetail | None:
    try:
        return JobStatus.model_validate(json.loads((folder / STATUS).read_text(encoding="utf-8"))).detail
    except (OSError, ValueError):
        return None  # it is only a view: the next report writes it anew


def make_reserve(folder: Path) -> None:
    if not (folder / RESERVE).exists():
        atomic_write(folder / RESERVE, b"\0" * RESERVE_BYTES)


@contextmanager
def row_lock(folder: Path) -> Iterator[None]:
    with locked_file(lock_path(folder, LOCK), wait_s=ROW_WAIT_S, what=f"The queue entry of {folder.name}", mode=0o600):
        yield


def is_worked_on(folder: Path) -> bool:
    """Whether a living process holds the job. A shared lock, so that two who look do not see each other."""
    try:
        with locked_file(lock_path(folder, WORKER), wait_s=0, mode=0o600, shared=True):
            return False
    except BusyError:
        return True


def lock_path(folder: Path, name: str) -> Path:
    """A lock file of a job; UnknownJobError where there is no such job."""
    if not folder.is_dir():
        raise UnknownJobError(f"There is no job {folder.name}", "See the jobs there are with: medloop jobs list")
    return folder / name


def _put(folder: Path, name: str, value: Entry | JobStatus) -> None:
    shape = shown(value) if isinstance(value, JobStatus) else value.model_dump(mode="json", exclude_none=True)
    atomic_write(folder / name, json.dumps(shape, ensure_ascii=False, indent=2) + "\n")
