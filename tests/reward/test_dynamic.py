"""Dynamic weights: the original arithmetic bit for bit, or normalised with floors; saved and restored without a trace."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop import knobs
from medloop.contracts import Missing, Reward, Sample, Score
from medloop.errors import ConfigError, InputError
from medloop.reward.dynamic import (
    DwConfig,
    DwState,
    DynamicConfig,
    DynamicScorer,
    load_dynamic,
    load_state,
    save_state,
    slope,
    update,
)
from medloop.settings import Settings

NAMES = ("rel", "faith", "conc")
DOCUMENT = DwConfig(normalize_slopes=False)
UNIT = st.floats(0, 1, allow_nan=False, width=32)
ROUND = st.fixed_dictionaries(dict.fromkeys(NAMES, UNIT))
PATCHY = st.dictionaries(st.sampled_from(NAMES), UNIT)


def as_written(weights: dict[str, float], history: dict[str, list[float]], window: int, temperature: float) -> dict[str, float]:
    """The formula with raw slopes, as in the module docstring, for three rewards."""
    x = np.arange(len(history["rel"][-window:]))
    slopes = {k: np.polyfit(x, history[k][-window:], 1)[0] for k in weights}
    exps = {k: np.exp(-v / temperature) for k, v in slopes.items()}
    total = sum(exps.values())
    new_weights = {k: 3.0 * (v / total) for k, v in exps.items()}
    return {k: 0.8 * weights[k] + 0.2 * new_weights[k] for k in weights}


class Fixed:
    """A component that says what it is told, one value per sample; None is missing, -1 does not apply."""

    def __init__(self, name: str, values: Sequence[float | None], penalty: bool = False) -> None:
        self.name, self.values, self.penalty, self.version = name, values, penalty, "1"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        base = {"name": self.name, "author": "t", "version": self.version, "reason": "r"}
        return [
            Missing(**base) if value is None else Score(**base, value=max(value, 0.0), applies=value >= 0)
            for value in self.values[: len(samples)]
        ]


def scorer(config: DwConfig | None = None, **values: Sequence[float | None]) -> DynamicScorer:
    return DynamicScorer(config or DwConfig(), {name: Fixed(name, values[name]) for name in NAMES})


def samples(count: int) -> list[Sample]:
    return [Sample(id=str(index), question="q", answer="a") for index in range(count)]


@given(st.lists(ROUND, min_size=2, max_size=12), st.floats(0.05, 5), st.integers(2, 8))
def test_without_normalising_it_is_the_snippet_of_the_document_to_the_bit(
    history: list[dict[str, float]], temperature: float, window: int
) -> None:
    config = DwConfig(normalize_slopes=False, temperature=temperature, history_window=window)
    ours = theirs = dict(config.initial_weights)
    for end in range(2, len(history) + 1):
        columns = {name: [row[name] for row in history[:end]] for name in NAMES}
        ours, theirs = update(ours, history[:end], config), as_written(theirs, columns, window, temperature)
        assert ours == theirs


@given(
    st.lists(PATCHY, max_size=12),
    st.fixed_dictionaries(dict.fromkeys(NAMES, st.floats(0, 1))),
    st.floats(0.01, 3),
    st.floats(0, 1),
)
def test_normalised_weights_keep_their_floors_and_their_sum(
    history: list[dict[str, float]], floors: dict[str, float], temperature: float, momentum: float
) -> None:
    shares = {"rel": 1.0, "faith": 1.0, "conc": 0.5}
    config = DwConfig(
        floors={name: floor * shares[name] for name, floor in floors.items()}, temperature=temperature, momentum=momentum
    )
    weights = dict(config.initial_weights)
    for end in range(1, len(history) + 1):
        weights = update(weights, history[:end], config)
        assert all(np.isfinite(weight) and weight >= config.lowest[name] for name, weight in weights.items())
        assert sum(weights.values()) == pytest.approx(2.5, abs=1e-9)


def test_floors_hold_in_the_documents_arithmetic_too() -> None:
    config = DwConfig(normalize_slopes=False, temperature=0.01, floors={"conc": 0.4})
    history = [{"rel": 0.5, "faith": 0.5, "conc": 0.1 * index} for index in range(8)]
    weights = dict(config.initial_weights)
    for end in range(1, 9):
        weights = update(weights, history[:end], config)
    assert weights["conc"] == 0.4 and weights["rel"] == pytest.approx(weights["faith"])


def test_the_slope_is_measured_in_the_rewards_own_spread() -> None:
    line = [0.1, 0.2, 0.3, 0.4, 0.5]  # slope 0.1; deviations ±0.2, ±0.1, 0: std = sqrt(0.02) = 0.141421
    assert slope(line, None) == pytest.approx(0.1) and slope(line, 0.02) == pytest.approx(0.1 / 0.1414214)
    assert slope([0.5, 0.501, 0.502], 0.02) == pytest.approx(0.001 / 0.02)  # nearly flat: the least spread, not its own
    assert slope([0.5] * 5, 0.02) == pytest.approx(0) and slope([0.5], 0.02) is None and slope([None, 0.5], None) is None


def test_a_normalised_step_by_hand() -> None:
    # Slopes 0.1/0.141421 = 0.707107, 0, 0. exp(-0.353553) = 0.702188, 1, 1: sum 2.702188. New: 2.5 times the shares
    # 0.259859, 0.370070, 0.370070 = 0.649648, 0.925176, 0.925176. Then 0.8 of the old (1, 1, 0.5) and 0.2 of these.
    history = [{"rel": 0.1 * index, "faith": 0.5, "conc": 0.5} for index in range(1, 6)]
    weights = update({"rel": 1.0, "faith": 1.0, "conc": 0.5}, history, DwConfig())
    assert weights == pytest.approx({"rel": 0.929930, "faith": 0.985035, "conc": 0.585035}, abs=1e-6)


def test_a_stagnating_reward_gains_and_the_document_hardly_moves() -> None:
    history = [{"rel": 0.3 + 0.04 * index, "faith": 0.5, "conc": 0.3 + 0.04 * index} for index in range(10)]
    even = {"rel": 1.0, "faith": 1.0, "conc": 1.0}
    moved = {}
    for on in (True, False):
        config, weights = DwConfig(normalize_slopes=on, initial_weights=even), even
        for end in range(1, 11):
            weights = update(weights, history[:end], config)
        moved[on] = weights["faith"] / weights["rel"]
    assert moved[True] > 1.3 and 1 < moved[False] < 1.03


@given(st.lists(PATCHY, max_size=8))
def test_a_missing_round_is_masked_and_never_zero(history: list[dict[str, float]]) -> None:
    known = [row for row in history if "faith" in row]
    flat = [{**row, "faith": 0.7} if "faith" in row else row for row in history]
    for config in (DwConfig(), DOCUMENT):
        weights = update(config.initial_weights, flat, config)
        if len([row for row in flat[-5:] if "faith" in row]) < 2:
            assert weights["faith"] == config.initial_weights["faith"]
        else:
            assert known and slope([row.get("faith") for row in flat[-5:]], None) == pytest.approx(0, abs=1e-9)


def test_with_one_round_of_history_weights_stay() -> None:
    for config in (DwConfig(), DOCUMENT):
        assert update(config.initial_weights, [], config) == config.initial_weights
        assert update(config.initial_weights, [{"rel": 0.9}], config) == config.initial_weights


def test_the_reward_is_the_weighted_sum_and_its_version_names_the_weights() -> None:
    dynamic = scorer(rel=[0.9], faith=[0.85], conc=[0.7])
    (reward,) = dynamic.score(samples(1))
    assert reward.value == pytest.approx(0.9 + 0.85 + 0.5 * 0.7) and reward.weights == {"rel": 1.0, "faith": 1.0, "conc": 0.5}
    assert reward.version == dynamic.version and reward.version.startswith("dw(rel=1,faith=1,conc=0.5)+")
    dynamic.end_round([reward])
    dynamic.end_round(scorer(rel=[0.1], faith=[0.9], conc=[0.7]).score(samples(1)))
    assert dynamic.version != reward.version and dynamic.weights["rel"] > 1


def test_what_is_missing_is_masked_with_the_weights_of_the_rest_grown() -> None:
    lacking, none, whole = scorer(rel=[0.5, None, 0.5], faith=[None, None, 0.5], conc=[-1, None, 0.5]).score(samples(3))
    assert lacking.weights == {"rel": 2.5} and lacking.value == pytest.approx(1.25) and "faith" in (lacking.reason or "")
    assert none.value is None and whole.value == pytest.approx(1.25)


def test_a_round_takes_the_mean_of_what_was_scored() -> None:
    dynamic = scorer(rel=[0.2, None, 0.4], faith=[None] * 3, conc=[-1, 0.5, -1])
    done = dynamic.end_round(dynamic.score(samples(3)))
    assert done.means == pytest.approx({"rel": 0.3, "conc": 0.5}) and done.weights == dynamic.weights


def test_a_penalty_counts_against_the_reward_and_stagnates_when_it_does_not_fall() -> None:
    config = DwConfig(initial_weights={"rel": 1.0, "risk": 1.0}, floors={"risk": 0.8})
    dynamic = DynamicScorer(config, {"rel": Fixed("rel", [0.5]), "risk": Fixed("risk", [0.25], penalty=True)})
    (reward,) = dynamic.score(samples(1))
    assert reward.value == pytest.approx(0.25) and reward.weights == {"rel": 1.0, "risk": -1.0}
    assert dynamic.end_round([reward]).means == {"rel": 0.5, "risk": 0.75}
    with pytest.raises(ConfigError, match="All rewards with a weight are penalties"):
        DynamicScorer(DwConfig(initial_weights={"risk": 1.0}), {"risk": Fixed("risk", [0.5], penalty=True)})


def rewards_of(round_: dict[str, float]) -> list[Reward]:
    return scorer(**{name: [round_.get(name)] for name in NAMES}).score(samples(1))


@given(st.lists(PATCHY, max_size=10), st.integers(0, 10), st.booleans())
def test_a_restored_scorer_goes_on_to_the_bit(tmp_path_factory, history: list[dict[str, float]], cut: int, on: bool) -> None:
    config = DwConfig(normalize_slopes=on)
    path = tmp_path_factory.getbasetemp() / "history.json"
    straight, broken = scorer(config, rel=[], faith=[], conc=[]), scorer(config, rel=[], faith=[], conc=[])
    for index, round_ in enumerate(history):
        if index == cut:
            save_state(path, broken.state())
            broken = scorer(config, rel=[], faith=[], conc=[])
            broken.restore(load_state(path))
        assert straight.end_round(rewards_of(round_)) == broken.end_round(rewards_of(round_))
    assert straight.state() == broken.state() and straight.version == broken.version


def test_a_history_made_with_other_settings_is_refused() -> None:
    state = scorer(DwConfig(temperature=1.0), rel=[], faith=[], conc=[]).state()
    with pytest.raises(ConfigError, match="another temperature"):
        scorer(rel=[], faith=[], conc=[]).restore(state)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"config": {}, "weights": {"rel": 1}}', '{"config":{},"weights":{"x":NaN}}']
)
def test_a_file_that_is_no_history_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "h.json").write_text(content)
    with pytest.raises(InputError, match=r"h\.json is not a history of weights"):
        load_state(tmp_path / "h.json")
    with pytest.raises(InputError, match="does not exist"):
        load_state(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"initial_weights": {"rel": -1.0, "faith": 2.0}}, "rel is below 0"),
        ({"initial_weights": {"rel": 0.0}}, "sum to more than 0"),
        ({"floors": {"safety": 0.1}}, "floor 'safety' has no weight"),
        ({"floors": {"conc": 0.6}}, "floor of conc"),
        ({"temperature": 0.0}, "temperature"),
        ({"history_window": 1}, "history_window"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        knobs.load_config(DwConfig, flags=values)


def test_parts_and_weights_must_be_of_the_same_rewards() -> None:
    with pytest.raises(ConfigError, match="The weights are for conc, faith, rel, but the rewards are rel"):
        DynamicScorer(DwConfig(), {"rel": Fixed("rel", [])})


def test_the_file_in_configs_is_the_default_and_makes_a_scorer(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "configs/dw.yaml"
    config = knobs.load_config(DynamicConfig, file=path, flags={})
    assert config == DynamicConfig() and path.read_text().startswith("# medloop reward weights --demo --config configs/dw.yaml")
    assert load_dynamic(config, Settings(home=tmp_path)).weights == {"rel": 1.0, "faith": 1.0, "conc": 0.5}


def test_states_survive_a_round_trip_without_losing_a_bit() -> None:
    noise = random.Random(3)
    dynamic = scorer(rel=[], faith=[], conc=[])
    for _ in range(7):
        dynamic.end_round(rewards_of({name: noise.random() for name in NAMES[: noise.randint(1, 3)]}))
    assert DwState.from_json(dynamic.state().canonical_json()) == dynamic.state()


def test_safety_rules_are_part_of_the_reward_with_weights_that_do_not_move(tmp_path: Path) -> None:
    config = knobs.load_config(DynamicConfig, pairs=("relevance.scorer=heuristic",), flags={})
    dynamic = load_dynamic(config, Settings(home=tmp_path))
    ask = "My chest hurts and my arm is numb. What should I do?"
    safe, risky = (
        Sample(id=str(n), question=ask, answer=answer)
        for n, answer in enumerate(
            (
                "Call an ambulance at once. Chest pain with a numb arm can be a heart attack.",
                "Do not worry, chest pain with a numb arm is harmless. No doctor is needed.",
            )
        )
    )
    good, bad = dynamic.score([safe, risky])
    assert good.value > bad.value + 0.5
    assert {"emergency", "risk", "false_reassurance", "overtriage"} <= {part.name for part in bad.parts}
    weights = {name: part.weight for name, part in dynamic.objective.parts.items() if not part.dynamic}
    assert weights["risk"] == pytest.approx(-0.15 * 2.5) and weights["emergency"] == pytest.approx(0.25 * 2.5)
    for _ in range(4):
        dynamic.end_round([good, bad])
    assert {name: part.weight for name, part in dynamic.objective.parts.items() if not part.dynamic} == weights
    assert set(dynamic.weights) == set(NAMES)
