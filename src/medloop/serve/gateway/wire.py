"""One request to one model server, streamed or not; what it says is checked, failures are typed, redirects are not followed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpcore

from medloop.serve.gateway.connections import ConnectionStack

Json = dict[str, Any]
FailureKind = Literal["unreachable", "timeout", "died", "server", "busy", "no_model", "refused", "unreadable", "internal"]
DONE = b"[DONE]"
MOST_BYTES = 4_000_000  # of one answer
_TRANSPORT = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.UnsupportedProtocol, OSError)


class BackendFailure(Exception):
    """Why one server gave no answer. `kind` decides whether another one is asked."""

    def __init__(self, kind: FailureKind, detail: str, status: int | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.status = kind, detail, status

    @property
    def is_of_request(self) -> bool:
        """Every server would say the same."""
        return self.kind == "refused"


@dataclass
class Delta:
    """What one event of a stream adds."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Json | None = None
    calls: tuple[Json, ...] = ()  # pieces of the calls of tools that the model asks for

    @property
    def is_plain(self) -> bool:
        return not (self.reasoning or self.finish_reason or self.usage or self.calls)


@dataclass
class WireTimeouts:
    connect_s: float = 5.0
    read_s: float = 60.0  # until the first byte of an answer, and between two pieces of it

    def extension(self, read_s: float) -> dict[str, float]:
        return {"connect": self.connect_s, "pool": self.connect_s, "write": 10.0, "read": read_s}


