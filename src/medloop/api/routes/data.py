"""`/api/v1/data/build`, `/api/v1/consent` and `/api/v1/erasure`: the same functions as the commands of these names.

Datasets and erasures are jobs: the answer is 202 with the address where state and result are. `?wait=SECONDS` waits a while for
the end; then it is 200 with the result. Answers hold ids, hashes and counts; no text of a record passes here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from threading import Semaphore
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import store_of
from medloop.api.limits import one_more
from medloop.api.policy import Caller, allow
from medloop.contracts import Consent
from medloop.contracts.feedback import Purpose
from medloop.contracts.job import Errand, JobState
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.feedback.select import KINDS
from medloop.errors import InputError
from medloop.jobs import errands, queue
from medloop.jobs.job_row import OVER
from medloop.privacy import consent as consents_of
from medloop.privacy.erasure.erase import LONGEST_REASON, known
from medloop.privacy.erasure.erase import Request as Erasure
from medloop.store.records import consents
from medloop.store.records import crud as records

router = APIRouter(prefix="/api/v1", tags=["data"])
WAITING = Semaphore(8)  # requests that wait for an end hold a thread each; beyond these nobody is made to wait

Engineer = Annotated[Caller, Depends(allow("engineer", scope="data"))]
Carer = Annotated[Caller, Depends(allow("clinician", "admin", scope="privacy"))]
Admin = Annotated[Caller, Depends(allow("admin", scope="privacy"))]
Wait = Annotated[int, Query(ge=0, le=30, description="Seconds to wait for the end before answering.")]
Person = Annotated[
    str, Field(min_length=1, max_length=consents_of.LONGEST, description="Your id of the person, or its hash sub_….")
]


class BuildBody(FeedbackConfig):
    """The settings of 'medloop data build', all with defaults."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "week46", "liked_answers": True}]})

    seed: int | None = Field(None, ge=0, le=2**31, description="Seed of the split; empty means the workspace's.")


class BuiltAnswer(BaseModel):
    """The dataset that was made; `new` records were never used before, `held` wait in quarantine."""

    name: str
    sha256: str
    rows: dict[str, int] = Field(examples=[{"preferences.jsonl": 120, "thumbs.jsonl": 300}])
    records: dict[str, dict[str, int]] = Field(examples=[{"rlhf_feedback": {"used": 290, "no_consent": 10}}])
    dropped: dict[str, dict[str, int]] = Field(examples=[{"pairs": {"tie": 4}}])
    new: int
    held: int


class Job(BaseModel):
    """Where a job is; `address` says it again, `progress` is the percentage of the phase that `message` names."""

    job_id: str = Field(examples=["data_20260203T120000Z"])
    state: JobState
    address: str = Field(examples=["/api/v1/data/build/data_20260203T120000Z"])
    progress: float = 0.0
    message: str | None = None


class BuildJob(Job):
    """`result` is there when the state is `succeeded`."""

    result: BuiltAnswer | None = None


class ConsentBody(BaseModel):
    """What a person allows, or takes back with `granted` false."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"subject": "4711", "purposes": ["training"], "granted": True, "text_version": "2026-01"}]
        },
    )

    subject: Person
    purposes: list[Purpose] = Field(min_length=1, max_length=4)
    granted: bool = True
    text_version: str = Field(min_length=1, max_length=64)


class ConsentAnswer(BaseModel):
    consent_id: str
    subject: str
    purposes: list[Purpose]
    granted: bool
    text_version: str
    timestamp: datetime


class ConsentState(BaseModel):
    """`now` has the newest word about each purpose; a purpose that was never spoken of is not in it."""

    subject: str
    now: dict[Purpose, bool] = Field(examples=[{"training": True}])
    said: list[ConsentAnswer]


class ErasureBody(BaseModel):
    """Whom or what to erase: one `subject`, or `records` by id. A trace's id takes all that was said about that exchange."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"subject": "4711", "reason": "asked on 3 May", "dry_run": True}]}
    )

    subject: Person | None = None
    records: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default_factory=list, max_length=1000)
    reason: str = Field(min_length=1, max_length=LONGEST_REASON, description="Why; kept for good, so name nobody here.")
    dry_run: bool = Field(False, description="Only say what would go.")
    keep_jobs: bool = Field(False, description="Leave training jobs alone that learn from what goes; they are only named.")


class ErasureAnswer(BaseModel):
    """What went (or would go). `left` are files that still hold erased text; `jobs` and the `flagged` models learnt from it."""

    state: Literal["complete", "incomplete", "preview"]
    erasure_id: str | None = None
    rows: dict[str, int]
    files: list[str]
    flagged: list[str] = Field(default_factory=list)
    jobs: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)
    unsearched: list[str] = Field(default_factory=list)
    shared: int = 0
    proof: dict[str, Any] | None = Field(None, description="As it lies under reports/erasure.")


class ErasureJob(Job):
    """`result` is there when the state is `succeeded`; whether everything went, its own `state` says."""

    result: ErasureAnswer | None = None


J = TypeVar("J", BuildJob, ErasureJob)
FILED: dict[int | str, dict[str, Any]] = {200: {"description": "It has ended within the seconds of 'wait'"}}
FULL: dict[int | str, dict[str, Any]] = {
    429: {"description": "Too many jobs wait already; Retry-After says when to send it again"}
}


