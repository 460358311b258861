"""Curves of an RL run that a person can look at: reward, held-out reward, KL, entropy, length; as PNG and as a page."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

from medloop.contracts import Interval, TrainingCard

PANELS = (
    (("reward", "training"), ("held_out", "held out"), "reward"),
    (("kl", "KL to reference"), ("beta", "beta"), "nats per answer"),
    (("entropy", "entropy"), ("clip_fraction", "clipped"), "per token"),
    (("length", "tokens"), ("truncated", "truncated"), "answers"),
)


def draw(table: Sequence[dict[str, Any]], *, title: str) -> bytes:
    """Up to four panels over the steps, as PNG; of what a method does not measure there is none.

    A second line with another unit has its own axis.
    """
    from matplotlib.figure import Figure  # without pyplot, so no screen is looked for; half a second that only the end needs
    from matplotlib.ticker import MaxNLocator

    panels = [panel for panel in PANELS if any(row.get(line[0]) is not None for line in panel[:2] for row in table)] or [
        PANELS[0]
    ]
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
    dashes = "--" if colour == "tab:orange" and not marker else "-"  # where one lies on the other, both are seen
    axes.plot(*zip(*points, strict=True), dashes, color=colour, label=label, marker=marker, markersize=4)
    if axes.get_ylabel() == "":
        axes.set_ylabel(label, color=colour)


def page(
    card: TrainingCard,
    table: Sequence[dict[str, Any]],
    picture: bytes,
    gain: Interval | None,
    alarms: Sequence[str] | None = None,
) -> str:
    """A page without scripts: the verdict on held-out questions, what the panel noticed, the curves, the numbers of the card."""
    said = "No held-out questions were measured."
    if gain is not None and gain.mean is not None and gain.low is not None and gain.high is not None:
        sure = "the interval excludes 0" if gain.low > 0 or gain.high < 0 else "the interval includes 0: no proven change"
        around = f"95 % interval {gain.low:+.3f} to {gain.high:+.3f}, {gain.n} questions"
        said = f"Held-out reward moved by {gain.mean:+.3f} ({around}): {sure}."
    noticed = "".join(f"<li><strong>Alarm:</strong> {html.escape(words)}</li>" for words in alarms or ())
    if alarms == []:
        noticed = "<li>The reward-hacking panel raises no alarm.</li>"
    numbers = "".join(f"<tr><td>{html.escape(k.replace('_', ' '))}</td><td>{v:,.6g}</td></tr>" for k, v in card.metrics.items())
    image = base64.b64encode(picture).decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{html.escape(card.name)}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}img{{max-width:100%}}
td{{padding:.1rem 1rem .1rem 0;border-bottom:1px solid #ddd}}</style></head><body>
<h1>{html.escape(card.method.upper())} {html.escape(card.name)}</h1>
<p>{html.escape(said)}</p>
<ul>{noticed}</ul>
<img alt="Reward, KL, entropy and length over the steps" src="data:image/png;base64,{image}">
<table>{numbers}</table>
<p>Base {html.escape(card.base)}, {len(table)} rows in rewards.csv, samples.jsonl beside this page. Not a medical device.</p>
</body></html>
"""
