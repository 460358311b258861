"""Numbers about the feedback: volume, ratings, agreement, unusual raters, coverage. No text is decrypted, except a sample of
traces for the coverage by risk, which leaves a line in the audit log.

    metrics = measure(store, MetricsConfig(since=...), strata_of=strata_of, actor="user:li")
    metrics.alerts                    # what a person should check, most serious first

Two passes over the store in bounded memory: one in the order of arrival (volume, raters' habits and drift), one unit by unit
(agreement, leniency). Profiles are kept for the 500 busiest raters.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

from pydantic import BaseModel, ConfigDict, Field

from medloop.bootstrap import share_interval
from medloop.contracts import Interval, Trace, utc_now
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.feedback import FAULT_AXES
from medloop.feedback.insight import agreement as statistics
from medloop.feedback.insight.alerts import Alert, make_alert, standing_alerts
from medloop.feedback.insight.profiles import RaterProfile, RaterTracker
from medloop.feedback.insight.trained import TrainedResult, policy_gain, reward_model_accuracy
from medloop.store.db import Store
from medloop.store.records import marks
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.incident_rows import IncidentCounts, count_incidents
from medloop.store.records.marks import FeedbackMark
from medloop.store.records.sites import sites_of_records
from medloop.store.records.workspace_settings import axes

STARS = (1, 2, 3, 4, 5)
CHOICES = (0, 1, 2, 3)  # as FeedbackMark.choice
StrataOf = Callable[[str], Sequence[str]]


class MetricsConfig(BaseModel):
    """What is measured, and when it raises an alert."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    since: Timestamp | None = Field(None, description="Only records from this time on.")
    until: Timestamp | None = Field(None, description="Only records before this time.")
    traces: int = Field(1000, ge=0, le=100_000, description="Traces read for the coverage by risk; 0 means none.")
    most_share: float = Field(0.2, gt=0, le=1, description="Share of the preferences above which a rater is an outlier.")
    least_kappa: float = Field(0.2, ge=-1, le=1, description="Agreement with the others below which quarantine is suggested.")
    least_shared: int = Field(20, ge=2, description="Ratings shared with others from which agreement is judged.")
    least_records: int = Field(50, ge=1, description="Preferences in all from which shares are judged.")
    seed: int = Field(42, ge=0, description="Seed of the bootstrap.")

    @property
    def span(self) -> marks.TimeSpan:
        return marks.TimeSpan(self.since, self.until)


class Agreement(Contract):
    """Agreement on one question (stars, thumbs, an axis) about the same answers or pairs."""

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


class SiteFeedback(Contract):
    """What came from one site; its opinion of the answers it got."""

    site: Text
    feedback: int
    preferences: int
    corrections: int
    critical: int
    mean_stars: Interval
    thumbs_up: Interval


class FeedbackMetrics(Contract):
    """All numbers of one measurement."""

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
    reward_model: TrainedResult | None = None  # its accuracy on held-out pairs
    policy: TrainedResult | None = None  # its gain in held-out reward
    sites: tuple[SiteFeedback, ...] = ()  # where records came from more than one; main first

    @property
    def days(self) -> list[str]:
        """Every day from the first record to the last, including days without one."""
        if not self.per_day:
            return []
        first, last = date.fromisoformat(min(self.per_day)), date.fromisoformat(max(self.per_day))
        return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


