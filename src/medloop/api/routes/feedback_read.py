"""The reading side of `/api/v1/rlhf/…`: lists, single records, exports; and `GET /metrics`.

Clinicians and annotators see their own records with texts; the audit entry is on the disk before the texts leave the server.
Engineers and admins see all records without texts, because they train on the de-identified dataset. Users of a site see what was
sent from there, by the same rules. Filters are fixed choices.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from medloop.api import metrics
from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.gateway_metrics import render_gateway
from medloop.api.policy import OWN_ONLY, Caller, NotFoundError, allow
from medloop.api.routes.chat import gateway_of
from medloop.api.routes.feedback import REFUSED
from medloop.contracts import AuditEvent, Contract, Correction, Feedback, Preference
from medloop.feedback import listing
from medloop.feedback.listing import CorrectionFilter, FeedbackFilter, PreferenceFilter, Reader, RecordFilter
from medloop.feedback.submit.bodies import Id
from medloop.feedback.submit.site_ids import stored_id
from medloop.store.records import annotation_tasks, incident_rows
from medloop.store.records.write_request import NewRows, WriteRequest

router = APIRouter(prefix="/api/v1/rlhf", tags=["feedback"])
metrics_router = APIRouter(tags=["metrics"])

Json = dict[str, Any]
RecordReader = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="feedback:read", sites=True))]
MetricsReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="metrics"))]
RecordId = Annotated[str, InPath(max_length=200)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}


class Paging(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=200)
    after: Id | None = Field(None, description="The 'next' of the previous page.")
    order: Literal["newest", "oldest"] = "newest"


class FeedbackQuery(FeedbackFilter, Paging):
    pass


class PreferenceQuery(PreferenceFilter, Paging):
    pass


class CorrectionQuery(CorrectionFilter, Paging):
    pass


class ExportQuery(RecordFilter):
    kind: Literal["feedback", "preference", "correction"] = "feedback"
    format: Literal["jsonl", "csv"] = "jsonl"


class PageOut(BaseModel):
    """`next` is the `after` of the next page, null on the last one."""

    items: list[dict[str, Any]]
    next: str | None = None


def reader(caller: Caller) -> Reader:
    own = caller.role in OWN_ONLY
    return Reader(caller.user_id, own_only=own, texts=own, site=caller.site)


def audit_write(event: AuditEvent) -> WriteRequest:
    """An audit entry, to be stored by the one writer."""
    return WriteRequest(event.actor, lambda known: NewRows({}, events=(event,)))


async def _page(request: Request, caller: Caller, kind: type[Contract], query: Any) -> Response:
    check_rate(request, caller)
    filter_type = next(cls for cls in type(query).__mro__ if issubclass(cls, RecordFilter) and not issubclass(cls, Paging))
    filters = filter_type(**query.model_dump(exclude=set(Paging.model_fields)))
    store = store_of(request)
    after = await run_in_threadpool(stored_id, store, query.after, caller.site, kind) if query.after else None
    page = await run_in_threadpool(
        listing.list_records, store, kind, filters, reader(caller), after=after, limit=query.limit, newest=query.order == "newest"
    )  # fmt: skip
    event = listing.read_event(kind, reader(caller), page.items, "list")
    if event is not None:
        await writer_of(request).submit(audit_write(event))
    return JSONResponse({"items": page.items, "next": page.next})


async def _record(request: Request, caller: Caller, kind: type[Contract], record_id: str) -> Response:
    check_rate(request, caller)
    store = store_of(request)
    record_id = await run_in_threadpool(stored_id, store, record_id, caller.site, kind)
    record = await run_in_threadpool(listing.get_record, store, kind, record_id, reader(caller))
    if record is None:
        raise NotFoundError("There is no such record", "Check its id")
    event = listing.read_event(kind, reader(caller), [record], "show")
    if event is not None:
        await writer_of(request).submit(audit_write(event))
    return JSONResponse(record)


@router.get("/feedback", response_model=PageOut, responses=ERRORS)
async def list_feedback(request: Request, caller: RecordReader, query: Annotated[FeedbackQuery, Query()]) -> Response:
    """Ratings, newest first."""
    return await _page(request, caller, Feedback, query)


@router.get("/preference", response_model=PageOut, responses=ERRORS)
async def list_preferences(request: Request, caller: RecordReader, query: Annotated[PreferenceQuery, Query()]) -> Response:
    """Choices between two answers, newest first."""
    return await _page(request, caller, Preference, query)


@router.get("/correction", response_model=PageOut, responses=ERRORS)
async def list_corrections(request: Request, caller: RecordReader, query: Annotated[CorrectionQuery, Query()]) -> Response:
    """Golden answers, newest first."""
    return await _page(request, caller, Correction, query)


@router.get("/feedback/{record_id}", response_model=dict[str, Any], responses=ERRORS)
async def get_feedback(record_id: RecordId, request: Request, caller: RecordReader) -> Response:
    """One rating."""
    return await _record(request, caller, Feedback, record_id)


@router.get("/preference/{record_id}", response_model=dict[str, Any], responses=ERRORS)
async def get_preference(record_id: RecordId, request: Request, caller: RecordReader) -> Response:
    """One choice."""
    return await _record(request, caller, Preference, record_id)


@router.get("/correction/{record_id}", response_model=dict[str, Any], responses=ERRORS)
async def get_correction(record_id: RecordId, request: Request, caller: RecordReader) -> Response:
    """One golden answer."""
    return await _record(request, caller, Correction, record_id)


@router.get("/export", response_class=StreamingResponse, responses=ERRORS)
async def export(request: Request, caller: RecordReader, query: Annotated[ExportQuery, Query()]) -> Response:
    """All records of one kind as a file, oldest first. CSV cells never start like a formula."""
    check_rate(request, caller)
    writer, filters = writer_of(request), RecordFilter(**query.model_dump(include=set(RecordFilter.model_fields)))

    def note(event: AuditEvent) -> None:
        writer.submit_and_wait(audit_write(event))

    def chunks() -> Iterator[str]:  # runs in a thread, page by page, so that memory stays bounded
        kind = listing.KINDS[query.kind]
        yield from listing.export(store_of(request), kind, filters, reader(caller), form=query.format, note=note)

    media = "text/csv; charset=utf-8" if query.format == "csv" else "application/x-ndjson"
    name = f"{query.kind}.{query.format}"
    return StreamingResponse(chunks(), media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@metrics_router.get("/metrics", response_class=PlainTextResponse)
async def metrics_page(request: Request, caller: MetricsReader) -> Response:
    """Metrics of this server in Prometheus' text format."""
    counts = await run_in_threadpool(incident_rows.count_incidents, store_of(request))
    tasks = await run_in_threadpool(annotation_tasks.count_tasks, store_of(request))
    text = metrics.render(request.app.state.http_counts, writer_of(request), open_incidents=counts.open, annotation=tasks)
    text += render_gateway(gateway_of(request))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")
