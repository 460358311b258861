"""Names that a title in small letters, an age behind capitals or the word "called" gives away, and questions that have none."""

import pytest

from medloop.privacy.phi.scrub import assess


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mr. smith has chest pain", "smith"),
        ("mr j smith has chest pain", "smith"),
        ("Mr. smith came in today", "smith"),
        ("KAREN MILLER 45F chest pain", "MILLER"),
        ("JOHN SMITH 45M with a cough", "SMITH"),
    ],
)
def test_replaced(text: str, name: str) -> None:
    assert name not in assess(text).cleaned


@pytest.mark.parametrize(
    "text",
    ["我叫黄芪，血压高", "我儿子叫杜仲", "孩子名叫白芷，发烧", "我女儿叫当归，5岁发烧", "我儿子叫甘草，咳嗽", "rose has a fever"],
)
def test_a_word_in_the_place_of_a_name_is_held_or_replaced(text: str) -> None:
    assessment = assess(text)
    assert assessment.quarantined or "[NAME_1]" in assessment.cleaned


@pytest.mark.parametrize(
    "text",
    [
        "Will this harm me?",
        "Hello. Will this harm me? Thanks",
        "Will antibiotics help my cough?",
        "Will his cough stop?",
        "May this cause bleeding?",
        "ms patients have fatigue",
        "mr imaging was normal",
        "CHEST PAIN 45F since morning",
        "孩子叫疼，怎么办",
        "我叫救护车，还是自己去",
        "这个药名叫黄芪，能吃吗",
        "pain is still there",
        "blood pressure is still high",
    ],
)
def test_no_name(text: str) -> None:
    result = assess(text)
    assert result.cleaned == text
    assert not result.quarantined


@pytest.mark.parametrize("text", ["Will needs a new inhaler.", "Will has a cough.", "Will complains of pain."])
def test_somebody_called_will(text: str) -> None:
    assert "Will" not in assess(text).cleaned


@pytest.mark.parametrize(
    "note", ["hope denies any recent weight gain", "Scooter is walking around well.", "Last night, will said it hurts."]
)
def test_an_ordinary_word_that_does_what_a_person_does_is_a_reason_to_doubt(note: str) -> None:
    assessment = assess(note)
    assert assessment.quarantined or assessment.spans


@pytest.mark.parametrize(
    "note", ["Nobody said that it hurts.", "Her cousin died of a stroke.", "Initially, pain had no pattern."]
)
def test_nobody_who_does_it_is_no_reason(note: str) -> None:
    assert not assess(note).quarantined
