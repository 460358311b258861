"""The drift test raises few false alarms whatever the law of the ratings, and sees a real shift soon; habits are counted."""

from __future__ import annotations

import numpy as np
import pytest

from medloop.feedback.insight.drift import DriftDetector, RatingHabit, RecentRatings, run_probability

LAWS = [(0.2,) * 5, (0.03, 0.07, 0.15, 0.35, 0.4), (0.4, 0.1, 0.0, 0.1, 0.4), (0.01, 0.01, 0.01, 0.02, 0.95)]


def first_alarm(row: np.ndarray) -> int | None:
    detector = DriftDetector()
    return next((index for index, x in enumerate(row) if detector.add(float(x)) is not None), None)


@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_stay_below_five_in_a_hundred_raters(law: tuple[float, ...]) -> None:
    rows = np.random.default_rng(1).choice(np.arange(1, 6), size=(150, 1000), p=law)
    assert np.mean([first_alarm(row) is not None for row in rows]) <= 0.05


def test_a_shift_of_a_star_and_a_half_is_seen_within_fifty_ratings() -> None:
    rows = np.random.default_rng(2).choice(np.arange(1, 6), size=(100, 260), p=LAWS[1]).astype(float)
    rows[:, 200:] = np.maximum(1, rows[:, 200:] - 1.5)
    seen = [first_alarm(row) for row in rows]
    assert np.mean([index is not None and 200 <= index < 250 for index in seen]) >= 0.95


def test_the_direction_is_named_and_the_new_manner_becomes_the_baseline() -> None:
    detector = DriftDetector()
    alarms = [detector.add(x % 2 * 1.0) for x in range(100)] + [detector.add(-3.0 + x % 2) for x in range(300)]
    assert [alarm for alarm in alarms if alarm is not None] == ["down"]


def test_equal_ratings_are_no_drift() -> None:
    detector = DriftDetector()
    assert all(detector.add(0.0) is None for _ in range(2000))


def test_the_crowd_is_everybody_else_and_only_lately() -> None:
    crowd = RecentRatings()
    for _ in range(19):
        assert crowd.residual("ann", 1) is None
    assert crowd.residual("ben", 5) is None  # nineteen others are too few
    crowd.residual("ann", 1)
    assert crowd.residual("ben", 5) == 4.0  # against ann's ones, not against his own five
    for _ in range(500):
        crowd.residual("cid", 3)
    assert crowd.residual("ben", 3) == 0.0  # ann's ones are long ago


def test_habits_by_hand() -> None:
    habit = RatingHabit()
    for value, time in [(3, 0), (3, 4), (3, 10), (5, 10_000), (5, 10_002)]:
        habit.add(value, time)
    # Gaps of 4, 6 and 2 s; the one of hours is another sitting. Two of the three are below 5 s.
    assert (habit.longest, habit.longest_value, habit.sittings, habit.fast, habit.median_gap_s) == (3, 3, 3, 2, 5)


def test_the_chance_of_a_run_by_hand() -> None:
    # Three heads in three throws: 1/8. In four throws at most 1/8 + 1/2 * 1/8.
    assert run_probability(3, 0.5, 3) == 0.125
    assert run_probability(3, 0.5, 4) == 0.1875
