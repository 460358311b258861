"""`/api/train`: the training API. Submit a job, see its status and metrics; list, cancel and resume."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError

from medloop.api import policy
from medloop.api.deps import settings_of
from medloop.api.limits import queue_place
from medloop.contracts import TrainRequest
from medloop.jobs import job_row, queue, requests
from medloop.jobs.job_row import status_json, unknown
from medloop.jobs.requests import InvalidConfigError
from medloop.jobs.submit import submit_training

router = APIRouter(prefix="/api/train", tags=["train"])

Json = dict[str, Any]
Caller = Annotated[policy.Caller, Depends(policy.allow("engineer", "admin", scope="jobs"))]
FULL: dict[int | str, Json] = {429: {"description": "Too many jobs wait already; Retry-After says when to send it again"}}


def _place(request: Request, caller: policy.Caller) -> AbstractContextManager[None]:
    """For the job that is queued inside; 429 when too many wait. Training jobs are counted, but none of the retrain trigger."""
    settings = settings_of(request)

    def waiting() -> Iterator[str]:
        rows = queue.rows(settings, ("train",))
        return (row.submitter for row in rows if row.is_waiting and row.submitter != job_row.TRIGGER)

    return queue_place(caller.user_id, waiting, each=settings.jobs.max_waiting_per_user, in_all=settings.jobs.max_waiting)


def _training(job_id: str, request: Request) -> str:
    """The id of a training job. Datasets and erasures are unknown here: their own addresses check who may see them."""
    if job_row.read(queue.folder_of(job_id, settings_of(request))).pool != "train":
        raise unknown(job_id)
    return job_id


@router.post("", responses=FULL)
def submit(body: TrainRequest, request: Request, caller: Caller) -> Json:
    """Put a training job into the queue. 422: it does not fit; 409: it cannot work in this workspace as it is."""
    settings = settings_of(request)
    requests.check_remote(body, settings)
    try:
        with _place(request, caller):
            submitted = submit_training(body, settings, channel="http", by=caller.user_id)
    except InvalidConfigError as error:  # field by field, like everything else in a body that does not fit
        problems = [{"loc": ("body", *field.split(".")), "msg": problem} for field, problem in error.problems]
        raise RequestValidationError(problems) from None
    checked = submitted.preflight
    status = status_json(queue.status_of(submitted.job_id, settings))
    estimate = {"memory_bytes": checked.memory_bytes, "disk_bytes": checked.needs_bytes}
    return {**status, "estimate": estimate, "warnings": list(checked.warnings)}


@router.get("")
def list_jobs(
    request: Request,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(max_length=64)] = None,
) -> Json:
    """Jobs, newest first; `next` is the `after` of the next page, null on the last one."""
    page = queue.page(settings_of(request), limit=limit, after=after, pools=("train",))
    return {"jobs": [status_json(job) for job in page.jobs], "next": page.after}


@router.get("/status/{job_id}")
def status(job_id: str, request: Request, caller: Caller) -> Json:
    """Where a job is."""
    return status_json(queue.status_of(_training(job_id, request), settings_of(request)))


@router.get("/{job_id}/metrics")
def metrics(job_id: str, request: Request, caller: Caller) -> list[Json]:
    """The lines of metrics.jsonl, in their order."""
    return queue.metrics_of(_training(job_id, request), settings_of(request))


@router.post("/{job_id}/cancel")
def cancel(job_id: str, request: Request, caller: Caller) -> Json:
    """End a job; one that runs writes a checkpoint first and is cancelled some seconds later."""
    return status_json(queue.cancel(_training(job_id, request), settings_of(request)))


@router.post("/{job_id}/resume", responses=FULL)
def resume(job_id: str, request: Request, caller: Caller) -> Json:
    """Put a paused, failed or cancelled job back into the queue; it continues from its newest checkpoint."""
    with _place(request, caller):
        return status_json(queue.resume(_training(job_id, request), settings_of(request)))
