"""The model servers behind the gateway: replicas of one assistant, and a fallback for when none of them answers.

    async with BackendPool(parse_backends("http://127.0.0.1:8001 http://127.0.0.1:8002"), ...) as pool:
        reply = await pool.complete(name, payload)              # `name`: the model that the live route names, or None
        reply = await pool.complete(name, payload, spare=True)  # the fallback instead of the replicas
        async with pool.stream(name, payload) as reply: ...     # `reply.deltas`, the first of them is there already

A request goes to the replica with the fewest requests. One that fails before its first byte is followed by another one; after
that the failure is the caller's to tell. A replica that fails three times in a row is left alone for a while (circuit breaker);
a look at `/v1/models` every few seconds finds out which ones live and which models they have.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from medloop.errors import ConfigError
from medloop.serve.gateway.addresses import CheckedNetwork, Network, check_url
from medloop.serve.gateway.connections import ConnectionStack
from medloop.serve.gateway.wire import BackendFailure, Delta, FailureKind, Json, ModelServer, WireTimeouts

log = logging.getLogger(__name__)
FAILURES = 3  # in a row, after which a replica is left alone
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
T = TypeVar("T")
Deltas = AsyncGenerator[Delta]


@dataclass(frozen=True)
class BackendAddress:
    """A URL, and the model to ask for where no route is live; empty: the first one that it serves."""

    url: str
    name: str = ""
    log: str = ""  # of a server that this process started itself


def parse_backends(text: str, networks: Iterable[Network] = ()) -> tuple[BackendAddress, ...]:
    """`URL[#NAME]`, separated by spaces or commas; ConfigError for what the gateway may not ask."""
    networks = tuple(networks)
    addresses = []
    for part in text.replace(",", " ").split():
        url, _, name = part.partition("#")
        addresses.append(BackendAddress(check_url(url, networks), name))
    if len({address.url for address in addresses}) != len(addresses):
        raise ConfigError("gateway.backends: one server is named twice", "Name each server once")
    return tuple(addresses)


@dataclass
class Backend:
    """One server, how it is doing, and what it has."""

    address: BackendAddress
    server: ModelServer
    is_fallback: bool = False
    models: tuple[str, ...] = ()
    in_flight: int = 0
    answered: int = 0
    failed: int = 0
    in_a_row: int = 0
    pause_until: float = 0.0
    last_failure: str = ""
    paused_for: FailureKind = "unreachable"
    was_seen: bool = False
    has_lived: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the circuit breaker keeps requests away."""
        return time.monotonic() < self.pause_until

    def name_for(self, wanted: str | None) -> str | None:
        """The model to ask for: the route's on a replica; its own on the fallback, and where no route is live."""
        if wanted is not None and not self.is_fallback:
            return wanted
        return self.address.name or next(iter(self.models), None)

    def succeeded(self) -> None:
        self.in_a_row, self.pause_until, self.last_failure, self.has_lived = 0, 0.0, "", True

    def has_failed(self, failure: BackendFailure) -> None:
        self.failed += 1
        self.last_failure = str(failure)
        if failure.kind in ("refused", "busy", "no_model"):  # it lives
            return
        self.in_a_row, self.paused_for = self.in_a_row + 1, failure.kind
        if self.in_a_row >= FAILURES or failure.kind == "unreachable":
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** max(0, self.in_a_row - FAILURES))
            self.pause_until = time.monotonic() + pause


@dataclass
class BackendReply(Generic[T]):
    """Who answers, under which name it was asked, and the answer: a completion, or the pieces of one."""

    backend: Backend
    asked_for: str
    answer: T
    attempts: int = 1


