"""Starts workers for waiting jobs, notices their death, requeues what waited for space. One per workspace.

    with Supervisor(settings).running(): ...       # a thread; the API has one
    Supervisor(settings).run_until_empty()         # `medloop jobs work` without a job

Each worker runs in its own session: it survives the death of its supervisor, and the next supervisor finds it by its lock. There
is no list of workers to lose.
"""

import logging
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from medloop.errors import BusyError, MedloopError, NoSpaceError, explain_os_errors
from medloop.isolation import isolated, python_command
from medloop.jobs import job_row, lease, queue
from medloop.jobs.job_row import TRIGGER, JobRow
from medloop.jobs.kinds import slots_of_pools
from medloop.jobs.lease import LOST
from medloop.settings import FIELDS, Settings, variable
from medloop.store.files.lock import locked_file

MAX_RESTARTS = 3
LOCK = ".supervisor"
MAX_WAIT_S = 600.0  # between two tries of a job that keeps filling the disk
SPARE_BYTES = 5_000_000  # beyond what a job needs, before it is requeued on a disk that was full

log = logging.getLogger("medloop.jobs")


def command(job_id: str, settings: Settings) -> list[str]:
    return python_command("medloop", "--home", str(settings.home), "jobs", "work", job_id)


def environment(settings: Settings) -> dict[str, str]:
    """The settings as they were resolved here, so that a worker does not resolve them otherwise."""
    resolved = {variable(name): settings.get(name) for name in FIELDS if name != "home"}
    return isolated({**os.environ, **{name: str(value) for name, value in resolved.items() if value not in (None, "")}})


