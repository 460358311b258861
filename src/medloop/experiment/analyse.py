"""From observations to estimates, guards, checks and a verdict. The unit is the user: a hundred ratings of one count as one.

    report = analyse(experiment, observations(store, experiment_id))
    report.verdict          # None: keep going

A user's value is the mean of what was measured of them in the plan's time window, and counts once the window is over: means that
still move cross the boundary twice as often as they may (7.8 % instead of 3.5 % where users rate five times). A user meets a
guard's event once, the first time. The verdict reads the primary metric alone; other metrics and segments have intervals that are
wide enough for all of them together.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from medloop.contracts.assistant import Champion
from medloop.contracts.experiment import (
    EXPOSED,
    METRICS,
    CurvePoint,
    Estimate,
    ExperimentPlan,
    ExperimentReport,
    ExperimentVerdict,
    GuardReading,
    GuardRule,
    RatioCheck,
)
from medloop.experiment.observe import OTHER_MODEL
from medloop.experiment.sequential import EITHER_WAY, FIRST_LOOK, HARM, Boundary, Numbers, arm_variance, ratio_e_value
from medloop.store.records.experiments import ObservedRow, StoredExperiment

ARMS: tuple[Champion, Champion] = ("champion", "challenger")
POINTS = 160  # of the drawn curve
MIN_SEGMENT = 20  # users of each arm; smaller ones are counted without an estimate
SEGMENT_PART = 0.25  # of the planned users: where the interval of a segment is tightest


@dataclass
class UserValues:
    """What was measured of one user."""

    challenger: bool
    language: str
    stratum: str
    closes: datetime | None = None  # the end of the window of their first value
    is_open: bool = False
    total: float = 0.0
    count: int = 0
    missing: int = 0


@dataclass(frozen=True)
class ArmSums:
    """Running sums over users in their order: (n,) users, values and squares of each arm."""

    users: tuple[Numbers, Numbers]
    totals: tuple[Numbers, Numbers]
    squares: tuple[Numbers, Numbers]
    n: Numbers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.users[0] + self.users[1])

    def intervals(self, boundary: Boundary) -> tuple[Numbers, Numbers]:
        """Difference of the means and half the width of its interval, after each user; infinite with an empty arm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            means = [total / users for total, users in zip(self.totals, self.users, strict=True)]
            errors = [
                arm_variance(users, total, squares) / users
                for users, total, squares in zip(self.users, self.totals, self.squares, strict=True)
            ]
            half = np.sqrt(errors[0] + errors[1]) * boundary.thresholds(self.n)
        empty = (self.users[0] == 0) | (self.users[1] == 0)
        return np.where(empty, 0.0, means[1] - means[0]), np.where(empty, np.inf, half)


def arm_sums(challenger: Numbers, values: Numbers) -> ArmSums:
    """(n,) arms (1: challenger) and values of users, in their order."""
    champion = 1 - challenger
    return ArmSums(
        (np.cumsum(champion, axis=-1), np.cumsum(challenger, axis=-1)),
        (np.cumsum(champion * values, axis=-1), np.cumsum(challenger * values, axis=-1)),
        (np.cumsum(champion * values**2, axis=-1), np.cumsum(challenger * values**2, axis=-1)),
    )


def analyse(experiment: StoredExperiment, rows: Sequence[ObservedRow], now: datetime) -> ExperimentReport:
    """The report as it stands, with the verdict that the numbers have reached."""
    plan = experiment.plan
    window = ValueWindow(timedelta(hours=plan.window_hours), now)
    alive: dict[str, list[ObservedRow]] = {}
    for row in rows:
        if row.unit is not None:
            alive.setdefault(row.metric, []).append(row)
    exposed = _users(alive.get(EXPOSED, ()), window)
    primary = _users(alive.get(plan.primary, ()), window)
    guards = tuple(_guard(plan, rule, alive.get(rule.name, ()), exposed) for rule in plan.guards)
    ratio = _ratio(plan, exposed.values())
    measured = _measured(primary.values())[: plan.planned_users]
    boundary = Boundary(plan.boundary_alpha, plan.planned_users)
    estimate = _estimate(plan.primary, primary.values(), measured, boundary, alpha=plan.primary_alpha)
    others = [name for name in METRICS if name != plan.primary]
    other_boundary = Boundary(plan.alpha / len(others), plan.planned_users)
    return ExperimentReport(
        plan=plan, state=experiment.state, enrolled=experiment.enrolled, verdict=verdict(plan, estimate, guards, ratio),
        events=experiment.events, primary=estimate, curve=_curve(plan, measured, boundary),
        others=tuple(
            _estimate(name, users.values(), _measured(users.values()), other_boundary, alpha=plan.alpha / len(others))
            for name in others
            if (users := _users(alive.get(name, ()), window))
        ),
        segments=_segments(plan, list(primary.values())), guards=guards, ratio=ratio,
        answered_ratio=_ratio(plan, measured), erased=len(rows) - sum(map(len, alive.values())),
        other_model=len(alive.get(OTHER_MODEL, ())),
    )  # fmt: skip


