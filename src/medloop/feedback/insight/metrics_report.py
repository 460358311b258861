"""The report on feedback: Markdown with plots beside it, one page of HTML, and the JSON behind both."""

from collections.abc import Mapping, Sequence
from html import escape, unescape
from pathlib import Path

from medloop import plots
from medloop.contracts import Interval
from medloop.feedback.insight.metrics import FeedbackMetrics
from medloop.feedback.insight.trained import TrainedResult
from medloop.store.files.atomic import atomic_write

MAX_RATERS = 30  # in a report; the JSON has all of them
KINDS = ("feedback", "preference", "correction")
Rows = list[tuple[str, ...]]


def with_names(metrics: FeedbackMetrics, names: Mapping[str, str]) -> FeedbackMetrics:
    """The same numbers, with the names of the raters that are users in place of their ids."""
    raters = tuple(rater.model_copy(update={"rater": names.get(rater.rater, rater.rater)}) for rater in metrics.raters)
    alerts = tuple(alert.model_copy(update={"about": names.get(alert.about or "", alert.about)}) for alert in metrics.alerts)
    return metrics.model_copy(update={"raters": raters, "alerts": alerts})


def write_report(metrics: FeedbackMetrics, path: Path, names: Mapping[str, str] | None = None) -> list[Path]:
    """`NAME.md` with `NAME.html`, `NAME.json` and the plots beside it; the JSON keeps the ids of the raters."""
    paths, content = [], metrics.model_dump_json(indent=2) + "\n"
    metrics = with_names(metrics, names or {})
    for name, svg in pictures(metrics).items():
        paths.append(path.with_name(f"{path.stem}_{name}.svg"))
        atomic_write(paths[-1], plots.standalone(svg) + "\n")
    for suffix, text in (
        (".json", content),
        (".html", page(metrics)),
        (".md", markdown(metrics, path)),
    ):
        paths.append(path.with_suffix(suffix))
        atomic_write(paths[-1], text)
    return paths


def pictures(metrics: FeedbackMetrics) -> dict[str, str]:
    """SVG by name; only those with data."""
    svgs = {}
    if metrics.per_day:
        days = metrics.days
        kinds = [kind for kind in KINDS if any(kind in n for n in metrics.per_day.values())]
        series = {kind: [float(metrics.per_day.get(day, {}).get(kind, 0)) for day in days] for kind in kinds}
        about = f"{days[0]} to {days[-1]}: " + ", ".join(f"{kind} {sum(values):,.0f}" for kind, values in series.items())
        svgs["volume"] = plots.lines(days, series, title="Records per day", about=about)
    if any(metrics.stars.values()):
        stars = {f"{star} ★": float(n) for star, n in metrics.stars.items()}
        svgs["stars"] = plots.bars(stars, title="Stars", about=_read_out(star_rows(metrics)))
    alphas = {result.name: _triple(result.alpha) for result in metrics.agreement if result.alpha.mean is not None}
    if alphas:
        svgs["agreement"] = plots.spans(
            alphas, title="Agreement (alpha: 0 is chance, 1 is perfect)", low=-1.0, high=1.0, mark=0.0, about=_intervals(alphas)
        )
    busiest = metrics.raters[:MAX_RATERS]
    leniency = {rater.rater: _triple(rater.leniency) for rater in busiest if rater.leniency.mean is not None}
    if leniency:
        title = "Stars above or below the other raters"
        svgs["leniency"] = plots.spans(leniency, title=title, low=-2.0, high=2.0, mark=0.0, about=_intervals(leniency))
    if metrics.coverage:
        rated = {row.stratum: _triple(row.rated) for row in metrics.coverage}
        svgs["coverage"] = plots.spans(rated, title="Share of traces with feedback, by risk", about=_intervals(rated))
    return svgs


def _read_out(rows: Rows) -> str:
    """A short table in one sentence, for those who do not see the plot."""
    return ", ".join(" ".join(row) for row in rows)


