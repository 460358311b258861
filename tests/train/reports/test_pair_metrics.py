"""The numbers of the report, against values worked by hand."""

import numpy as np
import pytest

from medloop.contracts import Message
from medloop.train.examples.pairs import Pair, count_contradictions
from medloop.train.reports.bag_of_words import bag_of_words, words
from medloop.train.reports.pair_metrics import (
    accuracy,
    accuracy_difference,
    calibration,
    histogram,
    length_bias,
)


def pair(number: int, chosen: str, rejected: str) -> Pair:
    return Pair((Message(role="user", content=f"question {number}"),), chosen, rejected)


def test_a_tie_is_half_right():
    assert accuracy(np.array([1.0, 0.0, -1.0, 2.0]))["value"] == 0.625


def test_a_forecast_that_is_right_is_calibrated_and_a_boaster_is_not():
    rng = np.random.default_rng(0)
    margins = rng.normal(0, 2, 20_000)
    honest = np.where(rng.random(20_000) < 1 / (1 + np.exp(-margins)), margins, -margins)
    assert calibration(honest, 1)["ece"] < 0.02
    boast = calibration(honest * 5, 1)
    assert boast["ece"] > 0.1 and sum(row["pairs"] for row in boast["table"]) == 20_000
    assert calibration(np.zeros(1000), 1)["brier"] == pytest.approx(0.25)


def test_a_model_that_loves_length_is_found_out():
    long_chosen, long_rejected = np.array([10.0, 20.0, 30.0, 100.0]), np.array([20.0, 10.0, 60.0, 104.0])
    bias = length_bias(long_chosen, long_rejected, long_chosen, long_rejected)
    assert bias["margin_and_difference"] == pytest.approx(1) and bias["longer_scored_higher"] == 1.0
    parts = bias["accuracy_where_chosen_is"]
    assert {name: (part["n"], part["value"]) for name, part in parts.items()} == {
        "shorter": (2, 0.0), "longer": (1, 1.0), "about equal": (1, 0.0),
    }  # fmt: skip


def test_the_difference_has_an_interval_that_holds_zero_for_equals():
    rng = np.random.default_rng(1)
    good, coin = np.abs(rng.normal(size=300)), rng.normal(size=300)
    questions = [str(number) for number in range(300)]
    assert accuracy_difference(good, coin, questions, 1)["low"] > 0.3
    same = accuracy_difference(coin, coin, questions, 1)
    assert (same["low"], same["value"], same["high"]) == (0, 0, 0)


def test_pairs_of_one_question_are_one_piece_of_evidence():
    good, coin = np.ones(300), np.tile([1.0, -1.0], 150)
    alone = accuracy_difference(good, coin, [str(number) for number in range(300)], 1)
    together = accuracy_difference(good, coin, [str(number % 6) for number in range(300)], 1)
    assert alone["value"] == together["value"] and together["high"] - together["low"] > 3 * (alone["high"] - alone["low"])


def test_the_histogram_holds_every_pair():
    bars = histogram(np.array([-1.0, 0.0, 0.5, 3.0]))
    assert sum(bar["pairs"] for bar in bars) == 4 and (bars[0]["from"], bars[-1]["to"]) == (-1.0, 3.0)


def test_the_bag_of_words_learns_a_word_and_not_an_order():
    train = [pair(n, f"see a doctor {n % 7}", f"see a witch {n % 5}") for n in range(60)]
    test = [pair(100, "doctor please", "witch please"), pair(101, "witch", "doctor"), pair(102, "a b", "b a")]
    margins = bag_of_words(train, test, 1)
    assert margins[0] > 0 > margins[1] and margins[2] == 0
    assert words("马上就医 now") == {"马", "上", "就", "医", "马上", "上就", "就医", "now"}


def test_pairs_that_contradict_are_counted():
    assert count_contradictions([pair(1, "a", "b"), pair(1, "b", "a"), pair(2, "a", "b")]) == 2
