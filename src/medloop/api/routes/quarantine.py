"""`/api/v1/rlhf/quarantine`: records that may still identify a person, for the clinicians who review them.

Clinicians only, because a decision requires reading the text. Nobody decides on their own submissions: that takes a second pair
of eyes. A record that repeats a trace is released after the trace. The list has no text. A single record has its texts, and the
reading is in the audit log before they leave the server.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.api.routes.feedback import REFUSED
from medloop.errors import InputError
from medloop.feedback.review import quarantine_marks
from medloop.feedback.submit.bodies import Id
from medloop.store.db import Store
from medloop.store.records import quarantine
from medloop.store.records.quarantine import REASONS, Decision, HeldRecord, HeldTexts

router = APIRouter(prefix="/api/v1/rlhf", tags=["quarantine"])

Reviewer = Annotated[Caller, Depends(allow("clinician", scope="privacy"))]
RecordId = Annotated[str, InPath(max_length=200)]
ERRORS: dict[int | str, dict[str, Any]] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}
DECISION_ERRORS = {**ERRORS, 409: {"description": "Somebody else has decided, or its trace is not released yet"}}
KIND = {table: kind for kind, table in quarantine.KINDS.items()}
STATE: dict[str, Decision] = {"release": "released", "refuse": "refused"}


class HeldQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: Literal["waiting", "released", "refused", "all"] = "waiting"
    kind: Literal["feedback", "preference", "correction", "trace"] | None = None
    limit: int = Field(50, ge=1, le=200)
    after: Id | None = Field(None, description="The 'next' of the previous page.")


class HeldOut(BaseModel):
    """A held record without its text. `reasons`: what kind of thing the privacy scan is unsure about."""

    record_id: str = Field(examples=["fb_0199c0de-0000-7000-8000-000000000000"])
    kind: Literal["feedback", "preference", "correction", "trace"]
    state: Literal["waiting", "released", "refused"]
    doubt: float = Field(ge=0, le=1, examples=[0.9])
    reasons: list[str] = Field(examples=[["a word that may be a name, a place or an organisation"]])
    decided_by: str | None = None
    decided: datetime | None = None
    timestamp: datetime


class HeldPage(BaseModel):
    """`next` is the `after` of the next page, null on the last one."""

    items: list[HeldOut]
    next: str | None = None


class MarkOut(BaseModel):
    """Characters `start` to `end` of a text. `taken_out`: the scrubber removes it as a `why`; `doubt`: it is unsure, and why."""

    start: int
    end: int
    what: Literal["taken_out", "doubt"]
    why: str


class TextOut(BaseModel):
    name: str = Field(examples=["user_query"])
    text: str
    marks: list[MarkOut]


class OpenedOut(HeldOut):
    """`first`: the record repeats this trace, which is not released yet; decide on the trace first."""

    texts: list[TextOut]
    first: str | None = Field(None, examples=["0199c0de-0000-7000-8000-000000000000"])


class DecisionBody(BaseModel):
    """`was` is the state you saw: if somebody else has decided in the meantime, the response is 409 and nothing changes."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"decision": "release", "reason": "medical_term", "was": "waiting"}]}
    )

    decision: Literal["release", "refuse"]
    reason: Literal["nobody", "medical_term", "public_name", "name", "contact", "place_or_date", "story", "other"]
    was: Literal["waiting", "released", "refused"] = "waiting"


def _public(held: HeldRecord) -> dict[str, Any]:
    return {**asdict(held), "kind": KIND[held.kind], "reasons": list(held.reasons)}


def for_review(store: Store, caller: Caller, record_id: str) -> HeldRecord:
    """The held record, if it exists and somebody else sent it; otherwise a 404."""
    try:
        held = quarantine.get(store, record_id)
    except quarantine.NotHeldError:
        raise NotFoundError("There is no such record to review", "Check its id") from None
    if quarantine.sent_by(store, held) == caller.user_id:
        raise NotFoundError("There is no such record to review", "Your own submissions are reviewed by a colleague")
    return held


def opened_for_review(store: Store, caller: Caller, record_id: str) -> HeldTexts:
    for_review(store, caller, record_id)
    try:
        return quarantine.open_held(store, record_id, actor=caller.user_id)
    except quarantine.NotHeldError:  # erased a moment ago
        raise NotFoundError("There is no such record to review", "Check its id") from None


def state_of(decision: str, reason: str) -> Decision:
    """The state that a decision leads to, if the reason fits it."""
    state = STATE[decision]
    if reason not in REASONS[state]:
        raise InputError(f"'{reason}' is not a reason to {decision} a record", f"Use one of: {', '.join(REASONS[state])}")
    return state


@router.get("/quarantine", response_model=HeldPage, responses=ERRORS)
def list_held(request: Request, caller: Reviewer, query: Annotated[HeldQuery, Query()]) -> HeldPage:
    """Held records of other people, oldest first, without their texts."""
    check_rate(request, caller)
    state = None if query.state == "all" else query.state
    records = quarantine.page(
        store_of(request), state=state, kind=query.kind, after=query.after, limit=query.limit + 1, not_by=caller.user_id
    )
    items = [HeldOut.model_validate(_public(held)) for held in records[: query.limit]]
    return HeldPage(items=items, next=items[-1].record_id if len(records) > query.limit else None)


@router.get("/quarantine/{record_id}", response_model=OpenedOut, responses=ERRORS)
def open_held(record_id: RecordId, request: Request, caller: Reviewer) -> OpenedOut:
    """One held record with its texts and marks for what to check. The reading is audited."""
    check_rate(request, caller)
    record = opened_for_review(store_of(request), caller, record_id)
    marked = quarantine_marks.marks([text for _, text in record.texts])
    texts = [
        {"name": name, "text": text, "marks": [asdict(mark) for mark in marks]}
        for (name, text), marks in zip(record.texts, marked, strict=True)
    ]
    trace = quarantine.trace_to_decide_first(store_of(request), record.held)
    return OpenedOut.model_validate({**_public(record.held), "texts": texts, "first": trace and trace.record_id})


@router.post("/quarantine/{record_id}/decision", response_model=HeldOut, responses=DECISION_ERRORS)
def decide(record_id: RecordId, body: DecisionBody, request: Request, caller: Reviewer) -> Response:
    """Release a record for datasets, or refuse it."""
    check_rate(request, caller)
    store, state = store_of(request), state_of(body.decision, body.reason)
    for_review(store, caller, record_id)
    held = quarantine.decide(store, record_id, state, actor=caller.user_id, reason=body.reason, was=body.was)
    return JSONResponse(HeldOut.model_validate(_public(held)).model_dump(mode="json"))
