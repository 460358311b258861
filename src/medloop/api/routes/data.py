"""`/api/v1/data/build`, `/api/v1/consent` and `/api/v1/erasure`: the same functions as the commands of these names.

Answers hold ids, hashes and counts; no text of a record passes here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.policy import Caller, allow
from medloop.contracts import Consent
from medloop.contracts.feedback import Purpose
from medloop.data.from_feedback import FeedbackConfig
from medloop.loop import build_from_feedback, erase_records
from medloop.privacy import consent as consents_of
from medloop.privacy.erase import LONGEST_REASON, preview
from medloop.privacy.erase import Request as Erasure
from medloop.store import consents
from medloop.store.db import Store

router = APIRouter(prefix="/api/v1", tags=["data"])

Engineer = Annotated[Caller, Depends(allow("engineer", scope="data"))]
Carer = Annotated[Caller, Depends(allow("clinician", "admin", scope="privacy"))]
Admin = Annotated[Caller, Depends(allow("admin", scope="privacy"))]
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
    dry_run: bool = False


class ErasureAnswer(BaseModel):
    """What went (or would go); `left` are files that still hold erased text. The whole proof lies under reports/erasure."""

    state: Literal["complete", "incomplete", "preview"]
    erasure_id: str | None = None
    rows: dict[str, int]
    files: list[str]
    flagged: list[str] = Field(default_factory=list)
    jobs: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)
    unsearched: list[str] = Field(default_factory=list)
    shared: int = 0


@router.post("/data/build")
def build(body: BuildBody, request: Request, caller: Engineer) -> BuiltAnswer:
    """Make training data of all feedback in the store; the same records give the same hash. 422: nothing to learn from."""
    store = store_of(request)
    config = FeedbackConfig.model_validate(body.model_dump(exclude={"seed"}))
    seed = store.settings.seed if body.seed is None else body.seed
    built = build_from_feedback(store, config, seed=seed, actor=caller.user_id)
    rows = {name: entry.rows for name, entry in built.card.files.items()}
    return BuiltAnswer(
        name=config.name, sha256=built.sha256, rows=rows, records=built.card.records, dropped=built.card.drops, new=built.new,
        held=built.held,
    )  # fmt: skip


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


@router.post("/erasure")
def erase(body: ErasureBody, request: Request, caller: Admin) -> ErasureAnswer:
    """Erase a person's records, or single ones, from everything. Sent again after a failure it finishes the first one."""
    store, wish = store_of(request), Erasure(reason=body.reason, subject=body.subject, records=tuple(body.records))
    if body.dry_run:
        found = preview(store, wish, actor=caller.user_id)
        return ErasureAnswer(
            state="preview", rows=found.rows, files=found.files, unsearched=found.unsearched, shared=found.shared
        )
    proof = erase_records(store, wish, actor=caller.user_id)
    said: dict[str, Any] = {"rows": proof.rows, "files": [str(one["path"]) for one in proof.files], "shared": proof.shared}
    said |= {"flagged": [one["path"] for one in proof.flagged], "jobs": list(proof.jobs)}
    said |= {"left": list(proof.left), "unsearched": list(proof.unsearched), "erasure_id": proof.erasure_id}
    return ErasureAnswer(state="complete" if proof.complete else "incomplete", **said)


def store_of(request: Request) -> Store:
    found: Store = request.app.state.store
    return found


def _shown(one: Consent) -> ConsentAnswer:
    return ConsentAnswer.model_validate(one.model_dump())
