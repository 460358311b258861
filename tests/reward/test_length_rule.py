"""Length penalty: short, padded and endless answers cost, complete ones do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop.reward.rules.length import Length, count

RULE = Length()


def visible(n: int, word: str = "word") -> float:
    return RULE.score("q", " ".join([word] * n)).value


def told(n: int) -> str:
    """Words that all say something new."""
    return " ".join(f"{number:04d}w" for number in range(n))


# One content word carries four words: 104 equal words have 100 to spare, 404 have 400.
@pytest.mark.parametrize(
    ("words", "value"), [(0, 1.0), (3, 0.75), (6, 0.5), (12, 0.0), (104, 0.0), (254, 0.5), (404, 1.0), (2000, 1.0)]
)
def test_the_value_rises_in_straight_lines_for_short_and_padded_answers(words: int, value: float) -> None:
    assert visible(words) == pytest.approx(value)


@pytest.mark.parametrize(("words", "value"), [(250, 0.0), (600, 0.0), (800, 0.0), (1400, 0.5), (2000, 1.0)])
def test_a_complete_answer_costs_nothing_until_nobody_reads_it(words: int, value: float) -> None:
    assert RULE.score("q", told(words)).value == pytest.approx(value)


def test_a_padded_answer_costs_more_than_the_same_answer_without_padding() -> None:
    padded = RULE.score("q", f"{told(200)} {'and so on as was said before ' * 120}")
    assert RULE.score("q", told(200)).value == 0.0 < padded.value and "padded" in padded.reason


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


@given(st.integers(12, 800), st.integers(0, 200))
def test_more_of_the_same_is_never_better(words: int, more: int) -> None:
    assert visible(words + more) >= visible(words)


@given(st.text(max_size=400))
def test_any_text_gets_a_value(answer: str) -> None:
    assert 0 <= RULE.score("q", answer).value <= 1
