"""`Client` and `AsyncClient`: the same calls, one with `await`."""

import asyncio
import time
from types import TracebackType
from typing import Self, Unpack

import httpx

from medloop.client import wire
from medloop.client.wire import Call, CorrectionFields, FeedbackFields, PreferenceFields, Receipt, TraceFields, build_call

DEADLINE_S, TIMEOUT_S = 30.0, 10.0


class Client:
    """The synchronous client. It may be shared between threads; close it, or use it in a `with` block."""

    def __init__(
        self, url: str, key: str, *, deadline: float = DEADLINE_S, timeout: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.deadline, self.timeout = deadline, timeout
        self._http = httpx.Client(**wire.http_options(url, key), transport=transport)

    def log_trace(self, **fields: Unpack[TraceFields]) -> str:
        """Log one exchange; returns the trace_id that feedback refers to."""
        return self._send(build_call("trace", fields)).id

    def feedback(self, **fields: Unpack[FeedbackFields]) -> Receipt:
        """Rate an answer: thumb, stars, axes, comment, golden answer, the critical flag."""
        return self._send(build_call("feedback", fields))

    def preference(self, **fields: Unpack[PreferenceFields]) -> Receipt:
        """Say which of two answers is better."""
        return self._send(build_call("preference", fields))

    def correction(self, **fields: Unpack[CorrectionFields]) -> Receipt:
        """Submit the answer that should have been given."""
        return self._send(build_call("correction", fields))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, call: Call) -> Receipt:
        retries = wire.Retries(call, self.deadline, self.timeout)
        while True:
            try:
                if (receipt := retries.received(self._http.post(**retries.request()))) is not None:
                    return receipt
            except httpx.RequestError as error:
                retries.failed(error)
            time.sleep(retries.pause())


class AsyncClient:
    """The client for code in an event loop."""

    def __init__(
        self, url: str, key: str, *, deadline: float = DEADLINE_S, timeout: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.deadline, self.timeout = deadline, timeout
        self._http = httpx.AsyncClient(**wire.http_options(url, key), transport=transport)

    async def log_trace(self, **fields: Unpack[TraceFields]) -> str:
        """Log one exchange; returns the trace_id that feedback refers to."""
        return (await self._send(build_call("trace", fields))).id

    async def feedback(self, **fields: Unpack[FeedbackFields]) -> Receipt:
        """Rate an answer: thumb, stars, axes, comment, golden answer, the critical flag."""
        return await self._send(build_call("feedback", fields))

    async def preference(self, **fields: Unpack[PreferenceFields]) -> Receipt:
        """Say which of two answers is better."""
        return await self._send(build_call("preference", fields))

    async def correction(self, **fields: Unpack[CorrectionFields]) -> Receipt:
        """Submit the answer that should have been given."""
        return await self._send(build_call("correction", fields))

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def _send(self, call: Call) -> Receipt:
        retries = wire.Retries(call, self.deadline, self.timeout)
        while True:
            try:
                if (receipt := retries.received(await self._http.post(**retries.request()))) is not None:
                    return receipt
            except httpx.RequestError as error:
                retries.failed(error)
            await asyncio.sleep(retries.pause())
