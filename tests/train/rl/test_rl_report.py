"""The RL report and its curves: one unit per panel, single points as values, texts as data."""

from pathlib import Path

from medloop.contracts import Reward, Sample, Score, TrainingCard
from medloop.train.rl.curves import PANELS, panels_of
from medloop.train.rl.report import RunReport, _figure
from medloop.train.rl.samples import read_checks

TABLE = [{"step": n, "reward": 0.1 * n, "held_out": 0.2 if n == 1 else None, "kl": 0.01 * n, "part_<b>": 0.5} for n in (1, 2, 3)]


def reward_of(value: float) -> Reward:
    part = Score(name="risk", value=value, reason="<i>why</i>", author="rule:risk", version="1")
    return Reward(value=value, parts=(part,), weights={"risk": 1.0}, version="1")


def test_no_panel_has_two_units_and_unmeasured_ones_are_left_out() -> None:
    panels = panels_of(TABLE)
    assert list(panels) == [PANELS[0][0], "Parts of the reward (mean per answer)", PANELS[1][0]]
    assert panels[PANELS[0][0]] == {"training questions": [0.1, 0.2, 0.1 * 3], "held-out questions": [0.2, None, None]}
    assert all(len(columns) == 1 for _, columns in PANELS[1:])


def test_a_single_point_is_drawn_as_a_value() -> None:
    figure = _figure("Reward", ["1"], {"held-out": [0.25]})
    assert "<svg" not in figure and '<p class="value">0.25</p>' in figure
    assert "<svg" in _figure("Reward", ["1", "2"], {"held-out": [0.25, 0.5]})


def test_answers_stand_side_by_side_the_worst_change_first_and_stay_text() -> None:
    before = [(Sample(id=str(n), question=f"<q{n}>", answer="old"), reward_of(0.5)) for n in range(10)]
    after = [(Sample(id=str(n), question=f"<q{n}>", answer="<script>x</script>"), reward_of(n / 10)) for n in range(10)]
    card = TrainingCard.model_construct(name="r<1>", method="ppo", base="embedded:tiny", metrics={})
    page = RunReport(card, TABLE, ["Length <grew>"], {0: before, 3: after}).page()
    assert page.index("PPO run r&lt;1&gt;") < page.index("Length &lt;grew&gt;") < page.index("<svg")
    assert page.count("Before (step 0)") == page.count("After (step 3)") == 6
    assert (
        page.index("&lt;q0&gt;") < page.index("&lt;q9&gt;")
        and "<script" not in page
        and "<i>why" not in page
        and "<b>" not in page
    )


def test_a_reward_that_never_applied_has_no_line() -> None:
    rounds = [
        {"weights": {"rel": 0.6, "faith": 0.4}, "means": {"rel": 0.5}},
        {"weights": {"rel": 0.5, "faith": 0.5}, "means": {}},
    ]
    history = {"config": {"initial_weights": {"rel": 0.5, "faith": 0.5}}, "rounds": rounds}
    card = TrainingCard.model_construct(name="r", method="irs", base="embedded:tiny", metrics={})
    page = RunReport(card, TABLE, [], {}, history=history).page()
    assert "mean rel" in page and "mean faith" not in page


def test_a_run_whose_answers_were_all_withheld_has_no_checks(tmp_path: Path) -> None:
    assert read_checks(tmp_path) == {}
