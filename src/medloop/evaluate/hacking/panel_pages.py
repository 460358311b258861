"""The panel for people: Markdown, a page with two small curves, and the terminal's table from the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import Interval
from medloop.evaluate.hacking.panel import Panel, RoundStats
from medloop.evaluate.inspection.report_pages import number, pages, safe
from medloop.evaluate.report import cell
from medloop.store.files.atomic import atomic_write

LEAST_SHARE = 0.0005  # of the reward; what is shown as 0.0% in every round says nothing
SHOWN = 1200  # characters of a text in Markdown
WIDTH, HEIGHT, EDGE = 560, 220, 40
LINES: dict[str, Callable[[RoundStats], str]] = {
    "reward trained on (proxy)": lambda one: cell(one.proxy),
    "held-out score": lambda one: cell(one.held_out),
    "gap (proxy - held-out)": lambda one: cell(one.gap),
    "gap grown, in deviations": lambda one: cell(one.growth),
    "rank correlation of the two": lambda one: number(one.correlation),
    "words, mean / median / p95": lambda one: f"{one.length_mean:.0f} / {one.length_median:.0f} / {one.length_p95:.0f}",
    "distinct-1 / distinct-2": lambda one: f"{number(one.distinct_1)} / {number(one.distinct_2)}",
    "repeated within an answer": lambda one: f"{one.repeated:.1%}",
    "text said to everybody": lambda one: f"{one.stock:.1%}",
    "same answer whatever was asked": lambda one: f"{one.same_answer:.1%}",
    "answers": lambda one: str(one.answers),
    "reward version": lambda one: one.versions[0] if len(one.versions) == 1 else f"{len(one.versions)} versions",
    "without a reward": lambda one: f"{one.missing:.1%}",
}


def caution(found: Panel) -> str:
    """Rewards of two versions are two yardsticks; dynamic weights and a changed mix both make new versions."""
    if len(found.versions) < 2:
        return ""
    return f"The rounds were scored by {len(found.versions)} versions of the reward: a changed mean may be the reward's own."


def table(found: Panel) -> list[tuple[str, ...]]:
    """First column the measure, then one per round; the parts of the reward follow by name."""
    rows = [(name, *(show(one) for one in found.rounds)) for name, show in LINES.items()]
    parts = dict.fromkeys(name for one in found.rounds for name, share in one.shares.items() if share >= LEAST_SHARE)
    shares = [(f"share of {name}", *(f"{one.shares.get(name, 0.0):.1%}" for one in found.rounds)) for name in parts]
    return rows + shares


def probe_table(found: Panel) -> list[tuple[str, str, str, str]]:
    """Null answer, mean, highest, missing; the last row are the real answers of the same call."""
    if found.probes is None:
        return []
    rows = [(one.name, number(one.mean), number(one.highest), str(one.missing)) for one in found.probes.results]
    return [*rows, (f"{found.probes.real} real answers", number(found.probes.real_mean), "", "")]


def markdown(found: Panel) -> str:
    lines = ["# Reward-hacking panel", "", f"{found.timestamp:%Y-%m-%d %H:%M} UTC. Every round is compared with the first.", ""]
    lines += [caution(found), ""] if caution(found) else []
    lines += ["## Alarms", "", *([f"- **{alarm.kind}** {safe(alarm.words)}" for alarm in found.alarms] or ["None."]), ""]
    names = [safe(one.name) for one in found.rounds]
    lines += ["## Rounds", "", *_markdown_table(["measure", *names], table(found)), ""]
    if found.probes:
        about = f"Scored together with real answers, by reward version {found.probes.version}."
        lines += ["## Null answers", "", about, ""]
        lines += [*_markdown_table(["null answer", "mean", "highest", "missing"], probe_table(found)), ""]
    lines += ["## Highest rewards", "", "Read these first: what a hacked reward pays for stands on top.", ""]
    for top in found.top:
        lines += [f"### {safe(top.round)} `{safe(top.id)}`: {top.reward:.3f}, held out {number(top.held_out)}", ""]
        lines += [f"- Question: {safe(top.question[:SHOWN])}", f"- Answer: {safe(top.answer[:SHOWN])}", ""]
    if found.unscrubbable:
        lines += [f"{found.unscrubbable} left out: an identifier could not be taken out.", ""]
    return "\n".join(lines)


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    yield from (f"| {' | '.join(row)} |" for row in rows)


@dataclass(frozen=True)
class Line:
    """One curve: its name, class, points in the picture, and whiskers (x, low, high)."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]
    whiskers: tuple[tuple[float, float, float], ...] = ()

    @property
    def path(self) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


def html(found: Panel) -> str:
    scores = [("proxy", "a", [one.proxy for one in found.rounds]), ("held-out", "b", [one.held_out for one in found.rounds])]
    lengths = [("words", "a", [_point(one.length_mean) for one in found.rounds])]
    charts = [_chart("proxy and held-out score", scores), _chart("mean length in words", lengths)]
    return pages().get_template("panel.html").render(
        found=found, caution=caution(found), rows=table(found), probes=probe_table(found), charts=charts,
        width=WIDTH, height=HEIGHT, edge=EDGE, places=[_x(at, len(found.rounds)) for at in range(len(found.rounds))],
    )  # fmt: skip


def _point(value: float) -> Interval:
    return Interval(mean=value, low=value, high=value, n=1)


def _x(at: int, count: int) -> float:
    return EDGE + (WIDTH - 2 * EDGE) * (at + 0.5) / count


def _chart(title: str, curves: Sequence[tuple[str, str, Sequence[Interval]]]) -> dict[str, object]:
    """Curves over the rounds, scaled to what they reach; a round without a mean leaves a hole."""
    ends = [end for _, _, means in curves for one in means for end in (one.low, one.high) if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    spread = (high - low) or abs(high) or 1.0
    low, high = low - 0.1 * spread, high + 0.1 * spread

    def y(value: float) -> float:
        return HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - low) / (high - low)

    lines = []
    for name, kind, means in curves:
        had = [(_x(at, len(means)), one) for at, one in enumerate(means) if one.mean is not None]
        points = tuple((x, y(one.mean)) for x, one in had if one.mean is not None)
        whiskers = tuple((x, y(one.low), y(one.high)) for x, one in had if one.low is not None and one.high is not None)
        if points:
            lines.append(Line(name, kind, points, whiskers))
    marks = [(y(value), f"{value:.2f}" if high < 10 else f"{value:.0f}") for value in (low + 0.1 * spread, high - 0.1 * spread)]
    return {"title": title, "lines": lines, "marks": marks}


def write(found: Panel, folder: Path) -> None:
    """panel.json, panel.md and panel.html."""
    atomic_write(folder / "panel.json", found.model_dump_json(indent=2, exclude_none=True) + "\n")
    atomic_write(folder / "panel.md", markdown(found))
    atomic_write(folder / "panel.html", html(found))
