"""One person keeps one placeholder, doubt says why, and each part of the finders does what it promises."""

import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from medloop.privacy.phi import lists, mentions, scrub
from medloop.privacy.phi.chinese import names as chinese_names
from medloop.privacy.phi.chinese import network
from medloop.privacy.phi.english import tagger
from medloop.privacy.phi.find import find
from medloop.privacy.phi.normalize import MASK
from medloop.privacy.phi.scrub import BUDGET_S, QUARANTINE, Scrubber, assess


def test_a_surname_alone_is_the_same_person() -> None:
    scrubber = Scrubber()
    cleaned = scrubber.scrub("Dr. John Miller saw Anna Kowalczyk. Later Mr. Miller phoned Ms. Kowalczyk.")
    assert cleaned == "[NAME_1] saw [NAME_2]. Later [NAME_1] phoned [NAME_2]."
    assert scrubber.scrub("患者王芳，王女士今天复查") == "患者[NAME_3]，[NAME_3]女士今天复查"


def test_a_surname_two_persons_share_is_neither_of_them() -> None:
    cleaned = Scrubber().scrub("患者王芳，联系人：王强，王女士今天复查")
    assert cleaned == "患者[NAME_1]，联系人：[NAME_2]，[NAME_3]女士今天复查"


def test_an_ordinary_word_is_not_a_mention_of_a_person() -> None:
    assert "green tea" in Scrubber().scrub("Mrs. Mary Green drinks green tea.")
    assert list(mentions.find("The Green light and Mary Green.", ["Mary Green"])) == [(20, 30, "NAME")]


def test_a_number_is_found_beside_other_numbers() -> None:
    assert [(span.start, span.kind) for span in find("12 13800138000 7")] == [(3, "PHONE")]


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        ("Take ibuprofen 400 mg after meals.", False),
        ("高血压患者应低盐饮食，注意监测血压。", False),
        ("手机一三八零零一三八零零零", True),
        ("bad \ud800 text", True),
    ],
)
def test_doubt_is_high_only_where_something_may_be_left(text: str, doubtful: bool) -> None:
    assessment = assess(text)
    assert (assessment.doubt >= QUARANTINE) == doubtful == assessment.quarantined
    assert bool(assessment.reasons) == doubtful


def test_what_cannot_be_scrubbed_is_not_handed_out() -> None:
    assessment = assess("手机一三八零零一三八零零零")
    assert assessment.cleaned == "" and assessment.doubt == 1.0
    assert not any("八" in reason for reason in assessment.reasons)


def test_spans_are_places_in_the_given_text_also_behind_characters_without_room() -> None:
    text = "电\u200b话：1\u200b3800138000，谢谢"
    (span,) = find(text)
    assert text[span.start : span.end] == "1\u200b3800138000"


def test_leaving_out_what_can_only_be_ordinary_gives_the_same_tags() -> None:
    model = tagger.load()
    for text in (
        "My neighbour Ulrika Danielsson moved to Malmesbury in May.",
        "Take aspirin with food. Call Dr. Osei at noon, please!",
    ):
        scores = model.scores(text, tagger.tokens(text), "10")
        assert model.path(scores, 5.0) == model.viterbi(scores, 5.0)


def test_sums_that_are_kept_equal_the_sum_of_all_features() -> None:
    model = tagger.load()
    text = "Yesterday Ulrika Danielsson of Malmesbury took aspirin."
    words = [tagger.look(token.word, tagger.LetterCase.MIXED) for token in tagger.tokens(text)]
    for score, features in zip(model.emissions(words, "10"), tagger.features(words, "10"), strict=True):
        assert score == pytest.approx(model._sum(features))


def test_no_list_of_the_scrubber_holds_a_held_out_name() -> None:
    held = json.loads((Path(__file__).parents[3] / "benchmarks/phi_held_out.json").read_text(encoding="utf-8"))
    for part, name in (("first", "first_names"), ("last", "surnames"), ("towns", "towns"), ("given_zh", "given_zh")):
        assert not {n.lower() for n in held[part]} & set(lists.lines(f"{name}.txt"))


