"""The second network: what the lists say of each character, long texts in pieces, and what it adds and takes away."""

import numpy as np
import pytest

from medloop.privacy.phi.chinese import extent, second_network, second_opinion
from medloop.privacy.phi.chinese.words import GIVEN, is_pair, ordinary_words, surnames
from medloop.privacy.phi.scrub import assess

TEXT = "欧阳娜娜说高血压要吃氨氯地平，张力不好，王芳也来了"


def test_flags_say_what_the_lists_hold() -> None:
    flags, words = second_network.flags_of(TEXT).tolist(), ordinary_words()
    for index, char in enumerate(TEXT):
        assert bool(flags[index] & 1) == (char in surnames()[0])
        assert bool(flags[index] & 4) == (char in GIVEN)
        assert bool(flags[index] & 8) == is_pair(TEXT, index, often=True)
        begins = any(TEXT[index : index + size] in words for size in (2, 3)) or any(
            word[:4] == TEXT[index : index + 4] for word in words if len(word) > 3
        )
        assert bool(flags[index] & 1 << 7) == begins
    assert flags[0] & 2 and flags[1] & 2  # 欧阳: a surname of two characters
    start = TEXT.index("氨氯地平")  # a term begins, and goes on to its end
    assert flags[start] & 1 << 9 and all(flags[start + offset] & 1 << 10 for offset in (1, 2, 3))


def test_a_long_text_is_seen_as_its_pieces_are() -> None:
    network, size = second_network.load(), len(TEXT)
    whole, _ = network.chances(TEXT * 200)
    middle, _ = network.chances(TEXT * 7)
    start = second_network._PIECE // size * size  # the text that lies across the border of two pieces
    assert start % second_network._PIECE and second_network.REACH < 2 * size
    assert np.allclose(whole[start - size : start + 2 * size], middle[2 * size : 5 * size], atol=1e-4)


def test_texts_of_one_character_and_of_no_word_are_read() -> None:
    for text in ("王", "，", "王\U00020000", "\n王"):
        inside, begins = second_network.load().chances(text)
        assert len(inside) == len(begins) == len(text)


@pytest.mark.parametrize("name", ["佩芝", "嘉月", "线芳", "优素福"])
def test_a_name_in_a_long_text_is_replaced_by_what_is_around_it(name: str) -> None:
    question = f"我们结婚三年了，{name}怀孕两个多月，最近总是恶心，晚上睡不好，白天没有精神，饭也吃得很少，"
    question += "去社区卫生院查了血和尿，说是有点贫血，让多吃肉和蛋，别的没有说什么，我很担心。"
    assert len(question) > second_opinion.NOTE and name not in assess(question).cleaned


def test_a_window_of_a_long_text_is_read_as_it_is_alone() -> None:
    network, beside = second_network.load(), second_opinion.BESIDE
    text = "我们结婚三年了，建平怀孕两个多月，最近总是恶心" * 5
    opinion = second_opinion.SecondOpinion(text, network, around=[(8, 10, 0.9)])
    alone, _ = network.chances(text[: 10 + beside])
    assert alone.max() > 0.5 and np.allclose(opinion.inside[: 10 + beside], alone, atol=1e-4)
    assert not opinion.inside[10 + beside :].any()


def test_a_candidate_of_which_nothing_is_left_is_none() -> None:
    # the network sees one character of 外孙, which belongs to nobody's name
    assert extent.grow("病史由外孙子轩代述", [0, 0, 0, 0, 0.9, 0, 0, 0, 0], [0.0] * 9, list(range(9)), [4]) == []


def test_a_candidate_that_it_takes_for_a_word_is_dropped_unless_a_title_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    opinion = second_opinion.SecondOpinion("高敏体质，高敏护士")
    monkeypatch.setattr(opinion, "inside", np.zeros(len(opinion.text)))
    assert opinion.without_words([(0, 2, 0.99), (5, 7, 0.99)]) == [(5, 7, 0.99)]


