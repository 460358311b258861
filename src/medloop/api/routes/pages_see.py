"""The pages where people look: my history, the audit log, users."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.policy import Caller, ForbiddenError, NothingHereError, allow
from medloop.api.routes.pages import Fields, go, show, store_of, words_of
from medloop.errors import InputError
from medloop.store import audit, passwords, users
from medloop.store.own import own_records
from medloop.store.users import ROLES
from medloop.web import history

router = APIRouter(prefix="/web", include_in_schema=False)

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="feedback:read"))]
Auditor = Annotated[Caller, Depends(allow("auditor", scope="audit"))]
Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]
PAGE = 20
LINES = 50


@router.get("/history")
def my_history(request: Request, caller: Rater, before: datetime | None = None) -> Response:
    at = before if before is None or before.tzinfo else None
    own = own_records(store_of(request), caller.user_id, before=at, limit=PAGE)
    older = own[-1].timestamp.isoformat() if len(own) == PAGE else ""
    rows = history.lines(own, words_of(request))
    return show(request, caller, "history.html", rows=rows, older=older, paged=at is not None)


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
        raise NothingHereError("There is no such user")
    if user_id == caller.user_id:
        raise ForbiddenError("Nobody disables themselves", "Ask another admin")
    users.change_user(store, found, disabled=change == "disable", actor=caller.user_id)
    request.app.state.access.forget()
    return go("/web/users")


def _users(
    request: Request, caller: Caller, code: int = 200, *,
    problem: str = "", name: str = "", chosen: str = "", made: str = "", password: str = "",
) -> Response:  # fmt: skip
    people = users.list_users(store_of(request))
    filled = {"problem": problem, "name": name, "chosen": chosen, "made": made, "password": password}
    return show(request, caller, "users.html", code, people=people, roles=ROLES, **filled)
