"""`medloop loop`: run the loop, step by step, as one durable workflow; see where it stands and what it waits for."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts.assistant import Champion
from medloop.errors import InputError, MedloopError
from medloop.feedback.trigger import TriggerConfig, check_trigger, trigger_config
from medloop.knobs import load_config
from medloop.loop.cycle import CycleConfig, cycle_steps, run_cycle
from medloop.loop.cycle_config import OnlineConfig
from medloop.loop.cycle_cost import step_costs
from medloop.loop.cycle_data import redo_number
from medloop.loop.workflow import ROUND, CycleProgress, progress_of, run_command
from medloop.settings import Settings
from medloop.store.audit_trail import actor, open_audit_trail
from medloop.store.db import Store, open_store
from medloop.store.records import registry, triggers
from medloop.store.records.cycles import cycle_events, cycle_names
from medloop.store.records.routes import live_route

loop_app = typer.Typer(no_args_is_help=True, help="Run the loop from feedback to a promoted version; see what it waits for.")
FIRST_STEP = "data"
CONFIG_FILE = "loop.yaml"  # in the workspace: what every cycle does

Name = Annotated[str | None, typer.Option(metavar="NAME", help="The cycle (default: the one that is not over, else a new one).")]
ConfigFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings of a cycle (default: loop.yaml in the workspace).")
]
Online = Annotated[
    bool, typer.Option("--online", help="Rounds of online learning: few new answers and a replay, from what serves, same gate.")
]
Pairs = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting; may be repeated.")]


def register(app: typer.Typer) -> None:
    app.add_typer(loop_app, name="loop")


@loop_app.command("run")
def run(
    name: Name = None,
    config: ConfigFile = None,
    set_: Pairs = None,
    online: Online = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it costs, and do nothing.")] = False,
    json_: ui.AsJson = False,
) -> None:
    """Run a cycle, or go on with the one that was stopped or waited: from feedback to a version that serves.

    It ends when everything is done, when it waits for people or for the verdict of an experiment (run it again later), or when
    the gate, the canaries or the users refuse. A cycle whose data an erasure has touched begins again without the erased rows.

    Example:  medloop loop run --dry-run
    """
    settings = ui.settings()
    chosen = _config(settings, name, config, set_, online=online)
    if dry_run:
        _show_plan(settings, chosen, json_=json_)
        return
    progress = run_cycle(settings, chosen, on_stage=_step_line(chosen.name))
    _show(progress, json_=json_)


@loop_app.command("status")
def status(name: Name = None, json_: ui.AsJson = False) -> None:
    """Show where a cycle stands, what it waits for, and what moves it.

    Example:  medloop loop status
    """
    settings = ui.settings()
    with open_store(settings) as store:
        names = cycle_names(store)
        if name is not None and name not in names:
            raise InputError(f"There is no cycle '{name}'", f"Known: {', '.join(names[-5:]) or 'none'}")
        if not names:
            if json_:
                ui.say_json(None)
            else:
                ui.say("No cycle has run yet.")
                ui.next_step("loop run --dry-run")
            return
        chosen = name or names[-1]
        progress, touched = progress_of(chosen, cycle_events(store, chosen)), _is_touched(store, chosen)
        others = [other for other in _to_redo(store, names) if other != chosen] if name is None else []
    _show(progress, json_=json_, touched=touched)
    if others and not json_:
        ui.say(f"An erasure has reached what {others[0]} learnt from, and its model is in use.")
        ui.next_step(run_command(others[0], named=True))


@loop_app.command("watch")
def watch(
    every_s: Annotated[float, typer.Option(min=1, help="Seconds between two looks.")] = 60.0,
    every_hours: Annotated[
        float, typer.Option(min=0, help="Start a cycle this long after the last one even without new feedback; 0: never.")
    ] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, for a timer of the system.")] = False,
    online: Online = False,
    config: ConfigFile = None,
    set_: Pairs = None,
) -> None:
    """Go on with a cycle as soon as it can, and start a new one when feedback or time asks for it. Ctrl-C stops it.

    A new cycle starts when the retrain trigger is due ('medloop feedback trigger' says when), or by the clock. With --online, a
    small round starts after a few new records.

    Example:  medloop loop watch --once
    """
    settings = ui.settings()
    said = ""
    while True:
        try:
            sentence = look(settings, every_hours, config, set_, online=online)
        except MedloopError as error:
            if once:
                raise
            sentence = f"The cycle stopped: {error}"
        if sentence != said:
            ui.say(sentence)
            said = sentence
        if once:
            return
        time.sleep(every_s)


def look(settings: Settings, every_hours: float, config: Path | None, pairs: list[str] | None, *, online: bool = False) -> str:
    """One look of the watch, as a sentence: a cycle that is not over goes on; a new one starts when there is a reason."""
    chosen = _config(settings, None, config, pairs, online=online)
    when = _trigger(settings, chosen)
    with open_store(settings) as store:
        events = cycle_events(store, chosen.name)
        if not events:
            names = cycle_names(store)
            last = cycle_events(store, names[-1])[-1].timestamp if names else None
            due = check_trigger(store, when, write=False, actor=actor())
            by_clock = every_hours > 0 and (last is None or datetime.now(UTC) - last >= timedelta(hours=every_hours))
            if not by_clock and (due.reason is None or due.waits is not None):
                return f"Nothing to do: {due.rows} new records, no reason for a cycle now."
    said = _step_line(chosen.name)

    def on_stage(step: str) -> None:
        """The cycle has begun: from now on its feedback does not start another one."""
        if step == FIRST_STEP and not events:
            with open_store(settings) as store:
                filed = check_trigger(store, when, write=True, actor=actor()).trigger
                if filed is not None:
                    triggers.set_jobs(store, filed.trigger_id, [chosen.name], actor=actor())
        said(step)

    progress = run_cycle(settings, chosen, on_stage=on_stage)
    return f"{chosen.name}: {progress.state}" + (f" at {progress.at.name}: {progress.reason}" if progress.at else "")


def _step_line(cycle: str) -> Callable[[str], None]:
    return lambda step: typer.echo(f"{cycle}: {step} ...", err=True)


def _trigger(settings: Settings, config: CycleConfig) -> TriggerConfig:
    """When a cycle begins by itself; a round of online learning after fewer records and a shorter rest."""
    usual = trigger_config(settings)
    if config.online is None:
        return usual
    return usual.model_copy(update={"every": config.online.every, "cooldown_hours": config.online.minutes / 60})


def _config(
    settings: Settings, name: str | None, file: Path | None, pairs: list[str] | None, *, online: bool = False
) -> CycleConfig:  # fmt: skip
    own = settings.home / CONFIG_FILE
    file = file or (own if own.is_file() else None)
    config = load_config(CycleConfig, file=file, pairs=pairs or (), flags={"name": name or _current(settings, online)})
    is_round = online or config.name.startswith(ROUND)
    return config.model_copy(update={"online": config.online or OnlineConfig()}) if is_round else config


def _current(settings: Settings, online: bool) -> str:
    """The newest cycle (or round of online learning) that is not over, or the name of the next one.

    First comes the oldest one that an erasure has touched and whose model is in use: what it made must go.
    """
    with open_store(settings) as store:
        names = cycle_names(store)
        mine = [name for name in names if name.startswith(ROUND) == online]
        if again := _to_redo(store, mine):
            return again[0]
        for name in reversed(mine):  # of the older ones, those that an erasure has begun again
            state = progress_of(name, cycle_events(store, name)).state
            if state not in {"done", "ended"} and (name == mine[-1] or _redone(store, name)):
                return name
            if name == mine[-1] and state == "done" and _is_touched(store, name):
                return name
    return next(name for number in count(1) if (name := f"{ROUND if online else 'cycle'}{number}") not in names)


def _is_touched(store: Store, cycle: str) -> bool:
    """Whether an erasure has reached what a cycle learnt from since its data was made."""
    return redo_number(store, cycle) > _redone(store, cycle)


def _redone(store: Store, cycle: str) -> int:
    """How often its data was made again, or found to be empty, after an erasure."""
    made = [event for event in cycle_events(store, cycle) if event.step == FIRST_STEP and event.event in ("done", "ended")]
    return int(made[-1].outputs.get("redo") or 0) if made else 0


def _to_redo(store: Store, cycles: list[str]) -> list[str]:
    """Cycles that an erasure has touched and that made a version with an alias, or one that answers at main; oldest first. What
    they make anew goes to main, so a champion of a site is no reason (store/records/routes.py takes it away)."""
    used = {change.version for change in registry.current(store, store.settings.registry.model).values()}
    arms: tuple[Champion, ...] = ("champion", "challenger")
    used |= {route.version for arm in arms if (route := live_route(store, arm)) is not None}
    return [
        name
        for name in cycles
        if used & {event.outputs.get("version") for event in cycle_events(store, name) if event.step == "register"} - {None}
        and _is_touched(store, name)
    ]


def _show_plan(settings: Settings, config: CycleConfig, *, json_: bool) -> None:
    with open_audit_trail(settings) as trail:
        events = {event.step: event.event for event in cycle_events(trail.store, config.name)}
        steps = cycle_steps(settings, trail, config)
        costs = step_costs(settings, trail.store, config)
    rows = [
        {"step": step.name, "state": events.get(step.name, "open"), "what": step.cost, "cost": costs.get(step.name, "")}
        for step in steps
    ]
    if json_:
        ui.say_json({"cycle": config.name, "steps": rows})
        return
    ui.table(
        ("step", "state", "what", "cost"), [tuple(row.values()) for row in rows], title=f"{config.name}: what a run would do"
    )
    ui.say("Nothing was done.")
    ui.next_step(run_command(config.name))


def _show(progress: CycleProgress, *, json_: bool, touched: bool = False) -> None:
    if json_:
        steps = [{"step": row.name, "state": row.state, "reason": row.reason, "outputs": row.outputs} for row in progress.steps]
        about = {"state": progress.state, "reason": progress.reason, "command": progress.command, "touched_by_erasure": touched}
        ui.say_json({"cycle": progress.cycle, **about, "steps": steps})
        return
    ui.table(("step", "state", "result"), [(row.name, row.state, _result(row.outputs, row.reason)) for row in progress.steps])
    ui.say(
        f"{progress.cycle} is {progress.state}." if progress.state != "waiting" else f"{progress.cycle} waits. {progress.reason}"
    )
    if touched:
        ui.say("An erasure has reached what it learnt from: the next run begins it again, without the erased rows.")
        ui.next_step(run_command(progress.cycle, named=True))
    elif progress.command:
        ui.next_step(progress.command)


def _result(outputs: Mapping[str, object], reason: str) -> str:
    hidden = {"sha256", "mix_sha256", "artifact", "command", "gate"}
    return reason or ", ".join(f"{name} {value}" for name, value in outputs.items() if name not in hidden)
