"""`medloop reward weights`: how the weights of the DW-GRPO scorer moved, as a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError
from medloop.knobs import load_config
from medloop.reward.dynamic import DwState, DynamicConfig, load_state
from medloop.reward.dynamic_plot import plot_histories, simulate


def weights(
    file: Annotated[
        Path | None, typer.Argument(metavar="[HISTORY]", help="History that a run with dynamic weights saved.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw rewards and weights into this PNG.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Simulate a stagnating reward, with normalised slopes and without, instead of a file.")
    ] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="With --demo: settings, as in configs/dw.yaml.")] = None,
) -> None:
    """Show how dynamic weights moved, round by round: each reward's mean, and its weight for the next round.

    Example:  medloop reward weights --demo --config configs/dw.yaml --plot weights.png
    """
    if demo == (file is not None):
        raise ConfigError("Give one of a history and --demo", "Example: medloop reward weights --demo")
    if config is not None and not demo:
        raise ConfigError(f"{config} was given, but a history has its own settings", "Leave --config out")
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
    for number, done in enumerate(state.rounds, start=1):
        means = (f"{done.means[name]:.3f}" if name in done.means else "–" for name in names)
        rows.append((str(number), *means, *(f"{done.weights[name]:.3f}" for name in names)))
    ui.table(("round", *names, *(f"w({name})" for name in names)), rows, title=title)
