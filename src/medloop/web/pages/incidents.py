"""Safety incidents: the list, one incident with its conversation and its history, and closing it with a second person.

Clinicians read the conversation, and each read is audited. The others see what was done and by whom.
"""

from dataclasses import replace
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.incidents import TEXT_READERS, IncidentCloser, IncidentReader, notes_for
from medloop.contracts.dataset import Language
from medloop.errors import InputError
from medloop.feedback import incidents
from medloop.store.records import incident_rows, users
from medloop.store.records.incident_rows import CONFIRMERS, PROPOSERS, IncidentFilter, IncidentState, Step
from medloop.web.lists import address, chosen, day_end, day_start
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

ShortText = Annotated[str, Query(max_length=200)]
STATES: tuple[str, ...] = (*get_args(IncidentState), "all")
LANGUAGES: tuple[str, ...] = get_args(Language)
STEPS: dict[str, Step] = {"propose": "proposed", "decline": "declined", "close": "closed"}
PAGE_SIZE = 25


@router.get("/incidents")
def incidents_page(
    request: Request, caller: IncidentReader, state: ShortText = "open", since: ShortText = "", until: ShortText = "",
    language: ShortText = "", q: ShortText = "", order: ShortText = "", after: ShortText = "",
) -> Response:  # fmt: skip
    store = store_of(request)
    fields = {"state": chosen(state, STATES, "open"), "since": since, "until": until, "language": chosen(language, LANGUAGES)}
    fields |= {"q": " ".join(q.split()), "order": chosen(order, ("newest",))}
    wanted_state: IncidentState | None = next((name for name in get_args(IncidentState) if name == fields["state"]), None)
    which = IncidentFilter(wanted_state, day_start(since), day_end(until), fields["language"] or None)
    if words := fields["q"].split():
        reader = caller.user_id if caller.role in TEXT_READERS else None
        which = replace(which, only=tuple(incidents.search_incidents(store, which, words, users.names(store), actor=reader)))
    rows = incident_rows.list_incidents(
        store, which, after=after or None, limit=PAGE_SIZE + 1, newest=bool(fields["order"])
    )  # fmt: skip
    more = address("/web/incidents", **fields, after=rows[PAGE_SIZE - 1].incident_id) if len(rows) > PAGE_SIZE else ""
    turned = address("/web/incidents", **{**fields, "order": "" if fields["order"] else "newest"})
    context: dict[str, Any] = {
        "rows": rows[:PAGE_SIZE],
        "who": People(store, translator_of(request)),
        "more": more,
        "turned": turned,
    }
    context |= {"hint": "incidents_find_hint" if caller.role in TEXT_READERS else "incidents_find_hint_no_text"}
    context |= {"states": STATES, "languages": LANGUAGES, "first": address("/web/incidents", **fields) if after else ""}
    context |= {"counts": incident_rows.count_incidents(store), **fields}
    return show(request, caller, "incidents.html", **context)


@router.get("/incidents/{incident_id}")
def incident_page(request: Request, caller: IncidentReader, incident_id: str, done: ShortText = "") -> Response:
    t = translator_of(request)
    return _show(request, caller, incident_id, note=t(f"incident_done_{done}") if done in STEPS else "")


@router.post("/incidents/{incident_id}/{step}")
async def take_step(request: Request, caller: IncidentCloser, incident_id: str, step: str, form: FormFields) -> Response:
    if step not in STEPS:
        raise NotFoundError("There is no such step")
    check_rate(request, caller)
    note = form.get("note", "").replace("\r\n", "\n")
    try:
        taken = incidents.step_request(store_of(request), incident_id, STEPS[step], by=caller.user_id, note=note)
        await writer_of(request).submit(taken)
    except incident_rows.NoSuchIncidentError:
        raise
    except InputError as error:
        code, key = _refusal(error)
        problem = translator_of(request)(key)
        return await run_in_threadpool(_show, request, caller, incident_id, code=code, problem=problem, typed=note, about=step)
    request.app.state.dashboard_cache.clear()
    return redirect(f"/web/incidents/{incident_id}?done={step}")


def _refusal(error: InputError) -> tuple[int, str]:
    """The code of a refused step and the text that explains it."""
    reasons: tuple[tuple[type[InputError], int, str], ...] = (
        (incident_rows.AlreadyClosedError, 409, "incident_closed_before"),
        (incident_rows.AlreadyProposedError, 409, "incident_proposed_before"),
        (incident_rows.NotProposedError, 409, "incident_not_proposed"),
        (incident_rows.SecondPersonError, 403, "incident_second_person"),
    )
    return next(((code, key) for kind, code, key in reasons if isinstance(error, kind)), (422, "incident_note_needed"))


def _show(
    request: Request, caller: Caller, incident_id: str, *, code: int = 200, note: str = "", problem: str = "", typed: str = "",
    about: str = "",
) -> Response:  # fmt: skip
    store = store_of(request)
    incident = incidents.get_incident(store, incident_id)
    reads = caller.role in TEXT_READERS
    texts = incidents.read_texts(store, incident, actor=caller.user_id) if reads else None
    context: dict[str, Any] = {"incident": incident, "reads": reads, "texts": texts, "who": People(store, translator_of(request))}
    context["history"] = list(zip(incident.steps, notes_for(caller, incident), strict=True))
    context["others"] = incident_rows.may_confirm(store, incident)
    is_open, own = incident.state == "open", incident.proposed_by == caller.user_id
    context["may_propose"] = is_open and incident.proposed_by is None and caller.role in PROPOSERS
    context["may_confirm"] = is_open and incident.proposed_by is not None and not own and caller.role in CONFIRMERS
    context["may_take_back"] = is_open and own
    context |= {"note": note, "problem": problem, "typed": typed, "about": about, "max_note": incidents.MAX_NOTE}
    return show(request, caller, "incident.html", code, **context)