@dataclass
class ModelServer:
    """The HTTP side of one server."""

    url: str
    connections: ConnectionStack
    key: str = ""
    timeouts: WireTimeouts = field(default_factory=WireTimeouts)
    lengths: dict[str, int] = field(default_factory=dict)  # tokens of prompt and answer together, by model, where it says so

    def _headers(self) -> list[tuple[bytes, bytes]]:
        host = self.url.partition("://")[2].partition("/")[0].encode()
        headers = [(b"host", host), (b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        return [*headers, (b"authorization", f"Bearer {self.key}".encode())] if self.key else headers

    async def models(self, timeout_s: float = 5.0) -> tuple[str, ...]:
        """The names it serves; BackendFailure if it does not answer."""
        async with _failures():
            timeout = {"timeout": self.timeouts.extension(timeout_s)}
            request = httpcore.Request("GET", f"{self.url}/v1/models", headers=self._headers(), extensions=timeout)
            response = await self.connections.request(request)
        if response.status != 200:
            raise _status_failure(response.status)
        try:
            cards = json.loads(response.content)["data"]
            names = tuple(str(card["id"]) for card in cards)
            self.lengths = {str(card["id"]): card["max_model_len"] for card in cards if type(card.get("max_model_len")) is int}
            return names
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise BackendFailure("unreadable", "not a list of models") from None

    def with_limit(self, name: str, payload: Json, answer_tokens: int) -> Json:
        """The payload with `max_tokens`, where it has none. Where prompt and answer may be too long together, the server decides:
        it would refuse what goes beyond its context, and by itself it ends there. A byte is a token at most; its template
        adds some to each message, and a text where tools are offered."""
        if "max_tokens" in payload or (length := self.lengths.get(name)) is None:
            return payload
        messages, tools = payload.get("messages", ()), payload.get("tools")
        prompt = len(json.dumps([messages, tools], ensure_ascii=False).encode()) + 64 * len(messages) + (512 if tools else 0)
        return payload if prompt + answer_tokens > length else {**payload, "max_tokens": answer_tokens}

    async def complete(self, payload: bytes) -> Json:
        """The whole answer."""
        async with _failures():
            async with self._post(payload) as response:
                body = bytearray()
                async for part in response.aiter_stream():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise BackendFailure("unreadable", "the answer is too large")
        if response.status != 200:
            raise _status_failure(response.status)
        try:
            completion: Json = json.loads(bytes(body))
            choice = completion["choices"][0]
            said = choice["message"]
            if not isinstance(said.get("content") or "", str):
                raise TypeError
            for name in ("content", "reasoning_content", "reasoning"):
                if isinstance(said.get(name), str):
                    said[name] = clean(said[name])
            choice["finish_reason"] = _finish(choice.get("finish_reason"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise BackendFailure("unreadable", "not a chat completion") from None
        return completion

    async def stream(self, payload: bytes) -> AsyncGenerator[Delta]:
        """The pieces of an answer. An end without `finish_reason` is a BackendFailure, never the end of the answer."""
        finished = started = False
        async with _failures():
            async with self._post(payload) as response:
                if response.status != 200:
                    async for _ in response.aiter_stream():
                        break
                    raise _status_failure(response.status)
                async for events in _events(response):
                    for delta in _joined(events, started):
                        started = True
                        finished = finished or delta.finish_reason is not None
                        yield delta
                    if events[-1] == DONE:
                        break
        if not finished:
            raise BackendFailure("died", "the stream ended before the answer did")

    def _post(self, payload: bytes) -> Any:
        headers = [*self._headers(), (b"content-length", str(len(payload)).encode())]
        timeout = {"timeout": self.timeouts.extension(self.timeouts.read_s)}
        url = f"{self.url}/v1/chat/completions"
        return self.connections.stream(httpcore.Request("POST", url, headers=headers, content=payload, extensions=timeout))


class _failures:
    """Turns the transport's errors into BackendFailure."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
            raise BackendFailure("unreachable", type(error).__name__) from None
        if isinstance(error, httpcore.TimeoutException):
            raise BackendFailure("timeout", type(error).__name__) from None
        if isinstance(error, _TRANSPORT):
            raise BackendFailure("died", type(error).__name__) from None


def _status_failure(status: int) -> BackendFailure:
    if status == 404:
        return BackendFailure("no_model", "status 404", status)
    if status in (408, 409, 429):
        return BackendFailure("busy", f"status {status}", status)
    if status in (401, 403):
        return BackendFailure("server", f"status {status}: gateway.key was not accepted", status)
    if 400 <= status < 500:
        return BackendFailure("refused", f"status {status}", status)
    return BackendFailure("server", f"status {status}", status)  # also a redirect, which is not followed


async def _events(response: Any) -> AsyncIterator[list[bytes]]:
    """The `data:` of the events of a stream, up to DONE, those together that came together; a line that never ends is refused."""
    buffer, read = bytearray(), 0
    async for part in response.aiter_stream():
        read += len(part)
        buffer += part
        if read > MOST_BYTES:
            raise BackendFailure("unreadable", "the answer is too large")
        if (end := buffer.rfind(b"\n")) < 0:
            continue
        lines = bytes(buffer[:end]).split(b"\n")
        del buffer[: end + 1]
        events = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        if DONE in events:
            events = events[: events.index(DONE) + 1]
        if events:
            yield events


def _joined(events: Sequence[bytes], started: bool) -> Iterator[Delta]:
    """What the events add; pieces of plain text that came together are one. Text before an event that cannot be read counts,
    unless nothing has `started`: then another server can still give the whole answer."""
    text: list[str] = []
    for event in events:
        try:
            delta = None if event == DONE else _delta(event)
        except BackendFailure:
            if text and started:
                yield Delta("".join(text))
            raise
        if delta is not None and delta.is_plain:
            text.append(delta.text)
            continue
        if text:
            yield Delta("".join(text))
            text, started = [], True
        if delta is not None:
            started = True
            yield delta
    if text:
        yield Delta("".join(text))


def clean(text: str) -> str:
    """Without halves of characters, which JSON can write and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _finish(reason: object) -> str | None:
    return clean(reason) if isinstance(reason, str) and reason else None


def _delta(event: bytes) -> Delta:
    try:
        chunk = json.loads(event)
        if chunk.get("error"):
            raise BackendFailure("died", "the server reported an error")
        usage = chunk.get("usage")
        choices = chunk.get("choices") or []
        if not choices:
            return Delta(usage=usage if isinstance(usage, dict) else None)
        delta = choices[0].get("delta") or {}
        text, reasoning = delta.get("content") or "", delta.get("reasoning_content") or delta.get("reasoning") or ""
        if not isinstance(text, str) or not isinstance(reasoning, str):
            raise TypeError
        finish = _finish(choices[0].get("finish_reason"))
        calls = tuple(entry for entry in delta.get("tool_calls") or () if isinstance(entry, dict))
        return Delta(clean(text), clean(reasoning), finish, usage if isinstance(usage, dict) else None, calls)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BackendFailure("unreadable", "not an event of a chat completion") from None


def with_reasoning(message: Json) -> str:
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    content = message.get("content") or ""
    return f"<think>{reasoning}</think>\n{content}" if isinstance(reasoning, str) and reasoning else content


class Reasoning:
    """Puts reasoning that a server sends apart into `<think>`, where everything else looks for it."""

    def __init__(self) -> None:
        self._inside = False

    def of(self, reasoning: str, text: str) -> str:
        opening = "<think>" if reasoning and not self._inside else ""
        self._inside = self._inside or bool(reasoning)
        return opening + reasoning + (self.close() if text else "") + text

    def close(self) -> str:
        closing, self._inside = "</think>\n" if self._inside else "", False
        return closing
