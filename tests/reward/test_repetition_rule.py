"""Repetition penalty."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.reward.rules.repetition import Repetition

RULE = Repetition()
QUESTION = "My knee hurts since I fell on the stairs two days ago, what can I do about the swelling at home?"
EN = "Rest the knee for a few days. Cool it with a wet towel for ten minutes. Keep the leg up. See a doctor if it gets worse."
ZH = "让膝盖休息几天。用湿毛巾冷敷十分钟，每天数次。把腿抬高。如果加重或者不能走路，请去看医生。"


@pytest.mark.parametrize("text", [EN, ZH, "Rest.", "", "Step 1\n----------\nRest.", "| a | b |\n|----------|---|"])
def test_ordinary_text_costs_nothing(text: str) -> None:
    assert RULE.score(QUESTION, text).value == 0.0


@pytest.mark.parametrize("text", [EN, ZH, "Call 911 now.", "马上去急诊。"])
def test_the_same_again_and_again_costs_everything(text: str) -> None:
    assert RULE.score(QUESTION, (text + " ") * 6).value > 0.9


@pytest.mark.parametrize("text", ["a" * 200, "哈" * 60, "help" + "!" * 90, "。" * 50])
def test_one_sign_drawn_out_costs(text: str) -> None:
    assert RULE.score(QUESTION, text).value > 0.9


def test_a_short_text_may_say_a_thing_twice() -> None:
    assert RULE.score(QUESTION, "Call 911 now. Yes, call 911 now.").value == 0.0
    assert RULE.score(QUESTION, "no no no no no no no no").value == 0.0


def test_one_sign_drawn_out_costs_in_the_middle_of_prose_too() -> None:
    assert RULE.score(QUESTION, EN + "!" * 200).value > 0.9


def test_a_chain_that_repeats_costs_as_much_as_an_answer() -> None:
    assert RULE.score(QUESTION, f"<think>{(EN + ' ') * 6}</think>{ZH}").value > 0.9
    assert RULE.score(QUESTION, f"<think>{EN}</think>{ZH}").value == 0.0


def test_giving_the_question_back_costs() -> None:
    assert RULE.score(QUESTION, QUESTION).value == 1.0
    assert RULE.score(QUESTION, QUESTION + " Rest.").value > 0.8
    assert RULE.score(QUESTION, f"<think>{QUESTION}</think>{EN}").value == 0.0


def test_the_span_shows_what_was_said_before() -> None:
    answer = f"<think>x</think>{EN} Rest the knee for a few days." + f" {EN}"
    (span,) = RULE.score(QUESTION, answer).spans
    assert answer[span.start : span.end].strip() == "Rest the knee for a few days."
    assert span.start > answer.index("worse")


@given(st.integers(1, 8), st.sampled_from([EN, ZH]))
def test_repeating_more_never_costs_less(times: int, text: str) -> None:
    assert RULE.score("q", text * (times + 1)).value >= RULE.score("q", text * times).value


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=400))
def test_any_text_gets_a_value(question: str, answer: str) -> None:
    assert 0 <= RULE.score(question, answer).value <= 1
