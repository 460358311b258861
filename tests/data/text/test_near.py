"""Which questions are near-copies, and that the index finds all of them."""

import random

import numpy as np
import pytest
from data_desk import near_copy, questions

from medloop.data.text.near import MeasuredQuestions, Nearness, QuestionFeatures, Vocabulary, near_pairs
from medloop.data.text.shingles import question_features, question_marks

CORPUS = [row["question"] for row in questions(400, seed=5)]
TEMPLATES = (
    "What are the treatments for {}?",
    "What are the symptoms of {}?",
    "Is {} inherited?",
    "{}患者能吃西瓜吗",
    "{}三天了怎么办",
)
NAMES = [
    a + b
    for a in ("pachy", "derma", "tri", "osteo", "hyper", "neuro", "cardio")
    for b in ("osis", "itis", "algia", "uria", "emia", "oma")
]
CORPUS += [template.format(name) for template in TEMPLATES for name in NAMES]
VOCABULARY = Vocabulary(QuestionFeatures.of([question_features(text) for text in CORPUS]))


def near_to(question: str, others: list[str]) -> list[int]:
    """By the definition alone, without an index."""
    measured = MeasuredQuestions(QuestionFeatures.of([question_features(question)]), VOCABULARY, Nearness())
    many = MeasuredQuestions(QuestionFeatures.of([question_features(text) for text in others]), VOCABULARY, Nearness())
    return np.flatnonzero(many.near(measured, 0, np.arange(len(others)))).tolist()


def test_edited_copies_are_near_their_original() -> None:
    rng = random.Random(1)
    missed = [text for text in CORPUS[:200] if near_to(text, [near_copy(rng, text)]) != [0]]
    assert missed == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("What are the treatments for Pachyosis?", "What are the treatments for Triuria?"),
        ("What are the treatments for Pachyosis?", "Is Pachyosis inherited?"),
        ("What are the treatments for zorvek mantil quabrel ustin?", "Is zorvek mantil quabrel ustin inherited?"),
        ("高血压患者能吃党参吗", "糖尿病患者能吃西瓜吗"),
        ("孩子发烧三天了怎么办", "孩子咳嗽有痰吃什么药"),
        ("我明白了", "我得了这个病该怎么治疗，症状大概的我也不明白了，希望能为我解惑"),
    ],
)
def test_siblings_of_one_template_and_other_questions_on_one_subject_stay_apart(first: str, second: str) -> None:
    assert near_to(first, [second]) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("我奶奶85岁，血压160，吃什么药", "我奶奶78岁，血压１５０，吃什么药？"),
        ("三天前开始拉肚子，要紧吗", "五天前开始拉肚子 要紧吗"),
        ("Whatarethetreatmentsforpachyosis", "What are the treatments for Pachyosis ?"),
    ],
)
def test_numbers_width_and_missing_spaces_do_not_hide_a_copy(first: str, second: str) -> None:
    assert near_to(first, [second]) == [0] or question_marks(first)[0] == question_marks(second)[0]


def test_the_index_finds_exactly_the_pairs_of_the_definition() -> None:
    rng = random.Random(2)
    texts = CORPUS[:150] + [near_copy(rng, text) for text in CORPUS[:150]]
    features = QuestionFeatures.of([question_features(text) for text in texts])
    vocabulary = Vocabulary(features)
    measured, every = MeasuredQuestions(features, vocabulary, Nearness()), np.arange(len(texts))
    expected = {(a, b) for a in range(len(texts)) for b in np.flatnonzero(measured.near(measured, a, every)).tolist() if a < b}
    pairs = {(min(a, int(b)), max(a, int(b))) for a, more in near_pairs(features, vocabulary, Nearness()) for b in more}
    assert pairs == expected
    assert len(expected) >= 150


def test_the_index_also_finds_copies_that_lack_the_rarest_words() -> None:
    rng = random.Random(3)
    words = [f"{a}{b}" for a in "bcdfghklmnprst" for b in ("aro", "emi", "iku", "ovo", "usa")]
    texts = [" ".join(rng.choices(words, k=rng.randint(5, 16))) for _ in range(150)]
    for n in range(150):
        copy = texts[n].split()
        for place in rng.sample(range(len(copy)), rng.randint(1, 3)):
            copy[place] = "".join(rng.choices("qwxyz", k=6))  # a word nobody else has: the rarest of the copy
        texts.append(" ".join(copy))
    features = QuestionFeatures.of([question_features(text) for text in texts])
    measured = MeasuredQuestions(features, Vocabulary(features), Nearness())
    expected = {(a, b) for a in range(300) for b in np.flatnonzero(measured.near(measured, a, np.arange(300))).tolist() if a != b}
    pairs = {(a, int(b)) for a, more in near_pairs(features, measured.vocabulary, Nearness()) for b in more}
    assert expected == pairs | {(b, a) for a, b in pairs}
    assert len(expected) > 50


def test_all_numbers_are_one_word() -> None:
    assert np.array_equal(question_features("三天前开始发烧到39度"), question_features("12天前开始发烧到四十度"))


def test_generic_questions_match_only_themselves() -> None:
    texts = [f"what is the thing called {chr(97 + i % 26)}{chr(97 + i // 26)}x" for i in range(300)] + [
        "what is the thing called"
    ]
    features = QuestionFeatures.of([question_features(text) for text in texts])
    vocabulary = Vocabulary(features)
    assert vocabulary.generic(features).tolist() == [False] * 300 + [True]
    measured = MeasuredQuestions(features, vocabulary, Nearness())
    assert np.flatnonzero(measured.near(measured, 300, np.arange(301))).tolist() == [300]


def test_questions_of_signs_alone_are_near_themselves_only() -> None:
    assert near_to("!!", ["??", "!!", "👍", "我奶奶85岁，血压160，吃什么药"]) == [1]
    assert dict(near_pairs(QuestionFeatures.of([question_features(text) for text in ("👍", "!!", "")]), VOCABULARY, Nearness()))
