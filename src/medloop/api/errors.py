"""Every failure as JSON: one sentence, one hint, and for a bad body the names of its fields. Never a value, a file or a trace.

On the web pages a failure is a page instead: `app.state.error_page` renders it (web/error_page.py).
"""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from medloop.api.limits import RateLimitError
from medloop.api.policy import ForbiddenError, NotFoundError, UnauthenticatedError
from medloop.deploy.protocol import DeployFailedError
from medloop.errors import BusyError, ConfigError, InputError, MedloopError, ModelError, NoSpaceError
from medloop.jobs.job_row import StateError, UnknownJobError
from medloop.jobs.worker import frames
from medloop.knobs import problem_text
from medloop.loop.deploy import DeployRefusedError
from medloop.privacy.erasure.erase import ChangedSinceRequestError
from medloop.serve.gateway.chat_request import ChatError, openai_error
from medloop.store.records.codebook import CodebookPersonError, CodebookRefusedError, NoSuchEntryError
from medloop.store.records.criteria import CriterionDecidedError, CriterionPersonError, NoSuchCriterionError
from medloop.store.records.erasure_requests import DecidedError, NoSuchRequestError, NotAllowedError
from medloop.store.records.experiments import ExperimentStateError, NoSuchExperimentError
from medloop.store.records.gates import GateDecidedError, GatePersonError, NoSuchGateError
from medloop.store.records.incident_rows import (
    AlreadyClosedError,
    AlreadyProposedError,
    NoSuchIncidentError,
    NotProposedError,
    SecondPersonError,
)
from medloop.store.records.quarantine import AlreadyDecidedError, TraceFirstError
from medloop.store.records.registry import NoSuchVersionError, PromotionRefusedError
from medloop.store.records.review_queue import LapsedError, UnknownItemError
from medloop.store.records.users import SecondAdminError

ErrorPage = Callable[[Request, int, MedloopError | None], Awaitable[Response]]

log = logging.getLogger("medloop.api")

# The first match applies.
CODES: tuple[tuple[type[MedloopError], int], ...] = (
    (UnauthenticatedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (UnknownJobError, 404),
    (UnknownItemError, 404),
    (NoSuchIncidentError, 404),
    (NoSuchRequestError, 404),
    (NoSuchVersionError, 404),
    (PromotionRefusedError, 409),
    (DeployRefusedError, 409),
    (DeployFailedError, 409),
    (NoSuchExperimentError, 404),
    (ExperimentStateError, 409),
    (NoSuchGateError, 404),
    (StateError, 409),
    (LapsedError, 409),
    (SecondPersonError, 403),
    (SecondAdminError, 403),
    (NotAllowedError, 403),
    (DecidedError, 409),
    (ChangedSinceRequestError, 409),
    (GatePersonError, 403),
    (CodebookPersonError, 403),
    (CodebookRefusedError, 409),
    (NoSuchEntryError, 404),
    (CriterionPersonError, 403),
    (CriterionDecidedError, 409),
    (NoSuchCriterionError, 404),
    (GateDecidedError, 409),
    (AlreadyClosedError, 409),
    (AlreadyProposedError, 409),
    (NotProposedError, 409),
    (AlreadyDecidedError, 409),
    (TraceFirstError, 409),
    (RateLimitError, 429),
    (NoSpaceError, 507),
    (BusyError, 503),
    (ConfigError, 422),
    (InputError, 422),
    (ModelError, 422),
)
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}
OPENAI = "/v1/"
OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
OPENAI_CODES = {401: "invalid_api_key", 403: "forbidden", 404: "not_found", 413: "too_large", 429: "rate_limit_exceeded"}
HTTP_ERRORS = {
    400: ("The request cannot be read", "Send JSON"),
    404: ("There is no such endpoint", "GET /api/openapi.json lists all endpoints"),
    405: ("This endpoint does not support that method", "GET /api/openapi.json lists all endpoints"),
}


def error_response(code: int, error: str, hint: str = "", **more: Any) -> JSONResponse:
    body = {"error": error.rstrip(".") + ".", **({"hint": hint.rstrip(".") + "."} if hint else {}), **more}
    return JSONResponse(body, status_code=code, headers=HEADERS.get(code))