def test_it_adds_what_it_is_sure_of_and_doubts_what_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def opinion(text: str, chance: float) -> second_opinion.SecondOpinion:
        start, opinion = text.index("闹"), second_opinion.SecondOpinion(text)
        inside, begins = np.zeros(len(text)), np.zeros(len(text))
        inside[start : start + 2], begins[start] = chance, 1.0
        monkeypatch.setattr(opinion, "inside", inside)
        monkeypatch.setattr(opinion, "begins", begins)
        return opinion

    led, alone = "给闹闹喂药", "这里闹闹嗡嗡响"
    assert opinion(led, 0.99).missed([], []) == ([(1, 3)], 0.0)
    assert opinion(led, 0.99).missed([(1, 3)], []) == ([], 0.0)
    assert opinion(led, 0.3).missed([], []) == ([], second_opinion.LEFT)
    assert opinion(alone, 0.15).missed([], []) == ([], 0.0)
    assert opinion(alone, 0.4).missed([], []) == ([], second_opinion.LEFT)
    assert opinion(alone, 0.99).missed([], []) == ([(2, 4)], 0.0)
    assert opinion(alone, 0.6).missed([], [(2, 4, 0.9)]) == ([(2, 4)], 0.0)  # both networks think so
    assert second_opinion.find(led + "，" * second_opinion.NOTE)[2] is None  # too long for it


@pytest.mark.parametrize(
    ("text", "name"),
    [("我家闹闹三个半月，大便带血丝。", "闹闹"), ("我叫Linda，上海人。", "Linda"), ("JOHN SMITH chest pain 45M", "JOHN SMITH")],
)
def test_names_that_were_missed_are_replaced(text: str, name: str) -> None:
    assert name not in assess(text).cleaned


@pytest.mark.parametrize("text", ["Patient Bell has palsy", "Patient Crohn is here"])
def test_an_eponym_where_a_patient_is_named_is_held(text: str) -> None:
    assert assess(text).quarantined


@pytest.mark.parametrize(
    "text",
    [
        "大姨妈来临时痛得很厉害",
        "先安慰患者。",
        "先提醒患者复查。",
        "请安慰患者家属。",
        "奶奶82岁，拉肚子三天，今天不想喝水，人有点糊涂，在家喂点粥行吗？",
        "请今天就送医院，叫不醒或抽搐时立即拨打120。",
        "青春期的痘痘怎么治",
        "手术前请确保您已经与麻醉师进行了沟通。",
        "您弟弟妹妹可能也有卵巢囊肿。",
        "Doctor: Nice. Where do you live?",
        "Hmmm, I don't know that one.",
        "Pain increasing to 10/10 during the night.",
        "Is aquaphor Vaseline?",
    ],
)
def test_words_of_a_consultation_stay(text: str) -> None:
    assert assess(text).cleaned == text


def test_a_date_behind_pain_is_still_a_date() -> None:
    assert assess("pain from 3/14 until today").cleaned == "pain from [DATE_1] until today"


@pytest.mark.parametrize(
    "text",
    [
        "本品主产于四川、湖北、安徽、江苏、河南、浙江等地，以四川产量最大，安徽次之，多生于山坡草地，夏秋两季采挖，其块茎在江苏、河南、河北、山西等地亦作别用。",
        "精神科医生说这种情况要慢慢来，有时候自言自语，莫名其妙地傻笑，看电视就胡言乱语，不知道是怎么回事，请问该怎么办才好呢，需要住院吗？",
        "乙肝患者喝蜂王浆真的对彻底恢复有帮助吗？蜂王浆在增加人体新陈代谢方面有作用，但是治疗还是要靠抗病毒药物，平时注意休息，不要熬夜，不要饮酒就可以了。",
        "我在酒店仓库工作，通风不是很好，最近半个月总是咳嗽，晚上咳得更厉害，吃了一些止咳的药也没有什么效果，请问这是什么原因引起的，应该去看哪个科比较好呢？",
    ],
)
def test_what_only_the_first_network_doubts_is_no_reason_to_hold_a_text(text: str) -> None:
    assert not assess(text).quarantined
