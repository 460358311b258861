"""How long and how large the head of a request may be. uvicorn itself waits for ever, and keeps what it has read so far.

    uvicorn.Config(app, http=Patient)

A body has its limits in guard.py; here it is what comes before there is a request: a connection that says nothing, headers that
come letter by letter (slowloris), headers without an end. Each of them would hold a connection, and with enough of them everybody
else gets a 503. And a write that finds the server full is turned away here: a task for each would cost as much as they ask for.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from medloop.api.limits import SHED, Flight
from medloop.api.metrics import NO_ROUTE, HttpCounts

HEAD_S = 10.0
HEAD_BYTES = 64 * 1024  # beyond what was read together with the last of it


class Patient(HttpToolsProtocol):
    """Closes the connection when a request's head is not whole in time, or too large."""

    _reading_head = False
    _whole = False  # the last request has come to its end, whatever became of it
    _seen = 0
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._flight: Flight = config.app.state.flight
        self._counts: HttpCounts = config.app.state.http_counts

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._whole or (self.cycle is not None and not self.cycle.response_complete):
            self._calm_down()
            return
        self._begin()
        self._seen += len(data) if self._reading_head else 0
        if self._seen > HEAD_BYTES:
            self._give_up()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        plain = cycle.keep_alive and not cycle.waiting_for_100_continue and not self.pipeline
        if not (plain and self._flight.is_full_for(cycle.scope)):
            super()._start_asgi_task(cycle, app)
            return
        self._counts.add("POST", NO_ROUTE, 503, 0.0)
        self.transport.write(SHED)
        cycle.response_started = cycle.response_complete = True  # what still comes of its body is passed over
        self.on_response_complete()

    def on_message_begin(self) -> None:
        self._reading_head, self._seen, self._whole = True, 0, False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._reading_head = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm_down()
        super().connection_lost(exc)

    def _begin(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEAD_S, self._give_up)

    def _calm_down(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._calm_down()
        self.transport.close()
