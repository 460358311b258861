"""How much at once: requests with a body for the whole server and each caller, requests per key, jobs that wait in the queue.

`RequestSlots` counts the requests with a body that are being read or worked on. A caller who would take more than their share
gets a ready-made 503 with Retry-After (admission.py). An overloaded server must refuse cheaply, or refusing becomes its work: for
a key that was seen a moment ago, slow_clients.py sends that response before a task for the request exists, for a third of it.
`RateLimiter` gives each key its rate; a key above it gets 429 and the seconds until its next token. An import costs by its lines,
because the writer has as much work with them as with single requests. `queue_place` limits the jobs that wait.
"""

import json
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from medloop.errors import MedloopError

SLOT_BYTES = 256 * 1024  # of one body; the memory for bodies is at most this times the slots
SHARE = 3  # slots that one caller may hold, for each that is free
MAX_BUCKETS = 10_000
LINES_PER_TOKEN, BYTES_PER_TOKEN = 5, 16 * 1024
QUEUE_RETRY_S = 60  # a place in the job queue becomes free after minutes, not seconds


@dataclass(frozen=True)
class RequestLimits:
    """`rate` requests per second and key, twice that in one burst; `in_flight` requests with a body at once, all together."""

    rate: float = 200.0
    in_flight: int = 256


class RateLimitError(MedloopError):
    """429: this key has used up its rate."""

    def __init__(self, wait_s: float) -> None:
        self.retry_after = max(1, math.ceil(wait_s))
        super().__init__("Too many requests with this key", f"Wait {self.retry_after} s and send it again")


@contextmanager
def heavy_read() -> Iterator[None]:
    """One reading at a time of what takes seconds of processor time; RateLimitError for the others, who would all wait."""
    if not _HEAVY.acquire(blocking=False):
        raise RateLimitError(1.0)
    try:
        yield
    finally:
        _HEAVY.release()


_HEAVY = threading.Lock()


class QueueFullError(RateLimitError):
    """429: as many jobs are waiting as the limit allows."""

    def __init__(self, what: str) -> None:
        MedloopError.__init__(self, what, f"Cancel one, or send it again after {QUEUE_RETRY_S} s")
        self.retry_after = QUEUE_RETRY_S


def import_cost(body: bytes) -> float:
    """Tokens of an import, by its lines or its bytes, whichever is more; at least one."""
    return max(1.0, body.count(b"\n") / LINES_PER_TOKEN, len(body) / BYTES_PER_TOKEN)


class RateLimiter:
    """A token bucket per key. A request takes one token, an import as many as `import_cost` says."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        assert rate > 0
        self.rate, self.capacity, self.clock = rate, 2 * rate, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> (tokens, time)

    def take(self, key: str, tokens: float = 1.0, *, already_taken: float = 0.0) -> None:
        """RateLimitError when too few tokens are left. What costs more than a full bucket takes the whole bucket."""
        now = self.clock()
        left, updated = self._buckets.get(key, (self.capacity, now))
        left = min(self.capacity, left + (now - updated) * self.rate)
        tokens = min(tokens, self.capacity) - already_taken
        if left < tokens:
            raise RateLimitError((tokens - left) / self.rate)
        self._buckets[key] = (left - tokens, now)
        self._buckets.move_to_end(key)
        while len(self._buckets) > MAX_BUCKETS:  # the least recently used one is full again by now, or soon
            self._buckets.popitem(last=False)


_COUNTING = threading.Lock()  # from counting to queueing, so that nobody else takes the same place


@contextmanager
def queue_place(person: str, waiting: Callable[[], Iterable[str]], *, each: int, in_all: int) -> Iterator[None]:
    """Queue a job inside. `waiting` yields the submitter of each waiting job; QueueFullError when the limit is reached."""
    with _COUNTING:
        submitters = list(waiting())
        if (own := submitters.count(person)) >= each:
            raise QueueFullError(f"You already have {own} jobs waiting; the limit is {each}")
        if len(submitters) >= in_all:
            raise QueueFullError(f"{len(submitters)} jobs are already waiting; the limit is {in_all}")
        yield


_BODY = json.dumps(
    {"error": "The server is overloaded.", "hint": "Send it again after the seconds given in Retry-After."}
).encode()
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_BODY)).encode()),
    (b"retry-after", b"1"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
OVERLOADED_RESPONSE = b"".join(
    [b"HTTP/1.1 503 Service Unavailable\r\n", *(b"%s: %s\r\n" % pair for pair in _HEADERS), b"\r\n", _BODY]
)


async def send_overloaded(send: Any) -> None:
    """The same response through ASGI."""
    await send({"type": "http.response.start", "status": 503, "headers": list(_HEADERS)})
    await send({"type": "http.response.body", "body": _BODY})


class RequestSlots:
    """The requests with a body that one server works on at once, one slot for each SLOT_BYTES of body.

    No caller takes all: a caller holds at most SHARE times as many slots as are free. One alone may have three quarters of them,
    two have three sevenths each, and whoever comes next always finds some. Each of the `holders` of a request has that share.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._held: Counter[str] = Counter()

    def has_room(self, holders: Sequence[str], slots: int = 1) -> bool:
        left = self.limit - self.taken - min(slots, self.limit)
        fair = SHARE * left + SHARE - 1  # rounded up, so that two slots are not too few for a caller alone
        return left >= 0 < self.limit and all(not (held := self._held[name]) or held + slots <= fair for name in holders)

    @contextmanager
    def holding(self, holders: Sequence[str], slots: int = 1) -> Iterator[None]:
        slots = min(slots, self.limit)  # what needs more than there are takes all, if nobody else has any
        self.taken += slots
        self._held.update(dict.fromkeys(holders, slots))
        try:
            yield
        finally:
            self.taken -= slots
            for name in holders:
                self._held[name] -= slots
                if not self._held[name]:
                    del self._held[name]


def slots_of(content_length: str | None, limit: int) -> int:
    """The slots for a body of this length; for one without a length, those of the largest that is accepted."""
    size = int(content_length) if content_length is not None and content_length.isdigit() else limit
    return max(1, math.ceil(size / SLOT_BYTES))
