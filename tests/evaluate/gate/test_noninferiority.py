"""Non-inferiority holds its level: of 1,000 models that are worse by exactly the margin, at most 5 % pass."""

import numpy as np
import pytest

from medloop.contracts import PairedSpread
from medloop.evaluate.compare import paired_spread
from medloop.evaluate.gate.noninferiority import exact_p, non_inferior

MODELS = 1000
NOISE = 0.014  # two standard errors of a share of 0.05 among 1,000


def passes(values: np.ndarray, margin: float) -> bool:
    spread = paired_spread(values.tolist())
    assert spread is not None
    return non_inferior(spread, margin=margin).outcome == "pass"


@pytest.mark.parametrize(
    ("n", "margin", "improved"),
    [
        (40, 0.05, 0.0),
        (55, 0.05, 0.0),
        (100, 0.05, 0.1),
        (100, 0.15, 0.0),
        (250, 0.05, 0.02),
        (400, 0.05, 0.05),
        (400, 0.03, 0.0),
    ],
)
def test_at_most_five_per_cent_of_the_models_at_the_margin_pass_with_right_or_wrong_cases(n, margin, improved):
    rng = np.random.default_rng([n, int(margin * 100)])
    draws = rng.choice([-1.0, 0.0, 1.0], size=(MODELS, n), p=[improved + margin, 1 - 2 * improved - margin, improved])
    assert np.mean([passes(row, margin) for row in draws]) <= 0.05 + NOISE


@pytest.mark.parametrize(("n", "margin"), [(40, 0.05), (100, 0.05), (400, 0.1)])
def test_at_most_five_per_cent_pass_with_graded_scores_and_rare_catastrophes(n, margin):
    """Most cases move a little; the loss comes from one case in thirty that loses everything."""
    rng = np.random.default_rng(n)
    catastrophes = rng.random((MODELS, n)) < 1 / 30
    small = rng.normal(0, 0.05, (MODELS, n)) - (margin - 1 / 30) / (1 - 1 / 30)
    values = np.where(catastrophes, -1.0, np.clip(small, -1, 1))
    assert np.mean([passes(row, margin) for row in values]) <= 0.05 + NOISE


def test_equal_models_pass_with_enough_cases_and_worse_ones_fail():
    rng = np.random.default_rng(1)
    same = [rng.choice([-1.0, 0.0, 1.0], size=400, p=[0.02, 0.96, 0.02]) for _ in range(100)]
    assert np.mean([passes(row, 0.05) for row in same]) > 0.95
    worse = paired_spread(rng.choice([-1.0, 0.0, 1.0], size=400, p=[0.2, 0.78, 0.02]).tolist())
    assert non_inferior(worse, margin=0.05).outcome == "fail"


def test_the_exact_p_value_of_cases_that_did_not_change_is_that_of_the_binomial():
    """No change among 59 cases: 0.95^59 = 0.0485 if only losses can occur; other shares of improved cases make it no larger."""
    assert exact_p(0, 0, 59, 0.05) == pytest.approx(0.95**59 + 0.002, abs=2e-3)
    assert exact_p(0, 0, 40, 0.05) > 0.05


def test_without_enough_evidence_it_says_how_many_cases_could_show_it():
    test = non_inferior(PairedSpread(n=60, mean=0.0, sd=0.3, rose=3, fell=3, whole=False), margin=0.05)
    assert test.outcome == "not_enough_evidence" and test.low < -0.05 < test.high and test.needed > 60
