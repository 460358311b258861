"""What the gateway writes in the shapes of OpenAI's protocol: chunks, usage, and failures of the model servers."""

from __future__ import annotations

import json
from typing import Any

from medloop.serve.gateway.chat_request import ChatError
from medloop.serve.gateway.wire import BackendFailure, Json

START_ONE = "Start a model server and name it in gateway.backends, or run: medloop api serve --with-model embedded:tiny"


def kind_of(failure: BaseException) -> str:
    if isinstance(failure, BackendFailure):
        return failure.kind
    return "timeout" if isinstance(failure, TimeoutError) else "internal"


def no_answer(failure: BaseException, loading: str = "") -> ChatError:
    """`loading`: the log of a model server that has been started and has not answered yet."""
    kind = kind_of(failure)
    if kind == "refused":
        status = failure.status if isinstance(failure, BackendFailure) else None
        too_long = "The model server refused the request; it may be too long for the model"
        return ChatError(400, too_long, "Shorten the conversation, or begin a new one", code=f"backend_{status}")
    if kind == "timeout":
        return ChatError(504, "The model server did not answer in time", "Ask again", kind="server_error", code="timeout")
    if kind == "busy":
        return ChatError(429, "The model server is busy", "Ask again in a moment", kind="rate_limit_error", code="overloaded")
    if kind == "internal":
        return ChatError(500, "The answer could not be written", "Ask again", kind="server_error", code="internal")
    if loading:
        hint = f"Ask again in a moment; if this lasts, see {loading}"
        return ChatError(503, "The model is loading", hint, kind="server_error", code="loading")
    return ChatError(503, "No model server answers", START_ONE, kind="server_error", code="no_backend")


def usage_of(usage: Any) -> Json | None:
    if not isinstance(usage, dict):
        return None
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return counts if all(type(count) is int for count in counts.values()) else None


def choice(delta: Json, finish: str | None = None) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def event(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"
