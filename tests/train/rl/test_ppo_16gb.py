"""PPO on a GPU of 16 GB: the preset, the optimizer in 8 bits, and the benchmark that measures its peak."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from medloop.errors import ConfigError, MissingExtraError
from medloop.knobs import load_config
from medloop.loop.train import STAGES, prepare_stage, run_stage
from medloop.store.files.artifacts import file_sha256
from medloop.train.rl import plan
from medloop.train.rl.state import TrainState

ROOT = Path(__file__).parents[3]
PRESET = ROOT / "configs/ppo-16gb.yaml"
SMALL = {"steps": 1, "prompts_per_step": 2, "samples": 2, "max_new_tokens": 8, "held_out_n": 0, "lora_r": 4}
FILES = {"prompts": "data/processed/train.jsonl", "held_out": "data/processed/dev.jsonl"}


def config(settings: Any, **more: Any) -> Any:
    return STAGES["PPO"].config(**{"model": settings.model, **SMALL, **FILES, **more})


def saved_states(monkeypatch: Any) -> list[TrainState]:
    """Filled with the state of the run at each checkpoint."""
    states: list[TrainState] = []
    save = TrainState.save
    monkeypatch.setattr(TrainState, "save", lambda self, *number: (states.append(self), save(self, *number))[1])
    return states


def test_the_preset_trains_with_checkpointing_and_micro_batches(settings: Any, monkeypatch: Any) -> None:
    states = saved_states(monkeypatch)
    flags = {"model": settings.model, **SMALL, **FILES}
    preset = load_config(STAGES["PPO"].config, file=PRESET, flags=flags).model_copy(update={"adapter": None})
    card = run_stage(STAGES["PPO"], preset, settings).card
    shown = [card.config[name] for name in ("gradient_checkpointing", "micro_batch_size", "optimizer")]
    assert shown == [True, 4, "adamw"] and card.metrics["steps"] == 1
    # not only in the settings: the model recomputes its activations, and an update reads four answers at once
    assert any(getattr(module, "gradient_checkpointing", False) for module in states[-1].policy.model.modules())
    assert states[-1].micro_batch_size == 4


def test_eight_bits_without_the_package_or_a_gpu_are_refused_before_anything_is_written(settings: Any, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "bitsandbytes", None)
        with pytest.raises(MissingExtraError, match=r"optimizer=paged_adamw_8bit needs bitsandbytes.*medloop\[quant\]"):
            prepare_stage(STAGES["PPO"], config(settings, optimizer="paged_adamw_8bit"), settings)
    pytest.importorskip("bitsandbytes")
    with pytest.raises(ConfigError, match=r"needs a GPU, but this run would use the cpu\. Set optimizer=adamw"):
        prepare_stage(STAGES["PPO"], config(settings, optimizer="paged_adamw_8bit"), settings)
    assert not list((settings.home / "jobs").iterdir())


@pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
def test_with_eight_bits_a_stopped_run_ends_with_the_same_bytes(settings: Any, monkeypatch: Any) -> None:
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr(plan, "check_optimizer", lambda *_: None)  # on a CPU the moments are in 8 bits, but not in pages
    states = saved_states(monkeypatch)
    shape = {"steps": 3, "save_every": 1, "lora_r": 128, "optimizer": "paged_adamw_8bit"}
    whole = run_stage(STAGES["PPO"], config(settings, name="whole", **shape), settings).run.target
    assert any("absmax1" in moments for moments in states[-1].optimizer.state.values()), "some moments are in 8 bits"
    with pytest.raises(KeyboardInterrupt):
        run_stage(STAGES["PPO"], config(settings, name="parts", **shape), settings, should_stop=lambda: True)
    parts = run_stage(STAGES["PPO"], config(settings, name="parts", **shape), settings).run.target
    for name in ("adapter_model.safetensors", "value_head.safetensors"):
        assert file_sha256(whole / name) == file_sha256(parts / name)


@pytest.mark.slow
def test_the_benchmark_measures_the_preset(tmp_path: Path) -> None:
    small = [
        word for pair in ("prompts_per_step=2", "samples=2", "max_prompt=32", "max_new_tokens=8") for word in ("--set", pair)
    ]
    command = ["benchmarks/rl_memory.py", "--preset", str(PRESET), "--arch", "tiny", "--device", "cpu", "--steps", "1", *small]
    subprocess.run([sys.executable, *command, "--out", str(tmp_path / "out.json")], cwd=ROOT, check=True)
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["adamw"]["micro"] == 4 and report["adamw"]["peak_process_gb"] > 0
