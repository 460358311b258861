"""Limits how long and how large the head of a request may be. uvicorn itself waits forever and keeps what it has read so far.

    uvicorn.Config(app, http=SlowClientProtocol)

Bodies have their limits in request_filter.py. This is about what comes before there is a request: a silent connection, headers
sent letter by letter (slowloris), headers without an end. Each would hold a connection, and with enough of them everybody else
gets a 503. A write that finds the server full is refused here too: a task for each would cost as much as the write itself.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from medloop.api.limits import OVERLOADED_RESPONSE, WritesInFlight
from medloop.api.metrics import NO_ROUTE, HttpCounts

HEAD_S = 10.0
HEAD_BYTES = 64 * 1024  # beyond what was read together with the last of it


class SlowClientProtocol(HttpToolsProtocol):
    """Closes the connection when the head of a request is too large, or not complete in time."""

    _reading_head = False
    _complete = False  # the last request was received to its end, whatever the answer
    _head_bytes = 0
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._writes: WritesInFlight = config.app.state.writes
        self._counts: HttpCounts = config.app.state.http_counts

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._complete or (self.cycle is not None and not self.cycle.response_complete):
            self._stop_timer()
            return
        self._start_timer()
        self._head_bytes += len(data) if self._reading_head else 0
        if self._head_bytes > HEAD_BYTES:
            self._close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        simple = cycle.keep_alive and not cycle.waiting_for_100_continue and not self.pipeline
        if not (simple and self._writes.is_full_for(cycle.scope)):
            super()._start_asgi_task(cycle, app)
            return
        self._counts.add("POST", NO_ROUTE, 503, 0.0)
        self.transport.write(OVERLOADED_RESPONSE)
        cycle.response_started = cycle.response_complete = True  # the rest of its body is ignored
        self.on_response_complete()

    def on_message_begin(self) -> None:
        self._reading_head, self._head_bytes, self._complete = True, 0, False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._complete = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._reading_head = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEAD_S, self._close)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._stop_timer()
        self.transport.close()
