"""`/api/v1/traces` and `/api/v1/rlhf/…`: hand in traces, ratings, choices and corrections, one by one or many in a file.

Handlers parse, hand to feedback/ and the writer, and answer. A 201 means that the record is on the disk. With the header
`Idempotency-Key` a repeated request gets its first answer (200); the same key with another body is a 422.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import store_of, writer_of
from medloop.api.limits import cost_of
from medloop.api.policy import OWN_ONLY, Caller, allow
from medloop.api.quick_route import QuickRoute
from medloop.feedback.submit import batch, submit
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, Sent, TraceBody

router = APIRouter(prefix="/api/v1", tags=["feedback"], route_class=QuickRoute)

Json = dict[str, Any]
Writer = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="feedback:write"))]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
        description="A name of yours for this request; sent again within seven days, it gets the first answer again.",
    ),
]  # fmt: skip


class Receipt(BaseModel):
    """What was stored. The ids are the server's; `quarantined`: held back from training until a person has looked."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"feedback_id": "fb_0199c0de-…", "timestamp": "2026-02-03T12:00:00.123456Z", "quarantined": False}]
        }
    )

    timestamp: str
    quarantined: bool
    trace_id: str | None = None
    feedback_id: str | None = None
    preference_id: str | None = None
    correction_id: str | None = None
    incident_id: str | None = None
    case_id: str | None = None


class Problem(BaseModel):
    """Every answer that is not a success."""

    error: str = Field(examples=["There is no trace with this trace_id."])
    hint: str | None = Field(None, examples=["Log it first with POST /api/v1/traces."])


class LineResult(BaseModel):
    """What became of one line: 201 stored, 200 stored before, 422 does not fit, 503 or 507 send it again."""

    model_config = ConfigDict(extra="allow")

    line: int
    status: int
    error: str | None = None


class ImportResult(BaseModel):
    stored: int
    repeated: int
    failed: int
    results: list[LineResult]


REFUSED: dict[int | str, Json] = {
    code: {"model": Problem, "description": said}
    for code, said in (
        (401, "No key"),
        (403, "Not for this role, or not for this key"),
        (413, "Too large"),
        (415, "Not of the kind of body this takes"),
        (422, "It does not fit, or its key was used for something else"),
        (429, "This key sends more than its rate; Retry-After says how long to wait"),
        (503, "Overload, or the store is away; Retry-After says how long to wait"),
        (507, "The disk of the server is full"),
    )
}
_STORED: Json = {
    "status_code": 201,
    "response_model": Receipt,
    "responses": {200: {"model": Receipt, "description": "Repeated: the first answer again"}, **REFUSED},
}
_LINES: Json = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": batch.EXAMPLE}},
    }
}


def sender(caller: Caller) -> submit.Sender:
    """Keys of engineers and admins are programs that pass on what others say."""
    by_key = caller.role not in OWN_ONLY and caller.via == "key"
    return submit.Sender(caller.user_id, speaks_for_others=by_key, by_queue=caller.role == "annotator")


async def _take(request: Request, body: Sent, caller: Caller, key: str | None) -> Response:
    request.app.state.buckets.take(caller.credential)
    stored = await writer_of(request).submit(submit.hand_in(store_of(request), body, sender(caller), key=key))
    return JSONResponse(stored.answer, status_code=200 if stored.replayed else 201)


@router.post("/traces", **_STORED)
async def log_trace(body: TraceBody, request: Request, caller: Writer, key: Key = None) -> Response:
    """Log one exchange; ratings name it by the `trace_id` that comes back."""
    return await _take(request, body, caller, key)


@router.post("/rlhf/feedback", **_STORED)
async def submit_feedback(body: FeedbackBody, request: Request, caller: Writer, key: Key = None) -> Response:
    """Rate one answer. `critical` opens an incident, `golden` also stores a correction."""
    return await _take(request, body, caller, key)


@router.post("/rlhf/preference", **_STORED)
async def submit_preference(body: PreferenceBody, request: Request, caller: Writer, key: Key = None) -> Response:
    """Choose the better of two answers."""
    return await _take(request, body, caller, key)


@router.post("/rlhf/correction", **_STORED)
async def submit_correction(body: CorrectionBody, request: Request, caller: Writer, key: Key = None) -> Response:
    """Give the answer that should have been given."""
    return await _take(request, body, caller, key)


@router.post("/rlhf/import", response_model=ImportResult, responses=REFUSED, openapi_extra=_LINES)
async def import_lines(request: Request, caller: Writer, key: Key = None) -> Response:
    """Many records, one JSON object per line with its `kind`; each line has its own result.

    With a key the whole file can be sent again: lines that were stored are not stored twice.
    """
    request.app.state.buckets.take(caller.credential)
    body = await request.body()
    request.app.state.buckets.take(caller.credential, cost_of(body), taken=1)
    lines = batch.parse(body)
    results = await batch.store_all(writer_of(request), store_of(request), lines, sender(caller), key=key)
    return JSONResponse({**batch.summed(results), "results": results})
