"""A fast path for routes that receive one JSON body hundreds of times a second; FastAPI still describes them.

    router = APIRouter(route_class=JsonRoute)

    @router.post("/rlhf/feedback")
    async def submit(body: FeedbackBody, request: Request, caller: Writer, key: Key = None) -> Response: ...

Policy and errors are the same, but the caller is checked first, the body is validated straight from its bytes, and nothing else
is looked for in the request. `DirectRoutes` finds them by their path, without trying others first. Routes with other parameters
are served by FastAPI.
"""

import inspect
import json
import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from medloop.knobs import respelled

KEY = re.compile(r"[\x21-\x7e]{1,200}")
PARAMETERS = ["body", "request", "caller", "key"]
PLACE = re.compile(r"line (\d+) column (\d+)$")


class JsonRoute(APIRoute):
    @property
    def is_direct(self) -> bool:
        """Whether it needs nothing of FastAPI."""
        return list(inspect.signature(self.endpoint).parameters) == PARAMETERS and "{" not in self.path

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint, signature = self.endpoint, inspect.signature(self.endpoint, eval_str=True)
        if not self.is_direct:
            return super().get_route_handler()
        model: type[BaseModel] = signature.parameters["body"].annotation
        (policy,) = [dependency.call for dependency in self.dependant.dependencies]
        assert policy is not None and hasattr(policy, "policy"), "a route carries a policy (policy.allow)"

        async def handle(request: Request) -> Response:
            caller = await policy(request)
            key = request.headers.get("idempotency-key")
            if key is not None and not KEY.fullmatch(key):
                problem = {
                    "type": "value_error",
                    "loc": ("header", "Idempotency-Key"),
                    "msg": "Use 1 to 200 visible ASCII characters",
                }
                raise RequestValidationError([problem])
            content = await request.body()
            try:
                body = _validated(model, content)
            except ValidationError as error:
                raise _invalid(error, content) from None
            response: Response = await endpoint(body=body, request=request, caller=caller, key=key)
            return response

        return handle


class DirectRoutes:
    """In front of the router: requests to direct routes are answered here; all others go on."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self._routes = {
            (method, route.path): (route, route.get_route_handler())
            for route in routes
            if isinstance(route, JsonRoute) and route.is_direct
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_plain = scope["type"] == "http" and not scope.get("root_path")
        found = self._routes.get((scope["method"], scope["path"])) if is_plain else None
        if found is None:
            await self.app(scope, receive, send)
            return
        route, handle = found
        scope.update(route=route, endpoint=route.endpoint, path_params={})
        response = await handle(Request(scope, receive, send))
        await response(scope, receive, send)


def _validated(model: type[BaseModel], content: bytes) -> BaseModel:
    """The body; where one of a few words is allowed, it may be written in upper or lower case."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        if not any(problem["type"] == "literal_error" for problem in error.errors(include_url=False)):
            raise
        if (spelled := respelled(json.loads(content), error)) is None:
            raise
        return model.model_validate_json(json.dumps(spelled))


def _invalid(error: ValidationError, content: bytes) -> RequestValidationError:
    problems = error.errors(include_url=False, include_input=False)
    if problems[0]["type"] == "json_invalid" and (place := PLACE.search(problems[0]["msg"])):
        return RequestValidationError([{**problems[0], "loc": ("body", _character(content, int(place[1]), int(place[2])))}])
    return RequestValidationError([{**problem, "loc": ("body", *problem["loc"])} for problem in problems])


def _character(content: bytes, line: int, column: int) -> int:
    """The position in characters, from 0, as FastAPI gives it for its own routes."""
    before = sum(len(text) + 1 for text in content.split(b"\n")[: line - 1])
    return max(0, len(content[: before + column].decode("utf-8", errors="replace")) - 1)
