"""`medloop deploy` and `medloop rollback`: bring the champion live on the model servers, watch it, take it back."""

import time
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts.assistant import Champion, Route
from medloop.contracts.deploy import DeployKind
from medloop.errors import ResultError
from medloop.loop.deploy import (
    NO_REPLICAS,
    DeployOutcome,
    DeployStatus,
    deploy_alias,
    deploy_status,
    holder_of,
    open_fleet,
    serving_folder,
)
from medloop.loop.live_watch import LiveWatch, WatchReport
from medloop.loop.rollback import block_version, clear_block, roll_back
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records.deploy_events import events

deploy_app = typer.Typer(help="Bring the champion live on the model servers; see, check and clear what is deployed.")

Reason = Annotated[str, typer.Option(help="Why, for the audit log; without names of people.")]
SHOWN: tuple[DeployKind, ...] = ("switch", "done", "fail", "alarm", "block", "clear", "problem", "restore")


def register(app: typer.Typer) -> None:
    app.add_typer(deploy_app, name="deploy")
    app.command("rollback")(rollback)


@deploy_app.callback(invoke_without_command=True)
def deploy(
    context: typer.Context,
    challenger: Annotated[
        bool, typer.Option("--challenger", help="Deploy the challenger beside the champion, for an experiment.")
    ] = False,
    merged: Annotated[
        bool, typer.Option("--merged", help="On servers that were started with its merged weights ('medloop deploy merge').")
    ] = False,
    reason: Reason = "",
) -> None:
    """Bring the champion of the registry live: load it on every model server, ask canary questions, switch, unload the old one.

    Refused if the gate, an open incident, an erasure or a block speaks against it. If it does not go live, what served before
    still serves; the same command again continues. A refusal or a failure ends with exit code 10.

    Example:  medloop deploy --reason "safer in triage"
    """
    if context.invoked_subcommand is not None:
        return
    alias: Champion = "challenger" if challenger else "champion"
    with open_store(ui.settings()) as store, open_fleet(store) as fleet:
        outcome = deploy_alias(fleet, alias, actor=actor(), reason=reason, merged=merged)
    _say_outcome(outcome)
    ui.next_step("deploy status")


def rollback(
    reason: Annotated[str, typer.Option(help="Why, for the audit log; without names of people.")],
    to: Annotated[
        str | None, typer.Option(metavar="VERSION|base", help="Where to go (default: the version that served before).")
    ] = None,
) -> None:
    """Let an earlier version answer at once; the one that answered is blocked until somebody clears it.

    An open incident does not stop it; a failed gate, an erasure or a block of that version does. 'base' is the model without an
    adapter. The champion of the registry follows.

    Example:  medloop rollback --reason "worse in triage"
    """
    with open_store(ui.settings()) as store, open_fleet(store) as fleet:
        outcome = roll_back(fleet, actor=actor(), reason=reason, to=to)
    _say_outcome(outcome)
    ui.next_step("deploy status")


@deploy_app.command("status")
def status(json_: ui.AsJson = False) -> None:
    """Show what answers now, what each model server has, and what is blocked.

    Example:  medloop deploy status --json
    """
    with open_store(ui.settings()) as store:
        found = deploy_status(store)
    if json_:
        ui.say_json(found)
        return
    live = found.live
    if live is None:
        ui.say("Nothing is deployed yet.")
    else:
        ui.say(f"{_named(live.version, live.served_name)} answers since {live.timestamp:%Y-%m-%d %H:%M}Z: {_why(live, found)}")
    if found.challenger is not None:
        ui.say(f"The challenger is {_named(found.challenger.version, found.challenger.served_name)}.")
    for site, route in found.sites.items():
        ui.say(f"At {site}: {_named(route.version, route.served_name)} since {route.timestamp:%Y-%m-%d %H:%M}Z.")
    _say_replicas(found)
    for event in found.alarms:
        ui.say(f"Alarm {event.timestamp:%Y-%m-%d %H:%M}Z  {event.reason}")
    for event in found.blocked:
        ui.say(f"Version {event.version} is blocked: {event.reason}")
        ui.next_step(f"deploy clear {event.version}", "Clear it:")
    if found.refusal is not None:
        ui.say(f"The champion cannot go live: {found.refusal}")
    elif found.replicas and (live is None or live.version != found.champion):
        ui.next_step("deploy", "Deploy the champion:")
    for choice in (row for row in found.choices if row.alias == "challenger" and (row.refusal or found.replicas)):
        if choice.refusal is not None:
            ui.say(f"The challenger cannot go live: {choice.refusal}")
        else:
            ui.next_step("deploy --challenger", "Deploy the challenger:")


@deploy_app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most events to show.")] = 30,
    steps: Annotated[bool, typer.Option("--steps", help="Show every step, also loads and canaries.")] = False,
    json_: ui.AsJson = False,
) -> None:
    """List what happened, newest first: versions that went live, rollbacks, alarms, blocks, problems of the model servers.

    Example:  medloop deploy list --steps
    """
    with open_store(ui.settings()) as store:
        rows = events(store, limit=limit, kinds=() if steps else SHOWN)
    if json_:
        ui.say_json({"events": [row.model_dump(mode="json") for row in rows]})
        return
    if not rows:
        ui.say("Nothing was deployed yet.")
        return
    cells = [
        (f"{row.timestamp:%Y-%m-%d %H:%M:%S}Z", row.kind, row.served_name, row.replica or "-", row.changed_by, row.reason)
        for row in rows
    ]
    ui.table(("when", "what", "name", "server", "by", "reason"), cells)


