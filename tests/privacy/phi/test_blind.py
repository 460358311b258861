"""Kinds of names, numbers and disguises that a blind set brought up, with sentences of our own."""

import pytest

from medloop.privacy.phi.scrub import assess


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("孛儿只斤·苏日娜，女，40岁。", "孛儿只斤·苏日娜"),
        ("定期复查血常规。区伟文", "区伟文"),
        ("已告知朴善姬护士，重采。", "朴善姬"),
        ("Dmitri Volkov今天来换药", "Dmitri Volkov"),
        ("Told Will to hold the metformin", "Will"),
        ("Granny Pearl wants her tablets.", "Pearl"),
        ("HERNANDEZ-PUIG,XIMENA L | F | 07Y", "XIMENA"),
    ],
)
def test_a_name_of_an_unusual_kind_is_replaced(text: str, name: str) -> None:
    assert name not in assess(text).cleaned


@pytest.mark.parametrize(
    "text",
    [
        "sites: my cell is on the usual page of the book",
        "微❤信号是L丨a0哦，血糖高",
        "邮箱 lin66艾特163点com，发这里",
        "the nineteenth of february two thousand three",
        "4929|1837|4402|7716 refund",
    ],
)
def test_what_is_announced_or_disguised_is_held(text: str) -> None:
    assert assess(text).quarantined


def test_a_herb_that_does_what_persons_do_is_replaced() -> None:
    assert assess("白芷问术后多久能洗澡").cleaned == "[NAME_1]问术后多久能洗澡"


@pytest.mark.parametrize(
    "text",
    [
        "PHQ-9 14, GAD-7 11, Lexapro 10, CBT wait 6-8 weeks.",
        "Entresto 49/51, Lasix 40, weights daily.",
        "Guillain-Barre, FVC 1.6 L, IVIG day 2.",
        "卡泊芬净、泊沙康唑、艾沙康唑三选一。",
    ],
)
def test_a_note_of_medicine_is_neither_changed_nor_held(text: str) -> None:
    assessment = assess(text)
    assert assessment.cleaned == text and not assessment.quarantined