def start_worker(job_id: str, settings: Settings) -> subprocess.Popen[bytes]:
    """A worker in its own session, its output in the job's train.log."""
    with (queue.folder_of(job_id, settings) / "train.log").open("ab") as output:
        return subprocess.Popen(
            command(job_id, settings), cwd=settings.home, env=environment(settings), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


@dataclass
class Supervisor:
    settings: Settings
    slots: int = 1
    poll_s: float = 1.0
    lease_s: float = lease.LEASE_S
    backoff_s: float = 2.0  # before the first restart; four times as long before each further one
    start: Callable[[str, Settings], subprocess.Popen[bytes]] = start_worker
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def poll(self) -> list[JobRow]:
        """One round over all jobs that have not ended; returns them."""
        self._reap()
        slots = defaultdict(lambda: 1, slots_of_pools(self.slots))  # a worker says it where this version lacks the kind
        waiting: list[JobRow] = []
        alive = [row for row in queue.rows(self.settings) if not row.has_ended]
        for row in reversed(alive):  # the oldest first
            folder = queue.folder_of(row.job_id, self.settings)
            try:
                row = self._settle(folder, row)
            except MedloopError as error:  # a full disk, or a row that somebody holds: the next round tries again
                log.error("%s: %s", row.job_id, error)
                if isinstance(error, BusyError) and row.state == "running" and lease.silent_for(folder, row) > self.lease_s:
                    lease.send_signal(row, signal.SIGKILL)  # stopped while it held the row: nobody could raise its token first
            if row.state == "running" or row.job_id in self.children:
                slots[row.pool] -= 1
            elif row.state == "queued" and is_due(row):
                waiting.append(row)
        running = {row.job_id for row in alive if row.state == "running"} | set(self.children)
        triggered = any(row.submitter == TRIGGER and row.job_id in running for row in alive)
        for row in sorted(waiting, key=lambda row: (not row.urgent, row.submitter == TRIGGER)):
            if slots[row.pool] <= 0 or (triggered and row.submitter == TRIGGER):
                continue
            triggered = triggered or row.submitter == TRIGGER
            slots[row.pool] -= 1
            log.info("starting a worker for %s", row.job_id)
            self.children[row.job_id] = self.start(row.job_id, self.settings)
        return alive

    def _settle(self, folder: Path, row: JobRow) -> JobRow:
        if row.state == "running":
            return self._check_worker(folder, row)
        if row.state == "queued":
            return self._pause_if_full(folder, row)
        return self._requeue_if_room(folder, row) if row.waits_for == "space" else row

    def _reap(self) -> None:
        """Forget workers of ours that have ended; one that ended before it could claim its job is tried again."""
        for job_id, child in list(self.children.items()):
            if child.poll() is not None:
                del self.children[job_id]
                if child.returncode > 0 and child.returncode not in (LOST, NoSpaceError.exit_code):
                    self._count_failed_start(job_id)

    def _count_failed_start(self, job_id: str) -> None:
        """A worker that dies before its claim leaves the job queued: without a count it would be started forever."""

        def count(row: JobRow) -> JobRow:
            return row if row.state != "queued" else self._restarted(row, "The worker could not start")

        with suppress(MedloopError):
            job_row.change(queue.folder_of(job_id, self.settings), count)

    def _check_worker(self, folder: Path, row: JobRow) -> JobRow:
        """A running job is dead when nobody holds it, and is taken from a holder that has not beaten for too long."""

        def restart_if_dead(now: JobRow) -> JobRow:
            if now.state != "running" or job_row.has_worker(folder):
                return now
            return self._restarted(now, "The worker died")

        row = job_row.change(folder, restart_if_dead)
        if row.state != "running" or lease.silent_for(folder, row) <= self.lease_s:
            return row

        def take_away(now: JobRow) -> JobRow:
            if now.token != row.token or now.state != "running" or lease.silent_for(folder, now) <= self.lease_s:
                return now
            # The token first: from here on the old holder may not write, whatever becomes of the kill.
            fenced = now.model_copy(update={"token": now.token + 1})
            return self._restarted(fenced, f"The worker did not answer for {self.lease_s:.0f} s")

        after = job_row.change(folder, take_away)
        if after.token != row.token:
            log.warning("%s: its worker did not answer and is killed", row.job_id)
            lease.send_signal(row, signal.SIGKILL)
        return after

    def _restarted(self, row: JobRow, why: str) -> JobRow:
        """Back into the queue after a pause that grows, at most three times; one that was to be cancelled is cancelled."""
        gone = {"pid": None, "pid_created": None, "cancel_requested": False, "cancel_reason": None}
        if row.cancel_requested:
            return row.model_copy(update={**gone, "state": "cancelled", "reason": row.cancelled_message})
        if row.restarts >= MAX_RESTARTS:
            advice = "lower micro_batch_size, read train.log, then resume it"
            advice = advice if row.checkpointed else "end other programs, read train.log, then send the request again"
            reason = f"{why}, {row.restarts + 1} times in all. Often memory ran out: {advice}."
            return row.model_copy(update={**gone, "state": "failed", "reason": reason})
        pause = self.backoff_s * 4**row.restarts * random.uniform(0.75, 1.25)
        return row.model_copy(
            update={
                **gone, "state": "queued", "restarts": row.restarts + 1, "ready_at": time.monotonic() + pause,
                "boot": lease.boot_id(), "reason": f"{why}; restart {row.restarts + 1} of {MAX_RESTARTS}.",
            }
        )  # fmt: skip

    def _pause_if_full(self, folder: Path, row: JobRow) -> JobRow:
        """A worker on a disk without room for a checkpoint would only fail later."""
        free = shutil.disk_usage(folder).free
        if free >= row.needs_bytes or row.job_id in self.children:
            return row
        missing = f"The disk has {free / 1e6:,.0f} MB free and the job needs {row.needs_bytes / 1e6:,.0f} MB"

        def pause(now: JobRow) -> JobRow:
            reason = f"{missing}. It continues by itself when there is room."
            paused = now.model_copy(update={"state": "paused", "waits_for": "space", "reason": reason})
            return paused if now.state == "queued" else now

        return job_row.change(folder, pause)

    def _requeue_if_room(self, folder: Path, row: JobRow) -> JobRow:
        if shutil.disk_usage(folder).free < row.needs_bytes + SPARE_BYTES:
            return row

        def requeue(now: JobRow) -> JobRow:
            if now.state != "paused" or now.waits_for != "space":
                return now
            # A run that needs more than was estimated would fill the same disk again and again: each time it waits longer.
            wait = min(self.backoff_s * 4 ** min(now.pauses - 1, 9), MAX_WAIT_S) if now.pauses > 1 else 0.0
            back = {"state": "queued", "waits_for": None, "reason": "There is room on the disk again."}
            return now.model_copy(update={**back, "ready_at": time.monotonic() + wait, "boot": lease.boot_id()})

        return job_row.change(folder, requeue)

    def run_until_empty(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Work until nothing waits or runs any more; paused jobs are left."""
        with single_supervisor(self.settings):
            while not should_stop():
                alive = self.poll()
                if not self.children and not [row for row in alive if row.state in ("queued", "running")]:
                    return
                time.sleep(self.poll_s)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Supervise in a thread. Where another supervisor is at work, wait for its end."""
        over = threading.Event()

        def supervise() -> None:
            while not over.is_set():
                try:
                    with single_supervisor(self.settings):
                        while not over.wait(self.poll_s):
                            self.poll()
                except BusyError:
                    over.wait(self.poll_s)
                except (MedloopError, OSError) as error:
                    # A full disk or a damaged row must not end supervision of the others.
                    log.error("supervision: %s", error if isinstance(error, MedloopError) else type(error).__name__)
                    over.wait(5 * self.poll_s)

        thread = threading.Thread(target=supervise, name="medloop-supervisor", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=5.0)


def is_due(row: JobRow) -> bool:
    """Whether the pause after a death has passed; one from before the machine was restarted has."""
    return row.boot != lease.boot_id() or time.monotonic() >= row.ready_at


@contextmanager
def single_supervisor(settings: Settings) -> Iterator[None]:
    """Two supervisors would start twice as many workers as there are slots."""
    path = settings.workspace.jobs / LOCK
    with explain_os_errors(path, writing=True):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(path, wait_s=0.0, what="The supervision of jobs", mode=0o600):
        yield