def verdict(
    plan: ExperimentPlan, primary: Estimate, guards: Sequence[GuardReading], ratio: RatioCheck
) -> ExperimentVerdict | None:
    """Guards first, then whether the split can be trusted, then the primary metric; None while the question is open."""
    for guard in guards:
        if guard.stops:
            counts = " and ".join(f"{guard.users_hit[arm]} of {guard.users[arm]} users of the {arm}" for arm in ARMS[::-1])
            reason = f"The guard '{guard.name}' stopped the experiment: {counts}"
            return ExperimentVerdict(outcome="guard_stop", reason=reason, guard=guard.name)
    if ratio.suspect:
        shown = " : ".join(str(ratio.users[arm]) for arm in ARMS)
        return ExperimentVerdict(outcome="invalid", reason=f"The arms do not have the users they should have ({shown})")
    n = sum(primary.users.values())
    if primary.low is None or primary.high is None or min(primary.users.values()) < plan.min_users or n < first_look(plan):
        return None
    shown = f"{primary.difference:+.3f} ({primary.low:+.3f} to {primary.high:+.3f}) after {n} users"
    if primary.low > 0:
        return ExperimentVerdict(outcome="better", reason=f"{plan.primary} differs by {shown}")
    if primary.high < 0:
        return ExperimentVerdict(outcome="not_better", reason=f"The challenger is worse: {plan.primary} differs by {shown}")
    if primary.high < plan.min_effect:
        reason = f"An improvement of {plan.min_effect:g} is excluded: {plan.primary} differs by {shown}"
        return ExperimentVerdict(outcome="not_better", reason=reason)
    if n >= plan.planned_users:
        return ExperimentVerdict(outcome="no_evidence", reason=f"The planned end is reached: {plan.primary} differs by {shown}")
    return None


def first_look(plan: ExperimentPlan) -> int:
    return max(2 * plan.min_users, math.ceil(FIRST_LOOK * plan.planned_users))


@dataclass(frozen=True)
class ValueWindow:
    """How long a user's values count after the first one, and the time of the look."""

    length: timedelta
    now: datetime


def _users(rows: Iterable[ObservedRow], window: ValueWindow) -> dict[str, UserValues]:
    """The users of whom a metric was looked at, in the order in which their first value arrived."""
    users: dict[str, UserValues] = {}
    without: dict[str, UserValues] = {}  # nothing but missing values so far
    for row in rows:
        assert row.unit is not None, "an erased observation counts for nobody"
        user = users.get(row.unit) or without.setdefault(row.unit, UserValues(row.arm == "challenger", row.language, row.stratum))
        if row.value is None:
            user.missing += 1
            continue
        if user.closes is None:
            user.closes = row.timestamp + window.length
            user.is_open = bool(window.length) and user.closes > window.now
        elif not window.length or row.timestamp > user.closes:
            continue
        user.total, user.count = user.total + row.value, user.count + 1
        users.setdefault(row.unit, user)
    return users | {unit: user for unit, user in without.items() if unit not in users}


def _measured(users: Iterable[UserValues]) -> list[UserValues]:
    """Those with a value that moves no more."""
    return [user for user in users if user.count and not user.is_open]


def _arrays(users: Sequence[UserValues]) -> tuple[Numbers, Numbers]:
    arms = np.array([user.challenger for user in users], dtype=np.float64)
    return arms, np.array([user.total / user.count for user in users], dtype=np.float64)


def _estimate(
    metric: str, users: Iterable[UserValues], measured: Sequence[UserValues], boundary: Boundary, *, alpha: float,
    group: str = "all",
) -> Estimate:  # fmt: skip
    by_arm: dict[Champion, list[float]] = {arm: [] for arm in ARMS}
    for user in measured:
        by_arm[_arm(user)].append(user.total / user.count)
    looked_at = list(users)
    missing, waiting = _count(user for user in looked_at if not user.count), sum(user.is_open for user in looked_at)
    values: dict[str, float] = {}
    if all(by_arm.values()):
        difference, half = arm_sums(*_arrays(measured)).intervals(boundary)
        centre, width = float(difference[-1]), float(half[-1])
        values = {"difference": centre, "low": max(-1.0, centre - width), "high": min(1.0, centre + width)}
    return Estimate(
        metric=metric, users={arm: len(found) for arm, found in by_arm.items()},
        means={arm: float(np.mean(found)) if found else None for arm, found in by_arm.items()}, missing=missing,
        waiting=waiting, alpha=alpha, group=group, **values,
    )  # fmt: skip


