"""Jobs that do not train, over HTTP: filed with 202, looked at again at their address, waited for with `?wait=SECONDS`."""

from contextlib import AbstractContextManager
from threading import Semaphore
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from medloop.api.deps import store_of
from medloop.api.limits import queue_place
from medloop.api.policy import Caller
from medloop.contracts.job import JobState
from medloop.jobs import queue
from medloop.jobs.job_row import FINAL

WAITING = Semaphore(8)  # each waiting request holds a thread; beyond these, requests are answered at once
Wait = Annotated[int, Query(ge=0, le=30, description="Seconds to wait for the job to end before answering.")]
FILED: dict[int | str, dict[str, Any]] = {200: {"description": "The job ended within the seconds of 'wait'"}}
FULL: dict[int | str, dict[str, Any]] = {
    429: {"description": "Too many jobs are waiting; Retry-After says when to send it again"}
}


class JobOut(BaseModel):
    """The state of a job; GET `address` to see it again. `progress` is the percentage of the phase that `message` names."""

    job_id: str = Field(examples=["data_20260203T120000Z"])
    state: JobState
    address: str = Field(examples=["/api/v1/data/build/data_20260203T120000Z"])
    progress: float = 0.0
    message: str | None = None


J = TypeVar("J", bound=JobOut)


def look(request: Request, job_id: str, kind: str, wait: int) -> queue.TaskStatus:
    settings = store_of(request).settings
    if not wait or not WAITING.acquire(blocking=False):
        return queue.task_status(job_id, kind, settings)
    try:
        return queue.task_status(job_id, kind, settings, wait_s=wait)
    finally:
        WAITING.release()


def job_fields(seen: queue.TaskStatus, path: str) -> dict[str, Any]:
    status, detail = seen.status, seen.status.detail
    progress = 100.0 if status.state == "succeeded" else detail.phase_progress
    address = f"/api/v1/{path}/{status.job_id}"
    return {"job_id": status.job_id, "state": status.state, "address": address, "progress": progress, "message": detail.message}


def filed(job: J, response: Response) -> J:
    """202 while the job is under way, 200 once it has ended, even in a failure: `state` tells."""
    response.status_code = 200 if job.state in FINAL else 202
    response.headers["Location"] = job.address
    return job


def place_of(request: Request, caller: Caller, kind: str) -> AbstractContextManager[None]:
    """Queue a job of this kind inside; 429 when too many are waiting."""
    settings = store_of(request).settings
    waiting = lambda: (row.submitter for row in queue.rows(settings) if row.is_waiting and row.stage == kind)  # noqa: E731
    return queue_place(caller.user_id, waiting, each=settings.jobs.max_waiting_per_user, in_all=settings.jobs.max_waiting)
