"""A LoRA run trains less than 5 % of the parameters, or it is refused with the numbers, before anything is written."""

import json
import math
from typing import Any

import pytest

from medloop.contracts import TrainRequest
from medloop.errors import ConfigError
from medloop.jobs.submit import submit_training
from medloop.loop.train import STAGES, prepare_stage, run_stage
from medloop.settings import Settings
from medloop.train.configs.sft_config import SFTConfig

PROMPTS = "data/processed/train.jsonl"


@pytest.fixture
def embedded(settings: Any) -> Settings:
    pairs = [{"prompt": f"Case {n}", "chosen": "Rest well.", "rejected": "No."} for n in range(20)]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (settings.home / "data/preferences").mkdir(parents=True, exist_ok=True)
    (settings.home / "data/preferences/preferences.jsonl").write_text(lines)
    return Settings(home=settings.home, model="embedded:tiny", device="cpu", threads=1, offline=True)


def prepare(stage: str, settings: Settings, **values: Any) -> Any:
    prompts = {"prompts": PROMPTS, "held_out_n": 0} if stage in ("PPO", "GRPO", "IRS") else {}
    return prepare_stage(STAGES[stage], STAGES[stage].config(**prompts, **values), settings)


@pytest.mark.parametrize("stage", STAGES)
def test_the_default_rank_stays_below_five_percent_and_a_larger_one_is_refused(stage: str, embedded: Settings) -> None:
    assert prepare(stage, embedded).plan is not None
    with pytest.raises(ConfigError, match=r"262,\d{3} of 3,672,\d{3} parameters \(7.1\d%\).*lora_r 10 or lower.*_share to 0.08"):
        prepare(stage, embedded, lora_r=16)
    assert prepare(stage, embedded, lora_r=10).plan is not None
    assert prepare(stage, embedded, lora_r=16, max_trainable_share=0.08).plan is not None
    assert not list((embedded.home / "jobs").iterdir())


def test_full_training_is_exempt(embedded: Settings) -> None:
    assert prepare("SFT", embedded, full=True).plan is not None


def test_the_adapter_to_start_from_and_the_value_head_count(embedded: Settings) -> None:
    wide = SFTConfig(
        model="embedded:tiny", name="wide", lora_r=16, max_trainable_share=0.1, max_steps=1, batch_size=1, dev_rows=0
    )
    card = run_stage(STAGES["SFT"], wide, embedded).card
    assert math.isclose(card.trainable_parameters / card.total_parameters, 0.0714, abs_tol=1e-3)
    with pytest.raises(ConfigError, match=r"262,401 of 3,672,577 .*Start from an adapter of rank 10 or lower"):
        prepare("PPO", embedded, adapter="wide")


def test_a_job_is_refused_when_it_is_submitted(embedded: Settings) -> None:
    config = {"prompts": PROMPTS, "held_out_n": 0}
    with pytest.raises(ConfigError, match=r"max_trainable_share is 0\.05"):
        submit_training(TrainRequest(stage="GRPO", config={**config, "lora_r": 16}), embedded)
    assert submit_training(TrainRequest(stage="GRPO", config=config), embedded).job_id
