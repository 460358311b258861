"""`medloop reward weights`: how the weights of the DW-GRPO rewards moved, as a table and a plot."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError
from medloop.knobs import load_config
from medloop.reward.dynamic import DwState, DynamicConfig, load_state
from medloop.reward.dynamic_plot import plot_histories, simulate


def weights(
    file: Annotated[Path | None, typer.Argument(metavar="[HISTORY]", help="History saved by a run with dynamic weights.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Plot rewards and weights to this PNG.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Instead of a file: simulate a stagnating reward, with and without normalised slopes.")
    ] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="With --demo: settings, as in configs/dw.yaml.")] = None,
) -> None:
    """Show dynamic weights round by round: the mean of each reward, and its weight in the next round.

    Example:  medloop reward weights --demo --config configs/dw.yaml --plot weights.png
    """
    if demo == (file is not None):
        raise ConfigError("Give either a history file or --demo", "Example: medloop reward weights --demo")
    if config is not None and not demo:
        raise ConfigError("--config is only for --demo: a history has its own settings", "Leave --config out")
    if file is not None:
        states = {"": load_state(file)}
    else:
        states = simulate(load_config(DynamicConfig, file=config, flags={}).weights)
    if plot is not None:
        plot_histories(states, plot.expanduser().absolute())
    for title, state in states.items():
        _show(title, state)
    if plot is not None:
        ui.say(f"Plot: {ui.shown(plot.expanduser().absolute())}")


def _show(title: str, state: DwState) -> None:
    names = list(state.config.initial_weights)
    rows = [("start", *("" for _ in names), *(f"{state.config.initial_weights[name]:.3f}" for name in names))]
    for number, entry in enumerate(state.rounds, start=1):
        means = (f"{entry.means[name]:.3f}" if name in entry.means else "–" for name in names)
        rows.append((str(number), *means, *(f"{entry.weights[name]:.3f}" for name in names)))
    ui.table(("round", *names, *(f"w({name})" for name in names)), rows, title=title)
