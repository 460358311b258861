"""Risk is a gate: nothing in the mix outweighs it. And a rule that fails is a missing part with its name."""

from collections.abc import Sequence

import pytest

from medloop.contracts import Missing, Reward, Sample, Score
from medloop.embedded.corpus import generate
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, MixPart, build_mix, default_parts

RISKY = {
    "en": "Take 40 tablets of ibuprofen at once and stop taking your prescribed medicine.",
    "zh": "布洛芬一次吃40片，每天四次，并停用医生开的药。",
}
URGENT = {"en": "Go to the emergency department now, and do not drive yourself.", "zh": "请立即去急诊，不要自己开车。"}
SAFE = {"en": "Rest at home today, drink enough water, eat lightly, and see a doctor if it gets worse.",
        "zh": "今天在家休息，多喝温水，饮食清淡，注意观察接下来几天的情况，如果加重请看医生。"}  # fmt: skip


class Teacher:
    """A judge that loves every answer."""

    name, version, penalty = "teacher", "t1", False

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [Score(name="teacher", value=1.0, reason="good", author="fake", version="t1") for _ in samples]


def questions() -> list[tuple[str, str, str]]:
    """Language, question and answer of the embedded corpus; those whose own answer is risky or misses an emergency are left out."""
    rows = []
    for row in generate(160, seed=8):
        if "emergency=" in row["quality"] and "emergency=first" not in row["quality"]:
            continue
        question, answer = (
            next(m["content"] for m in reversed(row["messages"]) if m["role"] == role) for role in ("user", "assistant")
        )
        rows.append(("zh" if any("\u4e00" <= letter <= "\u9fff" for letter in question) else "en", question, answer))
    risk = build_mix(MixConfig()).rules["risk"]
    return [row for row in rows if risk.score(row[1], row[2]).value == 0]  # type: ignore[union-attr]


def rewards(answers: Sequence[tuple[str, str]], config: MixConfig, *, teacher: bool) -> list[Reward]:
    mix = build_mix(config, {"teacher": Teacher()} if teacher else None)
    return mix.score([Sample(id=str(n), question=q, answer=a, group=q) for n, (q, a) in enumerate(answers)])


@pytest.mark.parametrize("teacher", [True, False])
@pytest.mark.parametrize("normalise", ["none", "group", "batch"])
def test_a_risky_answer_earns_less_than_without_the_risk_and_than_a_safe_plain_one(normalise: str, teacher: bool) -> None:
    rows = questions()
    assert len(rows) > 60
    emergent = {q for _, q, _ in rows if urgency(q).level == "emergent"}  # to stay at home is not safe for them
    safe = [URGENT[language] if q in emergent else SAFE[language] for language, q, _ in rows]
    answers = [
        (q, text) for (language, q, a), plain in zip(rows, safe, strict=True) for text in (f"{a} {RISKY[language]}", a, plain)
    ]
    values = [reward.value for reward in rewards(answers, MixConfig(normalise=normalise), teacher=teacher)]  # type: ignore[arg-type]
    for number in range(0, len(values), 3):
        risky, same, plain = values[number : number + 3]
        assert risky is not None and same is not None and plain is not None
        assert risky < same and risky < plain, answers[number]


def test_the_gate_is_named_and_the_weights_are_those_that_count() -> None:
    (reward,) = rewards(
        [("I have a runny nose since yesterday.", f"A runny nose is a cold. {SAFE['en']} {RISKY['en']}")],
        MixConfig(),
        teacher=True,
    )
    assert reward.gate == 0 and "gate (risk): 0% of the positive parts count" in (reward.reason or "")
    assert {weight for weight in reward.weights.values() if weight >= 0} == {0.0}


class Raises:
    """Quotes the patient in its error, which nobody may repeat."""

    name, version, penalty = "raises", "1", True

    def score(self, question: str, answer: str) -> Score:
        raise ValueError(question)


class NotANumber(Raises):
    def score(self, question: str, answer: str) -> Score:
        return Score.model_construct(
            name="raises", value=float("nan"), reason="r", author="a", version="1", applies=True, spans=()
        )


@pytest.mark.parametrize(
    ("rule", "says"), [("Raises", "failed with ValueError"), ("NotANumber", "is nan, which is not a number")]
)
def test_a_rule_that_fails_is_a_missing_part_with_its_name(rule: str, says: str) -> None:
    parts = default_parts() | {"own": MixPart(weight=-0.1, rule=f"{__name__}:{rule}")}
    (reward,) = rewards([("Zelda has a cold.", SAFE["en"])], MixConfig(parts=parts), teacher=False)
    own = next(part for part in reward.parts if part.name == "own")
    assert reward.value is not None and isinstance(own, Missing) and says in own.reason and "Zelda" not in reward.canonical_json()
    gate = parts | {"own": MixPart(weight=-0.1, rule=f"{__name__}:{rule}", gate=True)}
    (reward,) = rewards([("Zelda has a cold.", SAFE["en"])], MixConfig(parts=gate), teacher=False)
    assert reward.value is None and "own" in (reward.reason or "")


def test_a_given_part_that_fails_is_missing_and_not_a_traceback() -> None:
    class Broken(Teacher):
        def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
            raise KeyError("x")

    class Short(Teacher):
        def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
            return []

    for part, says in ((Broken(), "failed with KeyError"), (Short(), "gave 0 results for 1 answers")):
        (reward,) = build_mix(MixConfig(), {"teacher": part}).score([Sample(id="1", question="I cough.", answer=SAFE["en"])])
        assert reward.value is not None and f"teacher: the part {says}" in (reward.reason or "")
