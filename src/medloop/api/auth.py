"""Who is calling: looks up the API key or session of a request, with a one-second cache in front of the store.

A change made by this process (`forget`) takes effect with the next request; one made by another process, within a second.
"""

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

CredentialKind = Literal["key", "session"]

log = logging.getLogger("medloop.api")

CACHE_S = 1.0
CACHE_SIZE = 10_000  # valid credentials only, so guessing fills nothing
ATTEMPTS_PER_NAME, ATTEMPTS_PER_ADDRESS, ATTEMPTS_S = 5, 30, 60.0  # logins


class Authenticator:
    """Looks up credentials in one open store."""

    def __init__(self, store: Store, *, cache_s: float = CACHE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self.cache_s, self.clock = store, cache_s, clock
        self.attempts = LoginAttempts(clock)
        self._cache: OrderedDict[tuple[CredentialKind, str], tuple[float, Credential]] = OrderedDict()
        self._pending: dict[tuple[CredentialKind, str], asyncio.Future[Credential | None]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    async def look_up(self, kind: CredentialKind, text: str) -> Credential | None:
        """From the cache, else from the store in a thread; simultaneous requests with one key read the store once."""
        name = (kind, users.digest(text))
        cached_at, credential = self._cache.get(name, (0.0, None))
        if credential is not None and self.clock() - cached_at < self.cache_s:
            return credential
        pending = self._pending.get(name)
        if pending is None:
            pending = self._pending[name] = asyncio.ensure_future(run_in_threadpool(self.find, kind, text))
            pending.add_done_callback(lambda done: self._finish(name, done))
        return await asyncio.shield(pending)  # a request that is cancelled does not cancel the others

    def _finish(self, name: tuple[CredentialKind, str], done: object) -> None:
        if self._pending.get(name) is done:
            del self._pending[name]

    def find(self, kind: CredentialKind, text: str) -> Credential | None:
        """From the store: a key by its text, a session by its token."""
        changes, now = self._changes, self.clock()
        credential = users.find_key(self.store, text) if kind == "key" else users.find_session(self.store, text)
        if credential is None:
            return None
        if credential.stale:
            try:
                users.mark_used(self.store, credential, text)
            except MedloopError as error:  # a failed bookkeeping write is no reason to refuse the request
                log.warning("could not record the last use of %s %s: %s", kind, credential.id, type(error).__name__)
        with self._lock:
            if changes == self._changes:  # otherwise it may have been read just before it was revoked
                self._cache[kind, users.digest(text)] = (now, credential)
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return credential

    def forget(self) -> None:
        """Empty the cache; call it after every change to users, keys or sessions."""
        with self._lock:
            self._changes += 1
            self._cache.clear()
            self._pending.clear()  # nor may a later request wait for a result that was read before the change


class LoginAttempts:
    """Limits failed logins: five a minute per name, thirty per address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._times: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def allowed(self, name: str, address: str) -> bool:
        """Count one more attempt; False when it exceeds a limit."""
        now = self.clock()
        limits = (((name, address), ATTEMPTS_PER_NAME), ((address,), ATTEMPTS_PER_ADDRESS))
        recent = [(self._recent(key, now), limit) for key, limit in limits]
        if any(len(times) >= limit for times, limit in recent):
            return False
        for times, _ in recent:
            times.append(now)
        return True

    def succeeded(self, name: str, address: str) -> None:
        """Only failures count: a whole hospital may log in from one address."""
        self._times.pop((name, address), None)
        if from_address := self._times.get((address,)):
            from_address.pop()

    def _recent(self, key: tuple[str, ...], now: float) -> deque[float]:
        times = self._times.setdefault(key, deque())
        self._times.move_to_end(key)
        while times and now - times[0] >= ATTEMPTS_S:
            times.popleft()
        while len(self._times) > CACHE_SIZE:  # oldest first, so invented names cannot fill the memory
            self._times.popitem(last=False)
        return times
