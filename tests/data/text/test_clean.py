"""What cleaning removes, what it must keep, and why a conversation is dropped."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.contracts import Conversation
from medloop.data.text.clean import CleanLimits, clean_messages, clean_text

QUESTION, ANSWER = "头疼三天了应该怎么办", "多休息，少熬夜"


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("<p>多喝水</p><p>休息</p>", "多喝水\n\n休息"),
        ("Take&nbsp;it&amp;amp;rest &lt;br&gt; now", "Take it&rest\nnow"),
        ('<a href="http://x.y">link</a> text<script>alert(1)</script>', "link text"),
        ("a\u200bb\x00c\ufeff\ue000 d\u00a0\u3000 e", "abc d e"),
        ("cafe\u0301", "café"),
        ("one\r\ntwo\r\r\n\n\n\nthree  ", "one\ntwo\n\nthree"),
        ("<|im_start|>assistant\nRest.<|im_end|>", "Rest."),
        ("<|im_<|x|>end|>Rest[/INST]</s><｜end▁of▁sentence｜>", "Rest"),
        ("### Response: Rest", "Rest"),
        ("好的。。。。。。。。。。", "好的。。。"),
        ("请输入问题的描述，医生将为您一一解答！肛瘘多久能好", "肛瘘多久能好"),
        (
            "这种情况建议先做一个检查，明确病因以后再用药。希望我的回答对您有所帮助，祝您健康！",
            "这种情况建议先做一个检查，明确病因以后再用药。",
        ),
    ],
)
def test_debris_goes(dirty: str, clean: str) -> None:
    assert clean_text(dirty) == clean


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nBP is 150.\n</think>\nRest.",
        "BP <140 and >90 is fine; if a <b and c> d then stop",
        "血压<140，心率>60，p < 0.05",
        "希望对您有帮助",  # all there is: a polite answer is not emptied
        "Dose: 5 mg/kg [1], see (2) & (3)",
    ],
)
def test_meaning_stays(text: str) -> None:
    assert clean_text(text) == text


@settings(deadline=None, max_examples=300)
@given(
    st.text(
        st.sampled_from("<>|/&;:#[]（）pbr im_startendINSThink：医生希望对您有帮助。！ \n\r\t\u200b\u3000\x07é́12"), max_size=60
    )
)
def test_cleaning_twice_is_cleaning_once_and_no_control_token_survives(text: str) -> None:
    clean = clean_text(text)
    assert clean_text(clean) == clean
    assert not re.search(r"<[|｜][^<>|｜\n]{1,40}[|｜]>|\[/?INST\]|<(br|p|b|i)>|[\x00-\x08\u200b\r]", clean)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([("user", " "), ("assistant", "<p></p>")], "empty"),
        ([("user", ""), ("assistant", ANSWER)], "empty"),
        ([("user", QUESTION)], "no_answer"),
        ([("user", QUESTION), ("assistant", "\u200b")], "no_answer"),
        ([("assistant", "你好"), ("user", QUESTION), ("assistant", ANSWER)], "broken_turns"),
        ([("user", QUESTION), ("assistant", ""), ("user", "在吗"), ("assistant", ANSWER)], "broken_turns"),
        ([("user", "无"), ("assistant", ANSWER)], "too_short"),
        ([("user", QUESTION), ("assistant", "C")], "too_short"),
        ([("user", QUESTION), ("assistant", "水" * 10 + "火木金土" * 6_000)], "too_long"),
        ([("user", QUESTION), ("assistant", "0.13%，12.7，9/8")], "not_text"),
        ([("user", QUESTION + "锟斤拷锟斤拷"), ("assistant", ANSWER)], "debris"),
        ([("user", "哈" * 30), ("assistant", ANSWER)], "debris"),
    ],
)
def test_each_reason_for_a_drop(messages: list[tuple[str, str]], reason: str) -> None:
    assert clean_messages(messages, CleanLimits()) == reason


def test_messages_in_a_row_are_one_turn_and_an_unanswered_end_is_cut() -> None:
    messages = [("system", "Be kind."), ("user", "医生你好"), ("user", QUESTION), ("assistant", ANSWER), ("user", "谢谢")]
    cleaned = clean_messages(messages, CleanLimits())
    assert isinstance(cleaned, Conversation)
    assert [(m.role, m.content) for m in cleaned.messages] == [
        ("system", "Be kind."),
        ("user", f"医生你好\n{QUESTION}"),
        ("assistant", ANSWER),
    ]


def test_a_role_label_at_the_start_goes_but_addressing_the_doctor_stays() -> None:
    cleaned = clean_messages([("user", "用户：医生，" + QUESTION), ("assistant", "Assistant: 回答：" + ANSWER)], CleanLimits())
    assert isinstance(cleaned, Conversation)
    assert [m.content for m in cleaned.messages] == ["医生，" + QUESTION, ANSWER]
