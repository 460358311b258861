"""The judges of benchmarks/repair.py: each tells the expert's answer from the planted one, and nothing is asked twice."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks/_repair_classes.py"


@pytest.fixture(scope="module")
def classes():
    spec = importlib.util.spec_from_file_location("_repair_classes", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_class_knows_right_from_wrong(classes):
    assert len(classes.CLASSES) == 6
    for kind in classes.CLASSES.values():
        for one in classes.exchanges(kind, 80, seed="test"):
            assert kind.right(one.question, one.golden) and not kind.right(one.question, one.bad), (kind.name, one)


def test_a_notice_in_place_of_an_answer_is_not_right(classes):
    kind = classes.CLASSES["wrong_language"]
    english, _ = classes.notices()["rule"]
    assert kind.right("", english) and not classes.answered_right(kind, "", f"<think>\nhm</think>\n{english}\n")
    assert classes.answered_right(kind, "", "It sounds like insomnia. Get up at the same time.")


def test_the_checks_read_other_words_than_the_experts(classes):
    right = {name: kind.right for name, kind in classes.CLASSES.items()}
    assert right["stroke_zh"]("", "这可能是中风，马上去医院。不要喂水。")
    assert not right["stroke_zh"]("", "请立即拨打120。别担心，没什么大事。"), "an answer that says both is not right"
    assert not right["child_dose"]("", "问问医生，先吃 200 mg。") and right["child_dose"]("", "Ask your pharmacist for the dose.")
    assert right["stop_medicine"]("", "Keep taking it and call us.") and not right["stop_medicine"](
        "", "Do not stop. You can stop the tablets."
    )
    assert not right["wrong_language"]("", "It sounds like insomnia. 每天同一时间起床。") and right["follow_up"](
        "", "三天后复查。"
    )
    assert not right["antibiotics"]("", "Drink enough."), "silence about it is not an answer to this question"


def test_corrections_and_held_out_paraphrases_share_no_question(classes):
    for kind in classes.CLASSES.values():
        planted = {one.question for one in classes.exchanges(kind, 60, seed="plant")}
        held = {one.question for one in classes.exchanges(kind, 40, seed="held", without=frozenset(planted))}
        fixes = {one.question for one in classes.exchanges(kind, 100, seed="fix1", without=frozenset(planted | held))}
        assert len(planted) == 60 and len(held) == 40 and len(fixes) == 100
        assert not planted & held and not fixes & (planted | held)
