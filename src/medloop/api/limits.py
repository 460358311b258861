"""How much at once: a bound on requests in flight, shed before anything is parsed; a token bucket per key; a full queue of jobs.

A server that is asked for more than it can do must refuse cheaply, else refusing becomes its work. `Gate` stands before the
guard and the routes: when as many writes are in flight as the writer can hold, the next gets a ready-made 503 with Retry-After
(`SHED`; patience.py sends it before there is a task for the request, at a third of the cost).
`Buckets` gives each key its rate; a key over it gets 429 and the seconds until its next token. An import costs by its lines: the
writer has the same work with them as with single requests. `one_more` bounds the training jobs that wait, per person and for all.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from medloop.errors import MedloopError

WRITES = ("/api/v1/rlhf/", "/api/v1/traces")
MOST_BUCKETS = 10_000
LINES_PER_TOKEN, BYTES_PER_TOKEN = 5, 16 * 1024
FULL_QUEUE_S = 60  # a place in the queue of jobs comes free after minutes, not seconds


@dataclass(frozen=True)
class Limits:
    """`rate` requests per second and key, twice that in one burst; `in_flight` writes at once, all keys together."""

    rate: float = 200.0
    in_flight: int = 256


class TooFastError(MedloopError):
    """429: this key has used up its rate."""

    def __init__(self, wait_s: float) -> None:
        self.retry_after = max(1, math.ceil(wait_s))
        super().__init__("This key sends more than its rate", f"Wait {self.retry_after} s and send it again")


class FullQueueError(TooFastError):
    """429: as many jobs wait as may."""

    def __init__(self, what: str) -> None:
        MedloopError.__init__(self, what, f"Cancel one, or send it again after {FULL_QUEUE_S} s")
        self.retry_after = FULL_QUEUE_S


def cost_of(body: bytes) -> float:
    """Tokens of an import: as many as its lines or its bytes are worth, one at least."""
    return max(1.0, body.count(b"\n") / LINES_PER_TOKEN, len(body) / BYTES_PER_TOKEN)


class Buckets:
    """A token bucket per key; a request takes one token, an import what `cost_of` says."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        assert rate > 0
        self.rate, self.most, self.clock = rate, 2 * rate, clock
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> (tokens, when)

    def take(self, key: str, tokens: float = 1.0, *, taken: float = 0.0) -> None:
        """TooFastError when the bucket is empty. What costs more than a full bucket takes all of it; `taken` is paid already."""
        now = self.clock()
        held, at = self._held.get(key, (self.most, now))
        held = min(self.most, held + (now - at) * self.rate)
        tokens = min(tokens, self.most) - taken
        if held < tokens:
            raise TooFastError((tokens - held) / self.rate)
        self._held[key] = (held - tokens, now)
        self._held.move_to_end(key)
        while len(self._held) > MOST_BUCKETS:  # the one that was quiet longest is full again anyway, or soon
            self._held.popitem(last=False)


_COUNTING = threading.Lock()  # between counting and queueing nobody else may come in


@contextmanager
def one_more(person: str, waiting: Callable[[], Iterable[str]], *, each: int, in_all: int) -> Iterator[None]:
    """Queue a job inside; `waiting` names whose each job is that waits now. FullQueueError when there is no place."""
    with _COUNTING:
        whose = list(waiting())
        if (own := whose.count(person)) >= each:
            raise FullQueueError(f"{own} of your jobs wait already, {each} may")
        if len(whose) >= in_all:
            raise FullQueueError(f"{len(whose)} jobs wait already, {in_all} may")
        yield


_BODY = json.dumps(
    {"error": "The server has as much to do as it can.", "hint": "Send it again after the seconds of Retry-After."}
).encode()
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_BODY)).encode()),
    (b"retry-after", b"1"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
SHED = b"".join([b"HTTP/1.1 503 Service Unavailable\r\n", *(b"%s: %s\r\n" % pair for pair in _HEADERS), b"\r\n", _BODY])


@dataclass
class Flight:
    """The writes under way in one server."""

    most: int
    now: int = 0

    def is_full_for(self, scope: Any) -> bool:
        return self.now >= self.most and is_write(scope)


def is_write(scope: Any) -> bool:
    return bool(scope["type"] == "http" and scope["method"] == "POST" and scope["path"].startswith(WRITES))


class Gate:
    """Counts the writes in flight and turns away those over the bound; everything else passes untouched."""

    def __init__(self, app: Any, flight: Flight) -> None:
        self.app, self.flight = app, flight

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not is_write(scope):
            await self.app(scope, receive, send)
            return
        if self.flight.is_full_for(scope):
            await send({"type": "http.response.start", "status": 503, "headers": list(_HEADERS)})
            await send({"type": "http.response.body", "body": _BODY})
            return
        self.flight.now += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.flight.now -= 1
