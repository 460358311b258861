"""Length penalty: a flat band and two slopes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop.reward.rules.length import Length, count

RULE = Length()


def visible(n: int, word: str = "word") -> float:
    return RULE.score("q", " ".join([word] * n)).value


@pytest.mark.parametrize(
    ("words", "value"), [(0, 1.0), (3, 0.75), (6, 0.5), (12, 0.0), (250, 0.0), (425, 0.5), (600, 1.0), (2000, 1.0)]
)
def test_the_value_rises_in_straight_lines_outside_the_band(words: int, value: float) -> None:
    assert visible(words) == pytest.approx(value)


def test_a_chinese_character_counts_less_than_a_word() -> None:
    # 20 characters at 0.6 are 12 words; 19 are 11.4, short of 12 by a twentieth.
    assert RULE.score("q", "字" * 20).value == 0.0
    assert RULE.score("q", "字" * 19).value == pytest.approx(0.05)
    assert count("take 两片 now") == pytest.approx(3.2)


def test_hidden_text_does_not_lengthen_an_answer() -> None:
    assert RULE.score("q", "<think>" + "word " * 50 + "</think>").value == 1.0
    assert RULE.score("q", "<!-- " + "word " * 50 + "-->").value == 1.0


def test_a_long_chain_costs_too_and_its_span_is_the_chain() -> None:
    answer = "<think>" + "thought " * 700 + "</think>" + "word " * 20
    score = RULE.score("q", answer)
    assert score.value == pytest.approx(0.5) and "chain" in score.reason
    (span,) = score.spans
    assert answer[span.start : span.end] == "thought " * 700


@pytest.mark.parametrize("answer", ["", ":", "Thought process:", "<think></think>", "。", "The answer meets all criteria"])
def test_null_answers_are_too_short(answer: str) -> None:
    assert RULE.score("q", answer).value > 0.5


@given(st.integers(250, 800), st.integers(0, 200))
def test_longer_is_never_better_beyond_the_band(words: int, more: int) -> None:
    assert visible(words + more) >= visible(words)


@given(st.text(max_size=400))
def test_any_text_gets_a_value(answer: str) -> None:
    assert 0 <= RULE.score("q", answer).value <= 1
