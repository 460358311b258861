"""Every failure as JSON: one sentence, one hint, for a bad body the names of its fields. Never a value, a file or a trace.

On the web pages it is a page instead: `app.state.error_page` renders it (web/error_page.py).
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from medloop.api.policy import ForbiddenError, NotAllowedError, NothingHereError
from medloop.errors import BusyError, ConfigError, InputError, MedloopError, ModelError, NoSpaceError
from medloop.jobs.job_row import StateError, UnknownJobError
from medloop.jobs.worker import frames

log = logging.getLogger("medloop.api")

# The first that fits.
CODES: tuple[tuple[type[MedloopError], int], ...] = (
    (NotAllowedError, 401),
    (ForbiddenError, 403),
    (NothingHereError, 404),
    (UnknownJobError, 404),
    (StateError, 409),
    (NoSpaceError, 507),
    (BusyError, 503),
    (ConfigError, 422),
    (InputError, 422),
    (ModelError, 422),
)
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}
PLAIN = {
    400: ("The request cannot be read", "Send JSON"),
    404: ("There is nothing here", "GET /api/openapi.json lists every address"),
    405: ("This address does not take that method", "GET /api/openapi.json lists every address"),
}


def answer(code: int, error: str, hint: str = "", **more: Any) -> JSONResponse:
    body = {"error": error.rstrip(".") + ".", **({"hint": hint.rstrip(".") + "."} if hint else {}), **more}
    return JSONResponse(body, status_code=code, headers=HEADERS.get(code))


class Quiet:
    """A bug ends here. Starlette would hand it on to the server, whose log would have its message: that may be a patient's words.

    An answer that has begun is left unfinished, so that nobody takes a part for the whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if scope["type"] != "http":
                raise  # the start of the server, which has no request to answer
            said = await _bug(Request(scope, receive), error)
            if not begun:
                await said(scope, receive, send)


def install(app: FastAPI) -> None:
    """Before other middleware is added, so that what is said about a bug passes through it like every answer."""
    app.add_middleware(Quiet)
    app.add_exception_handler(MedloopError, _ours)
    app.add_exception_handler(RequestValidationError, _bad_body)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, MedloopError)
    code = next((code for kind, code in CODES if isinstance(error, kind)), None)
    if is_page(request):
        if code is None:
            log.error("%s %s: %s", request.method, request.url.path, error)
        return await _page(request, code or 500, error.what if code in (409, 422) else "")
    if code is None:  # the workspace's own trouble: its sentence names files, which are for the log
        log.error("%s %s: %s", request.method, request.url.path, error)
        return answer(500, "The workspace cannot be used as it is", "Its owner finds the reason in the log of the server")
    return answer(code, error.what, error.to_do)


async def _bad_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if is_page(request):
        return await _page(request, 404)
    fields = [{"field": _place(problem["loc"]), "problem": str(problem["msg"]).lower()} for problem in error.errors()]
    named = ", ".join(dict.fromkeys(field["field"] for field in fields))
    return answer(422, f"The request does not fit: {named}", "Compare it with /api/openapi.json", fields=fields)


def _place(loc: tuple[int | str, ...]) -> str:
    """`irs_config.n_iterations`; a name that the caller made up is cut, and nothing else of theirs is repeated."""
    parts = [str(part)[:64] for part in loc if part not in ("body", "query", "path")]
    return ".".join(part if part.isprintable() else "?" for part in parts) or "body"


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if is_page(request):
        return await _page(request, error.status_code)
    return answer(error.status_code, *PLAIN.get(error.status_code, ("The request was refused", "")))


async def _bug(request: Request, error: Exception) -> Response:
    log.error("%s", frames(error))
    if is_page(request):
        return await _page(request, 500)
    return answer(500, "medloop met an error of its own", "The log of the server says where")


def is_page(request: Request) -> bool:
    return request.url.path.startswith("/web") and request.app.state.error_page is not None


async def _page(request: Request, code: int, message: str = "") -> Response:
    page: Response = await request.app.state.error_page(request, code, message)
    return page
