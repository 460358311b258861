"""How a version goes live, step by step; each step is a row, so that whoever continues knows what was done.

    load on every server in waves → canary questions → switch the route → drain → unload the old version → delete old copies

Only the switch changes who answers, and it is one transaction. A kill before it leaves the old version serving; a kill after it
leaves the new one serving, and the next deployment or the reconcile loop does the rest. Every step can be done again. Nothing is
loaded in place, no folder is changed, and none is deleted while a server may have it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from medloop.contracts import ModelVersion
from medloop.contracts.assistant import Champion, Route
from medloop.contracts.base import uuid7
from medloop.contracts.deploy import Canary, DeployEvent, DeployKind, ReplicaState
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.deploy.canary import JudgeAnswer, ask_canaries
from medloop.deploy.copies import is_ours, remove_copies
from medloop.deploy.server import Server, ServerDownError, ServerRefusedError, observe
from medloop.errors import BusyError, MedloopError, ResultError
from medloop.models.safety import fingerprint
from medloop.store.db import Store
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
from medloop.store.records import deploy_events as log
from medloop.store.records.routes import RouteMovedError, add_route, live_route, live_routes, route_number, routes

ARMS: tuple[Champion, ...] = ("champion", "challenger")
SETTLE_S = 1.0  # a request that has read the old route reaches its server within this time
POLL_S = 0.1


class DeployFailedError(ResultError):
    """The version did not go live; what served before still serves."""


class CanaryFailedError(DeployFailedError):
    """A canary question was answered badly: trying again would not help."""


class DeployOvertakenError(DeployFailedError):
    """Somebody else has changed the route meanwhile, so what was decided about the old one does not hold any more."""


@dataclass(frozen=True)
class Target:
    """What is to answer: the copy of a version, or (without a record) the base. Merged weights are a base of their own."""

    name: str
    model: str
    record: ModelVersion | None = None
    folder: Path | None = None

    @property
    def is_adapter(self) -> bool:
        return self.folder is not None


@dataclass(frozen=True)
class Fleet:
    """The model servers with everything that a deployment needs to know about them."""

    store: Store
    servers: Sequence[Server]
    folder: Path
    canaries: Sequence[Canary]
    judge: JudgeAnswer
    sleep: Callable[[float], None] = time.sleep

    @contextmanager
    def deploying(self, wait_s: float = 0.0) -> Iterator[None]:
        """One deployment at a time; the kernel frees the lock when the process ends."""
        make_folder(self.folder)
        with locked_file(self.folder / ".deploy.lock", wait_s=wait_s, what="The deployment", mode=0o600):
            yield

    @contextmanager
    def routing(self) -> Iterator[None]:
        """Held from the last look at the servers to the switch, and while something is unloaded."""
        make_folder(self.folder)
        with locked_file(self.folder / ".route.lock", wait_s=self.store.wait_s, what="The route", mode=0o600):
            yield

    def live_names(self) -> set[str]:
        """What both arms serve now, at all sites."""
        return {route.served_name for route in live_routes(self.store)}


@dataclass
class Deployment:
    """One way from what serves now to a target. `check` raises inside the transaction of the switch if it may not go live.

    `number` is that of the route for which the target was chosen; without it, that of the route at the start.
    """

    fleet: Fleet
    target: Target
    actor: str
    reason: str
    arm: Champion = "champion"
    check: Callable[[], None] | None = None
    canaries: bool = True
    number: int | None = None
    site: str = DEFAULT_SITE
    _refusals: list[str] = field(default_factory=list, init=False)
    previous: Route | None = field(default=None, init=False)
    deployment: str = field(default="", init=False)

    def go_live(self) -> Route:
        """Everything up to and including the switch; DeployFailedError leaves what served before."""
        fleet, target = self.fleet, self.target
        number = route_number(fleet.store, self.arm, site=self.site) if self.number is None else self.number
        self.previous = live_route(fleet.store, self.arm, site=self.site)
        self.deployment = log.open_deployment(fleet.store, target.name) or ""
        if not self.deployment:
            self.deployment = f"dep_{uuid7()}"
            self.say("start", self.reason)
        if self.previous is not None and self.previous.served_name == target.name:
            return self.previous
        try:
            ready = self._load_in_waves()
            return self._switch(ready, number)
        except (ServerRefusedError, ServerDownError, DeployFailedError, BusyError) as error:
            self._give_up(error)
            if isinstance(error, DeployFailedError):
                raise
            raise DeployFailedError(f"{target.name} did not go live: {error.what}", error.to_do) from None

    def finish(self) -> None:
        """Drain, unload and delete; the route has been switched."""
        fleet, drain_s = self.fleet, self.fleet.store.settings.deploy.drain_s
        if self.previous is not None and self.previous.served_name != self.target.name:
            waited = drain(fleet, self.previous.served_name, drain_s)
            self.say("drain", numbers={"seconds": round(waited, 3)})
        for url, name in unload_strays(fleet):
            self.say("unload", f"unloaded {name}", replica=url)
        for name in delete_old(fleet):
            self.say("delete", f"deleted the copy {name}")
        self.say("done")

    def say(self, kind: DeployKind, reason: str = "", *, replica: str = "", numbers: dict[str, float] | None = None) -> None:
        record, target = self.target.record, self.target
        event = DeployEvent(
            event_id=log.new_event_id(), kind=kind, deployment=self.deployment, served_name=target.name,
            artifact=None if record is None else record.artifact, version=None if record is None else record.version,
            replica=replica, reason=reason, numbers=numbers or {}, changed_by=self.actor,
        )  # fmt: skip
        log.add_event(self.fleet.store, event)

    def _load_in_waves(self) -> list[Server]:
        """The servers that have the target and answered all canaries; one that is away gets it from the reconcile loop."""
        fleet, ready = self.fleet, list[Server]()
        states = {server.url: observe(server) for server in fleet.servers}
        up = [server for server in fleet.servers if self._can_serve(states[server.url])]
        size = fleet.store.settings.deploy.wave
        for start in range(0, len(up), size):
            wave = [server for server in up[start : start + size] if self._load(server)]
            ready += [server for server in wave if self._try_canaries(server)]
        if not ready:
            told = [*(state.problem.rstrip(".") for state in states.values() if state.problem), *self._refusals]
            why = "; ".join(told) or "no model server has it"
            raise DeployFailedError(f"{self.target.name} did not go live: {why}", "Start a model server, and deploy again")
        return ready

    def _can_serve(self, state: ReplicaState) -> bool:
        return state.is_up and (self.target.is_adapter or state.find(self.target.name) is not None)

    def _load(self, server: Server) -> bool:
        if self.target.folder is not None:
            try:
                server.load(self.target.name, self.target.folder)
            except (ServerDownError, ServerRefusedError) as error:
                if isinstance(error, ServerRefusedError) and observe(server).find(self.target.name) is not None:
                    raise  # it has other bytes under this name and would answer with them
                self.say("problem", error.what + ".", replica=server.url)
                self._refusals.append(error.what)
                return False
            self.say("load", replica=server.url)
        return True

    def _try_canaries(self, server: Server) -> bool:
        if not self.canaries:
            return True
        fleet, asked = self.fleet, 0
        try:
            seconds = fleet.store.settings.deploy.answer_s
            for verdict in ask_canaries(server, self.target.name, fleet.canaries, fleet.judge, seconds=seconds):
                asked += 1
                if not verdict.passed:
                    self.say("canary", verdict.reason, replica=server.url, numbers={"asked": asked, "failed": 1})
                    why = verdict.reason.rstrip(".")
                    raise CanaryFailedError(
                        f"{self.target.name} did not go live: the canary '{verdict.canary_id}' failed ({why})",
                        "Train or choose another version",
                    )
        except ServerDownError as error:
            self.say("problem", error.what + ".", replica=server.url)
            return False
        self.say("canary", replica=server.url, numbers={"asked": asked, "failed": 0})
        return True

    def _switch(self, ready: Sequence[Server], number: int) -> Route:
        """The only step that changes who answers."""
        target, record = self.target, self.target.record
        with self.fleet.routing():
            if not [server for server in ready if self._has_it(server)]:
                raise DeployFailedError(f"{target.name} did not go live: no server has it any more", "Deploy again")
            route = Route(
                served_name=target.name, model=target.model, version=None if record is None else record.version,
                artifact=None if record is None else record.artifact,
                previous=None if self.previous is None else self.previous.served_name,
                reason=self.reason or "deployed", changed_by=self.actor,
            )  # fmt: skip
            try:
                add_route(self.fleet.store, route, arm=self.arm, expected=number, check=self.check, site=self.site)
            except MedloopError as error:
                kind = DeployOvertakenError if isinstance(error, RouteMovedError) else DeployFailedError
                raise kind(f"{target.name} did not go live: {error.what}", error.to_do) from None
        self.say("switch", self.reason)
        return route

    def _has_it(self, server: Server) -> bool:
        """One that restarted since has forgotten it, and gets it again."""
        state = observe(server)
        if state.is_up and state.find(self.target.name) is None and self.target.folder is not None:
            with suppress(ServerDownError, ServerRefusedError):
                server.load(self.target.name, self.target.folder)
            state = observe(server)
        served = state.find(self.target.name)
        if served is not None and self.target.folder is not None and served.sha256 not in (None, fingerprint(self.target.folder)):
            raise ServerRefusedError(f"{server.url} has other bytes under the name {served.name}", "Restart that server")
        return state.is_up and served is not None

    def _give_up(self, error: MedloopError) -> None:
        """Take the target away again, unless it serves by now."""
        self.say("fail", error.what + ".")
        with suppress(BusyError), self.fleet.routing():
            if self.target.is_adapter and self.target.name not in self.fleet.live_names():
                for server in self.fleet.servers:
                    with suppress(ServerDownError, ServerRefusedError):
                        server.unload(self.target.name)


def drain(fleet: Fleet, old: str, longest_s: float) -> float:
    """Wait until no server works on an answer of the old version; seconds waited.

    Where a server counts all answers together, a moment without any is enough; under steady load there is none, so the wait
    ends after `longest_s`.
    """
    start = time.monotonic()
    fleet.sleep(min(SETTLE_S, longest_s))
    while time.monotonic() - start < longest_s:
        counts = [_running(server, old) for server in fleet.servers]
        if all(count == 0 for count in counts):
            break
        fleet.sleep(POLL_S)
    return time.monotonic() - start


def _running(server: Server, name: str) -> int | None:
    state = observe(server)
    served = state.find(name)
    if served is None:
        return 0
    return served.requests if served.requests is not None else server.running()


def unload_strays(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Unload what is ours and serves no arm; (server, name) of each."""
    model = fleet.store.settings.registry.model
    for server in fleet.servers:
        for name in strays(observe(server), model, fleet.live_names()):
            with fleet.routing():
                if name in fleet.live_names():
                    continue
                try:
                    server.unload(name)
                except (ServerDownError, ServerRefusedError):
                    continue
            yield server.url, name


def strays(state: ReplicaState, model: str, live: Iterable[str]) -> list[str]:
    return [row.name for row in state.models if row.parent is not None and is_ours(row.name, model) and row.name not in live]


def delete_old(fleet: Fleet) -> list[str]:
    """Delete copies of versions that went out of use long ago; not while a server is away, because it may still have them."""
    states = [observe(server) for server in fleet.servers]
    if not all(state.is_up for state in states):
        return []
    served = [route.served_name for arm in ARMS for route in routes(fleet.store, arm=arm, limit=1000)]
    recent = list(dict.fromkeys(served))[: 1 + fleet.store.settings.deploy.keep_versions]
    loaded = {model.name for state in states for model in state.models} | {
        Path(model.root).name for state in states for model in state.models
    }
    with fleet.routing():
        keep = fleet.live_names() | set(recent) | loaded
        return remove_copies(fleet.folder, fleet.store.settings.registry.model, keep=keep)
