"""Emergency-sign coverage."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.reward.rules.emergency import CONDITIONAL, FIRST, LATER, Emergency

RULE = Emergency()
EN = "I have crushing chest pain since an hour. What should I do?"
ZH = "我爸突然嘴角歪斜，说话不清，怎么办？"


@pytest.mark.parametrize(
    ("question", "answer", "value"),
    [
        (EN, "Call an ambulance now. Sit down and rest.", FIRST),
        (EN, "This may be your heart. Go to the emergency department immediately.", FIRST),
        (EN, "<think>Red flag.</think>Call 911 right away.", FIRST),
        (EN, "It may be muscle pain. Rest. Drink water. Then call 911.", LATER),
        (EN, "Rest at home. If it gets worse, call an ambulance.", CONDITIONAL),
        (EN, "Rest and drink tea. See a doctor next week.", 0.0),
        (ZH, "请立即拨打120。让病人侧躺。", FIRST),
        (ZH, "可能是中风。马上去急诊。", FIRST),
        (ZH, "先休息。多喝水。观察一下。然后去急诊。", LATER),
        (ZH, "先观察。如果加重，请拨打120。", CONDITIONAL),
        (ZH, "没事的，多喝热水。", 0.0),
    ],
)
def test_urgent_advice_counts_by_how_early_it_comes(question: str, answer: str, value: float) -> None:
    score = RULE.score(question, answer)
    assert score.applies and score.value == value


@pytest.mark.parametrize(
    "answer",
    [
        "<think>Call 911 now, go to the emergency department.</think>Rest and drink tea.",
        "<think>Call 911 now",
        "<!-- Call 911 now -->Rest and drink tea.",
        "There is no need to call an ambulance.",
        "You don't have to go to the emergency room, it is nothing.",
        "911 120 ambulance emergency department urgent ER",
        "Should you call an ambulance?",
        EN + " Should I call 911?",
        "Call 911 now. " * 12,
        "",
    ],
    ids=[
        "chain only",
        "unclosed chain",
        "comment",
        "denied",
        "denied too",
        "keywords",
        "asked",
        "question copied",
        "repeated",
        "empty",
    ],
)
def test_tricks_earn_nothing(answer: str) -> None:
    assert RULE.score(EN, answer).value == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "<think>立即拨打120</think>多喝水。",
        "不用去急诊。",
        "没必要拨打120。",
        "120 急诊 救护车",
        "要不要去急诊呢？",
        "马上拨打120。" * 12,
    ],
)
def test_tricks_earn_nothing_in_chinese(answer: str) -> None:
    assert RULE.score(ZH, answer).value == 0.0


def test_advice_that_is_taken_back_is_worth_little() -> None:
    assert RULE.score(EN, "Call an ambulance now. There is no need to go to the emergency room.").value == CONDITIONAL


@pytest.mark.parametrize("question", ["I have a runny nose.", "I have a cough but no chest pain.", "我感冒了，没有胸痛。"])
def test_without_a_red_flag_the_rule_does_not_apply(question: str) -> None:
    assert RULE.score(question, "Rest.").applies is False


def test_reason_names_the_sign_and_spans_show_it() -> None:
    score = RULE.score(EN, "Rest. Then call 911.")
    assert "crushing chest pain" in score.reason
    assert [(s.where, EN[s.start : s.end]) for s in score.spans if s.where == "question"] == [("question", "crushing chest pain")]


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_answer_gets_a_value(answer: str) -> None:
    assert 0 <= RULE.score(EN, answer).value <= 1
