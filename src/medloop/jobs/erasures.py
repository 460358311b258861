"""Erasures that two people agree on: approve and queue one, and where each of them stands.

job_id = submit_approved(store, request_id, by="usr_2")
[(listed.request.request_id, listed.state) for listed in list_erasures(store)]
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from medloop.contracts import utc_now
from medloop.jobs import queue
from medloop.jobs.job_row import JobRow, UnknownJobError
from medloop.jobs.kinds import KINDS
from medloop.jobs.submit import submit_erasure
from medloop.privacy.erasure.approval import approve
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import erasure_requests
from medloop.store.records.erasure_requests import DecidedError, StoredRequest

State = Literal["waiting", "queued", "running", "unfinished", "over"]


class StartedError(DecidedError):
    """The erasure was approved before, and its job has not ended."""


@dataclass(frozen=True)
class ListedErasure:
    """A request and where it stands.

    `unfinished`: approved, but no job works on it; whoever approves it again continues it. `over`: it was not carried out within
    a day after the approval. `message` is what the last job said.
    """

    request: StoredRequest
    state: State
    job_id: str | None = None
    message: str | None = None


def submit_approved(store: Store, request_id: str, *, by: str, note: str = "") -> str:
    """Approve the erasure that somebody else requested, and queue it."""
    job = _jobs(store.settings).get(request_id)
    if job is not None and not job.has_ended:
        raise StartedError(f"This erasure was approved before; its job {job.job_id} is {job.state}", "Wait for its end")
    erasure, requested_by = approve(store, request_id, by=by, note=note)
    return submit_erasure(erasure, store.settings, actor=requested_by, dry_run=False)


def list_erasures(store: Store) -> list[ListedErasure]:
    """What waits for a second person, and what was approved and is not finished, oldest first."""
    jobs = _jobs(store.settings)
    return [_listed(request, jobs.get(request.request_id), store.settings) for request in erasure_requests.unfinished(store)]


def _listed(request: StoredRequest, job: JobRow | None, settings: Settings) -> ListedErasure:
    if request.approved_by is None:
        return ListedErasure(request, "waiting")
    is_over: State = "over" if utc_now() > request.expires else "unfinished"
    if job is None:
        return ListedErasure(request, is_over)
    state: State = is_over if job.has_ended else "running" if job.state == "running" else "queued"
    return ListedErasure(request, state, job.job_id, queue.status_of(job.job_id, settings).detail.message)


def _jobs(settings: Settings) -> dict[str, JobRow]:
    """The newest job of each approved request."""
    jobs: dict[str, JobRow] = {}
    for row in queue.rows(settings, (KINDS["ERASE"].pool.name,)):
        with suppress(ValueError, OSError, UnknownJobError):  # a job that is damaged, or was removed meanwhile
            if row.stage == "ERASE" and (name := queue.task_of(queue.folder_of(row.job_id, settings)).config.get("request_id")):
                jobs.setdefault(name, row)
    return jobs
