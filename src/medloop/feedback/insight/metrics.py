"""Numbers about the feedback: how much, how good, whether raters agree, who is odd, what is not covered. No text is opened,
except a sample of traces for the coverage by risk, which leaves a line in the audit log.

    found = measure(store, MetricsConfig(since=...), strata_of=strata_of, actor="user:li")
    found.alerts                      # what a person should look at, gravest first

Two passes over the store in bounded memory: one in the order things came (volume, raters' habits and drift), one unit by unit
(agreement, leniency). Profiles are kept for the 500 busiest raters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Interval, Trace, utc_now
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.feedback.insight import agreement as maths
from medloop.feedback.insight import alerts
from medloop.feedback.insight.alerts import Alert
from medloop.feedback.insight.profiles import RaterProfile, Raters
from medloop.store.db import Store
from medloop.store.records import marks
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.incident_rows import IncidentCounts, count_incidents
from medloop.store.records.marks import FeedbackMark

STARS = (1, 2, 3, 4, 5)
StrataOf = Callable[[str], Sequence[str]]


class MetricsConfig(BaseModel):
    """What is measured, and when it is odd enough to say so."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    since: Timestamp | None = Field(None, description="Only records from this time on.")
    until: Timestamp | None = Field(None, description="Only records before this time.")
    traces: int = Field(1000, ge=0, le=100_000, description="Traces opened for the coverage by risk; 0 means none.")
    most_share: float = Field(0.2, gt=0, le=1, description="Share of the preferences above which one rater is an outlier.")
    least_kappa: float = Field(0.2, ge=-1, le=1, description="Agreement with the others below which quarantine is suggested.")
    least_shared: int = Field(20, ge=2, description="Ratings shared with others before agreement is judged.")
    least_records: int = Field(50, ge=1, description="Preferences in all before shares are judged.")
    seed: int = Field(42, ge=0, description="Seed of the bootstrap.")

    @property
    def span(self) -> marks.TimeSpan:
        return marks.TimeSpan(self.since, self.until)


class Agreement(Contract):
    """Of one thing that several people said about the same answer or pair."""

    name: Text
    level: Text
    alpha: Interval
    fleiss: float | None = None
    units: int
    ratings: int


class Coverage(Contract):
    stratum: Text
    traces: int
    rated: Interval


class FeedbackMetrics(Contract):
    """All numbers of one look."""

    made: Timestamp
    since: Timestamp | None = None
    until: Timestamp | None = None
    feedback: int
    preferences: int
    corrections: int
    per_day: dict[str, dict[str, int]]
    stars: dict[str, int]
    mean_stars: Interval
    thumbs_up: Interval
    critical: int
    first_shown_preferred: Interval
    agreement: tuple[Agreement, ...]
    raters: tuple[RaterProfile, ...]
    alerts: tuple[Alert, ...]
    without_unit: int
    coverage: tuple[Coverage, ...] | None = None
    coverage_sample: int = 0
    incidents_open: int
    incidents_closed: int
    oldest_incident: Timestamp | None = None


