"""The web pages: login, logout, one's password, language, static files, the start page. What the others share is here, too.

Pages call the same functions as the API. A session comes from a password and lives in a cookie that no script can read and no
other site can send; every form carries the session's CSRF token (policy.py).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import authenticator_of, store_of
from medloop.api.policy import Caller, NotFoundError, allow, cookie_name, is_public, read_form, session_token
from medloop.store import passwords
from medloop.store.records import users
from medloop.store.records.users import ROLES
from medloop.web import render
from medloop.web.error_page import LANGUAGE_COOKIE
from medloop.web.words import LANGUAGES, Language, Words, choose

router = APIRouter(include_in_schema=False)

YEAR_S = 365 * 24 * 3600
Fields = Annotated[dict[str, str], Depends(read_form)]
Anyone = Annotated[Caller, Depends(allow(*ROLES, scope=None))]


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def language_of(request: Request) -> Language:
    return choose(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))


def words_of(request: Request) -> Words:
    return Words(language_of(request))


def viewer_of(request: Request, caller: Caller | None) -> render.Viewer:
    path = request.url.path + (f"?{request.url.query}" if request.url.query and request.method == "GET" else "")
    if caller is None:
        return render.Viewer(language_of(request), path=path)
    return render.Viewer(language_of(request), caller.name, caller.role, caller.csrf, path)


def show(request: Request, caller: Caller | None, template: str, code: int = 200, **filled: Any) -> HTMLResponse:
    return HTMLResponse(render.page(template, viewer_of(request, caller), **filled), status_code=code)


def go(path: str) -> RedirectResponse:
    return RedirectResponse(path, status_code=303)


def safe_next(path: str) -> str:
    """A page of ours, or the start page: no address of another site, however it is spelt."""
    plain = path.startswith("/web/") and path.isprintable() and "\\" not in path and "//" not in path
    return path if plain and not path.startswith(("/web/login", "/web/logout", "/web/language")) else "/web/"


@router.get("/")
def root() -> Response:
    return go("/web/")


@router.get("/web/static/{name}")
def static(name: str) -> Response:
    found = render.static_files().get(name)
    if found is None:
        raise NotFoundError("There is no such file")
    # Pages name them with their version, so a browser may keep them for good.
    return Response(found.body, media_type=found.kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


@router.get("/web/language/{language}")
def language(language: str, request: Request, next: str = "/web/") -> Response:
    answer = go("/web/login" if next.startswith("/web/login") else safe_next(next))
    if language in LANGUAGES:
        answer.set_cookie(
            LANGUAGE_COOKIE, language, max_age=YEAR_S, path="/web", httponly=True, samesite="strict", secure=is_public(request)
        )
    return answer


@router.get("/web/login")
def login_page(request: Request, next: str = "/web/", why: str = "") -> Response:
    t = words_of(request)
    note = {"over": t("session_over"), "out": t("logged_out")}.get(why, "")
    return show(request, None, "login.html", next=safe_next(next), name="", problem="", note=note)


@router.post("/web/login")
async def login(request: Request) -> Response:
    """Five tries a minute; one answer for every reason that a login can fail for."""
    form, t = await read_form(request), words_of(request)
    name, password = form.get("name", "").strip()[:64], form.get("password", "")[:256]
    access, address = authenticator_of(request), address_of(request)
    filled: dict[str, Any] = {"next": safe_next(form.get("next", "")), "name": name, "note": ""}
    if not access.attempts.allowed(name, address):
        return show(request, None, "login.html", 429, problem=t("login_wait"), **filled)
    user = await run_in_threadpool(users.check_password, access.store, name, password)
    if user is None:
        return show(request, None, "login.html", 401, problem=t("login_wrong"), **filled)
    access.attempts.succeeded(name, address)
    await run_in_threadpool(_end_session, request)  # a session that was there before does not live on beside the new one
    return await run_in_threadpool(_with_session, request, go(filled["next"]), user)


@router.post("/web/logout")
def logout(request: Request, caller: Anyone) -> Response:
    _end_session(request)
    answer = go("/web/login?why=out")
    answer.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="strict", secure=is_public(request))
    return answer


@router.get("/web/account")
def account(request: Request, caller: Anyone) -> Response:
    return show(request, caller, "account.html", errors={}, changed=False)


@router.post("/web/account")
def change_password(request: Request, caller: Anyone, form: Fields) -> Response:
    """The old password is asked for again, within the same five tries; all sessions end, and this browser gets a new one."""
    t, access, new = words_of(request), authenticator_of(request), form.get("new", "")
    if not access.attempts.allowed(caller.name, address_of(request)):
        return show(request, caller, "account.html", 429, errors={"now": t("login_wait")}, changed=False)
    user = users.check_password(access.store, caller.name, form.get("now", ""))
    errors = {} if user else {"now": t("password_wrong")}
    if not passwords.SHORTEST <= len(new) <= passwords.LONGEST:
        errors["new"] = t("password_short")
    elif new != form.get("again", ""):
        errors["again"] = t("password_differs")
    if user is None or errors:
        return show(request, caller, "account.html", 422, errors=errors, changed=False)
    users.set_password(access.store, user, new, actor=user.user_id)
    access.forget()
    answer = show(request, None, "account.html", errors={}, changed=True)
    return _with_session(request, answer, user)


def _with_session(request: Request, answer: Response, user: users.User) -> Response:
    """The answer with the cookie of a new session."""
    token = users.open_session(store_of(request), user, actor=user.user_id)
    answer.set_cookie(cookie_name(request), token, path="/", httponly=True, samesite="strict", secure=is_public(request))
    return answer


def _end_session(request: Request) -> None:
    if token := session_token(request):
        users.close_session(store_of(request), token)
        authenticator_of(request).forget()


@router.get("/web/alive")
def alive(caller: Anyone) -> Response:
    """Pages ask this while somebody is writing, so that a long correction does not outlive its session."""
    return Response(status_code=204)


@router.get("/web/")
def home(request: Request, caller: Anyone) -> Response:
    return show(request, caller, "home.html")
