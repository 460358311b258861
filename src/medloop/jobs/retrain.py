"""Triggers become jobs: each one exactly one job, whoever files it and however often. The API polls for them.

The job is named after its trigger, so a filing that was killed between the job and the note of it finds its own job again.
"""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from medloop.contracts import TrainRequest
from medloop.errors import MedloopError
from medloop.feedback.trigger import trigger_if_due
from medloop.jobs import queue
from medloop.jobs.job_row import UnknownJobError
from medloop.jobs.submit import submit_training
from medloop.jobs.supervisor import environment
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import triggers
from medloop.store.records.triggers import Trigger

log = logging.getLogger(__name__)
MAX_REST_S = 3600.0  # between two tries to file a job


@dataclass(frozen=True)
class Filed:
    trigger: Trigger
    job_id: str


def file_jobs(
    store: Store, settings: Settings, *, actor: str, prepare: Callable[[Trigger], object] = lambda trigger: None
) -> list[Filed]:
    """File a job for each trigger that has none yet; `prepare` makes the data the job reads, before it is filed."""
    filed = []
    with triggers.filing_lock(store):
        for trigger in triggers.list_triggers(store, without_job=True):
            job_id = _known(trigger, settings)
            if job_id is None:
                prepare(trigger)
                job_id = submit_training(_request(trigger), settings, channel="trigger").job_id
            triggers.set_job(store, trigger.trigger_id, job_id, actor=actor)
            filed.append(Filed(trigger, job_id))
    return filed


def _request(trigger: Trigger) -> TrainRequest:
    request = TrainRequest.model_validate(trigger.evidence["request"])
    return request.model_copy(update={"config": {**request.config, "name": trigger.trigger_id}})


def _known(trigger: Trigger, settings: Settings) -> str | None:
    """The job that was filed for this trigger before its id was noted."""
    request = _request(trigger)
    for job_id in queue.ids(settings, ("train",)):
        try:
            if queue.request_of(queue.folder_of(job_id, settings)) == request:
                return job_id
        except UnknownJobError:
            continue
    return None


def file_in_a_process(settings: Settings) -> subprocess.Popen[bytes]:
    """Building the data takes minutes of a processor, which the API cannot spare."""
    command = [sys.executable, "-m", "medloop", "--home", str(settings.home), "feedback", "trigger", "--submit"]
    return subprocess.Popen(
        command, cwd=settings.home, env=environment(settings), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


@dataclass
class Retrainer:
    """Checks every few seconds whether new feedback is a reason to train again, and has the job filed."""

    store: Store
    settings: Settings
    every_s: float = 10.0
    file: Callable[[Settings], subprocess.Popen[bytes]] = file_in_a_process
    child: subprocess.Popen[bytes] | None = None
    failed: int = 0  # filings in a row
    rest_until: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="retrain", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join(5)
            if self.child is not None:
                with suppress(subprocess.TimeoutExpired):
                    self.child.wait(5)  # it continues by itself; what it has filed is filed

    def _run(self) -> None:
        while not self.ended.wait(self.every_s):
            try:
                self.poll()
            except MedloopError as error:  # a busy or absent database: the next round tries again
                log.warning("%s", error)

    def poll(self) -> None:
        """One round. Two filings never run at once; one that failed is tried again, each time after a longer rest."""
        if self.child is not None and (code := self.child.poll()) is None:
            return
        if self.child is not None:
            self.failed = self.failed + 1 if code else 0
            self.rest_until = time.monotonic() + (min(self.every_s * 4**self.failed, MAX_REST_S) if code else 0.0)
            self.child = None
        if time.monotonic() < self.rest_until:
            return
        if trigger_if_due(self.store, self.settings, actor="api") or triggers.list_triggers(self.store, without_job=True):
            self.child = self.file(self.settings)
