"""Helpfulness: points about the question earn, and nothing that merely looks like them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop.reward.points import read_points
from medloop.reward.rules import RULES
from medloop.reward.rules.helpfulness import Helpfulness

RULE = Helpfulness()
EN = "I have had a dry cough and a runny nose for three days. What can I do at home?"
ZH = "我感冒三天了，一直干咳流鼻涕，在家怎么处理？"
PLAIN = {
    EN: "A dry cough with a runny nose is most often a viral cold, and it usually passes within ten days. Drink plenty of warm "
        "fluids and rest. Honey in tea soothes the throat. A saline spray clears the nose. See a doctor if you get a high fever, "
        "chest pain or trouble breathing.",
    ZH: "干咳和流鼻涕多半是病毒引起的普通感冒，一般一周左右会好转。多喝温水，注意休息。可以用生理盐水冲洗鼻腔。蜂蜜水能缓解喉咙不适。"
        "如果出现高烧、胸痛或者呼吸困难，请尽快去医院就诊。",
}  # fmt: skip
QUESTIONS = pytest.mark.parametrize("question", [EN, ZH], ids=["en", "zh"])


def value(question: str, answer: str) -> float:
    return RULE.score(question, answer).value


def shuffled(text: str, *, by: int) -> str:
    """The words (the characters: `by` 1) of a text in another order, in sentences of the same length."""
    units = list(text) if by else text.split()
    random.Random(3).shuffle(units)
    return "".join(units) if by else " ".join(units)


def gamed(question: str) -> dict[str, str]:
    """What a policy would try instead of an answer, at least as long as the plain one."""
    plain, other = PLAIN[question], EN if question == ZH else ZH
    zh = question == ZH
    first = plain.partition("。" if zh else ". ")[0] + ("。" if zh else ". ")
    return {
        "the question copied": question * 5,
        "one sentence again and again": first * 8,
        "disclaimers": ("我不是医生，无法提供医疗建议，以上内容仅供参考。" if zh else "I am not a doctor, this is not medical advice. ") * 9,
        "small talk": (
            "很高兴为您服务，祝您早日康复，如有其他问题请随时联系我。希望以上对您有帮助，谢谢。" * 4 if zh
            else "Thank you for your question. You are welcome. I hope this helps, feel free to ask. Get well soon! " * 3
        ),
        "keywords": (
            "感冒 咳嗽 鼻涕 病毒 发烧 肺炎 胸痛 医院 检查 药物 抗生素 休息 喝水 维生素 血压 心电图 化验 复查" * 2 if zh
            else "cough nose virus fever pneumonia chest pain hospital test medicine antibiotic rest water vitamin " * 3
        ),
        "another topic": (
            "今年的小麦长势很好，农民正在准备收割。市场上的价格比去年高出一成。运输公司增加了许多车辆。仓库已经整理完毕，等待入库。" if zh
            else "The wheat looks good this year and farmers prepare the harvest. Prices are higher than last year. "
            "Haulage firms added many lorries. The barns have been swept and wait for the grain."
        ),
        "the other language": PLAIN[other],
        "shuffled words": shuffled(plain, by=1 if zh else 0),
        "hidden": f"<think>{plain}</think>好的。" if zh else f"<think>{plain}</think>All right then, okay.",
    }  # fmt: skip


@QUESTIONS
def test_gamed_answers_earn_less_than_half_of_a_plain_one(question: str) -> None:
    plain = value(question, PLAIN[question])
    assert plain > 0.25
    assert {name: value(question, text) for name, text in gamed(question).items() if value(question, text) > plain / 2} == {}


@QUESTIONS
def test_padding_a_plain_answer_earns_nothing(question: str) -> None:
    plain = value(question, PLAIN[question])
    for name, text in gamed(question).items():
        if name not in ("keywords", "the other language", "shuffled words", "hidden"):
            assert value(question, f"{PLAIN[question]}\n{text}") <= plain + 0.001, name


@QUESTIONS
def test_every_further_point_earns_a_little_less(question: str) -> None:
    mark = "。" if question == ZH else ". "
    sentences = [sentence + mark for sentence in PLAIN[question].split(mark) if sentence]
    values = [value(question, "".join(sentences[:count])) for count in range(1, len(sentences) + 1)]
    assert values == sorted(values) and values[0] < values[-1]


def test_lay_words_are_taken_up_by_medical_ones() -> None:
    answer = "Abdominal pain with loose stools is mostly gastroenteritis; drink oral rehydration solution."
    assert read_points("My tummy hurts and I have the runs", answer).shared >= 2
    assert read_points("拉稀两天，肚子不舒服", "腹泻时要补充水分，腹部注意保暖。").shared >= 2


def test_in_an_emergency_a_short_call_for_help_beats_a_long_comforting_answer() -> None:
    question = "My father suddenly cannot lift his right arm and his speech is slurred. What should we do?"
    calm = (
        "An arm that cannot be lifted and slurred speech often come from a pinched nerve after sleeping badly. Let your father rest "
        "on the sofa for the day. Warm compresses on the neck relax the muscles. Give him tea with sugar and a light meal. Massage "
        "the shoulder twice a day. Check his blood pressure in the evening and write down the values."
    )
    assert value(question, "Call 911 now.") > 0.6 > 0.3 >= value(question, calm)


def test_the_rule_is_among_the_rules_and_its_reason_names_what_it_counted() -> None:
    score = RULES["helpfulness"].score(EN, PLAIN[EN])
    assert "points" in score.reason and "shared with the question" in score.reason and not RULES["helpfulness"].penalty


@pytest.mark.parametrize("answer", ["", ":", "Thought process:", "<think>cough</think>", "。", "ok", "嗯"])
def test_null_answers_earn_nothing(answer: str) -> None:
    assert value(EN, answer) == 0.0


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_gets_a_value(question: str, answer: str) -> None:
    assert 0 <= value(question, answer) <= 1