class BackendPool:
    """Opens its connections in the event loop that enters it."""

    def __init__(
        self, replicas: Iterable[BackendAddress], fallbacks: Iterable[BackendAddress] = (), *, key: str = "",
        networks: Iterable[Network] = (), timeouts: WireTimeouts | None = None, look_every_s: float = 2.0,
        answer_tokens: int = 1024,
    ) -> None:  # fmt: skip
        self._addresses = [*((address, False) for address in replicas), *((address, True) for address in fallbacks)]
        self._key, self._networks, self._look_every_s = key, tuple(networks), look_every_s
        self._answer_tokens = answer_tokens
        self._timeouts = timeouts or WireTimeouts()
        self.backends: list[Backend] = []
        self.retries = 0
        self._turn = 0
        self._looking: asyncio.Task[None] | None = None
        self._opened: list[ConnectionStack] = []

    async def __aenter__(self) -> BackendPool:
        self.backends = [self._backend(address, fallback) for address, fallback in self._addresses]
        self._looking = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        for connections in self._opened:
            await connections.aclose()

    def _backend(self, address: BackendAddress, fallback: bool) -> Backend:
        connections = ConnectionStack(CheckedNetwork(self._networks))
        self._opened.append(connections)
        return Backend(address, ModelServer(address.url, connections, self._key, self._timeouts), fallback)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.gather(*(self.look_at(backend) for backend in self.backends))
            await asyncio.sleep(self._look_every_s)

    async def look_at(self, backend: Backend) -> None:
        """Whether it lives, and which models it has."""
        try:
            backend.models = await backend.server.models()
        except BackendFailure as failure:
            if not backend.is_open:
                backend.has_failed(failure)
        else:
            backend.succeeded()
        backend.was_seen = True

    @property
    def has_fallback(self) -> bool:
        return any(backend.is_fallback for backend in self.backends)

    @property
    def loading(self) -> str:
        """The log of a server that this process started and that has not answered yet; empty where there is none."""
        return next((backend.address.log for backend in self.backends if backend.address.log and not backend.has_lived), "")

    async def complete(self, wanted: str | None, payload: Json, *, spare: bool = False) -> BackendReply[Json]:
        """The whole answer of the first server that gives one; the last BackendFailure if none does."""

        async def ask(backend: Backend, body: bytes) -> Json:
            return await backend.server.complete(body)

        reply = await self._ask_in_turn(wanted, payload, ask, spare)
        reply.backend.in_flight -= 1
        return reply

    @asynccontextmanager
    async def stream(self, wanted: str | None, payload: Json, *, spare: bool = False) -> AsyncIterator[BackendReply[Deltas]]:
        """Pieces of an answer; when this is entered the first piece is there, so another server could still be asked before."""

        async def ask(backend: Backend, body: bytes) -> Deltas:
            deltas = backend.server.stream(body)
            try:
                first = await anext(deltas)
            except StopAsyncIteration:
                raise BackendFailure("died", "the stream was empty") from None
            except BaseException:
                await deltas.aclose()
                raise
            return _with_first(backend, first, deltas)

        reply = await self._ask_in_turn(wanted, {**payload, "stream": True}, ask, spare)
        try:
            async with aclosing(reply.answer):
                yield reply
        finally:
            reply.backend.in_flight -= 1

    async def _ask_in_turn(
        self, wanted: str | None, payload: Json, ask: Callable[[Backend, bytes], Awaitable[T]], spare: bool
    ) -> BackendReply[T]:
        last = BackendFailure("unreachable", "no model server is set up")
        if paused := [backend for backend in self.backends if backend.is_open and backend.is_fallback == spare]:
            last = BackendFailure(paused[0].paused_for, "the model servers are left alone for a while")
        attempts = 0
        for backend in await self._in_order(wanted, spare):
            if (name := backend.name_for(wanted)) is None:
                await self.look_at(backend)  # it may have been busy, or loading, at the last look
                name = backend.name_for(wanted)
            if name is None:
                last = BackendFailure("no_model", "the server names no model")
                continue
            attempts += 1
            self.retries += attempts > 1
            backend.in_flight += 1
            try:
                limited = backend.server.with_limit(name, payload, self._answer_tokens)
                answer = await ask(backend, json.dumps({**limited, "model": name}, ensure_ascii=False).encode())
            except BackendFailure as failure:
                backend.in_flight -= 1
                backend.has_failed(failure)
                log.warning("model server %s: %s", backend.address.url, failure)
                if failure.is_of_request:
                    raise
                last = failure
            except BaseException:
                backend.in_flight -= 1
                raise
            else:
                backend.succeeded()
                backend.answered += 1
                return BackendReply(backend, name, answer, attempts)
        raise last

    async def _in_order(self, wanted: str | None, spare: bool) -> list[Backend]:
        """Those with the model and few requests first. Paused ones only if no other lives, and no fallback either."""
        backends = [backend for backend in self.backends if backend.is_fallback == spare]
        if unknown := [backend for backend in backends if not backend.was_seen]:
            await asyncio.gather(*map(self.look_at, unknown))
        self._turn += 1
        turn = {id(backend): (number + self._turn) % len(backends) for number, backend in enumerate(backends)}

        def rank(backend: Backend) -> tuple[Any, ...]:
            lacks = wanted is not None and not spare and bool(backend.models) and wanted not in backend.models
            return (lacks, backend.in_flight, turn[id(backend)])

        ordered = sorted(backends, key=rank)
        live = [backend for backend in ordered if not backend.is_open]
        has_other = not spare and any(backend.is_fallback and not backend.is_open for backend in self.backends)
        return live if live or has_other else ordered


async def _with_first(backend: Backend, first: Delta, rest: Deltas) -> Deltas:
    """All pieces. A server that dies in the middle of an answer has failed, too."""
    try:
        async with aclosing(rest):
            yield first
            async for delta in rest:
                yield delta
    except BackendFailure as failure:
        backend.has_failed(failure)
        raise
