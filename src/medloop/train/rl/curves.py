"""The curves of an RL run as PNG: one measure and one unit in each panel."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

# A panel: its title with the unit, and the columns of the step table that have this unit, with their labels.
PANELS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("Reward (per answer)", {"reward": "training questions", "held_out": "held-out questions"}),
    ("KL to the reference (nats per answer)", {"kl": "KL"}),
    ("Weight of the KL penalty (beta)", {"beta": "beta"}),
    ("Entropy (nats per token)", {"entropy": "entropy"}),
    ("Clipped share of the tokens", {"clip_fraction": "clipped"}),
    ("Length of an answer (tokens)", {"length": "length"}),
    ("Truncated share of the answers", {"truncated": "truncated"}),
)
PART = "part_"  # how a column of the step table names a part of the reward
Steps = Sequence[dict[str, Any]]
Series = dict[str, list[float | None]]


def panels_of(table: Steps) -> dict[str, Series]:
    """What was measured, by title: a line per label, with None where a step lacks it."""
    names = dict.fromkeys(name for row in table for name in row if name.startswith(PART))
    parts = ("Parts of the reward (mean per answer)", {name: name.removeprefix(PART) for name in names})
    panels = {}
    for title, columns in (PANELS[0], parts, *PANELS[1:]):
        series = {label: [row.get(name) for row in table] for name, label in columns.items()}
        measured = {label: values for label, values in series.items() if any(value is not None for value in values)}
        if measured:
            panels[title] = measured
    return panels


def draw_curves(table: Steps, *, title: str) -> bytes:
    """The panels over the steps, as PNG; those that a method does not measure are left out."""
    from matplotlib.figure import Figure  # an optional extra; not pyplot, which would look for a screen
    from matplotlib.ticker import MaxNLocator

    panels = panels_of(table)
    rows = max(1, -(-len(panels) // 2))
    figure = Figure(figsize=(10, 2.8 * rows + 0.6), layout="constrained")
    figure.suptitle(title)
    grid = list(figure.subplots(rows, 2, squeeze=False).flat)
    for unused in grid[len(panels) :]:
        unused.set_axis_off()
    for axes, (name, series) in zip(grid, panels.items(), strict=False):
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        for label, values in series.items():
            points = [(row["step"], value) for row, value in zip(table, values, strict=True) if value is not None]
            axes.plot(*zip(*points, strict=True), label=label, marker="o", markersize=3)
        if len(series) > 1:
            axes.legend(fontsize="small")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()
