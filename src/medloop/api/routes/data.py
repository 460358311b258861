"""`/api/v1/data/build`, `/api/v1/consent` and `/api/v1/erasure`: the same functions as the commands of these names.

Datasets and erasures are jobs: the response is 202 with the address of the job's state and result. `?wait=SECONDS` waits for the
job to end and then answers 200 with the result. Responses hold ids, hashes and counts, never the text of a record.
"""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.task_jobs import FILED, FULL, JobOut, Wait, filed, job_fields, look, place_of
from medloop.contracts.feedback import Purpose
from medloop.contracts.record_filter import FilterTree
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.feedback.filter_records import count_fitting
from medloop.data.feedback.select import KINDS
from medloop.errors import InputError
from medloop.jobs import erasures, submit
from medloop.privacy import consent as consents_of
from medloop.privacy.clear_names import SafeName
from medloop.privacy.erasure.approval import refuse
from medloop.privacy.erasure.contracts import ErasureRequest as Erasure
from medloop.privacy.erasure.erase import check_known
from medloop.privacy.erasure.notes import LONGEST_REASON
from medloop.store.records import consents
from medloop.store.records import crud as records

router = APIRouter(prefix="/api/v1", tags=["data"])

Engineer = Annotated[Caller, Depends(allow("engineer", scope="data"))]
Carer = Annotated[Caller, Depends(allow("clinician", "admin", scope="privacy"))]
Admin = Annotated[Caller, Depends(allow("admin", scope="privacy"))]
Person = Annotated[
    str, Field(min_length=1, max_length=consents_of.LONGEST, description="Your id of the person, or its hash (sub_…).")
]


class BuildBody(FeedbackConfig):
    """The settings of 'medloop data build'; all have defaults."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "week46", "liked_answers": False}]})

    seed: int | None = Field(None, ge=0, le=2**31, description="Seed of the split; the workspace's seed by default.")


class DatasetOut(BaseModel):
    """The dataset that was built. `new`: records never used before; `held`: records waiting in quarantine."""

    name: str
    sha256: str
    rows: dict[str, int] = Field(examples=[{"preferences.jsonl": 120, "thumbs.jsonl": 300}])
    records: dict[str, dict[str, int]] = Field(examples=[{"rlhf_feedback": {"used": 290, "no_consent": 10}}])
    dropped: dict[str, dict[str, int]] = Field(examples=[{"pairs": {"tie": 4}}])
    new: int
    held: int


class BuildJobOut(JobOut):
    """`result` is set when the state is `succeeded`."""

    result: DatasetOut | None = None


class FilterOut(BaseModel):
    """Records in the newest version of each, and those that fit, by kind, language and gravest stratum."""

    records: int
    fitting: int
    kinds: dict[str, int] = Field(examples=[{"rating": 120, "correction": 12}])
    languages: dict[str, int] = Field(examples=[{"zh": 80, "en": 52}])
    strata: dict[str, int] = Field(examples=[{"emergency": 9, "routine": 123}])


class ConsentBody(BaseModel):
    """What a person allows, or withdraws with `granted` false."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"subject": "4711", "purposes": ["training"], "granted": True, "text_version": "2026-01"}]
        },
    )

    subject: Person
    purposes: list[Purpose] = Field(min_length=1, max_length=4)
    granted: bool = True
    text_version: SafeName = Field(description="Version of the text that was agreed to; stored as it is.")


class ConsentOut(BaseModel):
    consent_id: str
    subject: str
    purposes: list[Purpose]
    granted: bool
    text_version: str
    timestamp: datetime


class ConsentHistoryOut(BaseModel):
    """`now` is the latest decision on each purpose; a purpose without any decision is not in it."""

    subject: str
    now: dict[Purpose, bool] = Field(examples=[{"training": True}])
    history: list[ConsentOut]


