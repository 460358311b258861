"""The curves of an RL run: one measure and one unit in each panel of its report."""

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
