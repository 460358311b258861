"""The feedback dashboard: tiles, pictures and tables out of feedback/metrics.py, in the reader's language. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from markupsafe import Markup

from medloop.contracts import Interval
from medloop.feedback import plots
from medloop.feedback.metrics import FeedbackMetrics
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


def figures(found: FeedbackMetrics, t: Words) -> list[Figure]:
    return [figure for figure in (_volume(found, t), _stars(found, t), _agreement(found, t)) if figure is not None]


def _volume(found: FeedbackMetrics, t: Words) -> Figure | None:
    if not found.per_day:
        return None
    days = _days(found.per_day)
    names = {kind: t(f"kind_{kind}") for kind in KINDS}
    series = {names[kind]: [float(found.per_day.get(day, {}).get(kind, 0)) for day in days] for kind in KINDS}
    rows = [(day, *(f"{found.per_day.get(day, {}).get(kind, 0):,}" for kind in KINDS)) for day in reversed(days)]
    title = t("plot_volume")
    svg = Markup(plots.lines([day[5:] for day in days], series, title=title))  # plots escapes its texts itself
    return Figure(title, svg, t("plot_volume_hint"), (t("day"), *names.values()), rows)


def _days(per_day: Mapping[str, object]) -> list[str]:
    """Every day from the first to the last, quiet ones too."""
    first, last = date.fromisoformat(min(per_day)), date.fromisoformat(max(per_day))
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


def _stars(found: FeedbackMetrics, t: Words) -> Figure | None:
    if not any(found.stars.values()):
        return None
    title, thumbs = t("plot_ratings"), found.thumbs_up
    svg = Markup(plots.bars({f"{star} ★": float(n) for star, n in found.stars.items()}, title=title))
    hint = t("plot_ratings_hint")
    if thumbs.mean is not None:
        hint += " " + t("thumbs_text", share=f"{thumbs.mean:.0%}", n=f"{thumbs.n:,}")
    rows = [(f"{star} ★", f"{n:,}") for star, n in found.stars.items()]
    return Figure(title, svg, hint, (t("plot_ratings"), t("table_n")), rows)


def _agreement(found: FeedbackMetrics, t: Words) -> Figure | None:
    known = [one for one in found.agreement if one.alpha.mean is not None]
    if not known:
        return None
    title = t("plot_agreement")
    values = {_named(one.name, t): _triple(one.alpha) for one in known}
    svg = Markup(plots.spans(values, title=title, low=-0.2, high=1.0, mark=0.667))
    rows = [
        (_named(one.name, t), f"{one.alpha.mean:.2f}", f"{one.alpha.low or 0:.2f} - {one.alpha.high or 0:.2f}", f"{one.units:,}")
        for one in known
    ]
    return Figure(title, svg, t("agreement_text"), (t("agreement_on"), "α", "95 %", t("table_n")), rows)


def _named(name: str, t: Words) -> str:
    """`stars`, `thumbs`, `choice`, `axis safety`, `choice safety` in the reader's words; made-up axes as they are."""
    first, _, axis = name.partition(" ")
    said = t.or_plain(f"agreement_{first}", first)
    return f"{said} {t.or_plain(f'axis_{axis}', axis)}".strip()


def _triple(found: Interval) -> tuple[float, float, float]:
    mean = found.mean or 0.0
    return mean, mean if found.low is None else found.low, mean if found.high is None else found.high