class _Totals:
    """What one pass in the order of arrival adds up."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.days: dict[str, Counter[str]] = {}
        self.stars: Counter[int] = Counter()
        self.thumbs: Counter[str] = Counter()
        self.first: Counter[bool] = Counter()
        self.senders: Counter[str] = Counter()
        self.critical = 0
        self.without_unit = 0

    def add(self, mark: FeedbackMark) -> None:
        self.kinds[mark.kind] += 1
        self.days.setdefault(f"{mark.timestamp:%Y-%m-%d}", Counter())[mark.kind] += 1
        self.critical += mark.critical
        self.without_unit += mark.unit is None
        if mark.rating is not None:
            self.stars[mark.rating] += 1
        if mark.thumb is not None:
            self.thumbs[mark.thumb] += 1
        if mark.preferred is not None:
            self.senders[mark.sender or "?"] += 1
            if mark.shown_first is not None:
                self.first[mark.preferred == mark.shown_first] += 1


def measure(
    store: Store, config: MetricsConfig | None = None, *, strata_of: StrataOf | None = None, actor: str = "medloop"
) -> FeedbackMetrics:
    """Everything at once; without `strata_of` no coverage."""
    config = config or MetricsConfig()
    totals, raters = _Totals(), Raters(marks.busiest_raters(store, span=config.span))
    for mark in marks.iterate_marks(store, span=config.span):
        totals.add(mark)
        raters.add(mark)
    agreed = _agreement(store, config, raters)
    profiles = raters.profiles(totals.stars)
    coverage, sample = (None, 0) if strata_of is None else _coverage(store, config, strata_of, actor)
    incidents = count_incidents(store)
    return FeedbackMetrics(
        made=utc_now(),
        since=config.since,
        until=config.until,
        feedback=totals.kinds["feedback"],
        preferences=totals.kinds["preference"],
        corrections=totals.kinds["correction"],
        per_day={day: dict(n) for day, n in sorted(totals.days.items())},
        stars={str(star): totals.stars[star] for star in STARS},
        mean_stars=_mean_stars(totals.stars),
        thumbs_up=maths.wilson(totals.thumbs["up"], totals.thumbs.total()),
        critical=totals.critical,
        first_shown_preferred=maths.wilson(totals.first[True], totals.first.total()),
        agreement=agreed,
        raters=profiles,
        alerts=tuple(_alerts(config, totals, profiles, agreed, incidents)),
        without_unit=totals.without_unit,
        coverage=coverage,
        coverage_sample=sample,
        incidents_open=incidents.open,
        incidents_closed=incidents.closed,
        oldest_incident=incidents.oldest_open,
    )


def _mean_stars(stars: Counter[int]) -> Interval:
    """The mean with its normal interval; counts are all that is needed."""
    n = stars.total()
    if n == 0:
        return Interval(n=0)
    mean = sum(star * count for star, count in stars.items()) / n
    spread = sum((star - mean) ** 2 * count for star, count in stars.items()) / max(1, n - 1)
    half = 1.96 * (spread / n) ** 0.5
    return Interval(mean=mean, low=max(1.0, mean - half), high=min(5.0, mean + half), n=n)


def agreement_of(store: Store, config: MetricsConfig) -> tuple[Agreement, ...]:
    """Agreement alone, for the trigger."""
    return _agreement(store, config, None)


def _agreement(store: Store, config: MetricsConfig, raters: Raters | None) -> tuple[Agreement, ...]:
    """All units once: stars, thumbs, choices and every named axis; the raters' profiles look on."""
    patterns: dict[tuple[str, str], Counter[tuple[int, ...]]] = {}
    for kind in ("feedback", "preference"):
        for _, some in marks.marks_by_unit(store, kind, span=config.span):
            said = list({mark.rater: mark for mark in some if mark.rater is not None}.values())  # a rater's last word
            if raters is not None:
                raters.together(said)
            for name, level, values, scale in _views(said):
                if len(values) > 1:
                    row = tuple(values.count(value) for value in scale)
                    patterns.setdefault((name, level), Counter())[row] += 1
    return tuple(_one(name, level, rows, config.seed) for (name, level), rows in sorted(patterns.items(), key=_by_name))


def _views(said: Sequence[FeedbackMark]) -> list[tuple[str, str, list[int], Sequence[int]]]:
    """What the marks of one unit say, once per thing that was asked."""
    found: list[tuple[str, str, list[int], Sequence[int]]] = [
        ("stars", "ordinal", [mark.rating for mark in said if mark.rating is not None], STARS),
        ("thumbs", "nominal", [int(mark.thumb == "up") for mark in said if mark.thumb is not None], (0, 1)),
        ("choice", "nominal", [mark.choice for mark in said if mark.choice is not None], (0, 1)),
    ]
    for axis in sorted({name for mark in said for name in mark.axes}):
        given = [mark.axes[axis] for mark in said if axis in mark.axes]
        if said[0].kind == "feedback":
            found.append((f"axis {axis}", "ordinal", given, STARS))
        else:
            found.append((f"choice {axis}", "nominal", [("a", "b", "tie").index(word) for word in given], (0, 1, 2)))
    return found


def _by_name(entry: tuple[tuple[str, str], object]) -> tuple[int, str]:
    order = ("stars", "thumbs", "choice")
    name = entry[0][0]
    return (order.index(name) if name in order else len(order), name)


