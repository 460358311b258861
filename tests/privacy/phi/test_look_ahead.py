"""Texts that are looked at together are judged as they are one by one."""

import numpy as np

from medloop.feedback.submit.doubt import doubt_about, doubts_about
from medloop.privacy.phi import find
from medloop.privacy.phi.chinese import network, second_network
from medloop.privacy.phi.english import network as english_network
from medloop.privacy.phi.english.tagger import Token
from medloop.privacy.phi.scrub import assess

RECORDS = [
    ("患者王芳，女，54岁，咳嗽三天。", "多喝水，注意休息。", "Please call Kelvin Marsh at 617-555-0143."),
    ("我妈最近头晕，一周了。",),
    ("My wife Grace has a rash.", "剂量没有问题，但是没有提到过敏史。"),
    ("bed 4: chance reports pain", "x", "call me: 4 8 then 2 1 and 7 7 3 5 9"),
    ("我的号 lin_xia.88 哦", ""),
    ("[NAME_1]昨天来电，李小龙陪同。", "我女儿阿依古丽·买买提发烧了。"),
]
TEXTS = [text for record in RECORDS for text in record]


def test_the_networks_read_joined_texts_as_they_read_each():
    chinese = [text for text in TEXTS if not text.isascii() and "[" not in text]
    first, second = network.load(), second_network.load()
    first._ahead, second._ahead = {}, {}
    separate = [(*first.read(text), *second.chances(text)) for text in chinese]
    first.look_ahead(chinese)
    second.look_ahead(chinese)
    assert set(first._ahead) == set(second._ahead) == set(chinese)
    for text, (offsets, scores, inside, begins) in zip(chinese, separate, strict=True):
        joined = (*first.read(text), *second.chances(text))
        assert (joined[0] == offsets).all()
        for together, alone in zip(joined[1:], (scores, inside, begins), strict=True):
            np.testing.assert_allclose(together, alone, atol=1e-4)


def test_doubts_about_many_records_are_those_about_each():
    one_by_one = [doubt_about(texts) for texts in RECORDS]
    assert doubts_about(RECORDS) == one_by_one
    assert any(one_by_one) and not all(one_by_one)


def test_looking_ahead_changes_no_assessment():
    alone = [assess(text) for text in TEXTS]
    find.look_ahead(TEXTS)
    assert [assess(text) for text in TEXTS] == alone


def test_long_texts_and_too_many_are_left_for_later():
    first = network.load()
    find.look_ahead(["咳" * 2000, *(f"咳嗽{n}天" * 100 for n in range(40))])
    assert first._ahead and all(len(text) <= 1000 for text in first._ahead)
    assert sum(map(len, first._ahead)) <= 8000


def test_chances_of_some_words_are_those_that_the_whole_text_gives():
    words = "Please ask penny and hope about the kettle ; the tests of last week were fine and nobody here minds at all".split()
    tokens = [Token(0, 0, word) for word in words * 4]
    model = english_network.load()
    whole = model.chances(tokens)
    for wanted in ([], [0], [2, 4], [30, 31, 70], [len(tokens) - 1], list(range(len(tokens)))):
        chances = model.chances_of(tokens, wanted)
        np.testing.assert_allclose([chances[index] for index in wanted], [whole[index] for index in wanted], atol=1e-5)
        assert not any(chance for index, chance in enumerate(chances) if index not in wanted)
