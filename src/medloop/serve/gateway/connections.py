"""Open connections to one model server, the last used first. Cheaper than httpcore's pool, which looks at all connections of all
servers before and after each request."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import certifi
import httpcore

MOST_IDLE = 64
IDLE_S = 4.0  # below the five seconds after which model servers close an idle connection


class ConnectionStack:
    """For one event loop. How many requests run at once is limited by the gateway (`gateway.at_once`)."""

    def __init__(self, network: httpcore.AsyncNetworkBackend) -> None:
        self._network, self._idle = network, list[httpcore.AsyncHTTPConnection]()
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    @asynccontextmanager
    async def stream(self, request: httpcore.Request) -> AsyncIterator[httpcore.Response]:
        """The response, its body still to be read; the connection is kept if the body was read to its end."""
        connection = await self._take(request.url.origin)
        try:
            response = await connection.handle_async_request(request)
            try:
                yield response
            finally:
                with anyio.CancelScope(shield=True):  # a reader who leaves cancels every further await, and a socket stays open
                    await response.aclose()
        finally:
            if connection.is_idle() and not connection.is_closed() and not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
            else:
                with anyio.CancelScope(shield=True):
                    await connection.aclose()

    async def request(self, request: httpcore.Request) -> httpcore.Response:
        """The response with its whole body."""
        async with self.stream(request) as response:
            await response.aread()
        return response

    async def aclose(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()

    async def _take(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_available() and not connection.has_expired():
                return connection
            await connection.aclose()
        more: dict[str, Any] = {"ssl_context": self._context()} if origin.scheme == b"https" else {}
        return httpcore.AsyncHTTPConnection(origin, keepalive_expiry=IDLE_S, network_backend=self._network, **more)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=certifi.where())
        return self._tls
