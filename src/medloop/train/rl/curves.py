"""The report of an RL run for people: curves of reward, KL, entropy and length as PNG, and a page around them."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medloop.contracts import Interval, TrainingCard
from medloop.train.runs.model_card import metric_rows

PANELS = (
    (("reward", "training"), ("held_out", "held-out"), "reward"),
    (("kl", "KL to reference"), ("beta", "beta"), "nats per answer"),
    (("entropy", "entropy"), ("clip_fraction", "clip fraction"), "per token"),
    (("length", "tokens"), ("truncated", "truncated"), "answers"),
)


@dataclass(frozen=True)
class WeightTrend:
    """How dynamic weights moved: their history, as the scorer saves it, and a plot of it."""

    history: Mapping[str, Any]
    picture: bytes

    def section(self) -> str:
        """A heading, the plot and a table with a row per round, as HTML."""
        names = list(self.history["config"]["initial_weights"])
        start = ("start", *("" for _ in names), *(f"{self.history['config']['initial_weights'][name]:.3f}" for name in names))
        rows = [start]
        for number, entry in enumerate(self.history["rounds"], start=1):
            means = (f"{entry['means'][name]:.3f}" if name in entry["means"] else "–" for name in names)
            rows.append((str(number), *means, *(f"{entry['weights'][name]:.3f}" for name in names)))
        head = ("round", *names, *(f"weight of {name}" for name in names))
        lines = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        image = base64.b64encode(self.picture).decode()
        return (
            "<h2>Weights of the reward</h2><p>The mean of each reward in a round, and its weight in the next one.</p>"
            f'<img alt="Rewards and their weights over the rounds" src="data:image/png;base64,{image}">'
            f"<table><tr>{titles}</tr>{lines}</table>"
        )


def draw_curves(table: Sequence[dict[str, Any]], *, title: str) -> bytes:
    """Up to four panels over the steps, as PNG; panels that a method does not measure are left out.

    A second line with another unit has its own axis.
    """
    from matplotlib.figure import Figure  # an optional extra; not pyplot, which would look for a screen
    from matplotlib.ticker import MaxNLocator

    measured = {name for row in table for name, value in row.items() if value is not None}
    panels = [panel for panel in PANELS if measured & {panel[0][0], panel[1][0]}] or [PANELS[0]]
    figure = Figure(figsize=(10, 6), layout="constrained")
    figure.suptitle(title)
    grid = list(figure.subplots(-(-len(panels) // 2), min(len(panels), 2), squeeze=False).flat)
    for unused in grid[len(panels) :]:
        unused.set_axis_off()
    for axes, (left, right, unit) in zip(grid, panels, strict=False):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step")
        axes.set_ylabel(unit)
        _line(axes, table, *left, colour="tab:blue")
        same = left[0] == "reward"
        _line(axes if same else axes.twinx(), table, *right, colour="tab:orange", marker="o" if same else "")
        axes.legend(loc="upper left", fontsize="small") if axes.lines else None
        axes.grid(alpha=0.3)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()


def _line(axes: Any, table: Sequence[dict[str, Any]], name: str, label: str, *, colour: str, marker: str = "") -> None:
    points = [(row["step"], row[name]) for row in table if row.get(name) is not None]
    if not points:
        axes.set_yticks([])
        return
    dashes = "--" if colour == "tab:orange" and not marker else "-"  # where one line covers the other, both are seen
    axes.plot(*zip(*points, strict=True), dashes, color=colour, label=label, marker=marker, markersize=4)
    if axes.get_ylabel() == "":
        axes.set_ylabel(label, color=colour)


def report_page(
    card: TrainingCard,
    table: Sequence[dict[str, Any]],
    picture: bytes,
    gain: Interval | None,
    alarms: Sequence[str] | None = None,
    trend: WeightTrend | None = None,
) -> str:
    """A page without scripts: the verdict on held-out questions, the panel's alarms, the curves, the numbers of the card."""
    verdict = "No held-out questions were measured."
    if gain is not None and gain.mean is not None and gain.low is not None and gain.high is not None:
        proven = gain.low > 0 or gain.high < 0
        conclusion = "the interval excludes 0" if proven else "the interval contains 0, so no change is proven"
        interval = f"95 % CI {gain.low:+.3f} to {gain.high:+.3f}, {gain.n} questions"
        verdict = f"The held-out reward changed by {gain.mean:+.3f} ({interval}): {conclusion}."
    panel = "".join(f"<li><strong>Alarm:</strong> {html.escape(alarm)}</li>" for alarm in alarms or ())
    if alarms == []:
        panel = "<li>The reward-hacking panel raises no alarm.</li>"
    rows = metric_rows(card.metrics)
    numbers = "".join(f"<tr><td>{html.escape(label)}</td><td>{html.escape(value)}</td></tr>" for label, value in rows)
    image = base64.b64encode(picture).decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{html.escape(card.name)}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}img{{max-width:100%}}
td{{padding:.1rem 1rem .1rem 0;border-bottom:1px solid #ddd}}</style></head><body>
<h1>{html.escape(card.method.upper())} {html.escape(card.name)}</h1>
<p>{html.escape(verdict)}</p>
<ul>{panel}</ul>
<img alt="Reward, KL, entropy and length over the steps" src="data:image/png;base64,{image}">
<table>{numbers}</table>
{trend.section() if trend else ""}
<p>Base model {html.escape(card.base)}. rewards.csv has {len(table)} rows; samples.jsonl has answers. Not a medical device.</p>
</body></html>
"""
