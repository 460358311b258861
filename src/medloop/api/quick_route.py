"""Routes that take one JSON body hundreds of times a second: FastAPI describes them, this handler serves them.

    router = APIRouter(route_class=QuickRoute)

    @router.post("/rlhf/feedback")
    async def submit(body: FeedbackBody, request: Request, caller: Writer, key: Key = None) -> Response: ...

The same policy and the same errors, but who it is comes first, the body is validated straight from its bytes, and nothing else is
looked for in a request. Routes of another shape go FastAPI's way.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

KEY = re.compile(r"[\x21-\x7e]{1,200}")
SHAPE = ["body", "request", "caller", "key"]


class QuickRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint, signature = self.endpoint, inspect.signature(self.endpoint, eval_str=True)
        if list(signature.parameters) != SHAPE:
            return super().get_route_handler()
        kind: type[BaseModel] = signature.parameters["body"].annotation
        (policy,) = [one.call for one in self.dependant.dependencies]  # the one that says who may
        assert policy is not None and hasattr(policy, "policy"), "a route carries a policy (policy.allow)"

        async def handle(request: Request) -> Response:
            caller = await policy(request)
            key = request.headers.get("idempotency-key")
            if key is not None and not KEY.fullmatch(key):
                raise _unfit(("header", "Idempotency-Key"), "1 to 200 visible ASCII characters")
            try:
                body = kind.model_validate_json(await request.body())
            except ValidationError as error:
                problems = error.errors(include_url=False, include_input=False, include_context=False)
                raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in problems]) from None
            found: Response = await endpoint(body=body, request=request, caller=caller, key=key)
            return found

        return handle


def _unfit(place: tuple[str, ...], words: str) -> RequestValidationError:
    return RequestValidationError([{"type": "value_error", "loc": place, "msg": words}])