class ErasureBody(BaseModel):
    """Whom or what to erase: one `subject`, or `records` by id. The id of a trace also erases all feedback on it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"subject": "4711", "reason": "asked on 3 May", "dry_run": True}]}
    )

    subject: Person | None = None
    records: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default_factory=list, max_length=1000)
    reason: str = Field(min_length=1, max_length=LONGEST_REASON, description="Why; stored permanently, so name nobody here.")
    dry_run: bool = Field(False, description="Only report what would be erased.")
    keep_jobs: bool = Field(False, description="Do not cancel training jobs that use erased records; only list them.")


class ForeignOut(BaseModel):
    """A record that does not name the person itself: it is linked to a trace or record of theirs, or holds the same text."""

    record_id: str
    table: str
    recorded_by: str | None
    critical: bool
    why: Literal["linked", "same text"]
    match: str | None = Field(None, description="What of the person's text it holds, without repeating it.")


class ErasureRequestOut(BaseModel):
    """An erasure that waits for a second person, or was approved and is not finished."""

    request_id: str
    subject: str | None
    records: list[str]
    reason: str
    requested_by: str
    timestamp: datetime
    ids_sha256: str = Field(description="Names the set of records. A dry run has the same while the set is the same.")
    ids: dict[str, list[str]] = Field(description="The records that are removed, by table.")
    evidence: dict[str, int] = Field(examples=[{"critical flags": 1, "incidents": 1}])
    expires: datetime = Field(description="Until then somebody may approve it, or continue it.")
    approved_by: str | None
    state: erasures.State = Field(description="`unfinished`: approved, and no job works on it; approve it again to continue.")
    job_id: str | None
    message: str | None = Field(description="What its last job said.")


class RefusalBody(BaseModel):
    """Why the erasure does not happen."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"note": "It is about another person."}]})

    note: str = Field(min_length=1, max_length=LONGEST_REASON, description="Stored permanently, so name nobody here.")


class ErasureOut(BaseModel):
    """What was (or would be) erased. `left`: files that still hold erased text; `jobs` and `flagged` models used it.
    `by_hand`: settings and lines of the audit log that hold a code or text of the person and are never edited by an erasure.

    `waiting`: safety evidence would lose its text, so somebody else has to approve `request_id`; nothing was removed yet.
    """

    state: Literal["complete", "incomplete", "preview", "waiting"]
    erasure_id: str | None = None
    request_id: str | None = None
    rows: dict[str, int]
    files: list[str]
    flagged: list[str] = Field(default_factory=list)
    jobs: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)
    unsearched: list[str] = Field(default_factory=list)
    by_hand: list[str] = Field(default_factory=list)
    shared: int = 0
    foreign: list[ForeignOut] = Field(default_factory=list, description="Records that the request did not name (preview).")
    evidence: dict[str, int] = Field(default_factory=dict, examples=[{"critical flags": 1, "incidents": 1}])
    ids_sha256: str | None = Field(None, description="Names the set of records (preview, waiting); an approval is for this set.")
    proof: dict[str, Any] | None = Field(None, description="The proof as stored under reports/erasure.")


class ErasureJobOut(JobOut):
    """`result` is set when the state is `succeeded`; its own `state` says whether everything was erased."""

    result: ErasureOut | None = None


@router.post("/data/build", status_code=202, responses=FILED | FULL)
def build(body: BuildBody, request: Request, response: Response, caller: Engineer, wait: Wait = 0) -> BuildJobOut:
    """Build training data from all feedback in the store; the same records give the same hash. 422: the store has no feedback."""
    store = store_of(request)
    if not any(records.count(store, kind) for kind in KINDS):
        raise InputError("The store holds no feedback yet", "Collect some first")
    config = FeedbackConfig.model_validate(body.model_dump(exclude={"seed"}))
    seed = store.settings.seed if body.seed is None else body.seed
    with place_of(request, caller, "BUILD"):  # an erasure is a duty: it is neither counted nor refused
        job_id = submit.submit_build(config, store.settings, seed=seed, actor=caller.user_id)
    return filed(_build_job(request, job_id, wait), response)


@router.post("/data/filter")
def count_filtered(body: FilterTree, request: Request, caller: Engineer) -> FilterOut:
    """How many records fit a filter; the same tree is the setting `filter` of a build. No text is returned."""
    check_rate(request, caller)
    return FilterOut.model_validate(asdict(count_fitting(store_of(request), body, actor=caller.user_id)))


@router.get("/data/build/{job_id}")
def show_build(job_id: str, request: Request, caller: Engineer, wait: Wait = 0) -> BuildJobOut:
    """The state of a build, and the hash and counts of the dataset once it is built."""
    return _build_job(request, job_id, wait)


