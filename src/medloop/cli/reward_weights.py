"""`medloop reward weights`: how the weights of the DW-GRPO rewards moved, as a table and a plot."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError, InputError
from medloop.knobs import load_config
from medloop.reward.dynamic import HISTORY, DwState, DynamicConfig, load_state
from medloop.reward.dynamic_plot import plot_histories, simulate


def weights(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A run with dynamic weights: its name, job or folder, or its weights.json."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Plot rewards and weights to this PNG.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Instead of a file: simulate a stagnating reward, with and without normalised slopes.")
    ] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="With --demo: settings, as in configs/dw.yaml.")] = None,
    json_: ui.AsJson = False,
) -> None:
    """Show dynamic weights round by round: the mean of each reward, and its weight in the next round.

    Example:  medloop reward weights round1 --plot weights.png
    """
    if demo == (run is not None):
        raise ConfigError("Give either a run or --demo", "Example: medloop reward weights round1")
    if config is not None and not demo:
        raise ConfigError("--config is only for --demo: a run has its own settings", "Leave --config out")
    if run is not None:
        states = {"": load_state(_history_file(run))}
    else:
        states = simulate(load_config(DynamicConfig, file=config, flags={}).weights)
    if plot is not None:
        plot_histories(states, plot.expanduser().absolute())
    if json_:
        ui.say_json(states)
        return
    for title, state in states.items():
        _show(title, state)
    if plot is not None:
        ui.say(f"Plot: {ui.shown(plot.expanduser().absolute())}")


def _history_file(run: str) -> Path:
    """The history of a run: the file itself, or weights.json of a folder, of a result under models/rl or of a job."""
    given = Path(run).expanduser()
    if given.is_file():
        return given
    folders = [given]
    if not given.is_dir():
        workspace = ui.settings().workspace
        folders = [workspace.home / run, workspace.models / "rl" / run, workspace.jobs / run]
    places = [folder / HISTORY for folder in folders if folder.is_dir()]
    if not places:
        raise InputError(f"There is no run {run}", "Name a result under models/rl, a job, or a weights.json")
    if (history := next((place for place in places if place.is_file()), None)) is None:
        raise InputError(
            f"{run} has no dynamic weights yet: there is no {HISTORY} in it",
            "IRS writes it after its first round when dw or dw_config is set",
        )
    return history


def _show(title: str, state: DwState) -> None:
    names = list(state.config.initial_weights)
    rows = [("start", *("" for _ in names), *(f"{state.config.initial_weights[name]:.3f}" for name in names))]
    for number, entry in enumerate(state.rounds, start=1):
        means = (f"{entry.means[name]:.3f}" if name in entry.means else "–" for name in names)
        rows.append((str(number), *means, *(f"{entry.weights[name]:.3f}" for name in names)))
    ui.table(("round", *names, *(f"w({name})" for name in names)), rows, title=title)