def in_shape(path: str, response: JSONResponse) -> JSONResponse:
    """The same failure as the clients of this address expect it: below /v1/ in OpenAI's shape."""
    if not path.startswith(OPENAI):
        return response
    body, code = json.loads(bytes(response.body)), response.status_code
    kind = OPENAI_TYPES.get(code, "invalid_request_error" if code < 500 else "server_error")
    message = f"{body['error']} {body.get('hint', '')}".strip()
    headers = {name: value for name, value in response.headers.items() if name in ("retry-after", "www-authenticate")}
    return JSONResponse(openai_error(message, kind, code=OPENAI_CODES.get(code)), status_code=code, headers=headers)


class BugHandler:
    """Middleware that answers what the routes' handlers do not see: errors of admission.py, and unexpected exceptions. Starlette
    would pass those on to the server, which logs their message, and that may contain a patient's words.

    A response that has begun is left unfinished, so that nobody takes a part for the whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = body_read = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        async def receive_and_note() -> Message:
            nonlocal body_read
            message = await receive()
            body_read = body_read or not message.get("more_body", False)
            return message

        async def receive_rest() -> Message:
            """After the whole body nothing comes until the sender leaves: the page of the error must not wait for that."""
            return {"type": "http.request", "body": b"", "more_body": False} if body_read else await receive_and_note()

        try:
            await self.app(scope, receive_and_note, send_and_note)
        except Exception as error:
            if scope["type"] != "http":
                raise  # during the start of the server there is no request to answer
            handle = _handle_medloop_error if isinstance(error, MedloopError) else _handle_bug
            response = await handle(Request(scope, receive_rest), error)
            if not begun:
                await response(scope, receive, send)


def install(app: FastAPI) -> None:
    """Call it before other middleware is added, so that the response to a bug passes through that middleware too."""
    app.add_middleware(BugHandler)
    app.add_exception_handler(MedloopError, _handle_medloop_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(Exception, _handle_bug)


async def _handle_medloop_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MedloopError)
    if isinstance(error, ChatError):
        return JSONResponse(error.body(), status_code=error.status, headers=HEADERS.get(error.status))
    code = next((code for kind, code in CODES if isinstance(error, kind)), None)
    if code is None:  # a problem of the workspace: its sentence names files, which are for the log
        log.error("%s %s: %s", request.method, request.url.path, error)
    if is_page(request):
        return await page_of_error(request, code or 500, error)
    path = request.url.path
    if code is None:
        return in_shape(path, error_response(500, "The workspace cannot be used as it is", "The server log tells its owner why"))
    response = in_shape(path, error_response(code, error.what, error.to_do))
    if isinstance(error, RateLimitError):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


async def _handle_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if is_page(request):
        return await page_of_error(request, 422)
    problems = error.errors()
    if problems[0].get("type") == "json_invalid":
        position = f" (at character {problems[0]['loc'][-1] + 1})" if isinstance(problems[0]["loc"][-1], int) else ""
        message = f"The body is not valid JSON{position}"
        return error_response(422, message, "Send one JSON object", fields=[{"field": "body", "problem": f"{message}."}])
    fields = [{"field": _field(problem["loc"]), "problem": problem_text(problem)} for problem in problems]
    names = ", ".join(dict.fromkeys(field["field"] for field in fields))
    return error_response(422, f"The request has invalid fields: {names}", "Compare it with /api/openapi.json", fields=fields)


def _field(loc: tuple[int | str, ...]) -> str:
    """`irs_config.n_iterations`. A name that the caller made up is shortened, and nothing else of theirs is repeated."""
    parts = [str(part)[:64] for part in loc if part not in ("body", "query", "path")]
    return ".".join(part if part.isprintable() else "?" for part in parts) or "body"


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if is_page(request):
        return await page_of_error(request, error.status_code)
    response = error_response(error.status_code, *HTTP_ERRORS.get(error.status_code, ("The request was refused", "")))
    return in_shape(request.url.path, response)


async def _handle_bug(request: Request, error: Exception) -> Response:
    log.error("%s", frames(error))
    if is_page(request):
        return await page_of_error(request, 500)
    return in_shape(request.url.path, error_response(500, "medloop ran into an internal error", "The server log says where"))


def is_page(request: Request) -> bool:
    return request.url.path.startswith("/web") and request.app.state.error_page is not None


async def page_of_error(request: Request, code: int, error: MedloopError | None = None) -> Response:
    page: ErrorPage = request.app.state.error_page
    return await page(request, code, error)
