"""Triggers become jobs: one for each stage that a trigger names, whoever files it and however often. The API polls for them.

One trigger at a time has jobs that wait or run; the next one waits for their end. They have a place of their own in the queue:
they take none of the engineers', start after theirs, and use one slot (supervisor.py).

A job is named after its trigger, so a filing that was killed between the job and the note of it finds its own job again. SFT
trains on the experts' and the liked answers of the feedback, the other stages on what the build has put where they look.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import TrainRequest
from medloop.contracts.job import StageName
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.feedback.write import ANSWERS
from medloop.errors import ConfigError
from medloop.feedback.trigger import trigger_if_due
from medloop.jobs import queue
from medloop.jobs.job_row import TRIGGER, UnknownJobError
from medloop.jobs.periodic import PeriodicProcess, Start, command_in_a_process
from medloop.jobs.submit import submit_training
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import triggers
from medloop.store.records.triggers import Trigger

log = logging.getLogger(__name__)
_FILE = command_in_a_process("feedback", "trigger", "--submit")


@dataclass(frozen=True)
class Filed:
    trigger: Trigger
    job_id: str


def file_jobs(
    store: Store, settings: Settings, *, actor: str, prepare: Callable[[Trigger], object] = lambda trigger: None,
    on_skip: Callable[[str], object] = log.warning,
) -> list[Filed]:  # fmt: skip
    """File the jobs of the oldest trigger that has none yet; `prepare` makes the data they read, before they are filed.

    A stage that has nothing to train on is left out, and `on_skip` gets the sentence; if that is true of all, it is an error.
    """
    filed: list[Filed] = []
    with triggers.filing_lock(store):
        for trigger in triggers.list_triggers(store, without_job=True):
            requests = _requests(trigger)
            known = {request.stage: _known(request, settings) for request in requests}
            if others := sorted(set(pending_jobs(settings)) - set(known.values())):
                on_skip(f"{trigger.trigger_id} waits until {', '.join(others)} of an earlier trigger have ended.")
                break
            jobs = _file(trigger, requests, known, settings, prepare, on_skip)
            triggers.set_jobs(store, trigger.trigger_id, jobs, actor=actor)
            filed += [Filed(trigger, job_id) for job_id in jobs]
    return filed


def pending_jobs(settings: Settings) -> list[str]:
    """Jobs of triggers that wait, run or are paused."""
    return [row.job_id for row in queue.rows(settings, ("train",)) if row.submitter == TRIGGER and not row.has_ended]


def _file(
    trigger: Trigger, requests: Sequence[TrainRequest], known: Mapping[StageName, str | None], settings: Settings,
    prepare: Callable[[Trigger], object], on_skip: Callable[[str], object],
) -> list[str]:  # fmt: skip
    if None in known.values():
        prepare(trigger)
    jobs, problems = [], list[ConfigError]()
    for request in requests:
        try:
            jobs.append(known[request.stage] or _submit(request, settings))
        except ConfigError as error:
            problems.append(error)
    if not jobs:
        raise problems[0]
    for problem in problems:
        on_skip(f"{trigger.trigger_id}: one stage is left out. {problem}")
    return jobs


def _submit(request: TrainRequest, settings: Settings) -> str:
    if request.stage == "SFT":
        if not _has_rows(settings.home / request.config["data"]):
            raise ConfigError("There are no answers of experts and no liked ones for SFT yet", "Collect some, with consent")
        if not _has_rows(settings.home / request.config["dev_data"]):
            request = request.model_copy(update={"config": {**request.config, "dev_data": None}})
    return submit_training(request, settings, channel="trigger", by=TRIGGER).job_id


def _has_rows(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _requests(trigger: Trigger) -> list[TrainRequest]:
    """The first stage has the trigger's name; the others have their own behind it, because results share folders."""
    requests = [TrainRequest.model_validate(request) for request in trigger.evidence["requests"]]
    return [_named(request, trigger.trigger_id, first=request is requests[0]) for request in requests]


def _named(request: TrainRequest, trigger_id: str, *, first: bool) -> TrainRequest:
    name = trigger_id if first else f"{trigger_id}-{request.stage.lower()}"
    folder = f"data/feedback/{FeedbackConfig().name}"
    data = {"data": f"{folder}/{ANSWERS['train']}", "dev_data": f"{folder}/{ANSWERS['test']}"} if request.stage == "SFT" else {}
    return request.model_copy(update={"config": {**data, **request.config, "name": name}})


def _known(request: TrainRequest, settings: Settings) -> str | None:
    """The job that was filed for this request before its id was noted."""
    for job_id in queue.ids(settings, ("train",)):
        try:
            filed = queue.request_of(queue.folder_of(job_id, settings))
            if (filed.stage, filed.config.get("name")) == (request.stage, request.config["name"]):
                return job_id
        except UnknownJobError:
            continue
    return None


@dataclass
class Retrainer(PeriodicProcess):
    """Checks whether new feedback is a reason to train again, and has the job filed; what is filed is filed."""

    start: Start = _FILE

    def is_due(self) -> bool:
        if pending_jobs(self.settings):
            return False
        return bool(
            trigger_if_due(self.store, self.settings, actor="api") or triggers.list_triggers(self.store, without_job=True)
        )