def _intervals(values: Mapping[str, tuple[float, float, float]]) -> str:
    return ", ".join(f"{name} {value:.2f} ({low:.2f} to {high:.2f})" for name, (value, low, high) in values.items())


def star_rows(metrics: FeedbackMetrics) -> Rows:
    return [(f"{star} ★", f"{n:,}") for star, n in metrics.stars.items()]


def day_rows(metrics: FeedbackMetrics) -> Rows:
    """Newest first; days without a record are left out."""
    return [(day, *(f"{n.get(kind, 0):,}" for kind in KINDS)) for day, n in sorted(metrics.per_day.items(), reverse=True)]


def _triple(value: Interval) -> tuple[float, float, float]:
    assert value.mean is not None and value.low is not None and value.high is not None, "an interval without a value"
    return value.mean, value.low, value.high


def format_interval(value: Interval, form: str = ".2f") -> str:
    if value.mean is None:
        return "-"
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def summary(metrics: FeedbackMetrics) -> Rows:
    oldest = f", oldest from {metrics.oldest_incident:%Y-%m-%d}" if metrics.oldest_incident else ""
    return [
        ("ratings", f"{metrics.feedback:,}"),
        ("preferences", f"{metrics.preferences:,}"),
        ("corrections", f"{metrics.corrections:,}"),
        ("mean stars", f"{format_interval(metrics.mean_stars)} of {metrics.mean_stars.n:,}"),
        ("thumbs up", f"{format_interval(metrics.thumbs_up)} of {metrics.thumbs_up.n:,}"),
        ("preferred the first shown", f"{format_interval(metrics.first_shown_preferred)} of {metrics.first_shown_preferred.n:,}"),
        ("critical flags", f"{metrics.critical:,}"),
        ("incidents", f"{metrics.incidents_open} open, {metrics.incidents_closed} closed{oldest}"),
        ("without a trace", f"{metrics.without_unit:,} (not counted in agreement)"),
        ("reward model accuracy", _trained(metrics.reward_model, ".2f", "held-out pairs")),
        ("policy gain", _trained(metrics.policy, "+.3f", "held-out questions")),
    ]


def _trained(result: TrainedResult | None, form: str, unit: str) -> str:
    """A number of a trained model with its interval, or that there is none yet."""
    if result is None:
        return "none trained yet"
    number = format_interval(result.value, form) if result.value.low is not None else f"{result.value.mean:{form}}"
    erased = "; it learnt from data that was erased since" if result.tainted else ""
    return f"{number} on {result.value.n:,} {unit} ({result.method} {result.name}{erased})"


def agreement_rows(metrics: FeedbackMetrics) -> Rows:
    return [
        (
            result.name,
            result.level,
            format_interval(result.alpha),
            "-" if result.fleiss is None else f"{result.fleiss:.2f}",
            f"{result.units:,}",
            f"{result.ratings:,}",
        )
        for result in metrics.agreement
    ]


AGREEMENT = ("question", "level", "alpha", "Fleiss' kappa", "units", "ratings")
RATERS = (
    "rater", "ratings", "choices", "mean", "vs. others", "kappa stars", "kappa choices", "median gap", "longest run",
    "drift",
)  # fmt: skip
DAYS = ("day", *KINDS)
STARS = ("stars", "ratings")
COVERAGE = ("risk", "traces", "with feedback")
SITES = ("site", *KINDS, "mean stars", "thumbs up", "critical flags")


def rater_rows(metrics: FeedbackMetrics) -> Rows:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    return [
        (
            rater.rater, f"{rater.ratings:,}", f"{rater.choices:,}", number(rater.mean), format_interval(rater.leniency),
            number(rater.kappa_stars), number(rater.kappa_choices),
            "-" if rater.median_gap_s is None else f"{rater.median_gap_s} s", str(rater.longest_run), rater.drift or "-",
        )
        for rater in metrics.raters[:MAX_RATERS]
    ]  # fmt: skip


