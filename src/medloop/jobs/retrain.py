"""Triggers become jobs: each one exactly one job, whoever files it and however often.

The job is named after its trigger, so a filing that was killed between the job and the note of it finds its own job again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medloop.contracts import TrainRequest
from medloop.jobs import queue
from medloop.jobs.entry import UnknownJobError
from medloop.settings import Settings
from medloop.store import triggers
from medloop.store.db import Store
from medloop.store.triggers import Trigger


@dataclass(frozen=True)
class Filed:
    trigger: Trigger
    job_id: str


def file_jobs(
    store: Store, settings: Settings, *, actor: str, prepare: Callable[[Trigger], object] = lambda trigger: None
) -> list[Filed]:
    """File a job for each trigger that has none yet; `prepare` makes the data the job reads, before it is filed."""
    filed = []
    with triggers.filing(store):
        for trigger in triggers.listed(store, without_job=True):
            job_id = _known(trigger, settings)
            if job_id is None:
                prepare(trigger)
                job_id = queue.submit(_request(trigger), settings).job_id
            triggers.set_job(store, trigger.trigger_id, job_id, actor=actor)
            filed.append(Filed(trigger, job_id))
    return filed


def _request(trigger: Trigger) -> TrainRequest:
    asked = TrainRequest.model_validate(trigger.evidence["request"])
    return asked.model_copy(update={"config": {**asked.config, "name": trigger.trigger_id}})


def _known(trigger: Trigger, settings: Settings) -> str | None:
    """The job that was filed for this trigger before its number was noted."""
    wanted = _request(trigger)
    for job_id in queue.ids(settings):
        try:
            if queue.request_of(queue.folder_of(job_id, settings)) == wanted:
                return job_id
        except UnknownJobError:
            continue
    return None