@router.post("/consent", status_code=201)
def record_consent(body: ConsentBody, request: Request, caller: Carer) -> ConsentOut:
    """Record a grant or a withdrawal. It applies to every dataset built from now on."""
    consent = consents_of.record(
        store_of(request), body.subject, body.purposes, text_version=body.text_version, granted=body.granted,
        actor=caller.user_id, recorded_by=caller.user_id,
    )  # fmt: skip
    return ConsentOut.model_validate(consent.model_dump())


@router.get("/consent")
def show_consent(
    request: Request, caller: Carer, subject: Annotated[str, Query(min_length=1, max_length=consents_of.LONGEST)]
) -> ConsentHistoryOut:
    """All consents of a person, oldest first. Use the hash (sub_…) rather than the id: addresses end up in logs."""
    store = store_of(request)
    name = consents_of.subject_of(store, subject)
    history = consents.list_consents(store, name)
    now = {purpose: consent.granted for purpose, consent in consents_of.standing(history).items()}
    return ConsentHistoryOut(
        subject=name, now=now, history=[ConsentOut.model_validate(consent.model_dump()) for consent in history]
    )


@router.post("/erasure", status_code=202, responses=FILED)
def erase(body: ErasureBody, request: Request, response: Response, caller: Admin, wait: Wait = 0) -> ErasureJobOut:
    """Erase a person's records, or single ones, everywhere. Sent again after a failure, it finishes the first erasure.

    If a critical flag or an incident would lose its text, the result is `waiting` until somebody else approves it.
    """
    store = store_of(request)
    erasure = Erasure(body.reason, body.subject, tuple(body.records), body.keep_jobs)
    check_known(store, erasure)
    if erasure.subject is not None:
        erasure = replace(erasure, subject=consents_of.subject_of(store, erasure.subject))
    job_id = submit.submit_erasure(erasure, store.settings, actor=caller.user_id, dry_run=body.dry_run)
    return filed(_erasure_job(request, job_id, wait), response)


@router.get("/erasure/requests")
def erasure_requests(request: Request, caller: Carer) -> list[ErasureRequestOut]:
    """The erasures that wait for a second person, and those that were approved and are not finished, oldest first."""
    return [
        ErasureRequestOut.model_validate(
            {**asdict(listed.request), "expires": listed.request.expires, "state": listed.state, "job_id": listed.job_id}
            | {"message": listed.message}
        )
        for listed in erasures.list_erasures(store_of(request))
    ]


@router.post("/erasure/requests/{request_id}/approve", status_code=202, responses=FILED)
def approve_erasure(request_id: str, request: Request, response: Response, caller: Carer, wait: Wait = 0) -> ErasureJobOut:
    """Approve an erasure that somebody else requested; it starts at once. 403: you requested it, or your role may not.

    The approval is for the set of records in the request. 409: that set has changed since, the request was decided or is over,
    or its job has not ended.
    """
    job_id = erasures.submit_approved(store_of(request), request_id, by=caller.user_id)
    return filed(_erasure_job(request, job_id, wait), response)


@router.post("/erasure/requests/{request_id}/refuse", status_code=204)
def refuse_erasure(request_id: str, body: RefusalBody, request: Request, caller: Carer) -> Response:
    """Refuse an erasure, or take back your own request. 409: it was decided before, or its time is over."""
    refuse(store_of(request), request_id, by=caller.user_id, note=body.note)
    return Response(status_code=204)


@router.get("/erasure/{job_id}")
def show_erasure(job_id: str, request: Request, caller: Admin, wait: Wait = 0) -> ErasureJobOut:
    """The state of an erasure, and its proof once it is done."""
    return _erasure_job(request, job_id, wait)


def _build_job(request: Request, job_id: str, wait: int) -> BuildJobOut:
    seen = look(request, job_id, "BUILD", wait)
    return BuildJobOut.model_validate(job_fields(seen, "data/build") | {"result": seen.result})


def _erasure_job(request: Request, job_id: str, wait: int) -> ErasureJobOut:
    seen = look(request, job_id, "ERASE", wait)
    return ErasureJobOut.model_validate(job_fields(seen, "erasure") | {"result": seen.result})
