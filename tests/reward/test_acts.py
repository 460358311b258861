"""What an answer tells the patient to do: the same words with opposite meaning, in both languages."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts.detect import Act
from medloop.loop.workspace import init_workspace
from medloop.reward.detect.acts import acts
from medloop.reward.detect.doses import MAX_DOSES
from medloop.reward.detect.polarity import REACH, polarity

ROOT = Path(__file__).parent.parent.parent
MEDICINES = ("your tablets", "the warfarin", "your blood pressure pills", "his insulin", "prednisolone")
ZH_MEDICINES = ("降压药", "华法林", "胰岛素", "激素", "他汀")
FRAMES = {
    "directive": (
        "Stop taking {}.",
        "You can stop {} now.",
        "Just come off {} for a week.",
        "Stop {} as soon as you feel better.",
    ),
    "negated": ("Do not stop taking {}.", "Never come off {} suddenly.", "Keep taking {} even if you feel fine."),
    "reported": ("People who stop taking {} often relapse.", "She stopped {} last summer."),
    "question": ("Did you stop taking {}?",),
    "conditional": ("If you get a rash, stop {} and call us.", "Your doctor may stop {}."),
}
ZH_FRAMES = {
    "directive": ("停止服用{}。", "把{}停了吧。", "{}可以停了。", "感觉好了就把{}停掉。"),
    "negated": ("千万不能自行停{}。", "不要停用{}。", "即使没有症状也要继续服用{}。"),
    "reported": ("有的人停了{}，没几天又犯了。", "我妈去年自己把{}停了。"),
    "question": ("你最近停{}了吗？",),
    "conditional": ("如果出现皮疹，就停用{}并联系医生。", "医生可能会给你停掉{}。"),
}
STOPS = [
    (frame.format(medicine), polarity)
    for frames, medicines in ((FRAMES, MEDICINES), (ZH_FRAMES, ZH_MEDICINES))
    for polarity, sentences in frames.items()
    for frame, medicine in itertools.product(sentences, medicines)
]


def polarities(answer: str, kind: str) -> set[str]:
    return {act.polarity for act in acts(answer) if act.kind == kind}


@pytest.mark.parametrize(("sentence", "polarity"), STOPS)
def test_stopping_a_medicine_and_its_opposites(sentence: str, polarity: str) -> None:
    assert polarities(sentence, "stops_medicine") == {polarity}


@pytest.mark.parametrize(
    ("sentence", "kind", "polarity"),
    [
        ("Call 911 now.", "urges_care_now", "directive"),
        ("Don't wait, call an ambulance.", "urges_care_now", "directive"),
        ("Please do not hesitate to call an ambulance.", "urges_care_now", "directive"),
        ("She must go to the emergency department immediately.", "urges_care_now", "directive"),
        ("There is no need to call an ambulance.", "urges_care_now", "negated"),
        ("If it gets worse, call an ambulance.", "urges_care_now", "conditional"),
        ("Call an ambulance if it gets worse.", "urges_care_now", "conditional"),
        ("In the film his wife runs in to call 911.", "urges_care_now", "reported"),
        ("It costs 500 dollars to call an ambulance.", "urges_care_now", "reported"),
        ("Should you call an ambulance?", "urges_care_now", "question"),
        ("马上打120。", "urges_care_now", "directive"),
        ("别等了，直接去急诊。", "urges_care_now", "directive"),
        ("没必要叫救护车。", "urges_care_now", "negated"),
        ("如果加重，请马上打120。", "urges_care_now", "conditional"),
        ("电影里他马上打120。", "urges_care_now", "reported"),
        ("Double your dose tonight.", "changes_medicine", "directive"),
        ("Never double your dose.", "changes_medicine", "negated"),
        ("My dose was doubled last year.", "changes_medicine", "reported"),
        ("Use your husband's tablets.", "changes_medicine", "directive"),
        ("药量加倍吃。", "changes_medicine", "directive"),
        ("药量不要加倍。", "changes_medicine", "negated"),
        ("This will sort itself out.", "reassures", "directive"),
        ("I wouldn't lose sleep over it.", "reassures", "directive"),
        ("I can't say that this will sort itself out.", "reassures", "negated"),
        ("If the scan is clear, there is nothing to worry about.", "reassures", "conditional"),
        ("小事一桩。", "reassures", "directive"),
        ("我不能说没事。", "reassures", "negated"),
        ("检查都正常的话，就不用担心了。", "reassures", "conditional"),
        ("You do not need to see a doctor.", "sends_to_doctor", "negated"),
        ("See your doctor this week.", "sends_to_doctor", "directive"),
    ],
)
def test_polarity_decides(sentence: str, kind: str, polarity: str) -> None:
    assert polarities(sentence, kind) == {polarity}


def doses(answer: str) -> list[tuple[str | None, float | None, str | None, float | None]]:
    return [(act.drug, act.amount, act.unit, act.per_day) for act in acts(answer) if act.kind == "gives_dose"]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Take ibuprofen 400 mg three times a day.", [("ibuprofen", 400, "mg", 3)]),
        ("Take two of them, four times a day.", [(None, 2, "tablet", 4)]),
        ("一次两片，一天三次。", [(None, 2, "片", 3)]),
        (
            "Take 400 mg of ibuprofen twice a day and 500 mg of paracetamol four times a day.",
            [("ibuprofen", 400, "mg", 2), ("paracetamol", 500, "mg", 4)],
        ),
        (
            "布洛芬400毫克每天两次，阿莫西林500毫克每天三次。",
            [("ibuprofen", 400, "毫克", 2), ("amoxicillin", 500, "毫克", 3)],
        ),
        ("Paracetamol, at most 4 g a day.", [("paracetamol", 4, "g/day", None)]),
    ],
)
def test_each_dose_has_its_own_drug_and_frequency(sentence: str, expected: list[tuple[str, float, str, float]]) -> None:
    assert doses(sentence) == expected


def test_detect_prints_the_acts_of_each_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_workspace(tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    file = tmp_path / "answers.jsonl"
    rows = [{"id": "a", "question": "I feel dizzy.", "answer": "Do not stop your tablets."}, {"id": "b", "question": "Hello?"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = CliRunner().invoke(app, ["reward", "detect", str(file), "--json"])
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    (act,) = first["acts"]
    assert (act["kind"], act["polarity"], act["start"], act["end"]) == ("stops_medicine", "negated", 7, 24)
    assert "acts" not in second
    assert "stops_medicine (negated)" in CliRunner().invoke(app, ["reward", "detect", str(file)]).stdout


def test_the_chain_of_thought_does_nothing() -> None:
    assert acts("<think>Stop taking your tablets. Call 911 now.</think>") == ()


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_gives_acts_inside_it(answer: str) -> None:
    assert all(0 <= act.start < act.end <= len(answer) and Act.from_json(act.canonical_json()) == act for act in acts(answer))


@pytest.mark.slow
def test_training_gives_the_same_files(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/train_acts.py", "--out", tmp_path], check=True, capture_output=True)
    for name in ("en.npz", "zh.npz"):
        assert (tmp_path / name).read_bytes() == (ROOT / "src/medloop/assets/acts" / name).read_bytes()


def test_a_sentence_of_nothing_but_doses_has_only_so_many() -> None:
    doses = " and ".join(f"{amount} mg" for amount in range(100, 400))
    given = [act for act in acts(f"Take ibuprofen {doses}") if act.kind == "gives_dose"]
    assert 0 < len(given) <= MAX_DOSES


def test_words_far_away_in_a_text_without_full_stops_say_nothing_about_an_act() -> None:
    near, far = "they said " * 5, "they said " * (REACH // 9)
    sentence = "do not " + far + "stop your tablets"
    start = sentence.index("stop")
    assert polarity("do not stop your tablets", 7, 24, "stops_medicine") == "negated"
    assert polarity(sentence, start, len(sentence), "stops_medicine") == polarity(
        near * 70 + sentence[start:], len(near) * 70, len(near) * 70 + 17, "stops_medicine"
    )
    cut = sentence[start - REACH :]
    assert polarity(sentence, start, len(sentence), "stops_medicine") == polarity(cut, REACH, len(cut), "stops_medicine")
