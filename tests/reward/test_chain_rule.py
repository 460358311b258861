"""Reasoning-chain coverage: what a chain must do, and the tricks that earn nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.reward.rules.chain import Chain

RULE = Chain()
EN = "My 4-year-old daughter has had watery diarrhoea and vomiting since yesterday. What should I do?"
EN_CHAIN = (
    "The question is about watery diarrhoea and vomiting in a small girl. "
    "No red flags such as blood or drowsiness are mentioned. "
    "The most likely cause is a virus infection of the gut. A child dries out fast, so fluids matter. "
    "Plan: advise small sips of rehydration solution and say when to see a doctor."
)
ZH = "我怀孕20周，头痛两天了，能吃布洛芬吗？"
ZH_CHAIN = (
    "问的是孕期头痛用药。没有提到剧烈头痛、视物模糊等危险信号。可能是紧张性头痛，也要想到血压升高。"
    "怀孕会限制用药选择。建议先休息和测血压，再给出安全的用药。"
)
ANSWER = "Give small sips of fluid often and watch for signs of dryness."


def value(question: str, chain: str, answer: str = ANSWER) -> float:
    return RULE.score(question, f"<think>\n{chain}\n</think>\n{answer}").value


def test_a_full_chain_earns_everything_in_both_languages() -> None:
    assert value(EN, EN_CHAIN) == 1.0
    assert value(ZH, ZH_CHAIN, "孕期不要吃布洛芬，先休息并测量血压。") == 1.0


@pytest.mark.parametrize(
    ("cut", "lacking"),
    [
        ("No red flags such as blood or drowsiness are mentioned.", "danger"),
        (" The most likely cause is a virus infection of the gut.", "causes"),
        (" A child dries out fast, so fluids matter.", "person"),
        ("Plan: advise small sips of rehydration solution and say when to see a doctor.", "plan"),
    ],
)
def test_each_part_left_out_costs_its_share_and_is_named(cut: str, lacking: str) -> None:
    assert cut in EN_CHAIN
    score = RULE.score(EN, f"<think>{EN_CHAIN.replace(cut, '')}</think>{ANSWER}")
    assert score.value == pytest.approx(0.8)
    assert score.reason.endswith(f"it lacks {lacking}.")


def test_a_red_flag_overlooked_is_not_danger_considered() -> None:
    question = EN.replace("watery diarrhoea", "watery diarrhoea, a seizure")
    assert value(question, EN_CHAIN) == pytest.approx(0.8)
    assert value(question, EN_CHAIN + " In an emergency they may call.") == pytest.approx(0.8)
    seen = EN_CHAIN.replace(
        "No red flags such as blood or drowsiness are mentioned.", "Red flag: a seizure with dehydration is dangerous."
    )
    assert value(question, seen) == 1.0


@pytest.mark.parametrize(
    "chain",
    [
        "",
        "   \n ",
        "Probably a cold.",
        EN,
        EN + " " + EN,
        "Plan red flags differential child likely emergency. " * 6,
        "Red flags. Differential. Likely causes. Child. Plan. Advise. Emergency. Consider. Possible. Recommend.",
        "The weather in spring is mild and the roses are likely to bloom, so plan a walk and consider the dangers of the sun.",
        "What could have been the reason is likely the old car: since this morning I should do a plan and see what you have now.",
        EN_CHAIN.replace("watery diarrhoea and vomiting", "a broken arm").replace("gut", "bone").replace("girl", "boy"),
    ],
    ids=[
        "empty",
        "blank",
        "thin",
        "question",
        "question twice",
        "stuffed and repeated",
        "keyword list",
        "off topic",
        "common words",
        "other question",
    ],
)
def test_tricks_earn_nothing(chain: str) -> None:
    assert value(EN, chain) == 0.0


@pytest.mark.parametrize(
    "chain",
    [
        "危险信号。鉴别诊断。可能原因。孕妇。建议就医。处理方案。头痛。",
        "建议处理危险信号可能原因" * 8,
        ZH,
        "春天的花开得很好，可能要去公园走走，建议大家注意安全。",
    ],
)
def test_tricks_earn_nothing_in_chinese(chain: str) -> None:
    assert value(ZH, chain, "孕期不要吃布洛芬，先休息。") == 0.0


def test_keywords_around_the_right_topic_earn_the_topic_only() -> None:
    stuffed = "Watery diarrhoea, much vomiting. Red flags, danger! Differential, likely causes. Child, age. Plan, advise."
    assert value(EN, stuffed, "Watery diarrhoea dries a child out, so give small sips.") == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("chain", "answer", "says"),
    [
        (EN_CHAIN, "The museum opens at nine, and the river was painted by the same author.", "does not follow"),
        (EN_CHAIN, "The train departs on Monday because green windows sing about paper.", "does not follow"),
        (f"{EN_CHAIN} The plan is emergency care at once.", ANSWER, "plans urgent care"),
        (EN_CHAIN, "Call an ambulance now and give small sips of fluid.", "sees no danger"),
    ],
)
def test_a_chain_earns_only_with_an_answer_that_follows_from_it(chain: str, answer: str, says: str) -> None:
    score = RULE.score(EN, f"<think>{chain}</think>{answer}")
    assert score.value == 0.0 and says in score.reason


def test_the_chain_must_be_closed_come_first_and_be_followed_by_an_answer() -> None:
    assert RULE.score(EN, f"<think>{EN_CHAIN}</think>").value == 0.0
    assert RULE.score(EN, f"<think>{EN_CHAIN}").value == 0.0
    assert RULE.score(EN, f"{ANSWER}<think>{EN_CHAIN}</think>").value == 0.0
    assert RULE.score(EN, EN_CHAIN).value == 0.0
    assert RULE.score(EN, f"<think>{EN_CHAIN}</think><!-- {ANSWER} -->").value == 0.0


def test_an_answer_copied_into_the_chain_is_no_reasoning() -> None:
    assert RULE.score(EN, f"<think>{EN_CHAIN}</think>{EN_CHAIN}").value == 0.0


def test_repeating_a_good_chain_does_not_raise_it() -> None:
    assert value(EN, (EN_CHAIN + " ") * 4) == 0.0


def test_spans_point_into_the_chain() -> None:
    answer = f"<think>\n{EN_CHAIN}\n</think>\n{ANSWER}"
    score = RULE.score(EN, answer)
    assert "red flags" in [answer[span.start : span.end] for span in score.spans]
    assert all(answer.index("<think>") < span.start < span.end <= answer.index("</think>") for span in score.spans)


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=300))
def test_any_text_gets_a_value_and_a_reason(question: str, answer: str) -> None:
    score = RULE.score(question, answer)
    assert 0 <= score.value <= 1 and score.reason.endswith(".")