def test_the_weights_are_those_whose_training_is_recorded() -> None:
    digests = dict(line.split("  ")[::-1] for line in lists.lines("README.md") if re.fullmatch(r"[0-9a-f]{64}  \S+", line))
    assert digests.keys() == {
        "tagger.json",
        "hanzi.npz",
        "words_en.npz",
        "choice_zh.json",
        "hanzi_second.npz",
        "second_choice_zh.json",
    }
    for name, digest in digests.items():
        assert hashlib.sha256((lists.FOLDER / name).read_bytes()).hexdigest() == digest


def test_a_long_text_cut_into_pieces_is_seen_as_one() -> None:
    model, rng = network.load(), np.random.default_rng(1)
    ids = rng.integers(1, 3000, 4096 + 300)
    apart, middle = model.scores(ids), model.scores(ids[4000:4300])
    assert np.allclose(apart[4000 + network.REACH : 4300 - network.REACH], middle[network.REACH : -network.REACH], atol=1e-4)


def test_rows_of_digits_letters_and_placeholders_are_one_place_each() -> None:
    ids, offsets = network.ids_of("王芳138001abc" + MASK * 8 + "好", network.load().table)
    assert offsets.tolist() == [0, 1, 2, 8, 11, 19] and len(ids) == 6


@pytest.mark.parametrize(
    "text",
    ["复诊由{}负责。", "我是{}的女儿", "12床 {} 男 60岁", "{}：您好", "请转告{}明天空腹", "此致\n敬礼\n{}", "感谢{}和护士们"],
)
@pytest.mark.parametrize("name", ["王伟", "欧阳若兰", "高明", "李建国", "诸葛子涵", "覃芷若"])
def test_a_chinese_name_is_found_whole_wherever_it_stands(text: str, name: str) -> None:
    start = text.index("{")
    assert any(span.start <= start and start + len(name) <= span.end for span in find(text.format(name)))


def test_many_names_of_one_record_are_found_again_as_few_are() -> None:
    many = [f"王{chr(0x4E00 + number)}{chr(0x5000 + number)}" for number in range(60)]
    text = "、".join(reversed(many))
    assert sorted(mentions.find(text, many)) == sorted(span for name in many for span in mentions.find(text, [name]))


def test_a_word_of_medicine_that_begins_like_a_name_is_none() -> None:
    for text in ("高血压患者", "白芍三十克", "张力性气胸", "方法很常规", "谢谢医生"):
        assert chinese_names.find(text)[0] == []
    assert chinese_names.find("患者张力强，男")[0] == [(2, 5)]


def _calls(text: str) -> int:
    """How many functions a scan calls: its cost, independent of the machine."""
    count = 0

    def add(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(add)
    try:
        assess(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("sentence", ["患者{}{}{}来电。", "Dr. Anna M{}{}{}son called. "])
def test_twice_as_many_names_cost_twice_as_much(sentence: str) -> None:
    letters = "芳伟娜敏静丽强磊军洋" if sentence.startswith("患") else "abdefgiklo"
    names = [sentence.format(a, b, c) for a in ("王李张刘" if letters[0] == "芳" else "aeio") for b in letters for c in letters]
    assess("".join(names))  # word lists are read, caches are filled
    assert _calls("".join(names[:400])) < 2.5 * _calls("".join(names[:200]))


def test_a_record_that_costs_too_much_is_held_and_never_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Scrubber(budget_s=0.0).assess("患者王芳来诊")
    assert late.quarantined and late.cleaned == "" and late.reasons == ("a text that takes too long to scan",)
    scrubber = Scrubber()
    scrubber.assess("患者王芳来诊")
    assert scrubber.budget_s < BUDGET_S  # all texts of a record share it
    monkeypatch.setattr(scrub, "MAX_CHARACTERS", 20)
    assert assess("很长" * 11).reasons == ("a text that is too long to scan",)
