"""Plots of weights and rewards over the rounds, and a simulated history that shows the effect of `normalize_slopes`.

plot_histories({"": load_state(path)}, Path("weights.png"))
plot_histories(simulate(DwConfig()), Path("weights.png"))      # normalised and raw slopes, side by side
"""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from medloop.errors import MissingExtraError
from medloop.reward.dynamic import DwConfig, DwRound, DwState, update
from medloop.store.files.atomic import atomic_write

ROUNDS, NOISE = 24, 0.008  # the simulation: rounds, and the standard deviation of a round's mean
COLOURS = ("#1b6ca8", "#d1495b", "#2e7d32", "#8e6c8a", "#b07d2b", "#555555")


def plot_histories(states: Mapping[str, DwState], path: Path) -> None:
    """`draw_histories` into a file, written atomically."""
    atomic_write(path, draw_histories(states))


def draw_histories(states: Mapping[str, DwState]) -> bytes:
    """A PNG with one column per history, so that they can be compared."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.of("Drawing a plot", "train") from None
    figure = Figure(figsize=(5.2 * len(states) + 1.2, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(states), sharex=True, sharey="row", squeeze=False)
    for column, (title, state) in enumerate(states.items()):
        _draw(axes[0, column], axes[1, column], state)
        axes[0, column].set_title(title)
    axes[0, 0].set_ylabel("mean reward")
    axes[1, 0].set_ylabel("weight")
    axes[1, 0].legend(loc="best", frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120, metadata={"Software": "medloop"})
    return picture.getvalue()


def _draw(above: object, below: object, state: DwState) -> None:
    """A reward without a value in a round leaves a gap in its line."""
    rounds = np.arange(len(state.rounds) + 1)
    for number, name in enumerate(state.config.initial_weights):
        style = {"color": COLOURS[number % len(COLOURS)], "marker": ".", "label": name}
        above.plot(rounds[1:], [round_.means.get(name, np.nan) for round_ in state.rounds], **style)  # type: ignore[attr-defined]
        weights = [state.config.initial_weights[name], *(round_.weights[name] for round_ in state.rounds)]
        below.plot(rounds, weights, **style)  # type: ignore[attr-defined]
        if floor := state.config.lowest[name]:
            below.axhline(floor, color=style["color"], linewidth=0.8, linestyle=":")  # type: ignore[attr-defined]
    below.set_xlabel("round")  # type: ignore[attr-defined]


def simulate(config: DwConfig, seed: int = 0) -> dict[str, DwState]:
    """The same rewards with both settings: the first rises and levels off, the second stagnates, the others rise slowly."""
    noise = np.random.default_rng(seed).normal(0, NOISE, (ROUNDS, len(config.initial_weights)))
    names = list(config.initial_weights)
    means = [
        {name: _simulated_mean(round_, index) + float(noise[round_, index]) for index, name in enumerate(names)}
        for round_ in range(ROUNDS)
    ]
    settings = {"normalize_slopes: true": True, "normalize_slopes: false": False}
    return {title: replay(config.model_copy(update={"normalize_slopes": on}), means) for title, on in settings.items()}


def replay(config: DwConfig, means: list[dict[str, float]]) -> DwState:
    """The state after rounds with these means."""
    weights, rounds = dict(config.initial_weights), []
    for index in range(len(means)):
        weights = update(weights, means[: index + 1], config)
        rounds.append(DwRound(means=means[index], weights=weights))
    return DwState(config=config, weights=weights, rounds=tuple(rounds))


def _simulated_mean(round_: int, reward: int) -> float:
    if reward == 0:
        return 0.35 + 0.04 * min(round_, 14)
    return 0.5 if reward == 1 else 0.45 + 0.012 * round_
