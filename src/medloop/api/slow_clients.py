"""What uvicorn leaves open below a request: how long and large its head may be, who loses a connection when all are taken.

    uvicorn.Config(app, http=SlowClientProtocol)

Bodies have their limits in admission.py. This is about what comes before there is a caller: a silent connection, headers sent
letter by letter (slowloris), headers without an end. Each would hold a connection, and with enough of them everybody else would
get a 503. So an unfinished head is closed after HEAD_S, and where there is no place for a new connection, the one that has waited
longest without a request is closed for it. Headers after a body (trailers) are dropped, and their size is limited, too.

Requests that come before the answer to the one before them (pipelining) wait their turn: a few of them, and nothing more is read
until they are answered. uvicorn would read on after each answer, and keep a request for every 20 bytes that somebody sends.

A request whose key holds its share of slots is refused here: a task for each would cost as much as the request itself.
"""

import asyncio
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from medloop.api.admission import holders_of
from medloop.api.limits import OVERLOADED_RESPONSE, RequestSlots
from medloop.api.metrics import NO_ROUTE, HttpCounts
from medloop.api.policy import bearer_key

HEAD_S = 10.0
HEAD_BYTES = 64 * 1024  # of a head, or of what comes around a body; beyond what was read together with the last of it
PIPELINED = 64  # requests that wait on one connection; it is closed when more come at once
CHUNK_BYTES = 8  # around each byte of a body that is sent in the smallest chunks


class PipelineFlow(FlowControl):
    """Reads on only when no request of the connection waits."""

    def __init__(self, transport: Any, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class SlowClientProtocol(HttpToolsProtocol):
    """Closes the connection when the head of a request is too large, or not complete in time."""

    _reading_head = False
    _complete = False  # the last request was received to its end, whatever the answer
    _bytes_left = HEAD_BYTES  # that may still come before something is complete, bodies not counted
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._state = config.app.state
        self._slots: RequestSlots = config.app.state.request_slots
        self._counts: HttpCounts = config.app.state.http_counts
        self._waiting: dict[SlowClientProtocol, None] = config.app.state.waiting_connections  # oldest first

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = PipelineFlow(transport, self.pipeline)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and self._waiting:
            oldest = next(iter(self._waiting))
            self.connections.discard(oldest)
            oldest._close()
        self._waiting[self] = None
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        super().data_received(data)
        if self._bytes_left < 0:
            self._close()
        elif self._complete or (self.cycle is not None and not self.cycle.response_complete):
            self._stop_timer()
        else:
            self._start_timer()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        simple = cycle.keep_alive and not cycle.waiting_for_100_continue and not self.pipeline
        if not (simple and self._is_over_its_share(cycle.scope)):
            super()._start_asgi_task(cycle, app)
            return
        self._counts.add("POST", NO_ROUTE, 503, 0.0)
        self.transport.write(OVERLOADED_RESPONSE)
        cycle.response_started = cycle.response_complete = True  # the rest of its body is ignored
        self.on_response_complete()

    def _is_over_its_share(self, scope: Any) -> bool:
        """Whether the key of a request with a body was seen a moment ago, and holds its share of slots."""
        if 2 * self._slots.taken < self._slots.limit or scope["method"] != "POST":
            return False
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        credential = self._state.authenticator.recent("key", bearer_key(header.decode("latin-1")))
        return credential is not None and not self._slots.has_room(holders_of(credential, ""))

    def on_message_begin(self) -> None:
        self._reading_head, self._bytes_left, self._complete = True, HEAD_BYTES, False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._reading_head, self._bytes_left = False, HEAD_BYTES
        self._waiting.pop(self, None)
        if len(self.pipeline) >= PIPELINED:
            self._close()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_left = min(HEAD_BYTES, self._bytes_left + (1 + CHUNK_BYTES) * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._complete, self._bytes_left = True, HEAD_BYTES
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._waiting[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.pop(self, None)
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
        self._waiting.pop(self, None)
        self._stop_timer()
        self.pipeline.clear()
        self.transport.close()
