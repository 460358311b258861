"""The users page: add people, find them, give them a new password or another role, disable and re-enable them."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import authenticator_of, store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.errors import InputError
from medloop.store import passwords
from medloop.store.records import users
from medloop.store.records.users import ROLES, User
from medloop.web.lists import address, chosen
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]
ShortText = Annotated[str, Query(max_length=64)]
STATES = ("active", "waits", "disabled")
SORTS = ("name", "role", "created")
CHANGES = ("disable", "enable", "role", "approve", "password")
DONE = (*CHANGES[:-1], "role_waits", "enable_waits")
PAGE_SIZE = 25


@router.get("/users")
def users_page(
    request: Request, caller: Admin, q: ShortText = "", role: ShortText = "", state: ShortText = "", sort: ShortText = "",
    page: Annotated[int, Query(ge=1, le=10_000)] = 1, done: ShortText = "", user: ShortText = "",
) -> Response:  # fmt: skip
    fields = {"q": q, "role": chosen(role, ROLES), "state": chosen(state, STATES), "sort": chosen(sort, SORTS, "name")}
    names = users.names(store_of(request))
    if done in ("role", "enable") and any(row.user_id == user and row.waits for row in users.list_users(store_of(request))):
        done = f"{done}_waits"
    note = translator_of(request)(f"users_done_{done}", name=names[user]) if done in DONE and user in names else ""
    return _show(request, caller, fields=fields, page=page, note=note)


@router.post("/users")
def add_user(request: Request, caller: Admin, form: FormFields) -> Response:
    """The new password is in this one response and nowhere else; it has to be changed at the first login."""
    name, role, password = form.get("name", "").strip(), form.get("role", ""), passwords.generate_password()
    try:
        user = users.add_user(store_of(request), name, role, password=password, actor=caller.user_id, temporary=True)
    except InputError:
        problem = _problem(name, role, translator_of(request))
        return _show(request, caller, 422, problem=problem, name=name[:64], chosen_role=role)
    return _show(request, caller, secret_of=name, password=password, waits=user.waits)


@router.post("/users/{user_id}/{change}")
def change_user(request: Request, caller: Admin, user_id: str, change: str, form: FormFields) -> Response:
    store, t = store_of(request), translator_of(request)
    user = next((user for user in users.list_users(store) if user.user_id == user_id), None)
    if user is None or change not in CHANGES:
        raise NotFoundError("There is no such user")
    if user_id == caller.user_id:
        return _show(request, caller, 403, problem=t("users_not_self"))
    if change == "password":
        return _reset(request, caller, user)
    role = form.get("role", "")
    if change == "role" and role not in ROLES:
        return _show(request, caller, 422, problem=t("users_bad_role"))
    if change == "role" and role == user.role:
        return _show(request, caller, note=t("users_same_role", name=user.name, role=t(f"role_{role}")))
    if change == "approve":
        if problem := _approve(request, caller, user, role):
            return _show(request, caller, 403, problem=problem)
    else:
        changes: dict[str, Any] = {"role": role} if change == "role" else {"disabled": change == "disable"}
        users.change_user(store, user, actor=caller.user_id, **changes)
    authenticator_of(request).forget()
    return redirect(address("/web/users", done=change, user=user_id))


def _approve(request: Request, caller: Caller, user: User, role: str) -> str:
    """The second admin approves the role that the page showed; what is wrong with that, in the reader's language."""
    t = translator_of(request)
    try:
        users.approve_user(store_of(request), replace(user, role=role), actor=caller.user_id)
    except users.SecondAdminError:
        return t("users_second", command=f"medloop users approve {user.name}")
    except InputError:
        return t("users_not_waiting", name=user.name)
    return ""


def _reset(request: Request, caller: Caller, user: User) -> Response:
    """A password for the next login; sessions and keys of the user end. It is in this one response and nowhere else."""
    password = passwords.generate_password()
    users.set_password(store_of(request), user, password, actor=caller.user_id, temporary=True)
    authenticator_of(request).forget()
    waits = users.get_user(store_of(request), user.name).waits
    return _show(request, caller, secret_of=user.name, password=password, waits=waits)


def _problem(name: str, role: str, t: Translator) -> str:
    """Why the store refused a new user, in the reader's language."""
    if not users.NAME.fullmatch(name):
        return t("users_bad_name")
    return t("users_name_taken", name=name) if role in ROLES else t("users_bad_role")


def _show(
    request: Request, caller: Caller, code: int = 200, *, fields: dict[str, str] | None = None, page: int = 1, note: str = "",
    problem: str = "", name: str = "", chosen_role: str = "", secret_of: str = "", password: str = "", waits: bool = False,
) -> Response:  # fmt: skip
    fields = fields or {"q": "", "role": "", "state": "", "sort": "name"}
    people = users.list_users(store_of(request))
    matching = [user for user in people if _matches(user, fields)]
    matching.sort(key=lambda user: (getattr(user, fields["sort"]), user.name))
    first = (page - 1) * PAGE_SIZE
    more = address("/web/users", **fields, page=page + 1) if len(matching) > first + PAGE_SIZE else ""
    context: dict[str, Any] = {"people": matching[first : first + PAGE_SIZE], "total": len(people), "fields": fields}
    context |= {"more": more, "first": address("/web/users", **fields) if page > 1 else "", "roles": ROLES, "states": STATES}
    context["sorted_by"] = {sort: address("/web/users", **{**fields, "sort": sort}) for sort in SORTS}
    context |= {"note": note, "problem": problem, "name": name, "chosen_role": chosen_role, "waits": waits}
    context["viewer_id"] = caller.user_id
    context["names"] = {user.user_id: user.name for user in people}
    context["alone"] = not any(_may_approve(user) and user.user_id != caller.user_id for user in people)
    return show(request, caller, "users.html", code, secret_of=secret_of, password=password, **context)


def _matches(user: User, fields: dict[str, str]) -> bool:
    if fields["q"].casefold() not in user.name.casefold() or fields["role"] not in ("", user.role):
        return False
    return fields["state"] in ("", user.state)


def _may_approve(user: User) -> bool:
    return user.role == "admin" and not (user.disabled or user.waits)
