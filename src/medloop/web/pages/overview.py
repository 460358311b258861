"""The pages where people look: my history, the dashboard with the open incidents, the audit log, users."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import authenticator_of, store_of, writer_of
from medloop.api.policy import Caller, ForbiddenError, NotFoundError, allow
from medloop.contracts import utc_now
from medloop.errors import InputError
from medloop.feedback import incidents
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig, measure
from medloop.feedback.review import queue
from medloop.store import audit, passwords
from medloop.store.records import quarantine, users
from medloop.store.records.history import own_records
from medloop.store.records.incident_rows import list_incidents
from medloop.store.records.users import ROLES
from medloop.web import dashboard, history
from medloop.web.pages.session import Fields, go, show, words_of

router = APIRouter(prefix="/web", include_in_schema=False)

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="feedback:read"))]
Auditor = Annotated[Caller, Depends(allow("auditor", scope="audit"))]
Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]
Watcher = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="metrics"))]
CLOSERS = ("engineer", "admin")
Closer = Annotated[Caller, Depends(allow(*CLOSERS, scope="incidents"))]
SPANS = (7, 30, 365)
FRESH_S = 30.0
PAGE = 20
LINES = 50


@router.get("/history")
def my_history(request: Request, caller: Rater, before: datetime | None = None) -> Response:
    at = before if before is None or before.tzinfo else None
    own = own_records(store_of(request), caller.user_id, before=at, limit=PAGE)
    older = own[-1].timestamp.isoformat() if len(own) == PAGE else ""
    rows = history.lines(own, words_of(request))
    return show(request, caller, "history.html", rows=rows, older=older, paged=at is not None)


@router.get("/dashboard")
def see_dashboard(request: Request, caller: Watcher, days: Annotated[int, Query(ge=1, le=3650)] = 30) -> Response:
    store, t = store_of(request), words_of(request)
    found = _measured(request, days)
    filled: dict[str, Any] = {
        "names": {user.user_id: user.name for user in users.list_users(store)},
        "spans": SPANS,
        "days": days,
    }
    filled["incidents"] = list_incidents(store, state="open", limit=LINES)
    waiting = sum(queue.stats(store).open_by_kind.values())
    filled["tiles"] = dashboard.tiles(found, waiting, quarantine.count(store), t)
    filled["figures"] = dashboard.figures(found, t)
    seen = found.alerts if caller.role in CLOSERS else ()  # they name people
    filled["alerts"] = dashboard.worth_a_look(seen, filled["names"], t)
    return show(request, caller, "dashboard.html", may_close=caller.role in CLOSERS, **filled)


def _measured(request: Request, days: int) -> FeedbackMetrics:
    """Counting takes a while, so everybody sees the same numbers for half a minute."""
    kept: dict[int, tuple[float, FeedbackMetrics]] = request.app.state.dashboard_cache
    if days not in kept or time.monotonic() - kept[days][0] > FRESH_S:
        found = measure(store_of(request), MetricsConfig(since=utc_now() - timedelta(days=days)))
        kept.clear()
        kept[days] = (time.monotonic(), found)
        return found
    return kept[days][1]


@router.post("/incidents/{incident_id}/close")
async def close_incident(request: Request, caller: Closer, incident_id: str, form: Fields) -> Response:
    await writer_of(request).submit(
        incidents.closing(store_of(request), incident_id, by=caller.user_id, note=form.get("note", ""))
    )
    request.app.state.dashboard_cache.clear()
    return go("/web/dashboard")


@router.get("/audit")
def audit_log(
    request: Request, caller: Auditor, before: Annotated[int | None, Query(ge=1)] = None,
    action: Annotated[str, Query(max_length=64)] = "", actor: Annotated[str, Query(max_length=128)] = "", check: bool = False,
) -> Response:  # fmt: skip
    """Lines newest first; people by their names where there are any."""
    store = store_of(request)
    people = users.list_users(store)
    wanted = next((user.user_id for user in people if user.name == actor), actor)
    rows = audit.page(store, before=before, action=action or None, actor=wanted or None, limit=LINES)
    filled: dict[str, Any] = {"action": action, "actor": actor, "older": rows[-1]["seq"] if len(rows) == LINES else None}
    filled["names"] = {user.user_id: user.name for user in people}
    filled["report"] = audit.verify(store) if check else None
    return show(request, caller, "audit.html", rows=rows, paged=before is not None, **filled)


@router.get("/users")
def users_page(request: Request, caller: Admin) -> Response:
    return _users(request, caller)


@router.post("/users")
def add_user(request: Request, caller: Admin, form: Fields) -> Response:
    """The password is in this one answer and nowhere else."""
    name, role, password = form.get("name", "").strip(), form.get("role", ""), passwords.generated()
    try:
        users.add_user(store_of(request), name, role, password=password, actor=caller.user_id)
    except InputError as error:
        return _users(request, caller, 422, problem=str(error), name=name[:64], chosen=role)
    return _users(request, caller, made=name, password=password)


@router.post("/users/{user_id}/{change}")
def change_user(request: Request, caller: Admin, user_id: str, change: str) -> Response:
    store = store_of(request)
    found = next((user for user in users.list_users(store) if user.user_id == user_id), None)
    if found is None or change not in ("disable", "enable"):
        raise NotFoundError("There is no such user")
    if user_id == caller.user_id:
        raise ForbiddenError("Nobody disables themselves", "Ask another admin")
    users.change_user(store, found, disabled=change == "disable", actor=caller.user_id)
    authenticator_of(request).forget()
    return go("/web/users")


def _users(
    request: Request, caller: Caller, code: int = 200, *,
    problem: str = "", name: str = "", chosen: str = "", made: str = "", password: str = "",
) -> Response:  # fmt: skip
    people = users.list_users(store_of(request))
    filled = {"problem": problem, "name": name, "chosen": chosen, "made": made, "password": password}
    return show(request, caller, "users.html", code, people=people, roles=ROLES, **filled)
