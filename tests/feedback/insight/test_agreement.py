"""Agreement against hand-worked numbers, published examples and a reference library."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.feedback.insight.agreement import alpha, alpha_interval, cohen_kappa, fleiss_kappa, rating_table

# Krippendorff 2011, four coders, twelve units, gaps.
FOUR_CODERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
# Fleiss 1971: 30 patients, 6 raters, 5 diagnoses.
FLEISS = """0 0 0 6 0|0 3 0 0 3|0 1 4 0 1|0 0 0 0 6|0 3 0 3 0|2 0 4 0 0|0 0 4 0 2|2 0 3 1 0|2 0 0 4 0|0 0 0 0 6
1 0 0 5 0|1 1 0 4 0|0 3 3 0 0|1 0 0 5 0|0 2 0 3 1|0 0 5 0 1|3 0 0 1 2|5 1 0 0 0|0 2 0 4 0|1 0 2 0 3
0 0 0 0 6|0 1 0 5 0|0 2 0 1 3|2 0 0 4 0|1 0 0 4 1|0 5 0 1 0|4 0 0 0 2|0 2 0 4 0|1 0 5 0 0|0 0 0 0 6"""


def units(matrix: list[list[int | None]]) -> list[list[int]]:
    return [[value for value in column if value is not None] for column in zip(*matrix, strict=True)]


@pytest.mark.parametrize(("level", "expected"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorffs_own_example(level: str, expected: float) -> None:
    assert alpha(rating_table(units(FOUR_CODERS), (1, 2, 3, 4, 5)), level) == pytest.approx(expected, abs=5e-4)  # type: ignore[arg-type]


def test_alpha_worked_by_hand() -> None:
    # Units aa, ab, bb: coincidences aa 2, ab 1, ba 1, bb 2; n_a = n_b = 3, n = 6.
    # Observed 2 of 6; expected 2 * 3 * 3 / (6 * 5) = 0.6; alpha = 1 - (1/3) / 0.6 = 4/9.
    assert alpha(rating_table([[0, 0], [0, 1], [1, 1]], (0, 1)), "nominal") == pytest.approx(4 / 9)


def test_perfect_agreement_is_one_and_a_single_value_is_none() -> None:
    assert alpha(rating_table([[1, 1], [2, 2, 2]], (1, 2)), "ordinal") == 1
    assert alpha(rating_table([[1, 1], [1, 1]], (1, 2)), "nominal") is None
    assert alpha(rating_table([[1], [2]], (1, 2)), "nominal") is None


RATING = st.one_of(st.none(), st.integers(1, 5))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 5).flatmap(
        lambda raters: st.lists(st.lists(RATING, min_size=raters, max_size=raters), min_size=2, max_size=30)
    )
)
def test_alpha_equals_the_reference_library(by_unit: list[list[int | None]]) -> None:
    rated = [[v for v in row if v is not None] for row in by_unit]
    table = rating_table(rated, (1, 2, 3, 4, 5))
    paired = [row for row in rated if len(row) > 1]
    if len({v for row in paired for v in row}) < 2:
        assert alpha(table, "nominal") is None
        return
    matrix = np.array([[np.nan if v is None else v for v in row] for row in by_unit]).T
    for level in ("nominal", "ordinal", "interval"):
        expected = krippendorff.alpha(reliability_data=matrix, level_of_measurement=level)
        assert alpha(table, level) == pytest.approx(expected, abs=1e-12)  # type: ignore[arg-type]


def test_order_of_units_and_raters_does_not_matter() -> None:
    rows = units(FOUR_CODERS)
    turned = [row[::-1] for row in rows[::-1]]
    assert alpha(rating_table(turned, (1, 2, 3, 4, 5)), "ordinal") == alpha(rating_table(rows, (1, 2, 3, 4, 5)), "ordinal")


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    # Two raters who agree with a latent yes/no in 90 % each: alpha = (0.9 * 2 - 1) ** 2 = 0.64 in the limit.
    rng, inside = np.random.default_rng(5), 0
    for run in range(200):
        truth = rng.integers(0, 2, 150)
        ratings = np.where(rng.random((2, 150)) < 0.9, truth, 1 - truth)
        interval = alpha_interval(rating_table(ratings.T.tolist(), (0, 1)), "nominal", seed=run, resamples=400)
        assert interval.low is not None and interval.high is not None
        inside += interval.low <= 0.64 <= interval.high
    assert 0.90 <= inside / 200 <= 0.99


def test_the_interval_repeats_by_seed_and_counts_units() -> None:
    table = rating_table(units(FOUR_CODERS), (1, 2, 3, 4, 5))
    once = alpha_interval(table, "ordinal", seed=1)
    assert once == alpha_interval(table, "ordinal", seed=1) != alpha_interval(table, "ordinal", seed=2)
    assert once.n == 11  # the twelfth unit has one rating
    assert once.low is not None and once.mean is not None and once.high is not None and once.low <= once.mean <= once.high


def test_cohen_worked_by_hand() -> None:
    # Two readers of 50 grants (yes/no): both yes 20, both no 15, 5 and 10 apart. Seen 0.7, chance 0.5: kappa 0.4.
    assert cohen_kappa(np.array([[20, 5], [10, 15]])) == pytest.approx(0.4)
    # Three ranks, each rater 1/3 each, always one rank apart or equal: linear and quadratic by hand.
    seen = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]])  # n 9, margins 3
    # linear: seen 4, expected (4 * 1 + 2 * 2) * 9 / 9 = 8; quadratic: seen 4, expected (4 * 1 + 2 * 4) = 12.
    assert cohen_kappa(seen, "linear") == pytest.approx(0.5)
    assert cohen_kappa(seen, "quadratic") == pytest.approx(1 - 4 / 12)


def test_kappa_without_ratings_or_with_one_value_is_none() -> None:
    assert cohen_kappa(np.zeros((2, 2))) is None
    assert cohen_kappa(np.array([[7, 0], [0, 0]])) is None


def test_fleiss_of_1971() -> None:
    rows = [[int(n) for n in cell.split()] for line in FLEISS.splitlines() for cell in line.split("|")]
    given_ = [[value for value, n in enumerate(row) for _ in range(n)] for row in rows]
    assert len(given_) == 30 and all(len(row) == 6 for row in given_)
    assert fleiss_kappa(rating_table(given_, range(5))) == pytest.approx(0.430, abs=5e-4)


def test_fleiss_needs_as_many_ratings_everywhere() -> None:
    assert fleiss_kappa(rating_table([[0, 0], [0, 1, 1]], (0, 1))) is None
