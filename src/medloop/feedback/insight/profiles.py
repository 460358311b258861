"""One profile per rater: number of ratings, leniency, agreement with the others, speed, drift.

    tracker = RaterTracker(["u_1", "u_2"])
    tracker.add(mark)                   # in the order of arrival
    tracker.add_unit(marks)             # all marks about one unit, one per rater
    tracker.profiles(stars)

Agreement with the others is Cohen's kappa over all pairs (this rater, another) that judged the same unit: weighted by the
squared distance for stars, plain for thumbs and choices. Leniency is the mean of own stars minus the others', on shared units.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from medloop.bootstrap import share_interval
from medloop.contracts import Interval
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.feedback.insight.agreement import cohen_kappa
from medloop.feedback.insight.drift import RUN_P, DriftDetector, RatingHabit, RecentRatings, run_probability
from medloop.store.records.marks import FeedbackMark


class RaterProfile(Contract):
    """What is known about one rater; None where there are too few ratings."""

    rater: Text
    ratings: int
    choices: int
    mean: float | None = None
    leniency: Interval
    kappa_stars: float | None = None
    shared_stars: int = 0
    kappa_thumbs: float | None = None
    shared_thumbs: int = 0
    kappa_choices: float | None = None
    shared_choices: int = 0
    first_shown_preferred: Interval
    drift: Text | None = None
    drift_at: Timestamp | None = None
    drift_row: int | None = None
    longest_run: int = 0
    straight_line: bool = False
    median_gap_s: int | None = None
    fast_share: float | None = None
    sittings: int = 0


@dataclass
class _Rater:
    ratings: int = 0
    stars: Counter[int] = field(default_factory=Counter)
    choices: int = 0
    chose_first: Counter[bool] = field(default_factory=Counter)
    habit: RatingHabit = field(default_factory=RatingHabit)
    detector: DriftDetector = field(default_factory=DriftDetector)
    alarm: tuple[str, FeedbackMark] | None = None
    table_stars: NDArray[np.float64] = field(default_factory=lambda: np.zeros((5, 5)))
    table_thumbs: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 2)))
    table_choices: NDArray[np.float64] = field(default_factory=lambda: np.zeros((4, 4)))  # as FeedbackMark.choice
    distance: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # from the others: n, sum, sum of squares


class RaterTracker:
    def __init__(self, names: Iterable[str]) -> None:
        self._raters = {name: _Rater() for name in names}
        self._recent = RecentRatings()

    def add(self, mark: FeedbackMark) -> None:
        rater = self._raters.get(mark.rater or "")
        if rater is None:
            if mark.rating is not None:
                self._recent.residual(mark.rater or "", mark.rating)
            return
        if mark.kind == "feedback":
            rater.ratings += 1
        if mark.preferred is not None:
            rater.choices += 1
        if mark.chose_first is not None:
            rater.chose_first[mark.chose_first] += 1
        if mark.rating is not None:
            rater.stars[mark.rating] += 1
            rater.habit.add(mark.rating, mark.timestamp.timestamp())
            residual = self._recent.residual(mark.rater or "", mark.rating)
            if residual is not None and (direction := rater.detector.add(residual)) is not None:
                rater.alarm = (direction, mark)

    def add_unit(self, marks: Sequence[FeedbackMark]) -> None:
        """Marks of different raters about one unit."""
        for own in marks:
            rater = self._raters.get(own.rater or "")
            if rater is None:
                continue
            others = [mark for mark in marks if mark is not own]
            stars = [mark.rating for mark in others if mark.rating is not None]
            if own.rating is not None and stars:
                distance = own.rating - sum(stars) / len(stars)
                rater.distance = [sum(pair) for pair in zip(rater.distance, (1.0, distance, distance * distance), strict=True)]
                for star in stars:
                    rater.table_stars[own.rating - 1, star - 1] += 1
            for mark in others:
                if own.thumb is not None and mark.thumb is not None:
                    rater.table_thumbs[int(own.thumb == "up"), int(mark.thumb == "up")] += 1
                if own.choice is not None and mark.choice is not None:
                    rater.table_choices[own.choice, mark.choice] += 1

    def drift_rows(self) -> dict[str, int]:
        """The row of the last alarm of drift, by rater."""
        return {name: rater.alarm[1].row for name, rater in self._raters.items() if rater.alarm}

    def profiles(self, stars: Counter[int]) -> tuple[RaterProfile, ...]:
        """The busiest first; `stars` are everybody's, to tell a likely run of equal ratings from an unlikely one."""
        return tuple(_profile(name, rater, stars) for name, rater in self._raters.items())


def _profile(name: str, rater: _Rater, everybody: Counter[int]) -> RaterProfile:
    n, habit = rater.stars.total(), rater.habit
    return RaterProfile(
        rater=name, ratings=rater.ratings, choices=rater.choices,
        mean=sum(star * count for star, count in rater.stars.items()) / n if n else None, leniency=_leniency(*rater.distance),
        kappa_stars=cohen_kappa(rater.table_stars, "quadratic"), shared_stars=int(rater.table_stars.sum()),
        kappa_thumbs=cohen_kappa(rater.table_thumbs), shared_thumbs=int(rater.table_thumbs.sum()),
        kappa_choices=cohen_kappa(rater.table_choices), shared_choices=int(rater.table_choices.sum()),
        first_shown_preferred=share_interval(rater.chose_first[True], rater.chose_first.total()),
        drift=rater.alarm[0] if rater.alarm else None, drift_at=rater.alarm[1].timestamp if rater.alarm else None,
        drift_row=rater.alarm[1].row if rater.alarm else None, longest_run=habit.longest,
        straight_line=_is_straight(rater, everybody), median_gap_s=habit.median_gap_s,
        fast_share=habit.fast / habit.sittings if habit.sittings else None, sittings=habit.sittings,
    )  # fmt: skip


def _leniency(n: float, total: float, squares: float) -> Interval:
    if n < 2:
        return Interval(n=int(n))
    mean = total / n
    half = 1.96 * (max(0.0, squares - n * mean * mean) / (n - 1) / n) ** 0.5
    return Interval(mean=mean, low=mean - half, high=mean + half, n=int(n))


def _is_straight(rater: _Rater, everybody: Counter[int]) -> bool:
    """Whether the longest run of equal ratings is too long for how often the others give that rating."""
    habit, others = rater.habit, everybody - rater.stars
    if habit.longest_value is None or others.total() < 50:
        return False
    share = (others[habit.longest_value] + 1) / (others.total() + 5)
    return run_probability(habit.longest, share, rater.stars.total()) < RUN_P
