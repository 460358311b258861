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
    UnsentError,
)

DEADLINE_S, TIMEOUT_S = 30.0, 10.0


class Client:
    """For plain code. Safe to share between threads; close it, or use it in a `with`."""

    def __init__(
        self, url: str, key: str, *, deadline: float = DEADLINE_S, timeout: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.deadline = deadline
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout, transport=transport, trust_env=False
        )

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
        started, last = time.monotonic(), "no try"
        for pause in wire.pauses(self.deadline):
            try:
                answer = self._http.post(call.path, json=call.body, headers=call.headers)
                found = wire.receipt(answer, call)
                if isinstance(found, Receipt):
                    return found
                last, pause = f"the server answered {answer.status_code}", max(found, pause)
            except httpx.TransportError as error:
                last = type(error).__name__
            time.sleep(max(0.0, min(pause, started + self.deadline - time.monotonic())))
        raise UnsentError(call.key, time.monotonic() - started, last)


class AsyncClient:
    """For code in an event loop."""

    def __init__(
        self, url: str, key: str, *, deadline: float = DEADLINE_S, timeout: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.deadline = deadline
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout, transport=transport, trust_env=False
        )

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
        started, last = time.monotonic(), "no try"
        for pause in wire.pauses(self.deadline):
            try:
                answer = await self._http.post(call.path, json=call.body, headers=call.headers)
                found = wire.receipt(answer, call)
                if isinstance(found, Receipt):
                    return found
                last, pause = f"the server answered {answer.status_code}", max(found, pause)
            except httpx.TransportError as error:
                last = type(error).__name__
            await asyncio.sleep(max(0.0, min(pause, started + self.deadline - time.monotonic())))
        raise UnsentError(call.key, time.monotonic() - started, last)
