"""`Client` and `AsyncClient`: the same calls, one with `await`."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self, Unpack

import httpx

from medloop.client import wire
from medloop.client.wire import (
    Call,
    CorrectionFields,
    FeedbackFields,
    PreferenceFields,
    Receipt,
    TraceFields,
)

DEADLINE_S, TIMEOUT_S = 30.0, 10.0


class Client:
    """For plain code. Safe to share between threads; close it, or use it in a `with`."""

    def __init__(
        self, url: str, key: str, *, deadline: float = DEADLINE_S, timeout: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.deadline, self.timeout = deadline, timeout
        self._http = httpx.Client(**wire.door(url, key), transport=transport)

    def log_trace(self, **said: Unpack[TraceFields]) -> str:
        """Log one exchange; the trace_id is what ratings name."""
        return self._send(wire.trace(said)).id

    def feedback(self, **said: Unpack[FeedbackFields]) -> Receipt:
        """Rate an answer: thumb, stars, axes, comment, golden answer, the critical flag."""
        return self._send(wire.feedback(said))

    def preference(self, **said: Unpack[PreferenceFields]) -> Receipt:
        """Say which of two answers is better."""
        return self._send(wire.preference(said))

    def correction(self, **said: Unpack[CorrectionFields]) -> Receipt:
        """Give the answer that should have been given."""
        return self._send(wire.correction(said))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, call: Call) -> Receipt:
        tries = wire.Tries(self.deadline, self.timeout)
        while True:
            asked_s = 0.0
            try:
                answer = self._http.post(call.path, json=call.body, headers=call.headers, timeout=tries.timeout())
                found = wire.receipt(answer, call)
                if isinstance(found, Receipt):
                    return found
                tries.last, asked_s = f"the server answered {answer.status_code}", found
            except httpx.RequestError as error:
                tries.last = type(error).__name__
            time.sleep(tries.pause(call, asked_s))


class AsyncClient:
    """For code in an event loop."""

    def __init__(
        self, url: str, key: str, *, deadline: float = DEADLINE_S, timeout: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.deadline, self.timeout = deadline, timeout
        self._http = httpx.AsyncClient(**wire.door(url, key), transport=transport)

    async def log_trace(self, **said: Unpack[TraceFields]) -> str:
        """Log one exchange; the trace_id is what ratings name."""
        return (await self._send(wire.trace(said))).id

    async def feedback(self, **said: Unpack[FeedbackFields]) -> Receipt:
        """Rate an answer: thumb, stars, axes, comment, golden answer, the critical flag."""
        return await self._send(wire.feedback(said))

    async def preference(self, **said: Unpack[PreferenceFields]) -> Receipt:
        """Say which of two answers is better."""
        return await self._send(wire.preference(said))

    async def correction(self, **said: Unpack[CorrectionFields]) -> Receipt:
        """Give the answer that should have been given."""
        return await self._send(wire.correction(said))

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def _send(self, call: Call) -> Receipt:
        tries = wire.Tries(self.deadline, self.timeout)
        while True:
            asked_s = 0.0
            try:
                answer = await self._http.post(call.path, json=call.body, headers=call.headers, timeout=tries.timeout())
                found = wire.receipt(answer, call)
                if isinstance(found, Receipt):
                    return found
                tries.last, asked_s = f"the server answered {answer.status_code}", found
            except httpx.RequestError as error:
                tries.last = type(error).__name__
            await asyncio.sleep(tries.pause(call, asked_s))
