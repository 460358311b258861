"""The feedback dashboard: tiles, plots and tables from feedback/insight/metrics.py, alerts, and open incidents. Numbers only."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from medloop import plots
from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.bootstrap import wilson
from medloop.contracts import Interval, utc_now
from medloop.errors import MedloopError
from medloop.feedback.insight import alerts
from medloop.feedback.insight.alerts import Alert
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig, measure
from medloop.feedback.insight.skill import RaterSkill
from medloop.feedback.insight.trained import TrainedResult
from medloop.feedback.review import queue
from medloop.feedback.trigger import NEVER, check_trigger, trigger_config
from medloop.jobs.retrain import pending_jobs
from medloop.store.db import Store
from medloop.store.records import quarantine, triggers
from medloop.store.records.incident_rows import IncidentFilter, list_incidents
from medloop.store.records.triggers import newest_trigger
from medloop.web.people import People, skills_of
from medloop.web.render import Figure, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

TOLD_NAMES = ("engineer", "admin")
MetricsReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="metrics"))]
SPANS = (7, 30, 365)  # days
CACHE_S = 30.0
MOST_SPANS = 8  # that are kept
MANY = 20_000  # records from which measuring is left to a thread
MAX_INCIDENTS = 10
KINDS = ("feedback", "preference", "correction")


@dataclass(frozen=True)
class Tile:
    name: str
    value: str
    bad: bool = False


@dataclass(frozen=True)
class TrainedTile:
    """A number of a trained model, and what it means."""

    name: str
    value: str
    about: str
    finished: datetime | None = None
    bad: bool = False


@router.get("/dashboard")
def dashboard_page(request: Request, caller: MetricsReader, days: Annotated[int, Query(ge=1, le=3650)] = 30) -> Response:
    return _show(request, caller, days)


def _show(request: Request, caller: Caller, days: int) -> Response:
    store, t, numbers = store_of(request), translator_of(request), measured_numbers(request, days)
    who = People(store, t)
    context: dict[str, Any] = {"who": who, "spans": SPANS, "days": days, "numbers": numbers}
    context["incidents"] = list_incidents(store, IncidentFilter("open"), limit=MAX_INCIDENTS)
    if numbers is None:
        return show(request, caller, "dashboard.html", **context)
    metrics = numbers.metrics
    waiting = sum(queue.stats(store).open_by_kind.values())
    context["tiles"] = _tiles(metrics, waiting, quarantine.count(store), t)
    context["trained"] = _trained(metrics, t)
    context["figures"] = [figure for draw in (_volume, _stars, _agreement) if (figure := draw(metrics, t)) is not None]
    context["trigger"] = numbers.trigger
    context["voters"] = _voters(request, who, wait=numbers.is_small) if caller.role in TOLD_NAMES else []
    context["alerts"] = _alerts(metrics.alerts, who, t) if caller.role in TOLD_NAMES else []  # they name people
    return show(request, caller, "dashboard.html", **context)


@dataclass(frozen=True)
class DashboardNumbers:
    """What takes long to measure, and when it was."""

    metrics: FeedbackMetrics
    trigger: dict[str, Any]
    measured: datetime
    is_small: bool


class DashboardCache:
    """The numbers of the dashboard by their span of days. Those of many records are measured in a thread; nobody waits for it."""

    def __init__(self, store: Store) -> None:
        self.store, self.last = store, dict[int, DashboardNumbers]()
        self._running = threading.Lock()

    def measure(self, days: int, *, is_small: bool) -> DashboardNumbers:
        metrics = measure(self.store, MetricsConfig(since=utc_now() - timedelta(days=days)))
        numbers = DashboardNumbers(metrics, _trigger(self.store), utc_now(), is_small)
        if len(self.last) >= MOST_SPANS:
            self.last.clear()
        self.last[days] = numbers
        return numbers

    def later(self, days: int) -> DashboardNumbers | None:
        """What was measured last, maybe nothing yet; a new measurement begins."""
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._quietly, args=(days,), name="dashboard", daemon=True).start()
        return self.last.get(days)

    def _quietly(self, days: int) -> None:
        try:
            with suppress(MedloopError):  # the database is busy, or the server stops
                self.measure(days, is_small=False)
        finally:
            self._running.release()


def measured_numbers(request: Request, days: int) -> DashboardNumbers | None:
    """The numbers of the last half minute, else new ones; of many records those that were measured last, at first none."""
    state, store = request.app.state, store_of(request)
    fresh: dict[int, float] = state.dashboard_cache  # emptied by pages that change what is counted
    if not hasattr(state, "dashboard_numbers"):
        state.dashboard_numbers = DashboardCache(store)
    cache: DashboardCache = state.dashboard_numbers
    if days in cache.last and time.monotonic() - fresh.get(days, float("-inf")) < CACHE_S:
        return cache.last[days]
    is_small = triggers.record_rows(store) < MANY
    numbers = cache.measure(days, is_small=True) if is_small else cache.later(days)
    if numbers is not None and (is_small or (utc_now() - numbers.measured).total_seconds() < CACHE_S):
        fresh[days] = time.monotonic()
    return numbers


def _trigger(store: Store) -> dict[str, Any]:
    """Where the retrain trigger stands; nothing is started."""
    config = trigger_config(store.settings)
    check = check_trigger(store, config, pending=bool(pending_jobs(store.settings)), write=False)
    return {"check": check, "config": config, "last": newest_trigger(store), "counts_records": config.every < NEVER}


def _voters(request: Request, who: People, *, wait: bool) -> list[tuple[str, RaterSkill]]:
    """Who votes on what a dataset says, and what each vote weighs; the greatest weight first."""
    cache = skills_of(request)
    skills = cache.measured() if wait else cache.last()
    voters = ((who(rater), skill) for rater, skill in skills.items() if skill.shared or not skill.only_against)
    return sorted(voters, key=lambda row: (-row[1].weight, row[0]))


def _tiles(metrics: FeedbackMetrics, waiting: int, held: int, t: Translator) -> list[Tile]:
    return [
        Tile(t("tile_records"), f"{metrics.feedback + metrics.preferences + metrics.corrections:,}"),
        Tile(t("tile_raters"), f"{len(metrics.raters):,}"),
        Tile(t("tile_open_incidents"), f"{metrics.incidents_open:,}", metrics.incidents_open > 0),
        Tile(t("tile_queue"), f"{waiting:,}"),
        Tile(t("tile_quarantine"), f"{held:,}"),
    ]


def _trained(metrics: FeedbackMetrics, t: Translator) -> list[TrainedTile]:
    """What came of the feedback: how often the newest reward model is right, how much the newest policy gained."""
    results = (("reward_model", metrics.reward_model, ".0%"), ("policy", metrics.policy, "+.3f"))
    return [_trained_tile(name, result, form, t) for name, result, form in results]


def _trained_tile(name: str, result: TrainedResult | None, form: str, t: Translator) -> TrainedTile:
    title = t(f"trained_{name}")
    if result is None or result.value.mean is None:
        return TrainedTile(title, "–", t("trained_none"))
    value, bad = result.value, result.tainted or (name == "policy" and result.value.mean < 0)
    low, high = value.low, value.high
    if name == "reward_model" and low is not None and low == high:  # resampled, all right or all wrong has no width
        low, high = wilson(result.value.mean * value.n, value.n)
    span = t("trained_span", low=f"{low:{form}}", high=f"{high:{form}}") if low is not None and high is not None else ""
    model = t("trained_model", name=result.name, method=result.method)
    taint = t("trained_tainted") if result.tainted else ""
    text = t(f"trained_{name}_text_one") if value.n == 1 else t(f"trained_{name}_text", n=f"{value.n:,}")
    about = t.sentences(text, span, model, taint)
    return TrainedTile(title, f"{value.mean:{form}}", about, result.finished, bad)


def _alerts(raised: Sequence[Alert], who: People, t: Translator) -> list[tuple[str, list[str]]]:
    """The alerts as sentences, grouped by the person they are about; those about nobody come first."""
    by_person: dict[str, list[str]] = {}
    for alert in sorted(raised, key=lambda alert: alert.about is not None):
        name = "" if alert.about is None else who(alert.about)
        by_person.setdefault(name, []).append(alerts.sentence(alert, t.language))
    return list(by_person.items())


def _volume(metrics: FeedbackMetrics, t: Translator) -> Figure | None:
    if not metrics.per_day:
        return None
    days = metrics.days
    names = {kind: t(f"kind_{kind}") for kind in KINDS}
    series = {names[kind]: [float(metrics.per_day.get(day, {}).get(kind, 0)) for day in days] for kind in KINDS}
    rows = [(t.day(day), *(f"{metrics.per_day.get(day, {}).get(kind, 0):,}" for kind in KINDS)) for day in reversed(days)]
    title, sums = t("plot_volume"), (f"{name} {sum(values):,.0f}" for name, values in series.items())
    about = f"{t.day(days[0])} – {t.day(days[-1])}: {t('list_comma').join(sums)}"
    # plots escapes its texts itself
    svg = Markup(plots.lines([t.day(day, year=False) for day in days], series, title=title, about=about))
    return Figure(title, svg, t("plot_volume_hint"), (t("day"), *names.values()), rows)


def _stars(metrics: FeedbackMetrics, t: Translator) -> Figure | None:
    if not any(metrics.stars.values()):
        return None
    title, thumbs = t("plot_ratings"), metrics.thumbs_up
    caption = t("plot_ratings_hint")
    if thumbs.mean is not None:
        caption = t.sentences(caption, t("thumbs_text", share=f"{thumbs.mean:.0%}", n=f"{thumbs.n:,}"))
    rows = [(f"{star} ★", f"{n:,}") for star, n in metrics.stars.items()]
    bars = {f"{star} ★": float(n) for star, n in metrics.stars.items()}
    svg = Markup(plots.bars(bars, title=title, about=_summary(rows, t)))
    return Figure(title, svg, caption, (title, t("table_n")), rows)


def _agreement(metrics: FeedbackMetrics, t: Translator) -> Figure | None:
    known = {_criterion(row.name, t): row for row in metrics.agreement if row.alpha.mean is not None}
    if not known:
        return None
    title = t("plot_agreement")
    rows = [
        (name, f"{row.alpha.mean:.2f}", f"{row.alpha.low or 0:.2f} - {row.alpha.high or 0:.2f}", f"{row.units:,}")
        for name, row in known.items()
    ]
    spans = {name: _triple(row.alpha) for name, row in known.items()}
    svg = Markup(plots.spans(spans, title=title, low=-0.2, high=1.0, mark=0.667, about=_summary(rows, t)))
    return Figure(title, svg, t("agreement_text"), (t("agreement_on"), "α", "95 %", t("table_n")), rows)


def _summary(rows: Sequence[tuple[str, ...]], t: Translator) -> str:
    """The first two columns in one line, for those who do not see the plot."""
    return t("list_comma").join(f"{row[0]} {row[1]}" for row in rows)


def _criterion(name: str, t: Translator) -> str:
    """`stars`, `thumbs`, `choice`, `axis safety`, `choice safety` in the reader's language; axes of others as they are."""
    kind, _, axis = name.partition(" ")
    axis = t.or_plain(f"axis_{axis}", axis)
    return axis if kind == "axis" else f"{t.or_plain(f'agreement_{kind}', kind)}{t('colon') + axis if axis else ''}"


def _triple(interval: Interval) -> tuple[float, float, float]:
    mean = interval.mean or 0.0
    return mean, mean if interval.low is None else interval.low, mean if interval.high is None else interval.high
