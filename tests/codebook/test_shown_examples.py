"""Which questions a few-shot example stands before: like ones about the same people, danger and medicine, no others."""

import pytest
from tests.codebook.test_codebook import rule

from medloop.codebook.retrieve import Retriever
from medloop.store.records import codebook

CHILD = "My 4-year-old son has itchy eyes and sneezing in spring for three days. What dose is right?"


def stands_before(example: str, question: str) -> bool:
    entry = rule("The dose of a child depends on the weight; ask a doctor first.", question=example).model_copy(
        update={"kind": "example"}
    )
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
    ],
)
def test_like_words_about_other_people_or_things(example: str, question: str):
    assert not stands_before(example, question)


def test_medicines_of_one_family_are_the_same_thing_and_the_question_may_name_more():
    example = "嗓子疼和低烧，三天了。能吃阿莫西林吗？"
    assert stands_before(example, "嗓子疼和低烧，两天了。需要抗生素吗？")
    assert stands_before("嗓子疼和低烧，三天了。怎么办？", "嗓子疼和低烧，两天了。能吃布洛芬吗？")
