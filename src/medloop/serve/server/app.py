"""The HTTP doors of the embedded server: OpenAI's, vLLM's adapter doors, health and metrics.

Every error has OpenAI's shape. A caller who goes away frees the row. Without API keys the server answers only to names of this
machine and only to JSON bodies, so that a web page in a browser cannot reach it; with keys, all doors but the two
for health need one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from medloop import __version__
from medloop.errors import ModelError
from medloop.models.template import encode_prompt
from medloop.serve.server.answers import DONE, AnswerWriter, sse
from medloop.serve.server.generation import Event, Generation, Output
from medloop.serve.server.refusal import Refusal
from medloop.serve.server.service import ModelService
from medloop.serve.server.wire import (
    MAX_BODY_BYTES,
    ChatBody,
    CompletionBody,
    LoadAdapterBody,
    UnloadAdapterBody,
    parse_body,
    sampling_of,
)

log = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN_PATHS = ("/health", "/ready")
LONG_TEXT = 20_000  # characters: tokenised in a thread, so that others are not kept waiting
CLIENT_HEADER = "x-medloop-client"  # a gateway names its callers by it

Handler = Callable[[Request], Awaitable[Response]]


def create_app(service: ModelService, *, api_keys: Sequence[str] = (), any_host: bool = False) -> Starlette:
    doors = _Doors(service)
    guard = _Guard(service, api_keys, any_host)
    routes = [
        Route("/v1/chat/completions", guard(doors.chat), methods=["POST"]),
        Route("/v1/completions", guard(doors.completions), methods=["POST"]),
        Route("/v1/models", guard(doors.models), methods=["GET"]),
        Route("/v1/load_lora_adapter", guard(doors.load_adapter), methods=["POST"]),
        Route("/v1/unload_lora_adapter", guard(doors.unload_adapter), methods=["POST"]),
        Route("/health", guard(doors.health), methods=["GET"]),
        Route("/ready", guard(doors.ready), methods=["GET"]),
        Route("/version", guard(doors.version), methods=["GET"]),
        Route("/metrics", guard(doors.metrics), methods=["GET"]),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        service.start(lambda events: _deliver(loop, events))
        try:
            yield
        finally:
            await asyncio.to_thread(service.close)

    handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _unexpected}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.state.service = service
    return app


def _deliver(loop: asyncio.AbstractEventLoop, events: list[tuple[Generation, Event]]) -> None:
    """From the engine's thread: one call for all events of a step."""
    loop.call_soon_threadsafe(_notify_all, events)


def _notify_all(events: list[tuple[Generation, Event]]) -> None:
    for generation, event in events:
        generation.notify(event)


async def _http_error(request: Request, error: HTTPException) -> Response:
    kind = "NotFoundError" if error.status_code == 404 else "BadRequestError"
    return _refused(Refusal(error.status_code, str(error.detail), kind=kind))


async def _unexpected(request: Request, error: Exception) -> Response:
    return _refused(Refusal(500, "Internal server error"))


def _refused(refusal: Refusal) -> Response:
    return JSONResponse(refusal.body, refusal.status, headers=refusal.headers)


