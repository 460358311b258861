"""The API keys of programs: which there are, what each may do, when it was last used; create and revoke one.

A key made here belongs to an engineer or an auditor, who read no patient text. Keys of other roles, and keys that pass on what
clinicians say, are made on the server's machine (`medloop api keys new`): an admin alone must not come to texts or votes.
"""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import authenticator_of, check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.contracts import utc_now
from medloop.errors import InputError
from medloop.store.records import users
from medloop.store.records.users import APPROVED_ROLES, SCOPES, User
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]
DAYS, MOST_DAYS = 90, 730
PAGE_SIZE = 50


@router.get("/keys")
def keys_page(
    request: Request,
    caller: Admin,
    done: Annotated[str, Query(max_length=20)] = "",
    ended: bool = False,
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> Response:
    note = translator_of(request)("keys_done_revoke") if done == "revoke" else ""
    return _show(request, caller, note=note, ended=ended, page=page)


@router.post("/keys")
def create(request: Request, caller: Admin, form: FormFields) -> Response:
    """The key is in this one response and nowhere else."""
    check_rate(request, caller)
    store, t = store_of(request), translator_of(request)
    owner = next((user for user in _owners(users.list_users(store)) if user.name == form.get("name")), None)
    scopes = [scope for scope in SCOPES if form.get(f"may:{scope}") == "yes"]
    days = form.get("days", "")
    if owner is None:
        return _show(request, caller, 422, problem=t("keys_no_owner"), form=form)
    if not scopes:
        return _show(request, caller, 422, problem=t("keys_no_scope"), form=form)
    if not (days.isascii() and days.isdigit() and len(days) < 5 and 1 <= int(days) <= MOST_DAYS):
        return _show(request, caller, 422, problem=t("keys_bad_days", most=MOST_DAYS), form=form)
    expires = utc_now() + timedelta(days=int(days))
    text = users.new_key(store, owner, scopes=scopes, expires=expires, actor=caller.user_id)
    return _show(request, caller, secret=text, secret_of=owner)


@router.post("/keys/revoke")
def revoke(request: Request, caller: Admin, form: FormFields) -> Response:
    check_rate(request, caller)
    try:
        users.revoke_key(store_of(request), form.get("id", ""), actor=caller.user_id)
    except InputError:
        return _show(request, caller, 404, problem=translator_of(request)("keys_not_active"))
    authenticator_of(request).forget()
    return redirect("/web/keys?done=revoke")


def _owners(people: list[User]) -> list[User]:
    return [user for user in people if user.role not in APPROVED_ROLES and not (user.disabled or user.waits)]


def _show(
    request: Request, caller: Caller, code: int = 200, *, note: str = "", problem: str = "", secret: str = "",
    secret_of: User | None = None, form: dict[str, str] | None = None, ended: bool = False, page: int = 1,
) -> Response:  # fmt: skip
    store = store_of(request)
    people, every = users.list_users(store), users.list_keys(store)[::-1]
    rows = [key for key in every if ended or key.state == "active"]
    first = (page - 1) * PAGE_SIZE
    context: dict[str, Any] = {
        "rows": rows[first : first + PAGE_SIZE], "more": len(rows) > first + PAGE_SIZE, "page": page, "ended": ended,
        "count_ended": sum(key.state != "active" for key in every), "scopes": list(SCOPES), "owners": _owners(people),
        "roles": {user.name: user.role for user in people}, "form": form or {"days": str(DAYS)}, "most_days": MOST_DAYS,
        "note": note, "problem": problem, "secret": secret, "secret_of": secret_of.name if secret_of else "",
        "secret_ends": secret_of is not None and secret_of.must_change,
    }  # fmt: skip
    return show(request, caller, "keys.html", code, **context)
