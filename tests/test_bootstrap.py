"""Intervals against cases worked by hand."""

import math

import numpy as np
import pytest

from medloop.bootstrap import interval, resampled_means, share_interval, spearman, wilson


def test_two_samples_worked_by_hand() -> None:
    # Two draws of [0, 1] have the mean 0, 1/2 or 1 with chances 1/4, 1/2, 1/4: the 2.5 % point is 0, the 97.5 % point is 1.
    estimate = interval([0.0, 1.0], seed=1, name="m")
    assert (estimate.mean, estimate.low, estimate.high, estimate.n) == (0.5, 0.0, 1.0, 2)
    means = resampled_means(np.array([0.0, 1.0]), seed=1, name="m", resamples=20_000)
    assert [float(np.mean(means == value)) for value in (0.0, 0.5, 1.0)] == pytest.approx([0.25, 0.5, 0.25], abs=0.015)


@pytest.mark.parametrize(("hits", "n"), [(50, 100), (20, 100), (400, 1000)])
def test_the_width_is_that_of_the_binomial(hits: int, n: int) -> None:
    p = hits / n
    half = 1.96 * math.sqrt(p * (1 - p) / n)  # normal approximation; the bootstrap must come within 15 % of it
    estimate = interval([1.0] * hits + [0.0] * (n - hits), seed=3, name="m", resamples=4000)
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low == pytest.approx(p - half, abs=0.15 * half) and estimate.high == pytest.approx(p + half, abs=0.15 * half)


def test_nine_in_ten_intervals_and_more_hold_the_truth() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        estimate = interval(list(rng.random(60)), seed=trial, name="m", resamples=500)
        held += estimate.low is not None and estimate.high is not None and estimate.low <= 0.5 <= estimate.high
    assert 0.90 <= held / 200 <= 0.99


def test_alike_samples_have_no_width_and_none_have_no_mean() -> None:
    same = interval([0.25] * 7, seed=1, name="m")
    assert (same.low, same.high) == (0.25, 0.25)
    none = interval([], seed=1, name="m", missing=3)
    assert none.mean is None and none.low is None and (none.n, none.missing) == (0, 3)


def test_seed_and_name_decide_and_order_does_not_matter_for_the_mean() -> None:
    values = [0.1, 0.9, 0.4, 0.6, 0.2]
    assert interval(values, seed=1, name="a") == interval(values, seed=1, name="a")
    assert interval(values, seed=1, name="a", resamples=100) != interval(values, seed=1, name="b", resamples=100)
    assert interval(values, seed=1, name="a").mean == pytest.approx(interval(values[::-1], seed=1, name="a").mean)


def test_large_samples_are_drawn_in_pieces_without_changing_the_mean() -> None:
    estimate = interval([0.0, 1.0] * 50_000, seed=1, name="m", resamples=100)
    assert estimate.low == pytest.approx(0.5, abs=0.01) and estimate.high == pytest.approx(0.5, abs=0.01)


def test_wilson_is_right_in_the_middle_and_at_the_edge() -> None:
    # n = 100, 60 right: centre (0.6 + 3.8415/200) / 1.038415 = 0.59630, half 1.959964/1.038415 * sqrt(.0024 + .000096) = 0.09429
    assert wilson(60, 100) == pytest.approx((0.50200, 0.69060), abs=1e-4)
    # n = 10, all right: low = 1 / (1 + 3.8415/10) = 0.72247
    assert wilson(10, 10) == pytest.approx((0.72247, 1.0), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    # 0 of 10: 0 to z2 / (n + z2) = 3.8415 / 13.8415.
    share = share_interval(0, 10)
    assert (share.mean, share.low) == (0, 0) and share.high == pytest.approx(3.841459 / 13.841459, abs=1e-6)
    assert share_interval(0, 0).mean is None


def test_spearman_shares_ranks_and_has_no_opinion_on_constants() -> None:
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([1.0, 8, 27, 64])) == pytest.approx(1)
    # ranks 0, 1.5, 1.5, 3 against 3, 2, 1, 0: covariance -1.125, deviations sqrt(1.125) and sqrt(1.25)
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([4.0, 3, 2, 1])) == pytest.approx(-1.125 / (1.125 * 1.25) ** 0.5)
    assert spearman(np.ones(3), np.array([1.0, 2, 3])) is None