@router.post("/data/build", status_code=202, responses=FILED | FULL)
def build(body: BuildBody, request: Request, response: Response, caller: Engineer, wait: Wait = 0) -> BuildJob:
    """Have training data made of all feedback in the store; the same records give the same hash. 422: nothing to learn from."""
    store = store_of(request)
    if not any(records.count(store, kind) for kind in KINDS):
        raise InputError("There is nothing to learn from yet: the store holds no feedback", "Collect some first")
    config = FeedbackConfig.model_validate(body.model_dump(exclude={"seed"}))
    seed = store.settings.seed if body.seed is None else body.seed
    with _place(request, caller):
        job_id = errands.file_build(config, store.settings, seed=seed, actor=caller.user_id)
    return _filed(_build_job(request, job_id, wait), response)


@router.get("/data/build/{job_id}")
def show_build(job_id: str, request: Request, caller: Engineer, wait: Wait = 0) -> BuildJob:
    """Where a dataset is, and its hash and counts once it is there."""
    return _build_job(request, job_id, wait)


@router.post("/consent", status_code=201)
def record_consent(body: ConsentBody, request: Request, caller: Carer) -> ConsentAnswer:
    """Record a grant or a withdrawal. It counts for every dataset that is built from now on."""
    made = consents_of.record(
        store_of(request), body.subject, body.purposes, text_version=body.text_version, granted=body.granted,
        actor=caller.user_id, recorded_by=caller.user_id,
    )  # fmt: skip
    return _shown(made)


@router.get("/consent")
def show_consent(
    request: Request, caller: Carer, subject: Annotated[str, Query(min_length=1, max_length=consents_of.LONGEST)]
) -> ConsentState:
    """What a person said, oldest first. Give the hash (sub_…) rather than the id: addresses are kept in logs."""
    store = store_of(request)
    name = consents_of.subject_of(store, subject)
    said = consents.of(store, name)
    now = {purpose: one.granted for purpose, one in consents_of.standing(said).items()}
    return ConsentState(subject=name, now=now, said=[_shown(one) for one in said])


@router.post("/erasure", status_code=202, responses=FILED)
def erase(body: ErasureBody, request: Request, response: Response, caller: Admin, wait: Wait = 0) -> ErasureJob:
    """Have a person's records, or single ones, erased from everything. Sent again after a failure it finishes the first one."""
    store = store_of(request)
    wish = Erasure(body.reason, body.subject, tuple(body.records), body.keep_jobs)
    known(store, wish)
    if wish.subject is not None:
        wish = replace(wish, subject=consents_of.subject_of(store, wish.subject))
    job_id = errands.file_erasure(wish, store.settings, actor=caller.user_id, dry_run=body.dry_run)
    return _filed(_erasure_job(request, job_id, wait), response)


@router.get("/erasure/{job_id}")
def show_erasure(job_id: str, request: Request, caller: Admin, wait: Wait = 0) -> ErasureJob:
    """Where an erasure is, and its proof once it is done."""
    return _erasure_job(request, job_id, wait)


def _look(request: Request, job_id: str, stage: Errand, wait: int) -> errands.Seen:
    settings = store_of(request).settings
    if not wait or not WAITING.acquire(blocking=False):
        return errands.look(job_id, stage, settings)
    try:
        return errands.look(job_id, stage, settings, wait_s=wait)
    finally:
        WAITING.release()


def _build_job(request: Request, job_id: str, wait: int) -> BuildJob:
    seen = _look(request, job_id, "BUILD", wait)
    return BuildJob.model_validate(_said(seen, "data/build") | {"result": seen.result})


def _erasure_job(request: Request, job_id: str, wait: int) -> ErasureJob:
    seen = _look(request, job_id, "ERASE", wait)
    return ErasureJob.model_validate(_said(seen, "erasure") | {"result": seen.result})


def _said(seen: errands.Seen, where: str) -> dict[str, Any]:
    found, detail = seen.status, seen.status.detail
    progress = 100.0 if found.state == "succeeded" else detail.phase_progress
    address = f"/api/v1/{where}/{found.job_id}"
    return {"job_id": found.job_id, "state": found.state, "address": address, "progress": progress, "message": detail.message}


def _filed(job: J, response: Response) -> J:
    """202 while there is something to wait for; the end that was waited for is the answer, a failure too: `state` tells."""
    response.status_code = 200 if job.state in OVER else 202
    response.headers["Location"] = job.address
    return job


def _place(request: Request, caller: Caller) -> AbstractContextManager[None]:
    """For the dataset that is queued inside; 429 when too many wait. An erasure is a duty: it is neither counted nor refused."""
    settings = store_of(request).settings
    waiting = lambda: (row.submitter for row in queue.entries(settings) if row.waits and row.stage == "BUILD")  # noqa: E731
    return one_more(caller.user_id, waiting, each=settings.jobs.max_waiting_per_user, in_all=settings.jobs.max_waiting)


def _shown(one: Consent) -> ConsentAnswer:
    return ConsentAnswer.model_validate(one.model_dump())
