"""`/api/v1/rlhf/incidents`: list and read safety incidents, and close them with a second person.

Clinicians read the conversation; each read is audited. Engineers, auditors and admins see ids, times and the notes, in which the
privacy scan has replaced what it recognises. Who may take which step is checked in store/records/incident_rows.py.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback import REFUSED
from medloop.api.routes.feedback_read import PageOut
from medloop.contracts import Incident
from medloop.contracts.base import Timestamp
from medloop.contracts.dataset import Language
from medloop.feedback import incidents
from medloop.feedback.submit.bodies import Id
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store.db import Store
from medloop.store.records import incident_rows
from medloop.store.records.incident_rows import PROPOSERS, IncidentFilter, IncidentState, Step

router = APIRouter(prefix="/api/v1/rlhf", tags=["incidents"])

Json = dict[str, Any]
READERS = ("clinician", "engineer", "auditor", "admin")
TEXT_READERS = frozenset({"clinician"})
WITHHELD = "[withheld, it may name a person · 可能含个人信息，未显示]"
IncidentReader = Annotated[Caller, Depends(allow(*READERS, scope="incidents"))]
IncidentCloser = Annotated[Caller, Depends(allow(*PROPOSERS, scope="incidents"))]
IncidentId = Annotated[str, InPath(max_length=200)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}
EXAMPLE = {"examples": [{"note": "Rule 12 added; the case passes."}]}


class IncidentQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: IncidentState | None = Field(None, description="'open' includes 'proposed', which waits for a second person.")
    since: Timestamp | None = None
    until: Timestamp | None = None
    language: Language | None = None
    order: Literal["oldest", "newest"] = "oldest"
    limit: int = Field(50, ge=1, le=200)
    after: Id | None = None

    def which(self) -> IncidentFilter:
        return IncidentFilter(self.state, self.since, self.until, self.language)


class StepBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra=EXAMPLE)  # type: ignore[typeddict-item]

    note: str = Field(min_length=1, max_length=incidents.MAX_NOTE)


class ConfirmBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    note: str = Field("", max_length=incidents.MAX_NOTE)


def notes_for(caller: Caller, incident: Incident) -> list[str]:
    """The note of each step; who may not read patient text gets them scrubbed, and none that is doubtful."""
    notes = list(incident.notes or ("",) * len(incident.steps))
    return notes if caller.role in TEXT_READERS else [_released(note) for note in notes]


def _released(note: str) -> str:
    try:
        return Scrubber().release(note)
    except Unscrubbable:
        return WITHHELD


@router.get("/incidents", response_model=PageOut, responses=ERRORS)
async def list_incidents(request: Request, caller: IncidentReader, query: Annotated[IncidentQuery, Query()]) -> Response:
    """Safety incidents: ids, times and who did what, without texts."""
    newest = query.order == "newest"
    rows = await run_in_threadpool(
        incident_rows.list_incidents, store_of(request), query.which(), after=query.after, limit=query.limit + 1, newest=newest
    )
    items = [asdict(row) for row in rows[: query.limit]]
    return JSONResponse({"items": items, "next": items[-1]["incident_id"] if len(rows) > query.limit else None})


@router.get("/incidents/{incident_id}", response_model=dict[str, Any], responses=ERRORS)
async def get_incident(incident_id: IncidentId, request: Request, caller: IncidentReader) -> Response:
    """One incident with its steps and notes; for clinicians also the conversation and the reason of the flag."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_detail, store_of(request), caller, incident_id))


def _detail(store: Store, caller: Caller, incident_id: str) -> Json:
    incident = incidents.get_incident(store, incident_id)
    detail = incident.model_dump(mode="json", exclude={"notes"})
    for step, note in zip(detail["steps"], notes_for(caller, incident), strict=True):
        step["note"] = note
    if caller.role in TEXT_READERS:
        texts = incidents.read_texts(store, incident, actor=caller.user_id)
        detail["messages"] = [message.model_dump(mode="json") for message in texts.messages]
        detail["reason"] = texts.comments
    return detail


async def _take(request: Request, caller: Caller, incident_id: str, step: Step, note: str) -> Response:
    check_rate(request, caller)
    stored = await writer_of(request).submit(
        incidents.step_request(store_of(request), incident_id, step, by=caller.user_id, note=note)
    )
    return JSONResponse(stored.answer)


@router.post("/incidents/{incident_id}/propose", responses=ERRORS, response_model=dict[str, Any])
async def propose(incident_id: IncidentId, body: StepBody, request: Request, caller: IncidentCloser) -> Response:
    """Propose to close an incident, with a note on what was done about it. It stays open until a second person confirms."""
    return await _take(request, caller, incident_id, "proposed", body.note)


@router.post("/incidents/{incident_id}/decline", responses=ERRORS, response_model=dict[str, Any])
async def decline(incident_id: IncidentId, body: StepBody, request: Request, caller: IncidentCloser) -> Response:
    """Decline a proposal to close, with a note on what is missing; or take your own proposal back."""
    return await _take(request, caller, incident_id, "declined", body.note)


@router.post("/incidents/{incident_id}/close", responses=ERRORS, response_model=dict[str, Any])
async def close(incident_id: IncidentId, body: ConfirmBody, request: Request, caller: IncidentCloser) -> Response:
    """Confirm a proposal of somebody else and close the incident. Its red-team case stays."""
    return await _take(request, caller, incident_id, "closed", body.note)
