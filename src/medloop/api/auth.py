"""Who is calling: looks up the API key or session of a request, with a one-second cache in front of the store.

A change made by this process (`forget`) takes effect with the next request; one made by another process, within a second.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Literal

from starlette.concurrency import run_in_threadpool

from medloop.errors import MedloopError
from medloop.store.db import Store
from medloop.store.records import users
from medloop.store.records.users import Credential
from medloop.store.records.write_request import OverloadedError

CredentialKind = Literal["key", "session"]

log = logging.getLogger("medloop.api")

CACHE_S = 1.0
CACHE_SIZE = 10_000  # valid credentials only, so guessing fills nothing
STRANGERS = 4  # threads that look up credentials which are not in the cache
ATTEMPTS_PER_NAME, ATTEMPTS_PER_ADDRESS, ATTEMPTS_EVERYWHERE, ATTEMPTS_S = 5, 30, 30, 60.0  # logins
LOGINS_WAITING = 32  # for the one whose password is checked: a check takes a core for a third of a second


class Authenticator:
    """Looks up credentials in one open store."""

    def __init__(self, store: Store, *, cache_s: float = CACHE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self.cache_s, self.clock = store, cache_s, clock
        self.attempts = LoginAttempts(clock)
        self._checking, self._logins = asyncio.Semaphore(1), 0
        self._cache: OrderedDict[tuple[CredentialKind, str], tuple[float, Credential]] = OrderedDict()
        self._pending: dict[tuple[CredentialKind, str], asyncio.Future[Credential | None]] = {}
        self._strangers = asyncio.Semaphore(STRANGERS)
        self._changes = 0
        self._lock = threading.Lock()

    async def look_up(self, kind: CredentialKind, text: str) -> Credential | None:
        """From the cache, else from the store in a thread; simultaneous requests with one key read the store once."""
        name = (kind, users.digest(text))
        if (credential := self._recent(name)) is not None:
            return credential
        pending = self._pending.get(name)
        if pending is None:
            pending = self._pending[name] = asyncio.ensure_future(self._read(name, text))
            pending.add_done_callback(lambda done: self._finish(name, done))
        return await asyncio.shield(pending)  # a request that is cancelled does not cancel the others

    def recent(self, kind: CredentialKind, text: str) -> Credential | None:
        """From the cache alone."""
        return self._recent((kind, users.digest(text)))

    def _recent(self, name: tuple[CredentialKind, str]) -> Credential | None:
        cached_at, credential = self._cache.get(name, (0.0, None))
        return credential if credential is not None and self.clock() - cached_at < self.cache_s else None

    async def _read(self, name: tuple[CredentialKind, str], text: str) -> Credential | None:
        """One that was valid a moment ago is read at once; unknown ones wait for one another, so that guessing delays nobody."""
        if name in self._cache:
            return await run_in_threadpool(self.find, name[0], text)
        async with self._strangers:
            return await run_in_threadpool(self.find, name[0], text)

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

    async def check_password(self, name: str, password: str) -> users.User | None:
        """The user if they may log in with this password. One at a time, so that a flood of logins leaves time for the others."""
        if self._logins >= LOGINS_WAITING:
            raise OverloadedError("Too many people are logging in", "Try again in a moment")
        self._logins += 1
        try:
            async with self._checking:
                return await run_in_threadpool(users.check_password, self.store, name, password)
        finally:
            self._logins -= 1

    def forget(self) -> None:
        """Empty the cache; call it after every change to users, keys or sessions."""
        with self._lock:
            self._changes += 1
            self._cache.clear()
            self._pending.clear()  # nor may a later request wait for a result that was read before the change


class LoginAttempts:
    """Limits failed logins in a minute: five for a name at one address, thirty for an address, thirty for a name everywhere.

    The last one slows down those who guess from many addresses; it spares the addresses from which that name has logged in. An
    empty address is shared by many people (client_address.py), so only the name counts there: nobody can lock out the others.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._times: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()  # where a name has logged in

    def allowed(self, name: str, address: str) -> bool:
        """Count one more attempt; False when it exceeds a limit."""
        now = self.clock()
        recent = [(self._recent(key, now), limit) for key, limit in self._limits(name, address).items()]
        if any(len(times) >= limit for times, limit in recent):
            return False
        for times, _ in recent:
            times.append(now)
        return True

    def succeeded(self, name: str, address: str) -> None:
        """Only failures count: a whole hospital may log in from one address."""
        for key in self._limits(name, address):
            if times := self._times.get(key):
                times.pop()
        self._times.pop((name, address), None)
        self._known[name, address] = None
        self._known.move_to_end((name, address))
        _drop_oldest(self._known)

    def _limits(self, name: str, address: str) -> dict[tuple[str, ...], int]:
        limits: dict[tuple[str, ...], int] = {(name, address): ATTEMPTS_PER_NAME}
        if address:
            limits["address", address, ""] = ATTEMPTS_PER_ADDRESS
            if (name, address) not in self._known:
                limits["name", name, ""] = ATTEMPTS_EVERYWHERE
        return limits

    def _recent(self, key: tuple[str, ...], now: float) -> deque[float]:
        times = self._times.setdefault(key, deque())
        self._times.move_to_end(key)
        while times and now - times[0] >= ATTEMPTS_S:
            times.popleft()
        _drop_oldest(self._times)
        return times


def _drop_oldest(entries: OrderedDict[Any, Any]) -> None:
    """Oldest first, so invented names cannot fill the memory."""
    while len(entries) > CACHE_SIZE:
        entries.popitem(last=False)
