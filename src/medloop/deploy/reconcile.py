"""Make the servers have what the store says: a restarted one gets its adapters back, strays of ours go, changed bytes are told.

    reconciler = Reconciler(fleet)
    report = reconciler.check()          # one look; call it every few seconds

What is wrong is recorded once, not at every look. Bytes that were changed are never loaded, and a server that refuses a load is
asked again after longer and longer rests.
"""

import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from medloop.contracts import utc_now
from medloop.contracts.assistant import Route
from medloop.contracts.deploy import DeployEvent, DeployKind, ReplicaState
from medloop.deploy.copies import copy_problem, difference, restore_copy
from medloop.deploy.protocol import Fleet, delete_old, strays, unload_strays
from medloop.deploy.server import Server, ServerDownError, ServerRefusedError, observe
from medloop.errors import BusyError, MedloopError
from medloop.models.safety import fingerprint
from medloop.store.records import deploy_events as log
from medloop.store.records import registry
from medloop.store.records.routes import last_change, live_routes

FIRST_REST_S, LONGEST_REST_S = 5.0, 600.0


@dataclass(frozen=True)
class ReconcileReport:
    """What the servers have now, what was done about it, and what nobody can do here."""

    replicas: tuple[ReplicaState, ...]
    restored: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class Reconciler:
    fleet: Fleet
    _rests: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # next try and rest after it, of a load

    def check(self) -> ReconcileReport:
        fleet = self.fleet
        live = list({route.served_name: route for route in live_routes(fleet.store)}.values())
        restored, problems = list[str](), list[str]()
        for server in fleet.servers:
            state = observe(server)
            if not state.is_up:
                problems.append(state.problem)
                continue
            for route in live:
                done, problem = self._ensure(server, state, route)
                restored += [f"{route.served_name} on {server.url}"] if done else []
                problems += [problem] if problem else []
        unloaded = self._remove_strays(live)
        return ReconcileReport(
            tuple(observe(server) for server in fleet.servers), tuple(restored), tuple(unloaded), tuple(problems)
        )

    def _ensure(self, server: Server, state: ReplicaState, route: Route) -> tuple[bool, str]:
        """(loaded now?, what is wrong) of one live version on one server."""
        if route.version is None or route.artifact is None or route.served_name == state.base:
            return False, ""  # the base, or merged weights: nothing to load
        folder = self.fleet.folder / route.served_name
        if "-merged" in route.served_name:
            return False, ""
        served = state.find(route.served_name)
        if served is not None and served.root and served.root != str(folder):
            return False, self._tell(route, "The server has this name from another folder.", server.url)
        if not folder.exists():
            try:
                self._copy_again(folder, route.model, route.version)
            except MedloopError as error:
                return False, self._tell(route, f"Its copy is gone and cannot be made again: {error.what}.")
        if problem := copy_problem(folder) or self._difference(folder, route.model, route.version):
            return False, self._tell(route, f"The bytes of its copy were changed: {problem}")
        if served is None:
            return self._load(server, route)
        if served.sha256 is not None and served.sha256 != fingerprint(folder):
            return False, self._tell(route, "The server has other bytes under this name.", server.url)
        return False, ""

    def _difference(self, folder: Path, model: str, version: int) -> str | None:
        """Whether a copy has the registered bytes: files and manifest of a copy may have been written anew together."""
        stored = registry.get_version(self.fleet.store, model, version)
        return difference(folder, stored.record, self.fleet.store.settings.home / stored.path)

    def _copy_again(self, folder: Path, model: str, version: int) -> None:
        stored = registry.get_version(self.fleet.store, model, version)
        restore_copy(folder, stored.record, self.fleet.store.settings.home / stored.path)

    def _load(self, server: Server, route: Route) -> tuple[bool, str]:
        key, now = (server.url, route.served_name), time.monotonic()
        next_try, rest = self._rests.get(key, (0.0, FIRST_REST_S))
        if now < next_try:
            return False, f"{route.served_name} is not on {server.url}; the next try is in {next_try - now:.0f} s."
        try:
            server.load(route.served_name, self.fleet.folder / route.served_name)
        except (ServerDownError, ServerRefusedError) as error:
            self._rests[key] = now + rest, min(2 * rest, LONGEST_REST_S)
            return False, self._tell(route, error.what + ".", server.url)
        self._rests.pop(key, None)
        self._say(route, "restore", "The server had lost it.", server.url)
        return True, ""

    def _remove_strays(self, live: list[Route]) -> list[str]:
        """Not while a deployment runs, which loads what is not live yet, nor while answers of the last version may still run."""
        store = self.fleet.store
        model, names = store.settings.registry.model, {route.served_name for route in live}
        newest = last_change(store)
        if newest is None or not live or utc_now() - newest < timedelta(seconds=store.settings.deploy.drain_s):
            return []
        if not any(strays(observe(server), model, names) for server in self.fleet.servers):
            return []
        try:
            with self.fleet.deploying():
                gone = list(unload_strays(self.fleet))
                for url, name in gone:
                    self._say(live[0], "unload", f"unloaded {name}, which serves nobody", url)
                delete_old(self.fleet)
                return [f"{name} on {url}" for url, name in gone]
        except BusyError:
            return []

    def _tell(self, route: Route, reason: str, url: str = "") -> str:
        """Record a problem, unless it is the newest thing known about this name on this server."""
        kinds: tuple[DeployKind, ...] = ("problem", "restore", "switch", "load")
        known = next(
            (e for e in log.events(self.fleet.store, kinds=kinds, served_name=route.served_name) if e.replica == url), None
        )
        if known is None or known.kind != "problem" or known.reason != reason:
            self._say(route, "problem", reason, url)
        return f"{route.served_name}: {reason}"

    def _say(self, route: Route, kind: DeployKind, reason: str, url: str) -> None:
        event = DeployEvent(
            event_id=log.new_event_id(), kind=kind, served_name=route.served_name, artifact=route.artifact,
            version=route.version, replica=url, reason=reason,
        )  # fmt: skip
        log.add_event(self.fleet.store, event)
