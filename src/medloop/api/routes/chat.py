"""`/v1/chat/completions` and `/v1/models`: the live assistant, for everything that speaks OpenAI's protocol.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="mlk_…")
    answer = client.chat.completions.create(model="medloop", messages=[{"role": "user", "content": "…"}])
    answer.model_extra["medloop"]["inference_id"]               # also the header X-Medloop-Inference; feedback needs only this

Keys need the scope `chat`. Errors have OpenAI's shape. The answer's trace is stored behind it (serve/gateway/trace_queue.py).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.privacy.consent import subject_of
from medloop.serve.gateway.answer_plan import LIVE, ChatCaller, version_of
from medloop.serve.gateway.answer_stream import AnswerEvents
from medloop.serve.gateway.chat_request import parse_request
from medloop.serve.gateway.gateway import Gateway

router = APIRouter(prefix="/v1", tags=["assistant"])

Asker = Annotated[Caller, Depends(allow("clinician", "engineer", "admin", scope="chat", sites=True))]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["messages"]},
                "example": {"model": LIVE, "messages": [{"role": "user", "content": "I have had a cough for two weeks."}]},
            }
        },
    }
}


class EventResponse(StreamingResponse):
    """Ends the answer also where its reader left before the first event, or while one was sent."""

    def __init__(self, events: AnswerEvents, headers: Mapping[str, str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._answer = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.aclose()


def gateway_of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


@router.post("/chat/completions", openapi_extra=_BODY)
async def chat_completions(request: Request, caller: Asker) -> Response:
    """Ask the live assistant; `stream` sends the answer sentence by sentence."""
    check_rate(request, caller)
    gateway, body = gateway_of(request), parse_request(await request.body())
    subject = None if body.user is None else subject_of(store_of(request), body.user)
    plan = await gateway.plan(body, ChatCaller(caller.user_id, subject, caller.site), request.headers.get("x-medloop-episode"))
    if not body.streams:
        ids, answer = await gateway.answer(plan)
        return JSONResponse(answer, headers=ids.headers())
    ids, events = await gateway.stream(plan)
    return EventResponse(events, ids.headers())


@router.get("/models")
async def list_models(request: Request, caller: Asker) -> Response:
    """The one model that clients ask for, and what is behind it now."""
    gateway = gateway_of(request)
    route = await gateway.parts.of_site(caller.site).live_route()
    created = int(route.timestamp.timestamp()) if route else 0
    names = [LIVE, *([version_of(route)] if route else [])]
    data = [{"id": name, "object": "model", "created": created, "owned_by": "medloop"} for name in names]
    return JSONResponse({"object": "list", "data": data})
