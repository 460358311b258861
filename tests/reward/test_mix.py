"""The mix: weights, masks, bounds, normalisation; and that a failure is never 0."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop import knobs
from medloop.contracts import Missing, Reward, Sample, Score
from medloop.errors import ConfigError
from medloop.reward.mix import MixConfig, MixPart, build_mix, effective_weights, load_scorer

FLAG, PLAIN = "I have crushing chest pain since an hour.", "I have a runny nose and a cough since yesterday."
GOOD = (
    "<think>Crushing chest pain for an hour is a red flag and could be a heart attack. "
    "My plan for this person is to advise help from an ambulance without any waiting.</think>\n"
    "Call an ambulance now. Sit down, stay calm and do not drive yourself. Tell somebody near you what is happening."
)


class Given:
    """A component that says what it is told; None is a failure."""

    penalty = False

    def __init__(self, *values: float | None, name: str = "teacher", version: str = "t1") -> None:
        self.values, self.name, self.version, self.scored = values, name, version, 0

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        self.scored += len(samples)
        base = {"name": self.name, "author": "teacher:fake", "version": self.version}
        return [
            Missing(**base, reason="timeout") if value is None else Score(**base, value=value, reason="r")
            for value in self.values[: len(samples)]
        ]


def only(*values: float | None, config: MixConfig | None = None, **more: MixPart) -> list[Reward]:
    """Rewards of a mix made of the teacher and `more`."""
    config = config or MixConfig(parts={"teacher": MixPart(weight=1.0, given=True), **more})
    samples = [Sample(id=str(index), question=PLAIN, answer=GOOD, group="g") for index in range(len(values))]
    return build_mix(config, {"teacher": Given(*values)}).score(samples)


def test_the_default_mix_is_the_formula_of_the_document() -> None:
    (reward,) = build_mix(MixConfig(), {"teacher": Given(0.8)}).score([Sample(id="1", question=FLAG, answer=GOOD)])
    value = {part.name: part.value for part in reward.parts if isinstance(part, Score)}
    assert value["chain"] == value["emergency"] == 1.0 and value["risk"] == 0.0
    # 0.35·1 + 0.25·1 - 0.15·0 + 0.25·0.8 + 0.15·helpfulness; no penalty
    assert reward.value == pytest.approx(0.8 + 0.15 * value["helpfulness"], abs=1e-6) and reward.reason is None
    assert sum(w for w in reward.weights.values() if w > 0) == pytest.approx(1.0)


def test_the_file_in_configs_is_the_default() -> None:
    path = Path(__file__).parents[2] / "configs/reward.yaml"
    assert knobs.load_config(MixConfig, file=path, flags={}) == MixConfig()


def test_an_absent_teacher_is_declared_and_its_weight_carried_by_the_rest() -> None:
    (reward,) = build_mix(MixConfig()).score([Sample(id="1", question=FLAG, answer=GOOD)])
    assert reward.reason == "teacher: declared absent"
    # 1.00 shared between 0.35, 0.25 and 0.15: 0.35/0.75 and 0.25/0.75
    assert reward.weights["chain"] == pytest.approx(0.466667) and reward.weights["emergency"] == pytest.approx(0.333333)
    helpfulness = next(part.value for part in reward.parts if part.name == "helpfulness" and isinstance(part, Score))
    assert reward.value == pytest.approx(0.8 + 0.2 * helpfulness, abs=1e-5)


def test_what_does_not_apply_is_left_out_not_given_for_free() -> None:
    (reward,) = build_mix(MixConfig()).score([Sample(id="1", question=PLAIN, answer="Rest.")])
    assert "emergency" not in reward.weights and "emergency: does not apply" in (reward.reason or "")
    assert reward.value is not None and reward.value <= 0


def test_a_failed_part_is_masked_and_a_failed_required_part_makes_the_sample_missing() -> None:
    masked, _ = only(None, 1.0, chain=MixPart(weight=1.0))
    assert masked.value is not None and masked.weights == {"chain": 2.0} and masked.reason == "teacher: timeout"
    config = MixConfig(parts={"teacher": MixPart(weight=1.0, given=True, required=True), "chain": MixPart(weight=1.0)})
    failed, fine = only(None, 1.0, config=config)
    assert failed.value is None and failed.weights == {} and failed.reason == "required and missing: teacher (timeout)"
    assert fine.value is not None


def test_a_sample_without_an_answer_is_missing_and_never_asked_about() -> None:
    teacher = Given(1.0)
    samples = [Sample(id="1", question=FLAG, answer=None, why_missing="too long"), Sample(id="2", question=FLAG, answer=GOOD)]
    none, some = build_mix(MixConfig(), {"teacher": teacher}).score(samples)
    assert none.value is None and all(isinstance(part, Missing) for part in none.parts) and "too long" in (none.reason or "")
    assert some.value is not None and teacher.scored == 1


def test_only_penalties_left_is_missing_not_zero() -> None:
    (reward,) = only(None, risk=MixPart(weight=-1.0))
    assert reward.value is None and "no part with a positive weight" in (reward.reason or "")


def test_bounds_hold() -> None:
    config = MixConfig(parts={"teacher": MixPart(weight=5.0, given=True), "length": MixPart(weight=-5.0)}, bounds=(-0.5, 2.0))
    mix = build_mix(config, {"teacher": Given(1.0, 0.0)})
    high, low = mix.score([Sample(id="1", question="q", answer=GOOD), Sample(id="2", question="q", answer="")])
    assert (high.value, low.value) == (2.0, -0.5)


def test_normalised_parts_weigh_alike_whatever_their_spread() -> None:
    # Values 0.0, 0.1 (mean 0.05, std 0.05) become -1, +1 as 0 and 1 would; eps 1e-4 takes 0.2 % off.
    low, high = only(0.0, 0.1, config=MixConfig(normalise="group", parts={"teacher": MixPart(weight=0.5, given=True)}))
    assert low.value == pytest.approx(-0.5, abs=2e-3) and high.value == pytest.approx(0.5, abs=2e-3)
    same = only(0.7, 0.7, config=MixConfig(normalise="group", parts={"teacher": MixPart(weight=0.5, given=True)}))
    assert [reward.value for reward in same] == [0.0, 0.0]


def test_groups_are_normalised_apart() -> None:
    config = MixConfig(normalise="group", parts={"teacher": MixPart(weight=1.0, given=True)})
    samples = [Sample(id=str(index), question="q", answer=GOOD, group="ab"[index // 2]) for index in range(4)]
    values = [reward.value for reward in build_mix(config, {"teacher": Given(0.0, 0.2, 0.8, 1.0)}).score(samples)]
    assert values == pytest.approx([-1, 1, -1, 1], abs=2e-3)
    whole = MixConfig(normalise="batch", parts=config.parts)
    mixed = [reward.value or 0 for reward in build_mix(whole, {"teacher": Given(0.0, 0.2, 0.8, 1.0)}).score(samples)]
    assert mixed == sorted(mixed) and mixed[1] < 0 < mixed[2]


def test_scores_of_two_versions_never_share_a_mean() -> None:
    class Changed(Given):
        def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
            scores = super().score(samples)
            return [*scores[:2], *(part_score.model_copy(update={"version": "t2"}) for part_score in scores[2:])]

    config = MixConfig(normalise="batch", parts={"teacher": MixPart(weight=1.0, given=True)})
    samples = [Sample(id=str(index), question="q", answer=GOOD) for index in range(4)]
    values = [reward.value for reward in build_mix(config, {"teacher": Changed(0.0, 0.2, 0.8, 1.0)}).score(samples)]
    assert values == pytest.approx([-1, 1, -1, 1], abs=2e-3)


def test_a_missing_score_leaves_the_group_mean() -> None:
    config = MixConfig(normalise="group", parts={"teacher": MixPart(weight=1.0, given=True)})
    first, second, lost = only(0.0, 1.0, None, config=config)
    assert first.value == pytest.approx(-1, abs=1e-3) and second.value == pytest.approx(1, abs=1e-3) and lost.value is None


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"risk": MixPart(weight=0.5), "chain": MixPart(weight=1.0)}, "risk is a penalty: its weight cannot be 0.5"),
        ({"chain": MixPart(weight=-1.0), "emergency": MixPart(weight=1.0)}, "chain is not a penalty"),
        ({"teacher": MixPart(weight=1.0, given=True, required=True)}, "'teacher' is required, but was not given"),
        ({"chian": MixPart(weight=1.0)}, "There is no rule 'chian'"),
        ({"chain": MixPart(weight=1.0), "length": MixPart(weight=-1.0, options={"width": 3})}, "length has no option width"),
    ],
)
def test_a_mix_that_makes_no_sense_is_refused(parts: dict[str, MixPart], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_mix(MixConfig(parts=parts))


def test_what_was_not_asked_for_is_not_taken() -> None:
    with pytest.raises(ConfigError, match="'judge' was given"):
        build_mix(MixConfig(), {"judge": Given(1.0, name="judge")})


def test_the_version_changes_with_weights_options_and_versions_of_parts() -> None:
    heavier = MixConfig(parts={**MixConfig().parts, "chain": MixPart(weight=0.4)})
    wider = MixConfig(parts={**MixConfig().parts, "length": MixPart(weight=-0.05, options={"long": 300})})
    mixes = [
        build_mix(MixConfig()), build_mix(heavier), build_mix(wider), build_mix(MixConfig(), {"teacher": Given()}),
        build_mix(MixConfig(), {"teacher": Given(version="t2")}),
    ]  # fmt: skip
    assert len({mix.version for mix in mixes}) == len(mixes)
    assert build_mix(MixConfig()).version == mixes[0].version


def test_options_change_a_rule_and_its_version() -> None:
    mix = build_mix(MixConfig(parts={"chain": MixPart(weight=1.0), "length": MixPart(weight=-1.0, options={"short": 1})}))
    (reward,) = mix.score([Sample(id="1", question="q", answer="Rest now.")])
    length = reward.parts[1]
    assert isinstance(length, Score) and length.value == 0.0 and length.version.endswith("(short=1)")


def test_rewards_survive_a_round_trip() -> None:
    for reward in (*only(0.5, None, chain=MixPart(weight=1.0)), *only(None)):
        assert Reward.from_json(reward.canonical_json()) == reward


@pytest.mark.parametrize("question", [FLAG, PLAIN, "我爸突然嘴角歪斜，说话不清", "我流鼻涕两天了。"])
def test_null_answers_earn_at_most_a_tenth_in_the_mix(question: str) -> None:
    nulls = [
        "",
        ":",
        "。",
        "Thought process:",
        "<think></think>",
        "The answer meets all criteria",
        "答：",
        question,
        question * 3,
    ]
    rewards = build_mix(MixConfig()).score([Sample(id=str(index), question=question, answer=a) for index, a in enumerate(nulls)])
    assert all(reward.value is not None and reward.value <= 0.1 for reward in rewards)


def fixed() -> object:
    return build_mix(MixConfig())


def test_a_scorer_comes_by_name_or_as_module_and_function() -> None:
    assert load_scorer("mix").version == load_scorer(f"{__name__}:fixed").version
    for name, says in [("nope", "no scorer 'nope'"), ("nope.mod:x", "cannot be imported"), ("builtins:dict", "is not a scorer")]:
        with pytest.raises(ConfigError, match=says):
            load_scorer(name)


@given(st.sets(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
def test_what_can_be_earned_is_the_same_whatever_is_missing(present: set[str]) -> None:
    parts = {"a": MixPart(weight=0.35), "b": MixPart(weight=0.25), "c": MixPart(weight=0.25), "d": MixPart(weight=-0.4)}
    weights = effective_weights(parts, present)
    if present - {"d"}:
        assert sum(weight for weight in weights.values() if weight > 0) == pytest.approx(0.85, abs=1e-5)
        earned = next(name for name in present if name != "d")  # a penalty keeps its proportion to what can be earned
        assert weights.get("d", 0.0) / weights[earned] == pytest.approx(
            parts["d"].weight * ("d" in present) / parts[earned].weight, abs=1e-4
        )


def test_one_outlier_counts_at_most_z_bound() -> None:
    config = MixConfig(normalise="batch", z_bound=2.0, parts={"teacher": MixPart(weight=1.0, given=True)})
    rewards = only(*[0.0] * 15, 1.0, config=config)  # alone among 16 it is 3.9 deviations away
    assert rewards[-1].value == 2.0
