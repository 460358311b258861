"""`/api/train`: the contract of document 003, and beside it list, cancel and resume."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError

from medloop.api import policy
from medloop.api.deps import settings_of
from medloop.api.limits import queue_place
from medloop.contracts import TrainRequest
from medloop.jobs import queue, requests
from medloop.jobs.check_settings import MisfitError
from medloop.jobs.job_row import shown

router = APIRouter(prefix="/api/train", tags=["train"])

Json = dict[str, Any]
Caller = Annotated[policy.Caller, Depends(policy.allow("engineer", "admin", scope="jobs"))]
FULL: dict[int | str, Json] = {429: {"description": "Too many jobs wait already; Retry-After says when to send it again"}}


def _place(request: Request, caller: policy.Caller) -> AbstractContextManager[None]:
    """For the job that is queued inside; 429 when too many wait. Errands are not counted: they have a place of their own."""
    settings = settings_of(request)
    waiting = lambda: (row.submitter for row in queue.entries(settings) if row.waits and row.stage not in queue.ERRANDS)  # noqa: E731
    return queue_place(caller.user_id, waiting, each=settings.jobs.max_waiting_per_user, in_all=settings.jobs.max_waiting)


def _training(job_id: str, request: Request) -> str:
    """The id of a training job. An errand is not found here: who may see a dataset or an erasure, its own address asks."""
    if queue.status_of(job_id, settings_of(request)).stage in queue.ERRANDS:
        raise queue.unknown(job_id)
    return job_id


@router.post("", responses=FULL)
def submit(body: TrainRequest, request: Request, caller: Caller) -> Json:
    """Put a training job into the queue. 422: it does not fit; 409: it cannot work in this workspace as it is."""
    settings = settings_of(request)
    requests.check_stranger(body, settings)
    try:
        with _place(request, caller):
            found = queue.submit(body, settings, by=caller.user_id)
    except MisfitError as error:  # told field by field, as everything else in a body that does not fit
        problems = [{"loc": ("body", *field.split(".")), "msg": problem} for field, problem in error.problems]
        raise RequestValidationError(problems) from None
    expected = {"memory_bytes": found.expected.memory_bytes, "disk_bytes": found.expected.needs_bytes}
    status = shown(queue.status_of(found.job_id, settings))
    return {**status, "estimate": expected, "warnings": list(found.expected.warnings)}


@router.get("")
def list_jobs(
    request: Request,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(max_length=64)] = None,
) -> Json:
    """Jobs, newest first; `next` is the `after` of the next page, null on the last one."""
    found = queue.page(settings_of(request), limit=limit, after=after, errands=False)
    return {"jobs": [shown(job) for job in found.jobs], "next": found.after}


@router.get("/status/{job_id}")
def status(job_id: str, request: Request, caller: Caller) -> Json:
    """Where a job is."""
    return shown(queue.status_of(_training(job_id, request), settings_of(request)))


@router.get("/{job_id}/metrics")
def metrics(job_id: str, request: Request, caller: Caller) -> list[Json]:
    """The lines of metrics.jsonl, in their order."""
    return queue.metrics_of(_training(job_id, request), settings_of(request))


@router.post("/{job_id}/cancel")
def cancel(job_id: str, request: Request, caller: Caller) -> Json:
    """End a job; one that runs writes a checkpoint first and is cancelled some seconds later."""
    return shown(queue.cancel(_training(job_id, request), settings_of(request)))


@router.post("/{job_id}/resume", responses=FULL)
def resume(job_id: str, request: Request, caller: Caller) -> Json:
    """Put a paused, failed or cancelled job back into the queue; it goes on from its newest checkpoint."""
    with _place(request, caller):
        return shown(queue.resume(_training(job_id, request), settings_of(request)))
