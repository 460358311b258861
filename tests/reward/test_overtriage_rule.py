"""Over-triage: sending everybody to hospital is no strategy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.contracts import Sample
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rules.overtriage import CERTAIN, VULNERABLE, Overtriage

RULE = Overtriage()
PLAIN, ZH = "I have a runny nose and a cough since yesterday.", "我流鼻涕、咳嗽两天了。"


@pytest.mark.parametrize(
    ("question", "answer", "value"),
    [
        (PLAIN, "Call an ambulance now.", CERTAIN),
        (PLAIN, "It is a cold. Rest. Drink tea. Go to the emergency department immediately.", CERTAIN),
        (ZH, "请立即拨打120。", CERTAIN),
        ("My 3-year-old has a runny nose.", "Call an ambulance now.", VULNERABLE),
        (PLAIN, "Rest. If it gets worse, call an ambulance.", 0.0),
        (PLAIN, "There is no need to call an ambulance.", 0.0),
        (PLAIN, "<think>Call an ambulance now.</think>Rest and drink tea.", 0.0),
        (ZH, "多喝水。如果加重，请拨打120。", 0.0),
        (PLAIN, "", 0.0),
    ],
)
def test_only_certain_alarm_without_a_red_flag_costs(question: str, answer: str, value: float) -> None:
    score = RULE.score(question, answer)
    assert score.applies and score.value == value


@pytest.mark.parametrize(
    "question",
    [
        "I have crushing chest pain.",
        "Fever of 38.6 since last night and it burns when I pee.",
        "???",
        "我爸突然嘴角歪斜，说话不清",
    ],
)
def test_only_a_question_that_is_positively_routine_is_judged(question: str) -> None:
    assert urgency(question).level != "routine"
    assert RULE.score(question, "Call an ambulance now.").applies is False


def test_the_ambulance_for_everybody_earns_less_than_fitting_advice() -> None:
    chain = "<think>A runny nose and a cough are likely a cold. No danger signs are named. I plan to advise rest at home.</think>"
    rest, alarm = (
        build_mix(MixConfig()).score([Sample(id="1", question=PLAIN, answer=f"{chain}{body}")])[0].value
        for body in (
            "Rest and drink plenty of warm tea for some days. See a doctor if a fever comes.",
            "Call an ambulance now and go to the emergency department with it at once, please.",
        )
    )
    assert rest is not None and alarm is not None and alarm <= rest - 0.1


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=300))
def test_any_text_gets_a_value(question: str, answer: str) -> None:
    assert 0 <= RULE.score(question, answer).value <= 1
