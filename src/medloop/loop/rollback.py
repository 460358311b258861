"""Rollback: let an earlier version answer at once, by a person or by an alarm.

    roll_back(fleet, actor=actor(), reason="worse in triage")         # to the version before; or to="2", to="base"
    block_version(store, 3, actor=actor(), reason="harm")             # version 3 answers at no site any more
    clear_block(store, 3, actor=actor())                              # version 3 may be deployed again

The version that answered is blocked until a person clears it, so a rollback never goes round in a circle: it descends to the
base at the latest. Versions that were live before are not asked canaries again, because that would take the time that a rollback
is meant to save; the probe asks them as soon as they answer.
"""

from collections.abc import Sequence
from functools import partial

from medloop.contracts.assistant import Champion, Route
from medloop.contracts.deploy import DeployEvent
from medloop.contracts.registry import AliasAction
from medloop.deploy.copies import is_ours, make_copy, served_name
from medloop.deploy.protocol import DeployFailedError, Deployment, DeployOvertakenError, Fleet, Target
from medloop.deploy.server import observe
from medloop.errors import InputError, MedloopError
from medloop.loop.deploy import NO_REPLICAS, DeployOutcome, DeployRefusedError, end_site_champion, target_of
from medloop.privacy.phi.reason import LONGEST_REASON, checked_reason
from medloop.store.db import Store
from medloop.store.records import deploy_events as log
from medloop.store.records import registry
from medloop.store.records.registry import NoSuchVersionError, StoredVersion
from medloop.store.records.routes import live_route, route_number, routes, site_champions

BASE = "base"
# Where a version cannot just be blocked, and what to do there.
ON_MAIN: dict[Champion, str] = {
    "champion": "Roll it back: medloop rollback --reason TEXT",
    "challenger": "Stop its experiment: medloop experiment stop ID",
}


def roll_back(
    fleet: Fleet, *, actor: str, reason: str, to: str | None = None, arm: Champion = "champion", automatic: bool = False,
    expected: Route | None = None,
) -> DeployOutcome:  # fmt: skip
    """Let the version before (or `to`: a number, or base) answer at once, and block the one that answered.

    With `expected`, only if that route is still the live one: an alarm about one version never removes another.
    """
    store, reason = fleet.store, reason if automatic else checked_reason(reason)
    if not reason:
        raise InputError("A rollback needs a reason", "Say why, for the audit log")
    number = route_number(store, arm)  # before the route: a change between the two is noticed at the switch
    live = live_route(store, arm)
    if live is None:
        raise NoSuchVersionError("Nothing is deployed, so there is nothing to roll back", "Deploy: medloop deploy")
    if expected is not None and live != expected:
        raise DeployOvertakenError(
            f"{expected.served_name} does not answer any more, so nothing is rolled back", "Look: medloop deploy status"
        )
    problems = list[str]()
    for candidate in _candidates(store, live, to, arm):
        try:
            target = _rollback_target(fleet, candidate)
            if target.name == live.served_name:
                kind = DeployFailedError if to is None else InputError  # without a choice, the next one is tried
                raise kind(f"{live.served_name} is what answers now", "Choose another version: medloop deploy list")
            if live.artifact is not None:
                block(store, live.served_name, live.artifact, live.version, actor=actor, reason=reason)
            check = partial(_check_reuse, store, candidate)
            deployment = Deployment(fleet, target, actor, reason, arm=arm, canaries=False, check=check, number=number)
            route = deployment.go_live()
        except DeployOvertakenError:
            raise
        except (DeployFailedError, DeployRefusedError) as error:
            problems.append(error.what)
            continue
        deployment.say("done", "rolled back")
        if arm == "champion":
            _follow(store, live, candidate, actor, reason)
            _take_challenger_along(fleet, live, candidate, actor, reason)
        return DeployOutcome(route, True, live.served_name)
    raise DeployFailedError(
        "Nothing to roll back to: " + ("; ".join(problems) or "no version before"), "Look: medloop deploy status"
    )


def _candidates(store: Store, live: Route, to: str | None, arm: Champion) -> Sequence[StoredVersion | None]:
    """Versions to try in this order; None is the base."""
    model = store.settings.registry.model
    if to == BASE:
        return [None]
    if to is not None:
        if not (to.isascii() and to.isdigit() and len(to) < 10):
            raise InputError(f"'{to[:40]}' is neither a version nor 'base'", "Choose one: medloop registry list")
        return [registry.get_version(store, model, int(to))]
    before = dict.fromkeys(route.version for route in routes(store, arm=arm, limit=1000) if route.version is not None)
    earlier = [registry.get_version(store, model, version) for version in before if version != live.version]
    return [*(stored for stored in earlier if _reuse_refusal(store, stored) is None), None]


def ways_back(store: Store, live: Route) -> list[StoredVersion]:
    """Versions that may answer again, best first: a rollback without a choice goes to the first, or else to the base."""
    return [candidate for candidate in _candidates(store, live, None, "champion") if candidate is not None]


