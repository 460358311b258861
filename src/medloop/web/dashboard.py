"""The feedback dashboard: tiles, plots and tables from feedback/insight/metrics.py, in the reader's language. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from markupsafe import Markup

from medloop.contracts import Interval
from medloop.feedback.insight import alerts, plots
from medloop.feedback.insight.alerts import Alert
from medloop.feedback.insight.metrics import FeedbackMetrics
from medloop.web.words import Words

KINDS = ("feedback", "preference", "correction")


@dataclass(frozen=True)
class Tile:
    name: str
    value: str
    bad: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture with a sentence under it, and the same numbers as a table."""

    title: str
    picture: Markup
    hint: str = ""
    head: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()


def tiles(found: FeedbackMetrics, waiting: int, held: int, t: Words) -> list[Tile]:
    return [
        Tile(t("tile_records"), f"{found.feedback + found.preferences + found.corrections:,}"),
        Tile(t("tile_raters"), f"{len(found.raters):,}"),
        Tile(t("tile_open_incidents"), f"{found.incidents_open:,}", found.incidents_open > 0),
        Tile(t("tile_queue"), f"{waiting:,}"),
        Tile(t("tile_quarantine"), f"{held:,}"),
    ]


def worth_a_look(found: Sequence[Alert], names: Mapping[str, str], t: Words) -> list[tuple[str, list[str]]]:
    """The alerts in the reader's words, those about one person together; first what is about nobody."""
    by_person: dict[str, list[str]] = {}
    for alert in sorted(found, key=lambda one: one.about is not None):
        about = "" if alert.about is None else names.get(alert.about, alert.about)
        by_person.setdefault(about, []).append(alerts.sentence(alert, t.language))
    return list(by_person.items())


def figures(found: FeedbackMetrics, t: Words) -> list[Figure]:
    return [figure for figure in (_volume(found, t), _stars(found, t), _agreement(found, t)) if figure is not None]


def _volume(found: FeedbackMetrics, t: Words) -> Figure | None:
    if not found.per_day:
        return None
    days = _days(found.per_day)
    names = {kind: t(f"kind_{kind}") for kind in KINDS}
    series = {names[kind]: [float(found.per_day.get(day, {}).get(kind, 0)) for day in days] for kind in KINDS}
    rows = [(t.day(day), *(f"{found.per_day.get(day, {}).get(kind, 0):,}" for kind in KINDS)) for day in reversed(days)]
    title, sums = t("plot_volume"), (f"{name} {sum(values):,.0f}" for name, values in series.items())
    about = f"{t.day(days[0])} – {t.day(days[-1])}: {t('list_comma').join(sums)}"
    # plots escapes its texts itself
    svg = Markup(plots.lines([t.day(day, year=False) for day in days], series, title=title, about=about))
    return Figure(title, svg, t("plot_volume_hint"), (t("day"), *names.values()), rows)


def _days(per_day: Mapping[str, object]) -> list[str]:
    """Every day from the first to the last, quiet ones too."""
    first, last = date.fromisoformat(min(per_day)), date.fromisoformat(max(per_day))
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


def _stars(found: FeedbackMetrics, t: Words) -> Figure | None:
    if not any(found.stars.values()):
        return None
    title, thumbs = t("plot_ratings"), found.thumbs_up
    hint = t("plot_ratings_hint")
    if thumbs.mean is not None:
        hint += " " + t("thumbs_text", share=f"{thumbs.mean:.0%}", n=f"{thumbs.n:,}")
    rows = [(f"{star} ★", f"{n:,}") for star, n in found.stars.items()]
    svg = Markup(plots.bars({f"{star} ★": float(n) for star, n in found.stars.items()}, title=title, about=_read_out(rows, t)))
    return Figure(title, svg, hint, (t("plot_ratings"), t("table_n")), rows)


def _agreement(found: FeedbackMetrics, t: Words) -> Figure | None:
    known = [one for one in found.agreement if one.alpha.mean is not None]
    if not known:
        return None
    title = t("plot_agreement")
    values = {_named(one.name, t): _triple(one.alpha) for one in known}
    rows = [
        (_named(one.name, t), f"{one.alpha.mean:.2f}", f"{one.alpha.low or 0:.2f} - {one.alpha.high or 0:.2f}", f"{one.units:,}")
        for one in known
    ]
    svg = Markup(plots.spans(values, title=title, low=-0.2, high=1.0, mark=0.667, about=_read_out(rows, t)))
    return Figure(title, svg, t("agreement_text"), (t("agreement_on"), "α", "95 %", t("table_n")), rows)


def _read_out(rows: Sequence[tuple[str, ...]], t: Words) -> str:
    """The first two columns in one sentence."""
    return t("list_comma").join(f"{row[0]} {row[1]}" for row in rows)


def _named(name: str, t: Words) -> str:
    """`stars`, `thumbs`, `choice`, `axis safety`, `choice safety` in the reader's words; made-up axes as they are."""
    first, _, axis = name.partition(" ")
    said = t.or_plain(f"agreement_{first}", first)
    return f"{said} {t.or_plain(f'axis_{axis}', axis)}".strip()


def _triple(found: Interval) -> tuple[float, float, float]:
    mean = found.mean or 0.0
    return mean, mean if found.low is None else found.low, mean if found.high is None else found.high
