"""The panel as people read it: Markdown, an HTML page with two small charts, and the terminal's table from the same rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import Interval
from medloop.evaluate.hacking.panel import Panel, RoundStats
from medloop.evaluate.markup import markdown_table, number, one_line, templates
from medloop.evaluate.report import cell
from medloop.store.files.atomic import atomic_write

MIN_SHARE = 0.0005  # of the reward; a part shown as 0.0% in every round is left out
MAX_SHOWN = 1200  # characters of a text in Markdown
WIDTH, HEIGHT, EDGE = 560, 220, 40
MEASURES: dict[str, Callable[[RoundStats], str]] = {
    "reward trained on (proxy)": lambda stats: cell(stats.proxy), "held-out score": lambda stats: cell(stats.held_out),
    "gap (proxy - held-out)": lambda stats: cell(stats.gap),
    "gap growth, in standard deviations": lambda stats: cell(stats.growth),
    "rank correlation of the two": lambda stats: number(stats.correlation),
    "words, mean / median / p95": lambda stats: f"{stats.length_mean:.0f} / {stats.length_median:.0f} / {stats.length_p95:.0f}",
    "distinct-1 / distinct-2": lambda stats: f"{number(stats.distinct_1)} / {number(stats.distinct_2)}",
    "repeated within an answer": lambda stats: f"{stats.repeated:.1%}", "stock text": lambda stats: f"{stats.stock:.1%}",
    "same answer to every question": lambda stats: f"{stats.same_answer:.1%}", "answers": lambda stats: str(stats.answers),
    "reward version": lambda stats: stats.versions[0] if len(stats.versions) == 1 else f"{len(stats.versions)} versions",
    "without a reward": lambda stats: f"{stats.missing:.1%}",
}  # fmt: skip


def caution(panel: Panel) -> str:
    """Rewards of two versions cannot be compared; dynamic weights and a changed mix both make new versions."""
    if len(panel.versions) < 2:
        return ""
    return f"The rounds were scored by {len(panel.versions)} versions of the reward, so a changed mean may come from the reward."


def table(panel: Panel) -> list[tuple[str, ...]]:
    """The measure, then one column per round; the parts of the reward follow by name."""
    rows = [(name, *(show(stats) for stats in panel.rounds)) for name, show in MEASURES.items()]
    rows += [
        (name.replace("_", " "), *(_measure(name, stats.measures.get(name)) for stats in panel.rounds))
        for name in dict.fromkeys(name for stats in panel.rounds for name in stats.measures)
    ]
    parts = dict.fromkeys(name for stats in panel.rounds for name, share in stats.shares.items() if share >= MIN_SHARE)
    shares = [(f"share of {name}", *(f"{stats.shares.get(name, 0.0):.1%}" for stats in panel.rounds)) for name in parts]
    return rows + shares


def _measure(name: str, value: float | None) -> str:
    """A share, or nats."""
    if value is None:
        return "–"
    return f"{value:.2f}" if name in ("incoherence", "kl") else f"{value:.1%}"


def probe_table(panel: Panel) -> list[tuple[str, str, str, str]]:
    """Null answer, mean, highest, missing; the last row is for the real answers of the same call."""
    if panel.probes is None:
        return []
    rows = [(result.name, number(result.mean), number(result.highest), str(result.missing)) for result in panel.probes.results]
    return [*rows, (f"{panel.probes.real} real answers", number(panel.probes.real_mean), "", "")]


def markdown(panel: Panel) -> str:
    lines = ["# Reward-hacking panel", "", f"{panel.timestamp:%Y-%m-%d %H:%M} UTC. Every round is compared with the first.", ""]
    lines += [caution(panel), ""] if caution(panel) else []
    lines += ["## Alarms", "", *([f"- **{alarm.kind}** {one_line(alarm.words)}" for alarm in panel.alarms] or ["None."]), ""]
    names = [one_line(stats.name) for stats in panel.rounds]
    lines += ["## Rounds", "", markdown_table(["measure", *names], table(panel)), ""]
    if panel.probes:
        lines += ["## Null answers", "", f"Scored together with real answers, by reward version {panel.probes.version}.", ""]
        lines += [markdown_table(["null answer", "mean", "highest", "missing"], probe_table(panel)), ""]
    lines += ["## Highest rewards", "", "Read these first: they show what a hacked reward pays for.", ""]
    for top in panel.top:
        lines += [f"### {one_line(top.round)} `{one_line(top.id)}`: {top.reward:.3f}, held-out {number(top.held_out)}", ""]
        lines += [f"- Question: {one_line(top.question[:MAX_SHOWN])}", f"- Answer: {one_line(top.answer[:MAX_SHOWN])}", ""]
    if panel.unscrubbable:
        lines += [f"{panel.unscrubbable} answers are left out: an identifier could not be removed.", ""]
    return "\n".join(lines)


@dataclass(frozen=True)
class ChartLine:
    """One curve: its name, CSS class, points in the picture, and whiskers (x, low, high)."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]
    whiskers: tuple[tuple[float, float, float], ...] = ()

    @property
    def path(self) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


def html(panel: Panel) -> str:
    rounds = panel.rounds
    scores = [("proxy", "a", [stats.proxy for stats in rounds]), ("held-out", "b", [stats.held_out for stats in rounds])]
    lengths = [Interval(mean=s.length_mean, low=s.length_mean, high=s.length_mean, n=1) for s in rounds]
    charts = [_chart("proxy and held-out score", scores), _chart("mean length in words", [("words", "a", lengths)])]
    return templates().get_template("panel.html").render(
        panel=panel, caution=caution(panel), rows=table(panel), probes=probe_table(panel), charts=charts,
        width=WIDTH, height=HEIGHT, edge=EDGE, columns=[_x(index, len(rounds)) for index in range(len(rounds))],
    )  # fmt: skip


def _x(index: int, count: int) -> float:
    return EDGE + (WIDTH - 2 * EDGE) * (index + 0.5) / count


def _chart(title: str, curves: Sequence[tuple[str, str, Sequence[Interval]]]) -> dict[str, object]:
    """Curves over the rounds, scaled to their range; a round without a mean leaves a gap."""
    ends = [end for _, _, means in curves for mean in means for end in (mean.low, mean.high) if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    spread = (high - low) or abs(high) or 1.0
    low, high = low - 0.1 * spread, high + 0.1 * spread

    def y(value: float) -> float:
        return HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - low) / (high - low)

    lines = []
    for name, kind, means in curves:
        known = [(_x(index, len(means)), mean) for index, mean in enumerate(means) if mean.mean is not None]
        points = tuple((x, y(mean.mean)) for x, mean in known if mean.mean is not None)
        whiskers = tuple((x, y(mean.low), y(mean.high)) for x, mean in known if mean.low is not None and mean.high is not None)
        if points:
            lines.append(ChartLine(name, kind, points, whiskers))
    ticks = [(y(value), f"{value:.2f}" if high < 10 else f"{value:.0f}") for value in (low + 0.1 * spread, high - 0.1 * spread)]
    return {"title": title, "lines": lines, "ticks": ticks}


def write(panel: Panel, folder: Path) -> None:
    """panel.json, panel.md and panel.html."""
    atomic_write(folder / "panel.json", panel.model_dump_json(indent=2, exclude_none=True) + "\n")
    atomic_write(folder / "panel.md", markdown(panel))
    atomic_write(folder / "panel.html", html(panel))
