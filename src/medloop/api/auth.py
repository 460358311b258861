"""Who is calling: the key or the session of a request, found in the store, with a second of memory in front of it.

What this process changes (`forget`) counts from the next request on; what another one changes, one second later at most.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Literal

from starlette.concurrency import run_in_threadpool

from medloop.errors import MedloopError
from medloop.store.db import Store
from medloop.store.records import users
from medloop.store.records.users import Credential

Kind = Literal["key", "session"]

log = logging.getLogger("medloop.api")

MEMORY_S = 1.0
MEMORY_N = 10_000  # good ones only: guessing fills nothing
TRIES_PER_NAME, TRIES_PER_ADDRESS, TRIES_S = 5, 30, 60.0  # logins


class Access:
    """The credentials of one open store."""

    def __init__(self, store: Store, *, memory_s: float = MEMORY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self.memory_s, self.clock = store, memory_s, clock
        self.tries = Tries(clock)
        self._known: OrderedDict[tuple[Kind, str], tuple[float, Credential]] = OrderedDict()
        self._asked: dict[tuple[Kind, str], asyncio.Future[Credential | None]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    async def look_up(self, kind: Kind, text: str) -> Credential | None:
        """Remembered, else found in a thread; requests of one key that come together ask the store once."""
        name = (kind, users.digest(text))
        at, found = self._known.get(name, (0.0, None))
        if found is not None and self.clock() - at < self.memory_s:
            return found
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.ensure_future(run_in_threadpool(self.find, kind, text))
            asked.add_done_callback(lambda done: self._answered(name, done))
        return await asyncio.shield(asked)  # one request that goes away does not take the others with it

    def _answered(self, name: tuple[Kind, str], done: object) -> None:
        if self._asked.get(name) is done:
            del self._asked[name]

    def find(self, kind: Kind, text: str) -> Credential | None:
        """From the store: a key by its text, a session by its token."""
        changes, now = self._changes, self.clock()
        found = users.find_key(self.store, text) if kind == "key" else users.find_session(self.store, text)
        if found is None:
            return None
        if found.stale:
            try:
                users.seen(self.store, found, text)
            except MedloopError as error:  # the time of the last use is not worth refusing a request
                log.warning("when %s %s was last used is not written: %s", kind, found.id, type(error).__name__)
        with self._lock:
            if changes == self._changes:  # else it may have been read just before it was withdrawn
                self._known[kind, users.digest(text)] = (now, found)
            while len(self._known) > MEMORY_N:
                self._known.popitem(last=False)
        return found

    def forget(self) -> None:
        """After every change to users, keys or sessions."""
        with self._lock:
            self._changes += 1
            self._known.clear()
            self._asked.clear()  # nor may a later request wait for an answer that was read before the change


class Tries:
    """How often somebody may try to log in: five times a minute under one name, thirty from one address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._seen: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def allowed(self, name: str, address: str) -> bool:
        """Count one more try; False when it is one too many."""
        now = self.clock()
        places = (((name, address), TRIES_PER_NAME), ((address,), TRIES_PER_ADDRESS))
        before = [(self._recent(key, now), most) for key, most in places]
        if any(len(times) >= most for times, most in before):
            return False
        for times, _ in before:
            times.append(now)
        return True

    def succeeded(self, name: str, address: str) -> None:
        """Only failures count: a whole hospital may come from one address."""
        self._seen.pop((name, address), None)
        if from_there := self._seen.get((address,)):
            from_there.pop()

    def _recent(self, key: tuple[str, ...], now: float) -> deque[float]:
        times = self._seen.setdefault(key, deque())
        self._seen.move_to_end(key)
        while times and now - times[0] >= TRIES_S:
            times.popleft()
        while len(self._seen) > MEMORY_N:  # the longest unused first; made-up names cannot fill the memory
            self._seen.popitem(last=False)
        return times
