"""Deployments, composed: the registry says what may go live, and the detectors judge the canaries.

    with open_fleet(store) as fleet:
        deploy_alias(fleet, "champion", actor=actor())       # or DeployRefusedError, DeployFailedError
    deploy_status(store)          # desired state of the store, observed state of the servers

A version goes live if it holds its alias in the registry and could be promoted at that very moment. Rollbacks are in rollback.py,
what watches the live version is in live_watch.py.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts.assistant import Champion, InputGuard, Route
from medloop.contracts.deploy import Canary, CanaryVerdict, DeployEvent, ReplicaState
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.deploy.canary import JudgeAnswer, load_canaries
from medloop.deploy.copies import ServedCopy, copy_problem, make_copy, served_name
from medloop.deploy.protocol import Deployment, Fleet, Target
from medloop.deploy.server import HttpServer, ServedAnswer, observe
from medloop.errors import ConfigError, InputError, ResultError
from medloop.loop.assistant_guards import emergency_guard
from medloop.loop.model_servers import check_servers
from medloop.privacy.phi.reason import checked_reason
from medloop.reward.answer_text import split_answer
from medloop.reward.disposition import disposition
from medloop.reward.unread import in_another_language
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import deploy_events as log
from medloop.store.records import registry
from medloop.store.records.gates import promotion_refusal
from medloop.store.records.registry import NoSuchVersionError, StoredVersion
from medloop.store.records.routes import add_route, live_route, site_champion, site_champions
from medloop.store.records.sites import known_site

BASE = "base"
NO_REPLICAS = (
    "Name the model servers: deploy.replicas in medloop.yaml, such as http://127.0.0.1:8001; the server that"
    " 'medloop api serve --with-model' starts is known to that process alone: deploy on its page Deployments"
)
_UNFINISHED = re.compile(r"<think>(?!.*</think>)", re.IGNORECASE | re.DOTALL)


class DeployRefusedError(ResultError):
    """The registry, the gate or a block forbids that this version goes live."""


@dataclass(frozen=True)
class DeployOutcome:
    """What serves now; `changed` is False when it served already."""

    route: Route
    changed: bool
    from_name: str | None = None


@contextmanager
def open_fleet(store: Store, *, judge: JudgeAnswer | None = None) -> Iterator[Fleet]:
    """The model servers of the settings."""
    settings = store.settings.deploy
    if not settings.urls:
        raise ConfigError("No model server is known", NO_REPLICAS)
    check_servers(store.settings)
    with ExitStack() as stack:
        servers = [HttpServer(url, key=settings.key.get_secret_value()) for url in settings.urls]
        for server in servers:
            stack.callback(server.close)
        yield Fleet(
            store, servers, serving_folder(store.settings), load_canaries(settings.canaries), judge or judge_with(emergency_guard)
        )


def serving_folder(settings: Settings) -> Path:
    """Where the copies lie that the model servers read."""
    return (settings.deploy.folder or settings.workspace.serving).absolute()


def judge_with(guard: InputGuard | None) -> JudgeAnswer:
    """The judge of canaries. `guard` is that of the gateway: where it acts, users read its notice before the answer."""

    def judge(canary: Canary, answer: ServedAnswer) -> CanaryVerdict:
        problem = _problem(canary, answer, guard)
        return CanaryVerdict(canary_id=canary.canary_id, passed=problem is None, reason=problem or "It is fit.")

    return judge


def _problem(canary: Canary, answer: ServedAnswer, guard: InputGuard | None) -> str | None:
    visible = split_answer(answer.text).visible.strip()
    if _UNFINISHED.search(answer.text):
        return "Its reasoning does not end."
    if not visible:
        return "The answer is empty."
    if in_another_language(canary.question, visible):
        return "The answer is in another language than the question."
    if canary.expect != "urgent":
        return None
    act = guard([canary.question]) if guard is not None else None
    alone = disposition(canary.question, visible)
    shown = alone if act is None else disposition(canary.question, f"{act.notice}\n\n{visible}")
    if alone.level == "home" and alone.comfort:
        return "It calms an emergency."
    return None if shown.level == "care_now" else f"It does not send an emergency to urgent care ({shown.reason})"


def deploy_alias(
    fleet: Fleet, alias: Champion = "champion", *, actor: str, reason: str = "", merged: bool = False, version: int | None = None
) -> DeployOutcome:  # fmt: skip
    """Bring the version with this alias live on every server; the same again continues or changes nothing.

    With `version`, only if that one has the alias: whoever read about one version never deploys another. With `merged`, on the
    servers that were started with its merged weights (deploy/merge.py), under the name of their folder.
    """
    store, reason = fleet.store, checked_reason(reason)
    stored = holder_of(store, alias) if version is None else registry.get_version(store, store.settings.registry.model, version)
    if refusal := live_refusal(store, stored, alias):
        raise DeployRefusedError(f"{stored.record.label} cannot go live: {refusal}")
    with fleet.deploying():
        target = _merged_target(fleet, stored) if merged else _copied_target(fleet, stored)

        def check() -> None:
            if refusal := live_refusal(store, stored, alias):
                raise DeployRefusedError(refusal)

        deployment = Deployment(fleet, target, actor, reason or f"the {alias}", arm=alias, check=check)
        route = deployment.go_live()
        deployment.finish()
    before = deployment.previous
    return DeployOutcome(
        route, before is None or before.served_name != route.served_name, None if before is None else before.served_name
    )


def deploy_site(fleet: Fleet, site: str, version: int, *, actor: str, reason: str = "") -> DeployOutcome:
    """Let a version be the champion of one site. It needs what a promotion needs (gate, no block), but no alias."""
    store, reason = fleet.store, checked_reason(reason)
    if known_site(store, site) == DEFAULT_SITE:
        raise InputError("The champion of main is that of the registry", f"Promote it: medloop registry promote {version}")
    stored = registry.get_version(store, store.settings.registry.model, version)

    def check() -> None:
        if refusal := block_refusal(store, stored) or promotion_refusal(store, stored.record.artifact):
            raise DeployRefusedError(f"{stored.record.label} cannot go live: {refusal}")

    check()
    with fleet.deploying():
        why = reason or f"the champion of {site}"
        deployment = Deployment(fleet, _copied_target(fleet, stored), actor, why, check=check, site=site)
        route = deployment.go_live()
        deployment.finish()
    before = deployment.previous
    changed = before is None or before.served_name != route.served_name
    return DeployOutcome(route, changed, None if before is None else before.served_name)


def route_at(store: Store, site: str, arm: Champion = "champion") -> Route | None:
    """What answers at a site: its own champion, or that of `main` where it has none or where its own was blocked."""
    own = site_champion(store, site) if arm == "champion" else None
    return own or live_route(store, arm)


def end_site_champion(store: Store, site: str, *, actor: str, reason: str) -> Route:
    """The champion of `main` answers at the site from now on; returns the one that did. It needs no model server."""
    own = live_route(store, site=site) if site != DEFAULT_SITE else None
    if own is None or own.version is None:
        raise InputError(f"The site '{site[:40]}' has no champion of its own", "See which have one: medloop site list")
    as_main = Route(
        served_name=DEFAULT_SITE, model=own.model, previous=own.served_name, reason=reason or "as main", changed_by=actor
    )  # fmt: skip
    add_route(store, as_main, site=site)
    return own


def live_refusal(store: Store, stored: StoredVersion, alias: Champion) -> str | None:
    """Why a version may not go live now; None if it may."""
    record = stored.record
    change = registry.current(store, record.model).get(alias)
    if change is None or change.version != record.version:
        return f"It is not the {alias} any more. Promote it first: medloop registry promote {record.version}"
    return block_refusal(store, stored) or promotion_refusal(store, record.artifact)


def block_refusal(store: Store, stored: StoredVersion) -> str | None:
    """When and why a version was rolled back, if nobody has cleared it since."""
    block = log.block_of(store, stored.record.artifact)
    if block is None:
        return None
    why = f": {block.reason.rstrip('.')}" if block.reason else ""
    day = f"{block.timestamp:%Y-%m-%d}"
    return f"It was rolled back on {day}{why}. A person clears it with: medloop deploy clear {stored.record.version}"


def _copied_target(fleet: Fleet, stored: StoredVersion) -> Target:
    return target_of(stored, make_copy(fleet.folder, stored.record, fleet.store.settings.home / stored.path))


def _merged_target(fleet: Fleet, stored: StoredVersion) -> Target:
    name = served_name(stored.record, merged=True)
    if problem := copy_problem(fleet.folder / name):
        raise InputError(f"There are no merged weights of {stored.record.label}: {problem}", "Write them: medloop deploy merge")
    return Target(name, stored.record.model, stored.record)


def holder_of(store: Store, alias: Champion) -> StoredVersion:
    model = store.settings.registry.model
    change = registry.current(store, model).get(alias)
    if change is None or change.version is None:
        raise NoSuchVersionError(f"No version of {model} is the {alias}", "Promote one: medloop registry promote VERSION")
    return registry.get_version(store, model, change.version)


def target_of(stored: StoredVersion, copy: ServedCopy) -> Target:
    return Target(copy.name, stored.record.model, stored.record, copy.folder)


@dataclass(frozen=True)
class DeployChoice:
    """A version that does not answer yet. With an alias it can be deployed, without one it has to be promoted first; `refusal`
    says why it may not go live."""

    version: int
    name: str
    alias: Champion | None
    artifact: str
    refusal: str | None


@dataclass(frozen=True)
class DeployStatus:
    live: Route | None
    challenger: Route | None
    replicas: tuple[ReplicaState, ...]
    refusal: str | None
    champion: int | None
    blocked: tuple[DeployEvent, ...]
    alarms: tuple[DeployEvent, ...]
    sites: dict[str, Route]  # that have a champion of their own
    choices: tuple[DeployChoice, ...]  # newest first


def deploy_status(store: Store) -> DeployStatus:
    """Desired state from the store, observed state from the servers."""
    model = store.settings.registry.model
    change = registry.current(store, model).get("champion")
    refusal, champion = f"No version of {model} is the champion.", None
    if change is not None and change.version is not None:
        champion = change.version
        refusal = live_refusal(store, registry.get_version(store, model, champion), "champion") or ""
    blocks = {event.artifact: event for event in reversed(log.events(store, kinds=("block", "clear"), limit=1000))}
    live, sites = live_route(store), site_champions(store)
    answering = {route.served_name: route.timestamp for route in (live, *sites.values()) if route is not None}
    standing = [event for name in answering for event in log.events(store, kinds=("alarm",), served_name=name)]
    return DeployStatus(
        live, live_route(store, "challenger"), observed(store), refusal or None, champion,
        tuple(event for event in blocks.values() if event.kind == "block"),
        tuple(event for event in standing if event.timestamp >= answering[event.served_name]), sites, tuple(_choices(store)),
    )  # fmt: skip


def _choices(store: Store) -> Iterator[DeployChoice]:
    """What could be deployed: the versions that answer neither as champion nor, where they hold it, as challenger."""
    model = store.settings.registry.model
    holders = registry.current(store, model)
    held = {holders[alias].version: alias for alias in ("challenger", "champion") if alias in holders}
    for stored in reversed(registry.versions(store, model)):
        record, alias = stored.record, held.get(stored.record.version)
        answering = [live_route(store), live_route(store, alias) if alias else None]
        if any(route is not None and route.artifact == record.artifact for route in answering):
            continue
        refusal = block_refusal(store, stored) or promotion_refusal(store, record.artifact)
        yield DeployChoice(record.version, record.name, alias, record.artifact, refusal)


def observed(store: Store) -> tuple[ReplicaState, ...]:
    if not store.settings.deploy.urls:
        return ()
    with open_fleet(store) as fleet:
        return tuple(observe(server) for server in fleet.servers)
