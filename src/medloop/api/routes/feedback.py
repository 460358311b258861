"""`/api/v1/traces` and `/api/v1/rlhf/…`: submit traces, ratings, choices and corrections, one by one or many in a file.

A 201 means that the record is on the disk. With the header `Idempotency-Key`, a repeated request gets the first response again
(200); the same key with another body is a 422.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.json_route import JsonRoute
from medloop.api.limits import import_cost
from medloop.api.policy import OWN_ONLY, Caller, allow
from medloop.api.routes.chat import gateway_of
from medloop.feedback.submit import batch, submit
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, SubmissionBody, TraceBody
from medloop.feedback.submit.sender import Sender
from medloop.store.records.users import RATERS

router = APIRouter(prefix="/api/v1", tags=["feedback"], route_class=JsonRoute)

Json = dict[str, Any]
Writer = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="feedback:write"))]
Rater = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="feedback:write", sites=True))]
TraceWriter = Annotated[Caller, Depends(allow("clinician", "engineer", "admin", scope="feedback:write"))]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
        description="Your name for this request; the same request sent again within seven days gets the first response again.",
    ),
]  # fmt: skip


class StoredOut(BaseModel):
    """What was stored. `quarantined`: held back from training until somebody has reviewed it. `note`: why it will not be used."""

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
    incident_ids: list[str] | None = Field(None, description="All incidents that it opened: a comparison may open two.")
    case_id: str | None = None
    note: str | None = Field(None, description="Why the record will not be trained on, and how to change that.")


class ErrorOut(BaseModel):
    """Every response that is not a success."""

    error: str = Field(examples=["There is no trace with this trace_id."])
    hint: str | None = Field(None, examples=["Log it first with POST /api/v1/traces."])


class LineResult(BaseModel):
    """The result of one line: 201 stored, 200 already stored, 422 invalid, 503 or 507 send it again."""

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
    code: {"model": ErrorOut, "description": description}
    for code, description in (
        (401, "No API key, or an invalid one"),
        (403, "The role or the key does not allow this"),
        (413, "The body is too large"),
        (415, "Unsupported Content-Type"),
        (422, "Invalid, or the idempotency key was used for another request"),
        (429, "Too many requests with this key; Retry-After says how long to wait"),
        (503, "The server is overloaded or cannot reach its database; Retry-After says how long to wait"),
        (507, "The server's disk is full"),
    )
}
_STORED: Json = {
    "status_code": 201,
    "response_model": StoredOut,
    "responses": {200: {"model": StoredOut, "description": "Repeated: the first response again"}, **REFUSED},
}
_LINES: Json = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": batch.EXAMPLE}},
    }
}


def sender(caller: Caller) -> Sender:
    """Keys of engineers and admins belong to programs, which name only the clinicians for whom the key speaks."""
    is_program = caller.role not in OWN_ONLY and caller.via == "key"
    return Sender(
        caller.user_id,
        is_program,
        caller.speaks_for,
        is_rater=caller.role in RATERS,
        by_queue=caller.role == "annotator",
        site=caller.site,
    )


async def _store(request: Request, body: SubmissionBody, caller: Caller, key: str | None) -> Response:
    check_rate(request, caller)
    writer = writer_of(request)
    if not isinstance(body, TraceBody):
        await gateway_of(request).traces.ensure(body.trace_id)  # of an answer that this server gave a moment ago
    stored = await writer.submit(submit.prepare_submission(writer.store, body, sender(caller), key=key))
    return Response(to_json(stored.answer), 200 if stored.replayed else 201, media_type="application/json")


@router.post("/traces", **_STORED)
async def log_trace(body: TraceBody, request: Request, caller: TraceWriter, key: Key = None) -> Response:
    """Log one exchange; feedback refers to it by the `trace_id` in the response."""
    return await _store(request, body, caller, key)


@router.post("/rlhf/feedback", **_STORED)
async def submit_feedback(body: FeedbackBody, request: Request, caller: Rater, key: Key = None) -> Response:
    """Rate one answer. `critical` opens an incident, `golden` also stores a correction."""
    return await _store(request, body, caller, key)


@router.post("/rlhf/preference", **_STORED)
async def submit_preference(body: PreferenceBody, request: Request, caller: Rater, key: Key = None) -> Response:
    """Choose the better of two answers."""
    return await _store(request, body, caller, key)


@router.post("/rlhf/correction", **_STORED)
async def submit_correction(body: CorrectionBody, request: Request, caller: Rater, key: Key = None) -> Response:
    """Submit the answer that should have been given."""
    return await _store(request, body, caller, key)


@router.post("/rlhf/import", response_model=ImportResult, responses=REFUSED, openapi_extra=_LINES)
async def import_lines(request: Request, caller: Writer, key: Key = None) -> Response:
    """Many records, one JSON object per line with its `kind`; each line has its own result.

    With an idempotency key the whole file can be sent again: no line is stored twice.
    """
    check_rate(request, caller)
    body = await request.body()
    check_rate(request, caller, import_cost(body), already_taken=1)
    lines = batch.parse(body)
    results = await batch.store_all(writer_of(request), store_of(request), lines, sender(caller), key=key)
    return JSONResponse({**batch.summary(results), "results": results})