def _one(name: str, level: str, rows: Counter[tuple[int, ...]], seed: int) -> Agreement:
    scale = STARS if level == "ordinal" else range(len(next(iter(rows))))
    table = maths.table_of(rows, scale)
    alpha = maths.alpha_interval(table, "ordinal" if level == "ordinal" else "nominal", seed=seed, name=name)
    fleiss = maths.fleiss_kappa(table)
    return Agreement(name=name, level=level, alpha=alpha, fleiss=fleiss, units=table.units, ratings=table.ratings)


def _coverage(store: Store, config: MetricsConfig, strata_of: StrataOf, actor: str) -> tuple[tuple[Coverage, ...], int]:
    """How much of what users ask is ever rated, by the gravest risk in it; from an even sample of the traces."""
    names = marks.sampled_traces(store, most=config.traces, span=config.span) if config.traces else []
    rated = marks.traces_with_records(store, names)
    there: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for at in range(0, len(names), 200):
        for trace in read_by_ids(store, Trace, names[at : at + 200], actor=actor, purpose="coverage by risk"):
            stratum = strata_of(trace.conversation.user_text)[0]
            there[stratum] += 1
            done[stratum] += trace.trace_id in rated
    rows = (Coverage(stratum=name, traces=n, rated=maths.wilson(done[name], n)) for name, n in sorted(there.items()))
    return tuple(rows), len(names)


def _alerts(
    config: MetricsConfig,
    totals: _Totals,
    profiles: Sequence[RaterProfile],
    agreed: Sequence[Agreement],
    incidents: IncidentCounts,
) -> list[Alert]:
    """The gravest first: incidents, then who may be poisoning the data, then habits, then the whole."""
    found = []
    if incidents.open:
        code = "incident_open" if incidents.open == 1 else "incidents_open"
        found.append(alerts.made("incidents", code, n=incidents.open))
    preferences = totals.kinds["preference"]
    for profile in profiles:
        found += _about(profile, config, preferences)
    known = {profile.rater for profile in profiles}
    for sender, n in totals.senders.most_common() if len(totals.senders) >= 1 / config.most_share else ():
        if sender not in known and preferences >= config.least_records and n > config.most_share * preferences:
            found.append(alerts.made("share", "share_of_sender", sender, share=n / preferences))
    for one in agreed:
        if one.alpha.mean is not None and one.alpha.high is not None and one.alpha.n >= 30 and one.alpha.high < 0.4:
            found.append(alerts.made("agreement", "low_alpha", what=one.name, alpha=one.alpha.mean, high=one.alpha.high))
    first = totals.first
    share = maths.wilson(first[True], first.total())
    if share.mean is not None and share.low is not None and share.high is not None:
        if first.total() >= 50 and not share.low <= 0.5 <= share.high:
            found.append(alerts.made("position", "first_preferred", fraction=share.mean))
    return found


def _about(profile: RaterProfile, config: MetricsConfig, preferences: int) -> list[Alert]:
    who, found = profile.rater, []
    if preferences >= config.least_records and profile.choices > config.most_share * preferences:
        share = profile.choices / preferences
        found.append(alerts.made("share", "share_of_rater", who, share=share, most=config.most_share))
    for name, kappa, n in (
        ("choices", profile.kappa_choices, profile.shared_choices),
        ("stars", profile.kappa_stars, profile.shared_stars),
        ("thumbs", profile.kappa_thumbs, profile.shared_thumbs),
    ):
        if kappa is not None and n >= config.least_shared and kappa < config.least_kappa:
            found.append(alerts.made("quarantine", "low_kappa", who, what=name, kappa=kappa, n=n))
    if profile.drift is not None:
        found.append(alerts.made("drift", "drift_up" if profile.drift == "up" else "drift_down", who))
    if profile.straight_line:
        found.append(alerts.made("straight line", "same_in_a_row", who, n=profile.longest_run))
    if profile.fast_share is not None and profile.sittings >= 20 and profile.fast_share > 0.5:
        found.append(alerts.made("speed", "too_fast", who, share=profile.fast_share))
    return found


def drifted_since(found: FeedbackMetrics, row: int) -> tuple[str, ...]:
    """Raters whose last drift alarm came after this row of the feedback table."""
    return tuple(one.rater for one in found.raters if one.drift_row is not None and one.drift_row > row)
