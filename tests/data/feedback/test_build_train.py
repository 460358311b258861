"""What 'medloop data build' leaves is what training reads, as it is: all four trainers on a small random model."""

from __future__ import annotations

from pathlib import Path

import pytest

from medloop.loop.train import STAGES, run_stage
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import crud
from medloop.testing.feedback import make_correction, make_preference, make_thumb
from medloop.testing.models import tiny_model


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A workspace whose data come from feedback alone."""
    from medloop.data.feedback.build import FeedbackConfig
    from medloop.loop.feedback import build_from_feedback

    home = tmp_path_factory.mktemp("clinic")
    init_workspace(home)
    model = tiny_model(home / "base")
    settings = Settings(home=home, model=str(model), device="cpu", threads=1, offline=True)
    with open_store(settings) as store:
        for n in range(24):
            given = [
                make_preference(n, f"Rest {n} days and drink.", f"Run {n} miles.", "a"),
                make_correction(n, f"Run {n} miles.", f"See doctor {n}."),
            ]
            given += [make_thumb(n, f"Sleep {n} hours.", True), make_thumb(n, f"Jump {n} times.", False)]
            crud.add(store, given, actor="test")
        build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    return settings


def test_the_reward_model_learns_from_train_and_is_judged_by_test(clinic: Settings) -> None:
    from medloop.train.reward_model import RewardModelConfig, make_plan
    from medloop.train.runs.find_run import find_run

    config = RewardModelConfig(model=clinic.model, max_steps=2, batch_size=4, full=True)
    planned = make_plan(config, clinic, find_run(config, clinic))
    rows = list(jsonl.read(clinic.workspace.preferences / "preferences.jsonl"))
    for side, pairs in (("train", planned.train.items), ("test", planned.test.items)):
        assert {pair.prompt[-1].content for pair in pairs} == {row["prompt"] for row in rows if row["metadata"]["split"] == side}
    card = run_stage(STAGES["REWARD"], config, clinic).card
    assert (clinic.workspace.models / "reward/reward/scoring.json").is_file() and card.inputs


@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_dpo_and_kto_run_on_what_lies_in_their_place(clinic: Settings, method: str) -> None:
    from medloop.train.configs.preference_config import DPOConfig, KTOConfig

    kind = DPOConfig if method == "dpo" else KTOConfig
    config = kind(name=method, model=clinic.model, max_steps=1, batch_size=4)
    card = run_stage(STAGES[method.upper()], config, clinic).card
    assert card.method == method


def test_sft_runs_on_the_experts_answers(clinic: Settings) -> None:
    from medloop.train.sft import SFTConfig

    folder = Path("data/feedback/feedback")
    files = {"data": str(folder / "sft_train.jsonl"), "dev_data": str(folder / "sft_test.jsonl")}
    config = SFTConfig(name="sft", model=clinic.model, max_steps=1, batch_size=4, **files)
    card = run_stage(STAGES["SFT"], config, clinic).card
    assert set(card.inputs) == {"train", "dev"}
