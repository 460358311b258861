"""Which questions a few-shot example stands before: like ones about the same people, danger and medicine, no others."""

import pytest
from tests.codebook.test_codebook import rule

from medloop.codebook.retrieve import Retriever
from medloop.store.records import codebook

CHILD = "My 4-year-old son has itchy eyes and sneezing in spring for three days. What dose is right?"


HEADACHE = "I have a bad headache since this morning. What can I take?"
ZH_HEADACHE = "我今天早上开始头痛得厉害，能吃什么？"
PLAIN_ANSWER = "The dose of a child depends on the weight; ask a doctor first."


def stands_before(example: str, question: str, answer: str = PLAIN_ANSWER) -> bool:
    entry = rule(answer, question=example).model_copy(update={"kind": "example"})
    return bool(Retriever((entry,), codebook.sha256_of((entry,)))(question).rules)


def test_like_question_about_the_same_people():
    assert stands_before(CHILD, "My 2-year-old daughter has itchy eyes and sneezing in spring for a week. What dose is right?")


@pytest.mark.parametrize(
    ("example", "question"),
    [
        (CHILD, "My wife is 15 weeks pregnant and has itchy eyes and sneezing in spring for three days. What could this be?"),
        (CHILD, "My father is 87 years old and has itchy eyes and sneezing in spring for three days. What dose is right?"),
        (CHILD, f"{CHILD} Now there is also severe shortness of breath."),
        ("脚关节肿痛，从今天早上开始。停药可以吗？", "脚关节肿痛，从今天早上开始。这可能是什么问题？"),
        ("嗓子疼和低烧，三天了。能吃阿莫西林吗？", "嗓子疼和低烧，三天了。能吃布洛芬吗？"),
        (HEADACHE, f"I have kidney failure. {HEADACHE}"),
        (HEADACHE, f"I have a stomach ulcer. {HEADACHE}"),
        (HEADACHE, f"I have asthma. {HEADACHE}"),
        (HEADACHE, f"{HEADACHE} I am allergic to ibuprofen."),
        (HEADACHE, f"{HEADACHE} I am allergic to codeine."),
        (HEADACHE, f"{HEADACHE} I am breastfeeding."),
        (ZH_HEADACHE, f"{ZH_HEADACHE}我有肾衰竭。"),
        (ZH_HEADACHE, f"{ZH_HEADACHE}我有胃溃疡。"),
        (ZH_HEADACHE, f"{ZH_HEADACHE}我对布洛芬过敏。"),
        (ZH_HEADACHE, f"{ZH_HEADACHE}我对磺胺过敏。"),
        (ZH_HEADACHE, f"{ZH_HEADACHE}我在哺乳期。"),
    ],
)
def test_like_words_about_other_people_or_things(example: str, question: str):
    assert not stands_before(example, question)


def test_medicines_of_one_family_are_the_same_thing_and_the_question_may_name_more():
    example = "嗓子疼和低烧，三天了。能吃阿莫西林吗？"
    assert stands_before(example, "嗓子疼和低烧，两天了。需要抗生素吗？")
    assert stands_before("嗓子疼和低烧，三天了。怎么办？", "嗓子疼和低烧，两天了。能吃布洛芬吗？")


def test_an_answer_that_names_a_medicine_does_not_stand_before_a_question_with_further_ones():
    asked = f"{HEADACHE} I take lithium and methotrexate."
    assert stands_before(HEADACHE, asked, "Ask a doctor before you take any medicine.")
    assert not stands_before(HEADACHE, asked, "Ibuprofen helps; take it with food.")
    assert stands_before(HEADACHE, f"{HEADACHE} I am 40.", "Ibuprofen helps; take it with food.")


def test_the_same_illness_and_allergy_in_other_words():
    assert stands_before(f"{HEADACHE} I am allergic to codeine.", f"{HEADACHE} I have a codeine allergy.")
    assert stands_before(f"{HEADACHE} I have renal failure.", f"{HEADACHE} I have kidney disease.")
    assert stands_before(HEADACHE, f"{HEADACHE} No known drug allergies.")
    assert stands_before(ZH_HEADACHE, f"{ZH_HEADACHE}没有药物过敏。")
