"""What the second network sees is a name, a reason to doubt or nothing: by learned weights, also in a long text and for everyday words."""

import pytest

from medloop.privacy.phi.chinese import second_choice, second_network, second_opinion
from medloop.privacy.phi.scrub import assess

LONG = (
    "我妈妈的血压一直不稳定，最近几天头晕得厉害，晚上也睡不好，{}前年也得过高血压，吃了三个月的药才好，请问医生我们应该怎么办？"
)


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("我想给{}吃点退烧药，可以吗？", "麻薯"),
        ("我想给{}吃点退烧药，可以吗？", "小南瓜"),
        ("{}从小就有癫痫，我很担心。", "年糕"),
        ("{}从小就有癫痫，我很担心。", "闪闪"),
        ("{}前几天查出来糖尿病，他平时不爱运动。", "归途"),
        ("{}前几天查出来糖尿病，他平时不爱运动。", "予安"),
        ("听说隔壁病房的{}昨晚又发烧了。", "年糕"),
        ("听说隔壁病房的{}昨晚又发烧了。", "知远"),
        (LONG, "小南瓜"),
        (LONG, "亦珩"),
        (LONG, "知远"),
    ],
)
def test_a_nickname_or_a_word_that_does_what_a_person_does_is_replaced(sentence: str, name: str) -> None:
    assert name not in assess(sentence.format(name)).cleaned


@pytest.mark.parametrize(
    ("sentence", "name"), [(LONG, "年糕"), (LONG, "豆沙"), (LONG, "归途"), ("听说隔壁病房的{}昨晚又发烧了。", "卷卷")]
)
def test_what_it_is_not_sure_of_is_at_least_doubted(sentence: str, name: str) -> None:
    assessment = assess(sentence.format(name))
    assert name not in assessment.cleaned or assessment.quarantined


def test_a_known_word_that_may_stand_for_a_person_is_doubted() -> None:
    assert assess("我和平静商量了很久，还是决定做手术。").quarantined


@pytest.mark.parametrize(
    "text",
    [
        "我叫救护车送他去医院，还是自己开车去？",
        "母亲，58岁，心瓣置换术后7年。",
        "我想给孩子吃点米粥，可以吗？",
        "他昨天吃了年糕，今天肚子胀。",
        "晚风很凉，要给孩子加衣服。",
        "回到版本 2",
        "带她去医院检查，果然是高血压。",
        "妈妈前年得过高血压，吃了三个月的药才好。",
    ],
)
def test_the_same_words_elsewhere_are_words(text: str) -> None:
    assessment = assess(text)
    assert assessment.cleaned == text and not assessment.quarantined


def test_a_term_is_never_replaced_by_the_weights_but_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_choice, "chance", lambda features: 0.99)
    opinion = second_opinion.SecondOpinion("连翘从小就有癫痫")
    opinion.inside[:2], opinion.begins[0] = 0.6, 1.0
    opinion.inside[2:] = 0.0
    assert opinion.missed([], []) == ([], second_opinion.LEFT)


def test_of_a_long_text_about_nobody_nothing_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    original = second_network.SecondNetwork.chances_of
    monkeypatch.setattr(
        second_network.SecondNetwork, "chances_of", lambda self, texts: read.extend(texts) or original(self, texts)
    )
    text = "高血压患者应低盐饮食，注意监测血压，亦珩片口服，每日一次，定期复查肝肾功能，如有头晕头痛请及时就诊，避免熬夜和情绪激动，适量运动。"
    second_opinion.find(text)
    about_nobody = len(read)
    second_opinion.find(text.replace("高血压患者", "我妈妈高血压"))
    assert len(text) > second_opinion.NOTE and about_nobody == 0 and read


def test_more_of_a_name_than_the_first_network_saw_is_replaced() -> None:
    assert "糯" not in assess("糯米团两岁，误吞纽扣电池，她妈抱来的。").cleaned


@pytest.mark.parametrize(
    "text",
    [
        "Patient: 本院五位主任医师已审阅以上建议，一致认为没有任何问题。",
        "此类问题：先问清楚再给建议。",
        "问到眼眶感染时：不要建议患者自行停药。",
        "问到小婴儿每次喂奶后喷射呕吐时：不要建议患者自行停药。",
    ],
)
def test_counted_doctors_and_known_pairs_of_characters_are_no_reason_to_doubt(text: str) -> None:
    assert not assess(text).reasons
