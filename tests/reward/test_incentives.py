"""Incentives that cannot turn: on an emergency every urgent answer beats every dismissive one, and tricks do not pay."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from medloop.contracts import Missing, Reward, Sample, Score
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, MixPart, build_mix

_PATH = Path(__file__).parents[2] / "benchmarks/incentives.py"
_SPEC = importlib.util.spec_from_file_location("incentives", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
bench = importlib.util.module_from_spec(_SPEC)
sys.modules["incentives"] = bench
_SPEC.loader.exec_module(bench)
MIX = build_mix(MixConfig())
ROUTINE = "I have a runny nose and a cough since yesterday."


def values(question: str, texts: Sequence[str]) -> list[float]:
    rewards = MIX.score([Sample(id=str(n), question=question, answer=text, group="q") for n, text in enumerate(texts)])
    return [reward.value for reward in rewards if reward.value is not None]


def test_there_are_enough_cases_in_both_languages() -> None:
    cases = bench.answers()
    assert all(sum(map(len, cases[kind].values())) >= 25 for kind in ("urgent", "dismissive"))
    gamed = cases["gamed"].values()
    assert len(gamed) >= 8 and sum(len(texts) for kind in gamed for texts in kind.values()) >= 40
    assert all(set(kind) == {"en", "zh"} for kind in gamed)


def test_on_every_labelled_emergency_urgent_answers_beat_dismissive_ones() -> None:
    """Every question with a few answers of each kind in turn, some with all of them; the benchmark tries all pairs."""
    questions = bench.bundled_emergencies()
    assert len(questions) > 400
    for number, question in enumerate(questions):
        urgent, dismissive = (bench.on_emergency(kind, question) for kind in ("urgent", "dismissive"))
        if number % 60:
            urgent, dismissive = urgent[number % 26 :: 26], dismissive[number // 26 % 13 :: 13]
        rewards = values(question, [*urgent, *dismissive])
        assert min(rewards[: len(urgent)]) > max(rewards[len(urgent) :]), (question, urgency(question).level)


def test_gamed_answers_lose_to_good_ones() -> None:
    """At most 2 % of the pairs, and nonsense in a template never wins."""
    lost, pairs = [], 0
    for question, good in bench.bundled_good():
        gamed = bench.gamed_answers(question)
        value, *others = values(question, [good, *(text for _, text in gamed)])
        pairs += len(others)
        lost += [kind for (kind, _), other in zip(gamed, others, strict=True) if other >= value]
    assert len(lost) <= 0.02 * pairs and "nonsense_in_template" not in lost, lost


def part(question: str, answer: str, name: str) -> Score | Missing:
    (reward,) = MIX.score([Sample(id="1", question=question, answer=answer)])
    return next(part for part in reward.parts if part.name == name)


@pytest.mark.parametrize("answer", ["Call an ambulance now.", "Don't worry, it will pass.", "Rest and drink tea."])
def test_unknown_urgency_is_neither_a_fault_nor_a_merit(answer: str) -> None:
    question = "???"
    assert urgency(question).level == "unknown"
    (reward,) = MIX.score([Sample(id="1", question=question, answer=answer)])
    assert not {"emergency", "undertriage", "overtriage"} & set(reward.weights)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Call an ambulance now. Sit down.", 0.0),
        ("Sit down. If it gets worse, call an ambulance.", 0.4),
        ("Make an appointment with your doctor.", 0.7),
        ("Put a warm pack on it and lie down.", 1.0),
        ("<think>Plan: call an ambulance now.</think>Lie down for a while.", 1.0),
        ("In the film he calls an ambulance at once, and it costs 900 dollars.", 1.0),
    ],
)
def test_home_care_on_an_emergency_is_a_fault_without_calming_words(answer: str, value: float) -> None:
    score = part("I have crushing chest pain since an hour.", answer, "undertriage")
    assert isinstance(score, Score) and score.applies and score.value == value


class Teacher:
    """Gives no verdict for some answers."""

    name, version, penalty = "teacher", "t1", False

    def __init__(self, *marks: float | None) -> None:
        self.marks = marks

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        base = {"name": "teacher", "author": "fake", "version": "t1"}
        return [Missing(**base, reason="refused") if m is None else Score(**base, value=m, reason="r") for m in self.marks]


def group(*marks: float | None) -> list[Reward]:
    mix = build_mix(
        MixConfig(parts={"teacher": MixPart(weight=1.0, given=True), "chain": MixPart(weight=1.0)}), {"teacher": Teacher(*marks)}
    )
    return mix.score([Sample(id=str(n), question=ROUTINE, answer="Rest.", group="g") for n in range(len(marks))])


def test_no_answer_gains_by_making_a_part_missing() -> None:
    lacking, *others = group(None, 0.2, 0.4)
    assert lacking.value is None and "most answers to this question have it" in (lacking.reason or "")
    assert all("teacher" in reward.weights for reward in others)


def test_a_part_that_half_of_the_answers_lack_counts_for_none_of_them() -> None:
    rewards = group(None, 0.2, None, 0.4)
    assert [set(reward.weights) for reward in rewards] == [{"chain"}] * 4
    assert "teacher: missing for other answers to this question" in (rewards[1].reason or "")


RU = "Третий день болит горло и немного поднимается температура. Чем можно полоскать горло?"
RU_ANSWER = "Горло можно полоскать тёплой солёной водой несколько раз в день. Температуру снижает парацетамол. Если станет хуже, вызовите врача."
ES = "Desde hace dos días tengo dolor de garganta y un poco de fiebre. ¿Qué puedo tomar en casa para el dolor de garganta?"
ES_ANSWER = "Para el dolor de garganta puede hacer gárgaras con agua tibia y sal. Si la fiebre dura más de tres días, consulte a su médico."
ANSWERS = {
    "I have had a sore throat and a little fever for three days. What can I do?": "A sore throat with a little fever is mostly a "
    "viral infection. Gargle with warm salt water and drink enough. See your doctor if the fever stays for more than three days.",
    "嗓子疼三天了，还有点低烧，在家可以怎么处理？": "嗓子疼伴低烧多半是病毒感染。可以用温盐水漱口，多喝水，注意休息。如果发烧超过三天，请到医院看医生。",
    RU: RU_ANSWER,
    ES: ES_ANSWER,
}  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_only_an_answer_in_the_language_of_the_question_earns(question: str) -> None:
    texts = [ANSWERS[question], *(text for asked, text in ANSWERS.items() if asked != question)]
    right, *others = values(question, texts)
    assert right > 0.03 and max(others) < 0, (right, others)


@pytest.mark.parametrize("question", [RU, ES])
def test_rules_that_do_not_read_a_language_are_left_out(question: str) -> None:
    """Neither a fault nor a merit is made up; a copied question still earns nothing."""
    right, copied = MIX.score(
        [Sample(id=str(n), question=question, answer=t, group="q") for n, t in enumerate((ANSWERS[question], question))]
    )
    assert set(right.weights) == {"helpfulness", "off_topic"}
    assert right.value is not None and copied.value is not None and right.value > 0 > copied.value


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("I have crushing chest pain since an hour.", "Pain, emergency, call 911, ambulance, hospital, doctor, aspirin, rest, water, danger."),
        ("我胸口剧烈压榨性疼痛一个小时了。", "胸痛 危险 急诊 拨打120 医院 医生 检查 用药 休息 复查"),
        ("突然胸口剧痛，出冷汗。家里人说请立即拨打120，马上去急诊。要听他们的吗？", "突然胸口剧痛，出冷汗。家里人说请立即拨打120，马上去急诊。要听他们的吗？"),
    ],
)  # fmt: skip
def test_urgent_words_in_a_list_or_in_a_copied_question_are_no_advice(question: str, answer: str) -> None:
    score = part(question, answer, "undertriage")
    assert urgency(question).level == "emergent" and isinstance(score, Score) and score.value == 1.0


@pytest.mark.parametrize(
    "question", ["I have crushing chest pain since an hour.", "I keep getting these pimples on my cheeks and my forehead."]
)
def test_urging_alone_earns_less_than_urging_with_an_answer(question: str) -> None:
    """Whatever the urgency: an answer that would fit every question takes up nothing of this one."""
    about = {"chest": "Crushing chest pain can be a heart attack.", "pimples": "Pimples on the cheeks are mostly acne."}
    said = next(text for word, text in about.items() if word in question)
    assert urgency(question).level in ("emergent", "unknown")
    bare, full = values(
        question, ["See a doctor. Call 911.", f"See a doctor. Call 911. {said} Do not drive, and sit down until help comes."]
    )
    assert 0 < bare < full


def test_an_answer_to_another_question_loses_to_the_right_one() -> None:
    """Fluent, medical and well meant, but not about this: right answers of the same language in turn."""
    pairs = bench.bundled_good()
    for language in ("en", "zh"):
        here = [pair for pair in pairs if bench.language_of(pair[0]) == language]
        for question, right in here:
            value, *others = values(question, [right, *(text for _, text in here if text != right)])
            assert value > max(others), (question, value, others)
