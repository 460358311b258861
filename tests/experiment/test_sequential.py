"""The mathematics: the boundary, the e-value by hand, and levels on a small simulation (benchmarks/experiment.py has the large one)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from medloop.contracts.experiment import ExperimentPlan
from medloop.experiment.analyse import arm_sums
from medloop.experiment.plan import PlanConfig, days, make_plan, spread_of_rate
from medloop.experiment.sequential import HARM, Boundary, calibrate, fixed_users, inflation, ratio_e_value, ratio_log_e


def plan(**config: object) -> ExperimentPlan:
    return make_plan(PlanConfig.model_validate(config), name="n", champion="a", challenger="b", by="usr_1")


def test_the_boundary_is_the_mixture_of_robbins() -> None:
    # x = n * rho^2; at the tightest point x is the minimum of (x+1)/x * log(sqrt(x+1)/0.05), about 8.2:
    # sqrt(2 * 9.2/8.2 * log(sqrt(9.2)/0.05)) = sqrt(2.2439 * 4.1053) = 3.035
    assert Boundary(0.05, 100.0).thresholds(np.array([100.0]))[0] == pytest.approx(3.035, abs=0.001)
    around = Boundary(0.05, 100.0).thresholds(np.array([10.0, 100.0, 1000.0]))
    assert around[1] < around[0] and around[1] < around[2]


def test_a_fixed_test_needs_the_number_of_the_textbook() -> None:
    # (1.95996 + 0.84162)^2 = 7.84888; times 0.25 / 0.01 = 196.22; times (1/0.5 + 1/0.5) = 784.888
    assert fixed_users(effect=0.1, spread=0.5, split=0.5, alpha=0.05, power=0.8) == 785
    assert fixed_users(effect=0.1, spread=0.5, split=0.2, alpha=0.05, power=0.8) == 1227  # times 6.25 instead of 4


def test_an_e_value_by_hand() -> None:
    # Equal arms, only the ratio 3: an event on the challenger is 0.75 / 0.5 = 1.5, one on the champion 0.25 / 0.5 = 0.5.
    assert ratio_e_value([True, True], 0.5, (3.0,)) == pytest.approx(2.25)
    assert ratio_e_value([True, False], 0.5, (3.0,)) == pytest.approx(1.5)  # its peak, which Ville's inequality bounds
    assert ratio_e_value([False, False], 0.5, (3.0,)) == 1.0
    # A fifth of the users: 0.2*3/(0.2*3+0.8) = 0.428571; 0.428571/0.2 = 2.142857
    assert ratio_e_value([True], 0.2, (3.0,)) == pytest.approx(2.142857)
    # What is tolerated is part of the null: twice as many events are no evidence against "at most twice".
    log_e = ratio_log_e(np.array([20.0]), np.array([10.0]), 0.5, HARM, tolerated=2.0)
    assert log_e[0] < 0


def test_more_harm_is_never_less_evidence() -> None:
    arms = np.arange(0, 40, dtype=np.float64)
    values = ratio_log_e(arms, 40 - arms, 0.3, HARM)
    assert (np.diff(values) > 0).all()


def test_the_levels_of_a_plan_add_up_and_no_other_plan_is_accepted() -> None:
    made = plan()
    total = made.primary_alpha + made.srm_alpha + sum(rule.alpha for rule in made.guards)
    assert total == pytest.approx(made.alpha) and len(made.guards) == 5
    louder = [rule.model_copy(update={"alpha": rule.alpha * 2}) for rule in made.guards]
    with pytest.raises(ValueError, match="add up"):
        ExperimentPlan.model_validate(made.model_dump() | {"guards": louder})


def test_planned_users_stay_within_what_a_look_at_any_time_may_cost() -> None:
    made = plan(min_effect=0.1, spread=0.5)
    assert 1.3 < made.planned_users / made.fixed_users < 1.6
    assert inflation(made.primary_alpha, 0.9, 0.05) < inflation(made.primary_alpha, 0.8, 0.05) + 0.2
    assert days(made, users_per_day=100, enrolled=0.5) == pytest.approx(made.planned_users / 50)
    assert spread_of_rate(0.5, 0.1) == pytest.approx(math.sqrt((0.25 + 0.24) / 2))


def test_the_calibrated_boundary_is_crossed_as_often_as_it_should_be() -> None:
    # 2,000 walks of 700 steps with two looks per step: 3 % are expected at most, and not far fewer. (seed 5)
    rng, n = np.random.default_rng(5), 700
    arms = (rng.random((2000, n)) < 0.5).astype(np.float64)
    difference, half = arm_sums(arms, (rng.random((2000, n)) < 0.5).astype(np.float64)).intervals(Boundary(calibrate(0.03), n))
    crossed = (np.abs(difference) > half)[:, 100:].any(axis=1).mean()
    assert 0.01 < crossed < 0.04
    unbounded = Boundary(0.03, n)  # the same boundary for a path without end is wider
    assert unbounded.thresholds(np.array([300.0]))[0] > Boundary(calibrate(0.03), n).thresholds(np.array([300.0]))[0]