def _reuse_refusal(store: Store, stored: StoredVersion) -> str | None:
    if log.block_of(store, stored.record.artifact):
        return "It was rolled back itself"
    if not any(route.artifact == stored.record.artifact for route in routes(store, limit=1000)):
        return "It has never been live. Promote and deploy it instead"
    return registry.reuse_refusal(store, stored.record.artifact)


def _check_reuse(store: Store, candidate: StoredVersion | None) -> None:
    if candidate is not None and (refusal := _reuse_refusal(store, candidate)):
        raise DeployRefusedError(f"{candidate.record.label} cannot go live: {refusal}")


def _rollback_target(fleet: Fleet, candidate: StoredVersion | None) -> Target:
    if candidate is not None:
        _check_reuse(fleet.store, candidate)
        try:
            copy = make_copy(fleet.folder, candidate.record, fleet.store.settings.home / candidate.path)
        except MedloopError as error:
            raise DeployFailedError(error.what, error.to_do) from None
        return target_of(candidate, copy)
    model = fleet.store.settings.registry.model
    for server in fleet.servers:
        for served in observe(server).models:
            if served.parent is None and not is_ours(served.name, model):  # merged weights of a version are not the base
                return Target(served.name, model)
    raise DeployFailedError("No model server has the base", NO_REPLICAS)


def block_version(store: Store, version: int, *, actor: str, reason: str) -> list[str]:
    """A person stops a version that answers only at sites, or nowhere yet; returns the sites that main's champion answers now."""
    reason = checked_reason(reason)
    if not reason:
        raise InputError("A block needs a reason", "Say why, for the audit log")
    record = registry.get_version(store, store.settings.registry.model, version).record
    if log.block_of(store, record.artifact) is not None:
        raise InputError(f"{record.label} is blocked already", "See what is: medloop deploy status")
    for arm, instead in ON_MAIN.items():
        route = live_route(store, arm)
        if route is not None and route.artifact == record.artifact:
            raise InputError(f"{record.label} is the {arm} of main, and something has to answer in its place", instead)
    return block(store, served_name(record), record.artifact, version, actor=actor, reason=reason)


def block(store: Store, name: str, artifact: str, version: int | None, *, actor: str, reason: str) -> list[str]:
    """These bytes do not go live until a person clears them. Sites that had them as their champion get that of `main` from the
    block on, and keep it after the block is cleared; returns these sites."""
    leaving = [site for site, route in site_champions(store).items() if route.artifact == artifact]
    if log.block_of(store, artifact) is None:
        event = DeployEvent(
            event_id=log.new_event_id(), kind="block", served_name=name, artifact=artifact, version=version, reason=reason,
            changed_by=actor,
        )  # fmt: skip
        log.add_event(store, event)
    for site in leaving:
        end_site_champion(store, site, actor=actor, reason=reason)
    return leaving


def _follow(store: Store, live: Route, candidate: StoredVersion | None, actor: str, reason: str) -> None:
    """The registry's champion follows, so that the next deployment does not bring the same version back; nor does a version that
    replaces the base leave it without one."""
    change = registry.current(store, live.model).get("champion")
    champion = None if change is None else change.version
    if champion != live.version or (champion is None and candidate is None):
        return
    version = None if candidate is None else candidate.record.version
    action: AliasAction = "demote" if version is None else "rollback"
    try:
        registry.change_alias(store, live.model, "champion", version, action=action, actor=actor, reason=reason[:LONGEST_REASON])
    except MedloopError as error:  # the block is what keeps the version away
        _tell(store, live, actor, f"The registry's champion stays: {error.what}.")


def _take_challenger_along(fleet: Fleet, live: Route, candidate: StoredVersion | None, actor: str, reason: str) -> None:
    """The same bytes must not go on answering as the challenger."""
    other = live_route(fleet.store, "challenger")
    if other is None or live.artifact is None or other.artifact != live.artifact:
        return
    to = BASE if candidate is None else str(candidate.record.version)
    try:
        roll_back(fleet, actor=actor, reason=reason, to=to, arm="challenger", automatic=True, expected=other)
    except MedloopError as error:
        _tell(fleet.store, other, actor, f"It still answers as the challenger: {error.what}.")


def _tell(store: Store, route: Route, actor: str, problem: str) -> None:
    event = DeployEvent(
        event_id=log.new_event_id(), kind="problem", served_name=route.served_name, artifact=route.artifact,
        version=route.version, reason=problem, changed_by=actor,
    )  # fmt: skip
    log.add_event(store, event)


def clear_block(store: Store, version: int, *, actor: str, reason: str = "") -> None:
    """A person says that a version that was rolled back may go live again."""
    record = registry.get_version(store, store.settings.registry.model, version).record
    block = log.block_of(store, record.artifact)
    if block is None:
        raise InputError(f"{record.label} is not blocked", "See what is: medloop deploy status")
    event = DeployEvent(
        event_id=log.new_event_id(), kind="clear", served_name=block.served_name, artifact=record.artifact, version=version,
        reason=checked_reason(reason), changed_by=actor,
    )  # fmt: skip
    log.add_event(store, event)
