"""The right to work on a job: held by one living process, renewed by a heartbeat, checked before every write.

Two things keep a second worker away. The lock `.worker` is the kernel's: it ends with the process. The token is ours: a
supervisor that gives up on a holder without a heartbeat raises the token first and kills the holder after; should the holder
survive, its next look at the token ends it.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import JobDetail
from medloop.contracts.job import JobState
from medloop.errors import NoSpaceError
from medloop.jobs import job_row
from medloop.jobs.job_row import JobRow, LostLeaseError, StateError
from medloop.store.files.lock import locked_file

BEAT_S = 2.0
LEASE_S = 120.0  # a living holder without a beat for so long loses the job; a death is seen at once by its lock
LOST = 75  # exit code of a worker whose job was given to another
CLAIM_WAIT_S = 0.2  # longer than somebody's look at the lock; a second worker leaves within a second


@dataclass(frozen=True)
class Lease:
    folder: Path
    token: int

    def check(self) -> JobRow:
        """The row, if the job is still ours."""
        row = job_row.read(self.folder)
        self._refuse_if_lost(row)
        return row

    def beat(self) -> JobRow:
        row = self.check()
        touch(self.folder)
        return row

    def report(self, detail: JobDetail) -> None:
        """Progress into status.json."""
        with job_row.row_lock(self.folder):
            job_row.write_status(self.folder, self.check(), detail)

    def end(
        self, state: JobState, reason: str | None = None, *, waits_for_space: bool = False, retry_in_s: float = 0.0
    ) -> JobRow:
        """This worker's final word about the job; refused when another has it. A queued job rests for `retry_in_s` first."""

        def finish(row: JobRow) -> JobRow:
            self._refuse_if_lost(row)
            waits: dict[str, Any] = {"waits_for": "space" if waits_for_space else None, "pauses": row.pauses + waits_for_space}
            waits |= {"ready_at": time.monotonic() + retry_in_s, "boot": boot_id()} if retry_in_s else {}
            released = {"cancel_requested": False, "cancel_reason": None, "pid": None, "pid_created": None}
            return row.model_copy(update={"state": state, "reason": reason, **waits, **released})

        return job_row.change(self.folder, finish)

    def note(self, reason: str | None, *, needs_bytes: int) -> None:
        """What is known before the first step."""

        def write(row: JobRow) -> JobRow:
            self._refuse_if_lost(row)
            return row.model_copy(update={"reason": reason, "needs_bytes": max(needs_bytes, row.needs_bytes)})

        job_row.change(self.folder, write)

    def _refuse_if_lost(self, row: JobRow) -> None:
        if row.token != self.token:
            raise LostLeaseError(f"{self.folder.name} has been given to another worker", "Nothing more is written here")


@contextmanager
def claim(folder: Path) -> Iterator[Lease]:
    """Take a job that waits, or one whose worker is dead. BusyError when it has a worker, StateError when it has ended."""
    with locked_file(job_row.lock_path(folder, job_row.WORKER), wait_s=CLAIM_WAIT_S, what=f"The job {folder.name}", mode=0o600):
        touch(folder)  # before the row says "running": there is never a running job without a beat

        def take(row: JobRow) -> JobRow:
            if row.state not in ("queued", "running"):
                raise StateError(f"{row.job_id} is {row.state}", f"Resume it with: medloop jobs resume {row.job_id}")
            pid = os.getpid()
            mine = {"token": row.token + 1, "state": "running", "boot": boot_id(), "pid": pid, "pid_created": created(pid)}
            return row.model_copy(update={**mine, "reason": None, "waits_for": None, "ready_at": 0.0})

        row = job_row.change(folder, take)
        with suppress(NoSpaceError):  # then it meets the full disk as any other write does
            job_row.make_reserve(folder)
        yield Lease(folder, row.token)


def touch(folder: Path) -> None:
    """A beat: the monotonic clock as the file's time. Clocks that are set do not disturb it, and a full disk does not stop it."""
    file = folder / job_row.HEARTBEAT
    file.touch()
    now = time.monotonic_ns()
    os.utime(file, ns=(now, now))


def silent_for(folder: Path, row: JobRow) -> float:
    """Seconds since the last beat; infinite when the machine was restarted since then."""
    if row.boot != boot_id():
        return float("inf")
    try:
        return max(0.0, (time.monotonic_ns() - (folder / job_row.HEARTBEAT).stat().st_mtime_ns) / 1e9)
    except OSError:
        return float("inf")


def send_signal(row: JobRow, number: signal.Signals) -> bool:
    """A signal to the worker of a row; never to a stranger that has its number today."""
    if row.pid is None or row.boot != boot_id() or created(row.pid) != row.pid_created:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.kill(row.pid, number)
        return True
    return False


def boot_id() -> str:
    """Of this start of the machine: monotonic clocks and process numbers mean nothing beyond it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def created(pid: int) -> int | None:
    """When a process was created, in ticks since boot; with its number it names one process for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
