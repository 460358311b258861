"""Login, logout, the session's keep-alive, and the choice of language.

A session comes from a password and lives in a cookie that no script can read and no other site can send. Every form carries the
session's CSRF token (api/policy.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import authenticator_of, store_of
from medloop.api.policy import Caller, allow, cookie_name, is_public, read_form, session_token
from medloop.store.records import users
from medloop.store.records.users import ROLES
from medloop.web.render import LANGUAGE_COOKIE, redirect, show, translator_of
from medloop.web.words import LANGUAGES

router = APIRouter(prefix="/web", include_in_schema=False)

YEAR_S = 365 * 24 * 3600
Anyone = Annotated[Caller, Depends(allow(*ROLES, scope=None))]
AnySite = Annotated[Caller, Depends(allow(*ROLES, scope=None, sites=True))]  # shows no record


@router.get("/login")
def login_page(request: Request, next: str = "/web/", why: str = "") -> Response:
    t = translator_of(request)
    note = {"over": t("session_over"), "out": t("logged_out")}.get(why, "")
    return show(request, None, "login.html", next=safe_next(next), name="", problem="", note=note)


@router.post("/login")
async def login(request: Request) -> Response:
    """Five attempts a minute; a wrong name and a wrong password get the same response."""
    form, t = await read_form(request), translator_of(request)
    name, password = form.get("name", "").strip()[:64], form.get("password", "")[:256]
    authenticator, address = authenticator_of(request), address_of(request)
    context: dict[str, Any] = {"next": safe_next(form.get("next", "")), "name": name, "note": ""}
    if not authenticator.attempts.allowed(name, address):
        return show(request, None, "login.html", 429, problem=t("login_wait"), **context)
    try:
        user = await authenticator.check_password(name, password)
    except users.NotApprovedError:
        return show(request, None, "login.html", 403, problem=t("login_waits"), **context)
    if user is None:
        return show(request, None, "login.html", 401, problem=t("login_wrong"), **context)
    authenticator.attempts.succeeded(name, address)
    await run_in_threadpool(_end_session, request)  # an earlier session of this browser does not live on beside the new one
    return await run_in_threadpool(with_session, request, redirect(context["next"]), user)


@router.post("/logout")
def logout(request: Request, caller: AnySite) -> Response:
    _end_session(request)
    response = redirect("/web/login?why=out")
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="strict", secure=is_public(request))
    return response


@router.get("/alive")
def alive(caller: AnySite) -> Response:
    """Called by a page while somebody is writing, so that the session does not end during a long correction."""
    return Response(status_code=204)


@router.get("/language/{language}")
def choose_language(language: str, request: Request, next: str = "/web/") -> Response:
    response = redirect("/web/login" if next.startswith("/web/login") else safe_next(next))
    if language in LANGUAGES:
        response.set_cookie(
            LANGUAGE_COOKIE, language, max_age=YEAR_S, path="/web", httponly=True, samesite="strict", secure=is_public(request)
        )
    return response


def safe_next(path: str) -> str:
    """The path if it is a page of ours, else the home page; never an address of another site, however it is spelt."""
    own = path.startswith("/web/") and path.isprintable() and "\\" not in path and "//" not in path
    return path if own and not path.startswith(("/web/login", "/web/logout", "/web/language")) else "/web/"


def address_of(request: Request) -> str:
    """The client's address; empty where many people share it (api/client_address.py)."""
    return str(request.scope["medloop.address"])


def with_session(request: Request, response: Response, user: users.User) -> Response:
    """The response with the cookie of a new session."""
    token = users.open_session(store_of(request), user, actor=user.user_id)
    response.set_cookie(cookie_name(request), token, path="/", httponly=True, samesite="strict", secure=is_public(request))
    return response


def _end_session(request: Request) -> None:
    if token := session_token(request):
        users.close_session(store_of(request), token)
        authenticator_of(request).forget()