def coverage_rows(metrics: FeedbackMetrics) -> Rows:
    return [(row.stratum, f"{row.traces:,}", format_interval(row.rated)) for row in metrics.coverage or ()]


def site_rows(metrics: FeedbackMetrics) -> Rows:
    return [
        (
            row.site, f"{row.feedback:,}", f"{row.preferences:,}", f"{row.corrections:,}", format_interval(row.mean_stars),
            format_interval(row.thumbs_up), f"{row.critical:,}",
        )
        for row in metrics.sites
    ]  # fmt: skip


def alert_lines(metrics: FeedbackMetrics) -> list[str]:
    return [f"{alert.kind}: {f'{alert.about} ' if alert.about else ''}{alert.words}" for alert in metrics.alerts]


def _title(metrics: FeedbackMetrics) -> str:
    since = f", records since {metrics.since:%Y-%m-%d %H:%M}" if metrics.since else ""
    return f"{metrics.made:%Y-%m-%d %H:%M} UTC{since}."


def markdown(metrics: FeedbackMetrics, path: Path) -> str:
    lines = ["# Feedback", "", _title(metrics), "", "## Alerts", ""]
    lines += [*(f"- {_safe(line)}" for line in alert_lines(metrics)), ""] if metrics.alerts else ["None.", ""]
    lines += _table(("", ""), summary(metrics))
    lines += [f"![{_safe(described(svg))}]({path.stem}_{name}.svg)\n" for name, svg in pictures(metrics).items()]
    lines += ["## Sites", "", *_table(SITES, site_rows(metrics))] if metrics.sites else []
    lines += ["## Agreement", "", *_table(AGREEMENT, agreement_rows(metrics))]
    lines += ["## Raters", "", *_table(RATERS, rater_rows(metrics))]
    if metrics.coverage is not None:
        lines += [
            "## Coverage",
            "",
            f"Measured on {metrics.coverage_sample:,} traces.",
            "",
            *_table(COVERAGE, coverage_rows(metrics)),
        ]
    if metrics.per_day:
        lines += ["## Data of the plots", "", *_table(STARS, star_rows(metrics)), *_table(DAYS, day_rows(metrics))]
    return "\n".join(lines)


def described(svg: str) -> str:
    """The text of a plot: its title and its description."""
    return unescape(svg.partition('aria-label="')[2].partition('"')[0])


def _table(header: Sequence[str], rows: Rows) -> list[str]:
    body = [f"| {' | '.join(_safe(cell) for cell in row)} |" for row in rows] or ["| none |"]
    return [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *body, ""]


def _safe(text: str) -> str:
    """A rater's name can be any text: it must not become a table, a link or a tag."""
    return "".join(f"\\{sign}" if sign in "|`*_[]<>!\\#" else sign for sign in " ".join(text.split()))


def page(metrics: FeedbackMetrics) -> str:
    """One page without scripts; the plots are inside."""
    alerts = "".join(f"<li>{escape(line)}</li>" for line in alert_lines(metrics)) or "<li>None.</li>"
    parts = [
        f"<h1>Feedback</h1><p>{escape(_title(metrics))}</p><h2>Alerts</h2><ul>{alerts}</ul>",
        _html(("", ""), summary(metrics)),
    ]
    parts += [f"<figure>{svg}</figure>" for svg in pictures(metrics).values()]
    parts += ["<h2>Sites</h2>", _html(SITES, site_rows(metrics))] if metrics.sites else []
    parts += [
        "<h2>Agreement</h2>",
        _html(AGREEMENT, agreement_rows(metrics)),
        "<h2>Raters</h2>",
        _html(RATERS, rater_rows(metrics)),
    ]
    if metrics.coverage is not None:
        parts += [
            f"<h2>Coverage</h2><p>Measured on {metrics.coverage_sample:,} traces.</p>",
            _html(COVERAGE, coverage_rows(metrics)),
        ]
    if metrics.per_day:
        parts += ["<h2>Data of the plots</h2>", _html(STARS, star_rows(metrics)), _html(DAYS, day_rows(metrics))]
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
