"""The users page: add people, disable and re-enable them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import authenticator_of, store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.errors import InputError
from medloop.store import passwords
from medloop.store.records import users
from medloop.store.records.users import ROLES
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]


@router.get("/users")
def users_page(request: Request, caller: Admin) -> Response:
    return _show(request, caller)


@router.post("/users")
def add_user(request: Request, caller: Admin, form: FormFields) -> Response:
    """The new password is in this one response and nowhere else."""
    name, role, password = form.get("name", "").strip(), form.get("role", ""), passwords.generate_password()
    try:
        users.add_user(store_of(request), name, role, password=password, actor=caller.user_id)
    except InputError:
        problem = _problem(name, role, translator_of(request))
        return _show(request, caller, 422, problem=problem, name=name[:64], chosen=role)
    return _show(request, caller, added=name, password=password)


@router.post("/users/{user_id}/{change}")
def change_user(request: Request, caller: Admin, user_id: str, change: str) -> Response:
    store = store_of(request)
    user = next((user for user in users.list_users(store) if user.user_id == user_id), None)
    if user is None or change not in ("disable", "enable"):
        raise NotFoundError("There is no such user")
    if user_id == caller.user_id:
        return _show(request, caller, 403, problem=translator_of(request)("users_not_self"))
    users.change_user(store, user, disabled=change == "disable", actor=caller.user_id)
    authenticator_of(request).forget()
    return redirect("/web/users")


def _problem(name: str, role: str, t: Translator) -> str:
    """Why the store refused a new user, in the reader's language."""
    if not users.NAME.fullmatch(name):
        return t("users_bad_name")
    return t("users_name_taken", name=name) if role in ROLES else t("users_bad_role")


def _show(
    request: Request, caller: Caller, code: int = 200, *,
    problem: str = "", name: str = "", chosen: str = "", added: str = "", password: str = "",
) -> Response:  # fmt: skip
    people = users.list_users(store_of(request))
    context = {"problem": problem, "name": name, "chosen": chosen, "added": added, "password": password}
    return show(request, caller, "users.html", code, people=people, roles=ROLES, **context)
