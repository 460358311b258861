"""Streams of answers that end well: in time, with a failure of one type, and also if nobody reads them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from medloop.serve.gateway.backends import BackendReply, Deltas
from medloop.serve.gateway.wire import BackendFailure

log = logging.getLogger(__name__)
Opening = asyncio.Task[BackendReply[Deltas]]


class ReaderTooSlowError(Exception):
    """The answer took too long because of its reader, not of the model."""


class AnswerEvents:
    """The events of one answer. `aclose` has to be called: a generator that was never begun runs no line of its own."""

    def __init__(self, events: AsyncGenerator[bytes], unread: Callable[[], Awaitable[None]]) -> None:
        self._events, self._unread = events, unread
        self._is_begun = self._is_over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self._is_begun = True
        return await anext(self._events)

    async def aclose(self) -> None:
        was_over, self._is_over = self._is_over, True
        await self._events.aclose()
        if not self._is_begun and not was_over:
            await self._unread()


@asynccontextmanager
async def asking(deadline_s: float) -> AsyncIterator[None]:
    """Whatever goes wrong in here is a BackendFailure, so that notice, trace and count stay."""
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except BackendFailure:
        raise
    except TimeoutError:
        raise BackendFailure("timeout", "the answer took too long") from None
    except Exception as error:  # never its text: it may hold what people wrote
        log.error("an answer failed in the gateway: %s", type(error).__name__)
        raise BackendFailure("internal", type(error).__name__) from None


async def close_stream(opening: Opening, stack: AsyncExitStack) -> None:
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await stack.aclose()


def check_time(deadline_s: float, spent_s: float, model_s: float, reader_s: float) -> None:
    """A stream that is over its time, by its model or by its reader."""
    if max(model_s, spent_s - reader_s) > deadline_s:
        raise BackendFailure("timeout", "the answer took too long")
    if spent_s > deadline_s:
        raise ReaderTooSlowError
