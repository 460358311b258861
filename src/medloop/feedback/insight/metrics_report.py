"""The numbers about the feedback for people: Markdown with pictures beside it, one page of HTML, and the JSON behind both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from html import escape, unescape
from pathlib import Path

from medloop.contracts import Interval
from medloop.feedback.insight import plots
from medloop.feedback.insight.metrics import FeedbackMetrics
from medloop.store.files.atomic import atomic_write

MOST_RATERS = 30  # in a report; the JSON has all of them
KINDS = ("feedback", "preference", "correction")
Rows = list[tuple[str, ...]]


def write_report(found: FeedbackMetrics, path: Path) -> list[Path]:
    """`NAME.md` with `NAME.html`, `NAME.json` and the pictures beside it."""
    made = []
    for name, svg in pictures(found).items():
        made.append(path.with_name(f"{path.stem}_{name}.svg"))
        atomic_write(made[-1], plots.standalone(svg) + "\n")
    for suffix, text in (
        (".json", found.model_dump_json(indent=2) + "\n"),
        (".html", page(found)),
        (".md", markdown(found, path)),
    ):
        made.append(path.with_suffix(suffix))
        atomic_write(made[-1], text)
    return made


def pictures(found: FeedbackMetrics) -> dict[str, str]:
    """SVG by name; only what has something to show."""
    made = {}
    if found.per_day:
        days = _days(found)
        kinds = [kind for kind in KINDS if any(kind in n for n in found.per_day.values())]
        series = {kind: [float(found.per_day.get(day, {}).get(kind, 0)) for day in days] for kind in kinds}
        about = f"{days[0]} to {days[-1]}: " + ", ".join(f"{kind} {sum(values):,.0f}" for kind, values in series.items())
        made["volume"] = plots.lines(days, series, title="Records per day", about=about)
    if any(found.stars.values()):
        stars = {f"{star} ★": float(n) for star, n in found.stars.items()}
        made["stars"] = plots.bars(stars, title="Stars", about=_read_out(star_rows(found)))
    alphas = {one.name: _triple(one.alpha) for one in found.agreement if one.alpha.mean is not None}
    if alphas:
        made["agreement"] = plots.spans(
            alphas, title="Agreement (alpha; 0 is chance, 1 is perfect)", low=-1.0, high=1.0, mark=0.0, about=_intervals(alphas)
        )
    lenient = {one.rater: _triple(one.leniency) for one in found.raters[:MOST_RATERS] if one.leniency.mean is not None}
    if lenient:
        title = "Stars above or below the others"
        made["leniency"] = plots.spans(lenient, title=title, low=-2.0, high=2.0, mark=0.0, about=_intervals(lenient))
    if found.coverage:
        rated = {one.stratum: _triple(one.rated) for one in found.coverage}
        made["coverage"] = plots.spans(rated, title="Share of traces with feedback, by risk", about=_intervals(rated))
    return made


def _read_out(rows: Rows) -> str:
    """A short table in one sentence, for those who do not see the picture."""
    return ", ".join(" ".join(row) for row in rows)


def _intervals(values: Mapping[str, tuple[float, float, float]]) -> str:
    return ", ".join(f"{name} {value:.2f} ({low:.2f} to {high:.2f})" for name, (value, low, high) in values.items())


def star_rows(found: FeedbackMetrics) -> Rows:
    return [(f"{star} ★", f"{n:,}") for star, n in found.stars.items()]


def day_rows(found: FeedbackMetrics) -> Rows:
    """Newest first; days without a record are left out."""
    return [(day, *(f"{n.get(kind, 0):,}" for kind in KINDS)) for day, n in sorted(found.per_day.items(), reverse=True)]


def _days(found: FeedbackMetrics) -> list[str]:
    """Every day from the first to the last, also those without a record."""
    first, last = (date.fromisoformat(day) for day in (min(found.per_day), max(found.per_day)))
    return [f"{first + timedelta(days=n)}" for n in range((last - first).days + 1)]


def _triple(value: Interval) -> tuple[float, float, float]:
    assert value.mean is not None and value.low is not None and value.high is not None, "an interval without a value"
    return value.mean, value.low, value.high


def format_interval(value: Interval, form: str = ".2f") -> str:
    if value.mean is None:
        return "-"
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def summary(found: FeedbackMetrics) -> Rows:
    oldest = f", oldest from {found.oldest_incident:%Y-%m-%d}" if found.oldest_incident else ""
    return [
        ("ratings", f"{found.feedback:,}"),
        ("preferences", f"{found.preferences:,}"),
        ("corrections", f"{found.corrections:,}"),
        ("mean stars", f"{format_interval(found.mean_stars)} of {found.mean_stars.n:,}"),
        ("thumbs up", f"{format_interval(found.thumbs_up)} of {found.thumbs_up.n:,}"),
        ("first shown preferred", f"{format_interval(found.first_shown_preferred)} of {found.first_shown_preferred.n:,}"),
        ("critical flags", f"{found.critical:,}"),
        ("incidents", f"{found.incidents_open} open, {found.incidents_closed} closed{oldest}"),
        ("about no known answer", f"{found.without_unit:,} (no trace, so not in agreement)"),
    ]


def agreement_rows(found: FeedbackMetrics) -> Rows:
    return [
        (
            one.name,
            one.level,
            format_interval(one.alpha),
            "-" if one.fleiss is None else f"{one.fleiss:.2f}",
            f"{one.units:,}",
            f"{one.ratings:,}",
        )
        for one in found.agreement
    ]


AGREEMENT = ("what", "level", "alpha", "Fleiss' kappa", "units", "ratings")
RATERS = (
    "rater",
    "ratings",
    "choices",
    "mean",
    "against the others",
    "kappa stars",
    "kappa choices",
    "median gap",
    "longest run",
    "drift",
)
DAYS = ("day", *KINDS)
STARS = ("stars", "ratings")
COVERAGE = ("risk", "traces", "with feedback")


def rater_rows(found: FeedbackMetrics) -> Rows:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    return [
        (
            one.rater, f"{one.ratings:,}", f"{one.choices:,}", number(one.mean), format_interval(one.leniency),
            number(one.kappa_stars), number(one.kappa_choices), "-" if one.median_gap_s is None else f"{one.median_gap_s} s",
            str(one.longest_run), one.drift or "-",
        )
        for one in found.raters[:MOST_RATERS]
    ]  # fmt: skip


def coverage_rows(found: FeedbackMetrics) -> Rows:
    return [(one.stratum, f"{one.traces:,}", format_interval(one.rated)) for one in found.coverage or ()]


def alert_lines(found: FeedbackMetrics) -> list[str]:
    return [f"{one.kind}: {f'{one.about} ' if one.about else ''}{one.words}" for one in found.alerts]


def _title(found: FeedbackMetrics) -> str:
    since = f", records since {found.since:%Y-%m-%d %H:%M}" if found.since else ""
    return f"{found.made:%Y-%m-%d %H:%M} UTC{since}."


def markdown(found: FeedbackMetrics, path: Path) -> str:
    lines = ["# Feedback", "", _title(found), "", "## To look at", ""]
    lines += [*(f"- {_safe(line)}" for line in alert_lines(found)), ""] if found.alerts else ["Nothing.", ""]
    lines += _table(("", ""), summary(found))
    lines += [f"![{_safe(described(svg))}]({path.stem}_{name}.svg)\n" for name, svg in pictures(found).items()]
    lines += ["## Agreement", "", *_table(AGREEMENT, agreement_rows(found))]
    lines += ["## Raters", "", *_table(RATERS, rater_rows(found))]
    if found.coverage is not None:
        lines += ["## Coverage", "", f"From {found.coverage_sample:,} traces.", "", *_table(COVERAGE, coverage_rows(found))]
    if found.per_day:
        lines += ["## Numbers of the pictures", "", *_table(STARS, star_rows(found)), *_table(DAYS, day_rows(found))]
    return "\n".join(lines)


def described(svg: str) -> str:
    """The words of a picture: its title and what it shows."""
    return unescape(svg.partition('aria-label="')[2].partition('"')[0])


def _table(header: Sequence[str], rows: Rows) -> list[str]:
    body = [f"| {' | '.join(_safe(cell) for cell in row)} |" for row in rows] or ["| none |"]
    return [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *body, ""]


def _safe(text: str) -> str:
    """A rater's name is anybody's text: it must not make a table, a link or a tag."""
    return "".join(f"\\{sign}" if sign in "|`*_[]<>!\\#" else sign for sign in " ".join(text.split()))


def page(found: FeedbackMetrics) -> str:
    """One page without scripts; the pictures are inside."""
    alerts = "".join(f"<li>{escape(line)}</li>" for line in alert_lines(found)) or "<li>Nothing.</li>"
    parts = [
        f"<h1>Feedback</h1><p>{escape(_title(found))}</p><h2>To look at</h2><ul>{alerts}</ul>",
        _html(("", ""), summary(found)),
    ]
    parts += [f"<figure>{svg}</figure>" for svg in pictures(found).values()]
    parts += ["<h2>Agreement</h2>", _html(AGREEMENT, agreement_rows(found)), "<h2>Raters</h2>", _html(RATERS, rater_rows(found))]
    if found.coverage is not None:
        parts += [f"<h2>Coverage</h2><p>From {found.coverage_sample:,} traces.</p>", _html(COVERAGE, coverage_rows(found))]
    if found.per_day:
        parts += ["<h2>Numbers of the pictures</h2>", _html(STARS, star_rows(found)), _html(DAYS, day_rows(found))]
    style = ":root{color-scheme:light dark}body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    style += "td,th{padding:.2em .8em;text-align:left}svg{max-width:100%}figure{margin:1em 0;max-width:40em}"
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Feedback</title><style>{style}</style>'
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _html(header: Sequence[str], rows: Rows) -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