class _Totals:
    """Totals of the pass in the order of arrival."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.days: dict[str, Counter[str]] = {}
        self.stars: Counter[int] = Counter()
        self.thumbs: Counter[str] = Counter()
        self.chose_first: Counter[bool] = Counter()
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
        if mark.chose_first is not None:
            self.chose_first[mark.chose_first] += 1


def measure(
    store: Store, config: MetricsConfig | None = None, *, strata_of: StrataOf | None = None, actor: str = "medloop"
) -> FeedbackMetrics:
    """All metrics; without `strata_of` no coverage."""
    config = config or MetricsConfig()
    totals, tracker = _Totals(), RaterTracker(marks.busiest_raters(store, span=config.span))
    origin, by_site = sites_of_records(store), dict[str, _Totals]()
    for mark in marks.iterate_marks(store, span=config.span):
        totals.add(mark)
        if origin:
            by_site.setdefault(origin.get(mark.record_id, DEFAULT_SITE), _Totals()).add(mark)
        tracker.add(mark)
    agreement = measure_agreement(store, config, tracker)
    profiles = tracker.profiles(totals.stars)
    coverage, sample = (None, 0) if strata_of is None else _coverage(store, config, strata_of, actor)
    incidents, judges = count_incidents(store), standing_alerts(store.settings.workspace)
    return FeedbackMetrics(
        made=utc_now(), since=config.since, until=config.until, feedback=totals.kinds["feedback"],
        preferences=totals.kinds["preference"], corrections=totals.kinds["correction"],
        per_day={day: dict(n) for day, n in sorted(totals.days.items())},
        stars={str(star): totals.stars[star] for star in STARS}, mean_stars=_mean_stars(totals.stars),
        thumbs_up=share_interval(totals.thumbs["up"], totals.thumbs.total()), critical=totals.critical,
        first_shown_preferred=share_interval(totals.chose_first[True], totals.chose_first.total()), agreement=agreement,
        raters=profiles, alerts=tuple(_alerts(config, totals, profiles, agreement, incidents, judges)),
        without_unit=totals.without_unit, coverage=coverage, coverage_sample=sample, incidents_open=incidents.open,
        incidents_closed=incidents.closed, oldest_incident=incidents.oldest_open, reward_model=reward_model_accuracy(store),
        policy=policy_gain(store), sites=_sites(by_site),
    )  # fmt: skip


def _sites(by_site: Mapping[str, _Totals]) -> tuple[SiteFeedback, ...]:
    names = sorted(by_site, key=lambda name: (name != DEFAULT_SITE, name))
    return tuple(
        SiteFeedback(
            site=name, feedback=n.kinds["feedback"], preferences=n.kinds["preference"], corrections=n.kinds["correction"],
            critical=n.critical, mean_stars=_mean_stars(n.stars), thumbs_up=share_interval(n.thumbs["up"], n.thumbs.total()),
        )
        for name in names if (n := by_site[name])
    )  # fmt: skip


def _mean_stars(stars: Counter[int]) -> Interval:
    """The mean with its normal interval, from the counts."""
    n = stars.total()
    if n == 0:
        return Interval(n=0)
    mean = sum(star * count for star, count in stars.items()) / n
    spread = sum((star - mean) ** 2 * count for star, count in stars.items()) / max(1, n - 1)
    half = 1.96 * (spread / n) ** 0.5
    return Interval(mean=mean, low=max(1.0, mean - half), high=min(5.0, mean + half), n=n)


def measure_agreement(store: Store, config: MetricsConfig, tracker: RaterTracker | None = None) -> tuple[Agreement, ...]:
    """Agreement on stars, thumbs, choices and every axis of the workspace, unit by unit; the units go to the tracker as well."""
    patterns: dict[tuple[str, str], Counter[tuple[int, ...]]] = {}
    known = frozenset((*axes(store), *FAULT_AXES))
    for kind in ("feedback", "preference"):
        for _, unit in marks.marks_by_unit(store, kind, span=config.span):
            latest = list({mark.rater: mark for mark in unit if mark.rater is not None}.values())  # per rater
            if tracker is not None:
                tracker.add_unit(latest)
            for name, level, values, scale in _questions(latest, known):
                if len(values) > 1:
                    row = tuple(values.count(value) for value in scale)
                    patterns.setdefault((name, level), Counter())[row] += 1
    return tuple(_agreement(name, level, rows, config.seed) for (name, level), rows in sorted(patterns.items(), key=_by_name))


def _questions(unit: Sequence[FeedbackMark], known: frozenset[str]) -> list[tuple[str, str, list[int], Sequence[int]]]:
    """Name, level, answers and scale of each question that the marks of one unit answer; of the axes only `known` ones."""
    questions: list[tuple[str, str, list[int], Sequence[int]]] = [
        ("stars", "ordinal", [mark.rating for mark in unit if mark.rating is not None], STARS),
        ("thumbs", "nominal", [int(mark.thumb == "up") for mark in unit if mark.thumb is not None], (0, 1)),
        ("choice", "nominal", [mark.choice for mark in unit if mark.choice is not None], CHOICES),
    ]
    for axis in sorted({name for mark in unit for name in mark.axes if name in known}):
        values = [mark.axes[axis] for mark in unit if axis in mark.axes]
        if unit[0].kind == "feedback":
            questions.append((f"axis {axis}", "ordinal", values, STARS))
        else:
            questions.append((f"choice {axis}", "nominal", [("a", "b", "tie").index(value) for value in values], (0, 1, 2)))
    return questions


def _by_name(entry: tuple[tuple[str, str], object]) -> tuple[int, str]:
    order = ("stars", "thumbs", "choice")
    name = entry[0][0]
    return (order.index(name) if name in order else len(order), name)


def _agreement(name: str, level: str, rows: Counter[tuple[int, ...]], seed: int) -> Agreement:
    scale = STARS if level == "ordinal" else range(len(next(iter(rows))))
    table = statistics.table_from_patterns(rows, scale)
    alpha = statistics.alpha_interval(table, "ordinal" if level == "ordinal" else "nominal", seed=seed, name=name)
    fleiss = statistics.fleiss_kappa(table)
    return Agreement(name=name, level=level, alpha=alpha, fleiss=fleiss, units=table.units, ratings=table.ratings)


def _coverage(store: Store, config: MetricsConfig, strata_of: StrataOf, actor: str) -> tuple[tuple[Coverage, ...], int]:
    """How much of what users ask is ever rated, by the most serious risk in it; from an even sample of the traces."""
    trace_ids = marks.sampled_traces(store, most=config.traces, span=config.span) if config.traces else []
    rated_ids = marks.traces_with_records(store, trace_ids)
    total: Counter[str] = Counter()
    rated: Counter[str] = Counter()
    for start in range(0, len(trace_ids), 200):
        for trace in read_by_ids(store, Trace, trace_ids[start : start + 200], actor=actor, purpose="coverage by risk"):
            stratum = strata_of(trace.conversation.user_text)[0]
            total[stratum] += 1
            rated[stratum] += trace.trace_id in rated_ids
    rows = (Coverage(stratum=name, traces=n, rated=share_interval(rated[name], n)) for name, n in sorted(total.items()))
    return tuple(rows), len(trace_ids)


def _alerts(
    config: MetricsConfig,
    totals: _Totals,
    profiles: Sequence[RaterProfile],
    agreement: Sequence[Agreement],
    incidents: IncidentCounts,
    judges: Sequence[Alert],
) -> list[Alert]:
    """The most serious first: incidents, judges that drift, who may be poisoning the data, habits, all raters together."""
    alerts = []
    if incidents.open:
        code = "incident_open" if incidents.open == 1 else "incidents_open"
        alerts.append(make_alert("incidents", code, n=incidents.open))
    alerts += judges
    preferences = totals.kinds["preference"]
    for profile in profiles:
        alerts += _rater_alerts(profile, config, preferences)
    known = {profile.rater for profile in profiles}
    for sender, n in totals.senders.most_common() if len(totals.senders) >= 1 / config.most_share else ():
        if sender not in known and preferences >= config.least_records and n > config.most_share * preferences:
            alerts.append(make_alert("share", "share_of_sender", sender, share=n / preferences))
    for result in agreement:
        alpha = result.alpha
        if alpha.mean is not None and alpha.high is not None and alpha.n >= 30 and alpha.high < 0.4:
            alerts.append(make_alert("agreement", "low_alpha", what=result.name, alpha=alpha.mean, high=alpha.high))
    share = share_interval(totals.chose_first[True], totals.chose_first.total())
    if share.mean is not None and share.low is not None and share.high is not None:
        if share.n >= 50 and not share.low <= 0.5 <= share.high:
            alerts.append(make_alert("position", "first_preferred", fraction=share.mean))
    return alerts


def _rater_alerts(profile: RaterProfile, config: MetricsConfig, preferences: int) -> list[Alert]:
    rater, alerts = profile.rater, []
    if preferences >= config.least_records and profile.choices > config.most_share * preferences:
        share = profile.choices / preferences
        alerts.append(make_alert("share", "share_of_rater", rater, share=share, most=config.most_share))
    for name, kappa, n in (
        ("choices", profile.kappa_choices, profile.shared_choices),
        ("stars", profile.kappa_stars, profile.shared_stars),
        ("thumbs", profile.kappa_thumbs, profile.shared_thumbs),
    ):
        if kappa is not None and n >= config.least_shared and kappa < config.least_kappa:
            alerts.append(make_alert("quarantine", "low_kappa", rater, what=name, kappa=kappa, n=n))
    if profile.drift is not None:
        alerts.append(make_alert("drift", "drift_up" if profile.drift == "up" else "drift_down", rater))
    if profile.straight_line:
        alerts.append(make_alert("straight line", "same_in_a_row", rater, n=profile.longest_run))
    if profile.fast_share is not None and profile.sittings >= 20 and profile.fast_share > 0.5:
        alerts.append(make_alert("speed", "too_fast", rater, share=profile.fast_share))
    return alerts


def drifted_since(metrics: FeedbackMetrics, row: int) -> tuple[str, ...]:
    """Raters whose last drift alarm came after this row of the feedback table."""
    return tuple(profile.rater for profile in metrics.raters if profile.drift_row is not None and profile.drift_row > row)
