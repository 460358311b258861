"""`/api/v1/rlhf/…`, the reading side: lists, single records, exports, incidents; and `GET /metrics`.

Clinicians and annotators see their own records with their texts, and an audit line is on the disk before the texts leave.
Engineers and admins see all records without texts: what they train on is the de-identified dataset. Filters are choices of a
fixed list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from medloop.api import metrics
from medloop.api.deps import store_of, writer_of
from medloop.api.errors import answer
from medloop.api.policy import OWN_ONLY, Caller, NothingHereError, allow
from medloop.api.routes.feedback import REFUSED
from medloop.contracts import AuditEvent, Contract, Correction, Feedback, Preference
from medloop.feedback import incidents, listing
from medloop.feedback.listing import CorrectionFilter, FeedbackFilter, Filter, PreferenceFilter, Reader
from medloop.feedback.submit.bodies import Id
from medloop.store.records.write_request import NewRows, WriteRequest

router = APIRouter(prefix="/api/v1/rlhf", tags=["feedback"])
numbers = APIRouter(tags=["metrics"])

Json = dict[str, Any]
Reading = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="feedback:read"))]
Watching = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="metrics"))]
Closing = Annotated[Caller, Depends(allow("engineer", "admin", scope="incidents"))]
RecordId = Annotated[str, InPath(max_length=200)]
FOUND: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}


class Paging(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=200)
    after: Id | None = Field(None, description="The 'next' of the page before.")
    order: Literal["newest", "oldest"] = "newest"


class FeedbackQuery(FeedbackFilter, Paging):
    pass


class PreferenceQuery(PreferenceFilter, Paging):
    pass


class CorrectionQuery(CorrectionFilter, Paging):
    pass


class ExportQuery(Filter):
    kind: Literal["feedback", "preference", "correction"] = "feedback"
    format: Literal["jsonl", "csv"] = "jsonl"


class IncidentQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: Literal["open", "closed"] | None = None
    limit: int = Field(50, ge=1, le=200)
    after: Id | None = None


class PageOut(BaseModel):
    """`next` is the `after` of the next page, null on the last one."""

    items: list[dict[str, Any]]
    next: str | None = None


class CloseBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"note": "Rule 12 added; the case passes."}]})

    note: str = Field(min_length=1, max_length=incidents.MOST_NOTE)


def reader(caller: Caller) -> Reader:
    own = caller.role in OWN_ONLY
    return Reader(caller.user_id, own_only=own, texts=own)


def noting(event: AuditEvent) -> WriteRequest:
    """A line in the audit log, by way of the one writer."""
    return WriteRequest(event.actor, lambda known: NewRows({}, events=(event,)))


async def _page(request: Request, caller: Caller, kind: type[Contract], wanted: Any) -> Response:
    request.app.state.buckets.take(caller.credential)
    said = wanted.model_dump(exclude=set(Paging.model_fields))
    narrowed = next(cls for cls in type(wanted).__mro__ if issubclass(cls, Filter) and not issubclass(cls, Paging))
    found = await run_in_threadpool(
        listing.listed, store_of(request), kind, narrowed(**said), reader(caller),
        after=wanted.after, limit=wanted.limit, newest=wanted.order == "newest",
    )  # fmt: skip
    event = listing.reading(kind, reader(caller), found.items, "list")
    if event is not None:
        await writer_of(request).submit(noting(event))
    return JSONResponse({"items": found.items, "next": found.next})


async def _one(request: Request, caller: Caller, kind: type[Contract], record_id: str) -> Response:
    request.app.state.buckets.take(caller.credential)
    found = await run_in_threadpool(listing.one, store_of(request), kind, record_id, reader(caller))
    if found is None:
        raise NothingHereError("There is no such record", "Check its id")
    event = listing.reading(kind, reader(caller), [found], "show")
    if event is not None:
        await writer_of(request).submit(noting(event))
    return JSONResponse(found)


@router.get("/feedback", response_model=PageOut, responses=FOUND)
async def list_feedback(request: Request, caller: Reading, wanted: Annotated[FeedbackQuery, Query()]) -> Response:
    """Ratings, newest first."""
    return await _page(request, caller, Feedback, wanted)


@router.get("/preference", response_model=PageOut, responses=FOUND)
async def list_preferences(request: Request, caller: Reading, wanted: Annotated[PreferenceQuery, Query()]) -> Response:
    """Choices between two answers, newest first."""
    return await _page(request, caller, Preference, wanted)


@router.get("/correction", response_model=PageOut, responses=FOUND)
async def list_corrections(request: Request, caller: Reading, wanted: Annotated[CorrectionQuery, Query()]) -> Response:
    """Golden answers, newest first."""
    return await _page(request, caller, Correction, wanted)


@router.get("/feedback/{record_id}", response_model=dict[str, Any], responses=FOUND)
async def get_feedback(record_id: RecordId, request: Request, caller: Reading) -> Response:
    """One rating."""
    return await _one(request, caller, Feedback, record_id)


@router.get("/preference/{record_id}", response_model=dict[str, Any], responses=FOUND)
async def get_preference(record_id: RecordId, request: Request, caller: Reading) -> Response:
    """One choice."""
    return await _one(request, caller, Preference, record_id)


@router.get("/correction/{record_id}", response_model=dict[str, Any], responses=FOUND)
async def get_correction(record_id: RecordId, request: Request, caller: Reading) -> Response:
    """One golden answer."""
    return await _one(request, caller, Correction, record_id)


@router.get("/export", response_class=StreamingResponse, responses=FOUND)
async def export(request: Request, caller: Reading, wanted: Annotated[ExportQuery, Query()]) -> Response:
    """All records of a kind as a file, oldest first; CSV cells never start like a formula."""
    request.app.state.buckets.take(caller.credential)
    writer, narrowed = writer_of(request), Filter(**wanted.model_dump(include=set(Filter.model_fields)))

    def parts() -> Iterator[str]:  # runs in a thread, page by page, so that memory stays bounded
        kind = listing.KINDS[wanted.kind]
        yield from listing.export(
            store_of(request),
            kind,
            narrowed,
            reader(caller),
            form=wanted.format,
            note=lambda event: writer.submit_and_wait(noting(event)),
        )

    media = "text/csv; charset=utf-8" if wanted.format == "csv" else "application/x-ndjson"
    name = f"{wanted.kind}.{wanted.format}"
    return StreamingResponse(parts(), media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get("/incidents", response_model=PageOut, responses=FOUND)
async def list_incidents(request: Request, caller: Watching, wanted: Annotated[IncidentQuery, Query()]) -> Response:
    """Critical failures, oldest first: ids and times. An open one blocks promotion."""
    found = await run_in_threadpool(
        incidents.listed, store_of(request), state=wanted.state, after=wanted.after, limit=wanted.limit + 1
    )
    items = [asdict(one) for one in found[: wanted.limit]]
    return JSONResponse({"items": items, "next": items[-1]["incident_id"] if len(found) > wanted.limit else None})


@router.post("/incidents/{incident_id}/close", responses=FOUND, response_model=dict[str, Any])
async def close_incident(incident_id: RecordId, body: CloseBody, request: Request, caller: Closing) -> Response:
    """Say what was done about a critical failure, and let promotion go on. The red-team case stays."""
    submission = incidents.closing(store_of(request), incident_id, by=caller.user_id, note=body.note)
    try:
        stored = await writer_of(request).submit(submission)
    except incidents.NoSuchIncidentError as error:
        raise NothingHereError(error.what, error.to_do) from None
    except incidents.AlreadyClosedError as error:
        return answer(409, error.what, error.to_do)
    return JSONResponse(stored.answer)


@numbers.get("/metrics", response_class=PlainTextResponse)
async def metrics_page(request: Request, caller: Watching) -> Response:
    """Numbers of this server in Prometheus' text form."""
    state = request.app.state
    found = await run_in_threadpool(incidents.count_open, state.store)
    text = metrics.render(state.http_counts, state.writer, open_incidents=found)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")
