"""Texts about the same thing in other words are near; texts about other things, and texts without known words, are not."""

from pathlib import Path

import numpy as np
import pytest

from medloop.errors import ModelError
from medloop.reward import relatedness as module
from medloop.reward.points import content_of, read_points
from medloop.reward.relatedness import WordVectors, relatedness
from medloop.reward.rules.off_topic import OffTopic

RIGHT = {  # a question, and an answer that takes up none or one of its words
    "头皮屑多怎么办": "可以用含酮康唑的洗剂，每周两次，少抓挠。",
    "牙疼得睡不着": "多半是龋坏或者根尖发炎，尽快去口腔科处理。",
    "尿酸高怎么吃": "少吃动物内脏和海鲜，不喝啤酒，多饮水，痛风发作时再用秋水仙碱。",
    "My toddler keeps tugging at his ear": "It may be otitis media; a pediatrician can look and decide about antibiotics.",
    "My period is late": "Take a pregnancy test, and see a gynecologist if menstruation stays away for three months.",
}


def near(question: str, answer: str) -> float:
    return relatedness(frozenset(content_of(question)), content_of(answer))


@pytest.mark.parametrize("question", RIGHT)
def test_the_right_answer_is_nearer_than_those_to_other_questions(question: str) -> None:
    others = [near(question, answer) for other, answer in RIGHT.items() if other != question]
    assert near(question, RIGHT[question]) > max(others) + 0.1


@pytest.mark.parametrize("question", RIGHT)
def test_an_answer_in_other_words_is_on_topic_and_that_to_another_question_is_less(question: str) -> None:
    own = OffTopic().score(question, RIGHT[question]).value
    same_language = [answer for other, answer in RIGHT.items() if other != question and other.isascii() == question.isascii()]
    assert own < 0.4
    assert all(OffTopic().score(question, answer).value >= own for answer in same_language)


def test_a_sentence_about_something_else_is_no_point_beside_one_that_fits() -> None:
    question = "My period is late"
    padding = " The barns were swept, and lorries came with timber from the harbour."
    assert read_points(question, RIGHT[question] + padding).points == read_points(question, RIGHT[question]).points


def test_a_sentence_that_belongs_to_the_question_is_a_point_without_a_word_of_health() -> None:
    question = "尿酸高怎么吃"
    assert read_points(question, "少碰啤酒、虾蟹和动物内脏。").points > 0.5
    assert read_points(question, "少买彩票、股票和二手家具。").points == 0


@pytest.mark.parametrize("said", ["", "zzyzx", "我", "qwrt plugh xyzzy"])
def test_texts_without_known_words_are_near_nothing(said: str) -> None:
    assert near("My eyelid keeps twitching", said) == 0.0
    assert near(said, "My eyelid keeps twitching") == 0.0


def test_the_order_of_words_does_not_count() -> None:
    content = frozenset(content_of("eyelid twitching tired"))
    assert relatedness(content, ["tired", "sleep", "caffe"]) == relatedness(content, ["caffe", "tired", "sleep"])


def test_a_damaged_table_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "en.npz").write_bytes(b"no table")
    monkeypatch.setattr(module, "ASSETS", tmp_path)
    module._table.cache_clear()
    module._direction.cache_clear()
    try:
        with pytest.raises(ModelError, match=r"en\.npz"):
            near("My eyelid keeps twitching", "Rest your eyes")
    finally:
        module._table.cache_clear()
        module._direction.cache_clear()


def test_a_table_with_pickled_objects_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    np.savez(tmp_path / "en.npz", words=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    monkeypatch.setattr(module, "ASSETS", tmp_path)
    module._table.cache_clear()
    try:
        with pytest.raises(ModelError):
            module._table("en")
    finally:
        module._table.cache_clear()


def test_a_vector_is_the_weighted_sum_of_its_words() -> None:
    # rows (1, 0) and (0, 1), the second one twice as heavy: the direction is (1, 2) / sqrt(5)
    table = WordVectors({"a": 0, "b": 1}, np.array([[1, 0], [0, 1]], np.int8), np.array([1, 2], np.float32))
    vector = table.of({"a", "b", "unknown"})
    assert vector is not None
    assert vector == pytest.approx([1 / 5**0.5, 2 / 5**0.5])
    assert table.of({"a"}) is None