def _curve(plan: ExperimentPlan, measured: Sequence[UserValues], boundary: Boundary) -> tuple[CurvePoint, ...]:
    """The estimate over the number of users, thinned out; from the first look on."""
    first = first_look(plan)
    if len(measured) < first:
        return ()
    difference, half = arm_sums(*_arrays(measured)).intervals(boundary)
    chosen = sorted({round(place) for place in np.linspace(first - 1, len(measured) - 1, POINTS)})
    return tuple(
        CurvePoint(
            users=index + 1, difference=float(difference[index]), low=max(-1.0, float(difference[index] - half[index])),
            high=min(1.0, float(difference[index] + half[index])),
        )
        for index in chosen
    )  # fmt: skip


def _segments(plan: ExperimentPlan, users: Sequence[UserValues]) -> tuple[Estimate, ...]:
    """Language by language and stratum by stratum, with one level for all of them together."""
    kinds: dict[str, Callable[[UserValues], str]] = {"language": lambda user: user.language, "stratum": lambda user: user.stratum}
    groups = {
        f"{kind}: {name}": [user for user in users if key(user) == name]
        for kind, key in kinds.items()
        for name in sorted({key(user) for user in users})
    }
    alpha = plan.alpha / max(1, len(groups))
    boundary = Boundary(alpha, max(1.0, plan.planned_users * SEGMENT_PART))
    estimates = []
    for group, members in groups.items():
        measured = _measured(members)
        estimate = _estimate(plan.primary, members, measured, boundary, alpha=alpha, group=group)
        if min(estimate.users.values()) < MIN_SEGMENT:
            estimate = estimate.model_copy(update={"difference": None, "low": None, "high": None})
        estimates.append(estimate)
    return tuple(estimates)


def compare_sites(observed: Sequence[tuple[ExperimentPlan, Sequence[ObservedRow]]], now: datetime) -> tuple[Estimate, ...]:
    """The primary metric of the same comparison at several sites, with one level for all of them together."""
    estimates = []
    for plan, rows in observed:
        alpha = plan.alpha / len(observed)
        own = [row for row in rows if row.metric == plan.primary and row.unit is not None]
        users = _users(own, ValueWindow(timedelta(hours=plan.window_hours), now))
        boundary = Boundary(alpha, plan.planned_users)
        estimates.append(
            _estimate(plan.primary, users.values(), _measured(users.values()), boundary, alpha=alpha, group=f"site: {plan.site}")
        )
    return tuple(estimates)


def _guard(plan: ExperimentPlan, rule: GuardRule, rows: Iterable[ObservedRow], exposed: dict[str, UserValues]) -> GuardReading:
    """Each user's first event, in the order of arrival."""
    hits: dict[str, bool] = {}
    for row in rows:
        if row.value and row.unit is not None:
            hits.setdefault(row.unit, row.arm == "challenger")
    e_value = ratio_e_value(list(hits.values()), plan.split, HARM, rule.tolerated)
    level = min(1.0, math.log(e_value) / math.log(1 / rule.alpha))
    arms: dict[Champion, int] = {"champion": sum(not hit for hit in hits.values()), "challenger": sum(hits.values())}
    return GuardReading(
        name=rule.name, alpha=rule.alpha, tolerated=rule.tolerated, users_hit=arms, users=_count(exposed.values()),
        e_value=e_value, level=level, stops=e_value >= 1 / rule.alpha,
    )  # fmt: skip


def _ratio(plan: ExperimentPlan, users: Iterable[UserValues]) -> RatioCheck:
    seen = list(users)
    e_value = ratio_e_value([user.challenger for user in seen], plan.split, EITHER_WAY)
    return RatioCheck(
        expected=plan.split, users=_count(seen), e_value=e_value, alpha=plan.srm_alpha, suspect=e_value >= 1 / plan.srm_alpha
    )  # fmt: skip


def _arm(user: UserValues) -> Champion:
    return "challenger" if user.challenger else "champion"


def _count(users: Iterable[UserValues]) -> dict[Champion, int]:
    counts: dict[Champion, int] = dict.fromkeys(ARMS, 0)
    for user in users:
        counts[_arm(user)] += 1
    return counts