@deploy_app.command("check")
def check(
    once: Annotated[bool, typer.Option("--once", help="Look once instead of again and again.")] = False, json_: ui.AsJson = False
) -> None:
    """Look at the model servers and the live version: reload what a server lost, probe, and roll back on an alarm.

    The API does this by itself every deploy.check_every_s seconds. Exit code 10 if a problem or an alarm stands.

    Example:  medloop deploy check --once
    """
    with open_store(ui.settings()) as store, open_fleet(store) as fleet:
        watch = LiveWatch(fleet)
        while True:
            report = watch.check()
            if json_:
                ui.say_json(report)
            else:
                _say_report(report)
            if once:
                break
            time.sleep(max(1.0, store.settings.deploy.check_every_s))
    if report.servers.problems or report.alarms or report.sites or report.problem:
        raise ResultError("Something about what is deployed is wrong", "Look at it: medloop deploy status")


@deploy_app.command("merge")
def merge() -> None:
    """Write base and adapter of the champion as one model folder, for a server that does not load adapters.

    Start a server on that folder under its name, add it to deploy.replicas, and deploy with --merged.

    Example:  medloop deploy merge
    """
    from medloop.deploy.merge import write_merged  # loads torch

    with open_store(ui.settings()) as store:
        stored, settings = holder_of(store, "champion"), store.settings
        folder = write_merged(serving_folder(settings), stored, settings)
    ui.say(f"{ui.shown(folder)} has the merged weights of {stored.record.label}.")
    ui.say(f"Start a model server on it: --model {folder} --served-model-name {folder.name}; add it to deploy.replicas.")
    ui.next_step("deploy --merged", "Then:")


@deploy_app.command("block")
def block(
    version: Annotated[int, typer.Argument(min=1, metavar="VERSION", help="Number of the version.")],
    reason: Annotated[str, typer.Option(help="Why, for the audit log; without names of people.")],
) -> None:
    """Stop a version that answers at sites, at once and until somebody clears it: the champion of main answers there.

    The champion of main itself is taken back with 'medloop rollback', its challenger with 'medloop experiment stop'.

    Example:  medloop deploy block 3 --reason "wrong doses in the ward"
    """
    with open_store(ui.settings()) as store:
        left = block_version(store, version, actor=actor(), reason=reason)
    ui.say(f"Version {version} is blocked. {_main_answers(left)}".rstrip())
    ui.next_step("deploy status")


@deploy_app.command("clear")
def clear(
    version: Annotated[int, typer.Argument(min=1, metavar="VERSION", help="Number of the version that was rolled back.")],
    reason: Reason = "",
) -> None:
    """Let a version that was rolled back go live again, if the gate still lets it.

    Example:  medloop deploy clear 3 --reason "the flags were about another answer"
    """
    with open_store(ui.settings()) as store:
        clear_block(store, version, actor=actor(), reason=reason)
    ui.say(f"Version {version} is not blocked any more.")
    ui.next_step(f"registry promote {version}", "To deploy it, make it the champion again:")


def _say_outcome(outcome: DeployOutcome) -> None:
    name = _named(outcome.route.version, outcome.route.served_name)
    if not outcome.changed:
        ui.say(f"{name} answers already.")
    else:
        before = f"; before it was {outcome.from_name}" if outcome.from_name else ""
        ui.say(f"{name} answers now{before}.")


def _why(live: Route, found: DeployStatus) -> str:
    """The reason of a rollback is about the version that was taken back, not about the one that answers."""
    taken = next(
        (event for event in found.blocked if event.reason == live.reason and event.served_name != live.served_name), None
    )
    return live.reason if taken is None else f"instead of {_named(taken.version, taken.served_name)}, rolled back: {live.reason}"


def _named(version: int | None, served_name: str) -> str:
    return f"The base ({served_name})" if version is None else f"Version {version} ({served_name})"


def _main_answers(sites: list[str]) -> str:
    return f"The champion of main answers at {', '.join(sites)} now." if sites else ""


def _say_replicas(found: DeployStatus) -> None:
    if not found.replicas:
        ui.say(f"No model server is known. {NO_REPLICAS}.")
        return
    rows = [
        (state.url, "up" if state.is_up else "down", ", ".join(model.name for model in state.models) or state.problem)
        for state in found.replicas
    ]
    ui.table(("server", "state", "models"), rows)


def _say_report(report: WatchReport) -> None:
    up = sum(state.is_up for state in report.servers.replicas)
    ui.say(f"{up} of {len(report.servers.replicas)} model servers are up.")
    for name in report.servers.restored:
        ui.say(f"Loaded again: {name}")
    for name in report.servers.unloaded:
        ui.say(f"Unloaded: {name}")
    for problem in (*report.servers.problems, *([report.problem] if report.problem else [])):
        ui.say(f"Problem: {problem}")
    for alarm in report.alarms:
        ui.say(f"Alarm: {alarm.kind}: {alarm.reason}")
    for sentence in report.sites:
        ui.say(f"Site: {sentence}")
    if report.rollback is not None:
        ui.say(f"Rolled back: {_named(report.rollback.route.version, report.rollback.route.served_name)} answers now.")