class _Guard:
    """Who may call, and one place where refusals become responses."""

    def __init__(self, service: ModelService, api_keys: Sequence[str], any_host: bool) -> None:
        self.service, self.any_host = service, any_host
        self.hashes = [hashlib.sha256(key.encode()).digest() for key in api_keys]

    def __call__(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                self._check(request)
                response = await handler(request)
            except Refusal as refusal:
                response = _refused(refusal)
            except ClientDisconnect:
                response = Response(status_code=499)
            self.service.metrics.response(request.scope["path"], response.status_code)
            return response

        return guarded

    def _check(self, request: Request) -> None:
        if request.scope["path"] in OPEN_PATHS:
            return
        if self.hashes:
            key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
            given = hashlib.sha256(key.encode()).digest()
            if not any(hmac.compare_digest(given, known) for known in self.hashes):
                raise Refusal(401, "This server needs an API key as Authorization: Bearer KEY", kind="AuthenticationError")
        elif not self.any_host and _host(request) not in LOOPBACK:
            raise Refusal(403, "This server answers only to names of this machine", kind="PermissionDeniedError")
        if request.method == "POST" and not request.headers.get("content-type", "").startswith("application/json"):
            raise Refusal(415, "The body must have the content type application/json")


def _host(request: Request) -> str:
    """The name in the Host header without its port; whatever stands there, it is only compared."""
    host = request.headers.get("host", "")
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


async def _content(request: Request) -> bytes:
    size = request.headers.get("content-length", "0")
    if size.isdecimal() and int(size) > MAX_BODY_BYTES:
        raise Refusal(413, f"The body is larger than {MAX_BODY_BYTES} bytes")
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise Refusal(413, f"The body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(content)


class _Doors:
    def __init__(self, service: ModelService) -> None:
        self.service = service

    async def chat(self, request: Request) -> Response:
        body = parse_body(ChatBody, await _content(request))
        self.service.slot_for(body.model)  # an unknown model is told before a long prompt is read
        try:
            characters = sum(len(message.text) for message in body.messages)
            conversation = body.conversation
            prompt = await self._tokenised(characters, lambda: encode_prompt(self.service.tokenizer, conversation))
        except ModelError as error:
            raise Refusal(400, str(error), param="messages") from None
        return await self._answer(request, body, prompt)

    async def completions(self, request: Request) -> Response:
        body = parse_body(CompletionBody, await _content(request))
        self.service.slot_for(body.model)
        return await self._answer(request, body, await self._prompt_ids(body.prompt))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": self.service.model_cards()})

    async def load_adapter(self, request: Request) -> Response:
        body = parse_body(LoadAdapterBody, await _content(request))
        if not body.lora_name or not body.lora_path:
            raise Refusal(400, "Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput")
        if "\0" in body.lora_path or not body.lora_name.isprintable():
            raise Refusal(400, "'lora_name' and 'lora_path' must be printable texts.", kind="InvalidUserInput")
        await self.service.load_adapter(body.lora_name, Path(body.lora_path), in_place=bool(body.load_inplace))
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def unload_adapter(self, request: Request) -> Response:
        body = parse_body(UnloadAdapterBody, await _content(request))
        if not body.lora_name:
            raise Refusal(400, "'lora_name' needs to be provided to unload a LoRA adapter.", kind="InvalidUserInput")
        self.service.unload_adapter(body.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    async def health(self, request: Request) -> Response:
        engine = self.service.engine
        return Response(status_code=200 if engine is not None and engine.alive else 503)

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"ready": self.service.ready}, 200 if self.service.ready else 503)

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": __version__, "server": "medloop"})

    async def metrics(self, request: Request) -> Response:
        service, engine = self.service, self.service.running_engine
        gauges: dict[str, tuple[str, float]] = {
            "medloop_serve_up": ("1 while the engine computes.", float(engine.alive)),
            "medloop_serve_running": ("Requests in the batch.", engine.running),
            "medloop_serve_waiting": ("Requests in the queue.", engine.waiting),
            "medloop_serve_queue_places": ("Requests that may wait.", service.config.queue_places),
            "medloop_serve_max_rows": ("Requests that may run at once.", service.config.max_rows),
            "medloop_serve_adapters": ("Adapters loaded.", len(service.adapters)),
            "medloop_serve_prefix_hit_tokens": ("Prompt tokens that were not computed again.", service.batch.prefix_hit_tokens),
        }
        text = service.metrics.render(gauges, service.name)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _prompt_ids(self, prompt: str | list[Any]) -> list[int]:
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise Refusal(400, "'prompt' takes one prompt; send several requests, they are batched", param="prompt")
            prompt = prompt[0]
        if isinstance(prompt, str):
            text = prompt
            ids = await self._tokenised(len(text), lambda: list(self.service.tokenizer(text, verbose=False)["input_ids"]))
        else:
            ids = [int(token) for token in prompt]
            if any(not 0 <= token < len(self.service.tokenizer) for token in ids):
                raise Refusal(400, "'prompt' has a token id that the model does not know", param="prompt")
        if not ids:
            raise Refusal(400, "'prompt' is empty", param="prompt")
        return ids

    async def _tokenised(self, characters: int, tokenise: Callable[[], list[int]]) -> list[int]:
        return await asyncio.to_thread(tokenise) if characters > LONG_TEXT else tokenise()

    async def _answer(self, request: Request, body: ChatBody | CompletionBody, prompt: list[int]) -> Response:
        service = self.service
        params = sampling_of(body, prompt_tokens=len(prompt), max_length=service.max_length)
        events: asyncio.Queue[Event] = asyncio.Queue()
        slot = service.slot_for(body.model)  # from here to `submit` nothing waits: the name means one slot
        generation = Generation(
            client=_client(request), slot=slot, prompt=prompt, params=params, stream=bool(body.stream), notify=events.put_nowait
        )
        service.submit(generation)
        writer = AnswerWriter(
            "chat" if isinstance(body, ChatBody) else "completion", model=body.model or service.name,
            fingerprint=service.loaded.sha256 if slot is None else slot.sha256, prompt_tokens=len(prompt),
            token_text=lambda token: service.decode([token], False), token_ids=bool(body.return_token_ids),
            logprobs=params.logprobs is not None,
        )  # fmt: skip
        try:
            first = await _first_event(request, events)
        except BaseException:
            service.running_engine.cancel(generation)
            raise
        if isinstance(first, Refusal):
            raise first
        if not body.stream:
            return JSONResponse(writer.whole(first))
        stream = self._stream(generation, writer, first, events, include_usage=body.include_usage)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _stream(
        self, generation: Generation, writer: AnswerWriter, first: Output, events: asyncio.Queue[Event], *, include_usage: bool
    ) -> AsyncIterator[bytes]:
        finished = False
        try:
            for line in writer.opening(include_usage=include_usage):
                yield line
            event: Event = first
            while True:
                if isinstance(event, Refusal):
                    finished = True
                    yield sse(event.body)
                    yield DONE
                    return
                finished = event.finish_reason is not None
                yield writer.piece(event, include_usage=include_usage)
                if finished:
                    break
                event = await events.get()
            for line in writer.closing(include_usage=include_usage):
                yield line
        finally:
            if not finished:
                self.service.running_engine.cancel(generation)


async def _first_event(request: Request, events: asyncio.Queue[Event]) -> Event:
    """The first event, or ClientDisconnect when the caller goes away before it."""
    waiting = asyncio.ensure_future(events.get())
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return waiting.result()
    finally:
        for task in (waiting, gone):
            task.cancel()
        await asyncio.gather(waiting, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _client(request: Request) -> str:
    """Whose share a request uses: as a gateway names it, else by its key, else by its address."""
    if name := request.headers.get(CLIENT_HEADER):
        return "name:" + name[:200]
    if key := request.headers.get("authorization"):
        return "key:" + hashlib.sha256(key.encode()).hexdigest()
    return "address:" + (request.client.host if request.client else "")
