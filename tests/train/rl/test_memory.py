"""`--memory-gb`: a run chooses the pieces it works in by the memory it may take, says so, and keeps what the user set."""

import dataclasses
import importlib.util
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from medloop.cli import app
from medloop.errors import ConfigError
from medloop.loop.train import STAGES, prepare_stage, run_stage
from medloop.models import runtime
from medloop.train.configs.rl_config import GRPOConfig, IRSRunConfig, PPOConfig
from medloop.train.rl import memory
from medloop.train.rl.memory import ModelFacts, Pieces, model_facts, needed_bytes, size_run
from medloop.train.rl.state import TrainState
from medloop.train.runs.run import TrainingRun

SMALL = {"steps": 1, "prompts_per_step": 2, "samples": 2, "max_new_tokens": 8, "held_out_n": 0, "lora_r": 4}
FILES = {"prompts": "data/processed/train.jsonl", "held_out": "data/processed/dev.jsonl"}
MATRICES = (2 * 1536 * 1536 + 2 * 1536 * 256 + 3 * 1536 * 8960) * 28
QWEN = ModelFacts(
    parameters=MATRICES + 151936 * 1536, multiplied=MATRICES, per_rank=37_888 * 28, layers=28, width=1536, middle=8960, heads=12,
    kv_heads=2, head_dim=128, vocabulary=151936, bytes_per_weight=2, is_dense=False, is_fast=True,
)  # fmt: skip

SMALL_MATRICES = (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536) * 30
SMOLLM2 = ModelFacts(
    parameters=SMALL_MATRICES + 49152 * 576, multiplied=SMALL_MATRICES, per_rank=10_176 * 30, layers=30, width=576, middle=1536,
    heads=9, kv_heads=3, head_dim=64, vocabulary=49152, bytes_per_weight=2, is_dense=False, is_fast=True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def bitsandbytes(monkeypatch: Any) -> None:
    monkeypatch.setattr(memory, "_has_bitsandbytes", lambda: True)


def chosen(gb: float, row: int = 1500, facts: ModelFacts = QWEN, **more: Any) -> memory.Sizing:
    config = PPOConfig(**{"memory_gb": gb, "adapter": "sft", **more})
    return size_run(config, facts, device="cuda", row=row, budget=gb * 1e9)


def test_less_memory_means_smaller_pieces_then_checkpointing_then_four_bits() -> None:
    large, middle, small, tiny = (chosen(gb).pieces for gb in (80, 16, 8, 5.7))
    assert not large.gradient_checkpointing and not large.load_in_4bit and large.micro_batch_size > 4
    assert middle.gradient_checkpointing and not middle.load_in_4bit
    assert small.micro_batch_size < middle.micro_batch_size or small.rollout_batch_size < middle.rollout_batch_size
    assert tiny.load_in_4bit and tiny.gradient_checkpointing


def test_the_estimate_lies_within_the_limit_and_near_what_was_measured() -> None:
    """Measured on an H200 (docs/log.md): 12.4 GB for 16 rows of 272 tokens, 14.4 for 8 of 384 by the library."""
    for gb in (8, 12, 16, 24, 80):
        assert chosen(gb).estimate + memory.CUDA_ITSELF <= gb * 1e9
    config = GRPOConfig(lora_r=16)
    fast = needed_bytes(config, QWEN, Pieces(16, 64), 272, device="cuda") / 1e9
    slow = needed_bytes(config, dataclasses.replace(QWEN, is_fast=False), Pieces(8, 64), 384, device="cuda") / 1e9
    assert 12.4 <= fast < 12.4 * 1.25 and 14.4 <= slow < 14.4 * 1.25
    long = needed_bytes(PPOConfig(), QWEN, Pieces(4, 64), 1100, device="cuda") / 1e9
    assert long > 15.4, "these did not fit into 15.4 GB: a captured graph keeps its cache while the update runs"


def test_a_small_model_on_a_gpu_works_in_larger_pieces_and_a_large_one_does_not() -> None:
    """Measured on an H200 (docs/log.md): SmolLM2-135M in one piece of 128 answers takes 15.3 GB, and two thirds of the time."""
    step = {"memory_gb": None, "samples": 8, "prompts_per_step": 16}
    small = chosen(140, row=250, facts=SMOLLM2, **step)
    assert (small.pieces.micro_batch_size, small.pieces.rollout_batch_size) == (128, 128)
    assert 15.3e9 <= small.estimate < 24e9
    assert chosen(140, row=250, **step).pieces == Pieces(32, 128), "a large one would take 40 GB and gain nothing"
    assert chosen(8, row=250, facts=SMOLLM2, samples=8).pieces.micro_batch_size == 32, "a limit comes first"
    assert chosen(140, row=250, facts=SMOLLM2, **{**step, "prompts_per_step": 4}).pieces == Pieces(32, 64), (
        "no more than there are"
    )
    kept = chosen(140, row=250, facts=SMOLLM2, **step, micro_batch_size=16, rollout_batch_size=64)
    assert kept.pieces == Pieces(16, 64)


def test_full_precision_with_single_answers_comes_before_four_bits() -> None:
    """These fit in full precision without bitsandbytes; to install it must not put them into 4 bits."""
    for gb in (8.0, 8.6, 9.2):
        pieces = chosen(gb, row=4000, rollout_batch_size=8).pieces
        assert not pieces.load_in_4bit and pieces.optimizer == "adamw" and pieces.micro_batch_size == 1
    assert chosen(15.6, row=12000, rollout_batch_size=8).pieces.optimizer == "adamw"


def test_four_bits_take_the_fast_forward_and_one_dense_matrix() -> None:
    pieces = chosen(8, row=288, load_in_4bit=True).pieces
    assert pieces.load_in_4bit and not pieces.gradient_checkpointing and pieces.micro_batch_size >= memory.MIN_FAST
    plain, four = (
        needed_bytes(PPOConfig(), QWEN, Pieces(4, 16, load_in_4bit=four), 288, device="cuda") for four in (False, True)
    )
    assert plain - four == pytest.approx((2 - memory.FOUR_BITS) * QWEN.multiplied - 2 * 2 * 8960 * 1536, abs=2)
    cpu = dataclasses.replace(QWEN, bytes_per_weight=4)
    plain, four = (needed_bytes(PPOConfig(), cpu, Pieces(4, 16, load_in_4bit=four), 288, device="cpu") for four in (False, True))
    assert plain - four == pytest.approx((8 - memory.FOUR_BITS) * cpu.multiplied - 4 * 2 * 8960 * 1536, abs=2), (
        "no copy to sample"
    )


def test_what_the_user_set_is_kept() -> None:
    for size, gb in ((256, 60), (64, 16)):
        assert chosen(gb, rollout_batch_size=size).pieces.rollout_batch_size == size
    assert chosen(8).pieces.rollout_batch_size < 64, "which is chosen where nobody set it"
    assert not chosen(12, row=400, gradient_checkpointing=False).pieces.gradient_checkpointing
    assert chosen(5.7).pieces.load_in_4bit
    with pytest.raises(ConfigError, match=r"leave out what was set and is kept \(load_in_4bit=False\)"):
        chosen(5.7, load_in_4bit=False)
    with pytest.raises(ConfigError, match=r"leave out what was set and is kept \(micro_batch_size=32\)"):
        chosen(8, micro_batch_size=32)
    assert chosen(80, gradient_checkpointing=True, micro_batch_size=3).settings["micro_batch_size"] == 3
    assert chosen(80, gradient_checkpointing=True).pieces.gradient_checkpointing
    assert chosen(8, load_in_4bit=True, row=400).pieces.load_in_4bit


def test_scores_that_are_written_down_count() -> None:
    """Gemma 2's attention has a soft cap, which the fast kernels leave out: its scores grow with the square of the row."""
    capped = dataclasses.replace(QWEN, is_dense=True, is_fast=False)
    plain = dataclasses.replace(QWEN, is_fast=False)
    pieces, config = Pieces(4, 16), GRPOConfig()
    extra = [
        needed_bytes(config, capped, pieces, row, device="cuda") - needed_bytes(config, plain, pieces, row, device="cuda")
        for row in (512, 1024)
    ]
    assert extra[0] > 1e9 and extra[1] > 3.5 * extra[0]


def test_too_little_is_refused_with_what_would_do() -> None:
    with pytest.raises(ConfigError, match=r"memory_gb is 2, but .* needs about \d+\.\d GB at least\. Raise memory_gb, lower"):
        chosen(2)


def test_what_is_named_as_enough_is_enough() -> None:
    with pytest.raises(ConfigError) as refused:
        chosen(4)
    least = float(str(refused.value).split("needs about ")[1].split(" GB")[0])
    assert chosen(least).estimate > 0


def test_a_cpu_trains_by_the_fast_forward_and_samples_from_its_own_copy() -> None:
    facts = dataclasses.replace(QWEN, bytes_per_weight=4)
    other = dataclasses.replace(facts, is_fast=False)
    pieces = Pieces(32, 16)
    ours, theirs = (needed_bytes(PPOConfig(), each, pieces, 600, device="cpu") for each in (facts, other))
    assert ours < theirs, "the library keeps 1.8 times as much of a token"
    served = needed_bytes(PPOConfig(rollout_url="http://127.0.0.1:1"), facts, pieces, 600, device="cpu")
    assert ours - served == 4 * facts.multiplied, "a server needs no copy here"


def test_products_in_bfloat16_are_a_copy_of_half_the_size_with_the_output_layer() -> None:
    facts, pieces = dataclasses.replace(QWEN, bytes_per_weight=4), Pieces(32, 16)
    whole, low = (
        needed_bytes(PPOConfig(rollout_dtype=dtype), facts, pieces, 600, device="cpu") for dtype in ("auto", "bfloat16")
    )
    assert whole - low == 2 * facts.multiplied - 2 * facts.vocabulary * facts.width


def test_a_slower_way_says_its_price() -> None:
    sentence = size_run(PPOConfig(adapter="sft"), QWEN, device="cuda", row=1500, budget=12e9).sentence()
    assert "activations computed again (an update takes about 2 to 3 times as long" in sentence


def test_without_a_limit_four_bits_are_never_chosen_and_nothing_is_refused() -> None:
    config = IRSRunConfig(adapter="sft")
    sizing = size_run(config, QWEN, device="cuda", row=1500, budget=3e9)
    assert sizing.budget is None and not sizing.pieces.load_in_4bit and sizing.pieces.optimizer == "adamw"
    assert sizing.pieces.gradient_checkpointing and sizing.pieces.micro_batch_size == 1


def config(settings: Any, **more: Any) -> Any:
    return STAGES["GRPO"].config(**{"model": settings.model, **SMALL, **FILES, **more})


def test_a_run_works_in_its_pieces_and_its_card_has_them(settings: Any, monkeypatch: Any) -> None:
    facts = model_facts(Path(settings.model), torch.float32)
    least = needed_bytes(config(settings, memory_gb=1), facts, Pieces(8, 64), 60, device="cpu") / 1e9
    states: list[TrainState] = []
    save = TrainState.save
    monkeypatch.setattr(TrainState, "save", lambda self, *number: (states.append(self), save(self, *number))[1])
    result = run_stage(STAGES["GRPO"], config(settings, name="sized", memory_gb=round(least, 3)), settings)
    used = result.card.memory
    assert used is not None and used["given_gb"] == round(least, 2) and used["estimate_gb"] <= used["given_gb"]
    assert states[-1].micro_batch_size == used["micro_batch_size"] < 64
    assert result.card.config["micro_batch_size"] == used["micro_batch_size"], "the card shows what ran"
    assert used["asked"]["micro_batch_size"] == 0 and result.card.update_backend == "fast"
    again = run_stage(STAGES["GRPO"], config(settings, name="sized", memory_gb=round(least, 3)), settings)
    assert again.plan is None, "the same command finds its result"


def stopped_run(settings: Any, name: str) -> Any:
    """A run of two steps in memory for 8 answers at once, stopped after its first step; its config."""
    facts = model_facts(Path(settings.model), torch.float32)
    least = needed_bytes(config(settings, memory_gb=1), facts, Pieces(8, 64), 60, device="cpu") / 1e9
    shape = config(settings, name=name, memory_gb=round(least, 3), steps=2, save_every=1)
    with pytest.raises(KeyboardInterrupt):
        run_stage(STAGES["GRPO"], shape, settings, should_stop=lambda: True)
    return shape


def test_a_resumed_run_works_in_the_pieces_it_began_with(settings: Any, monkeypatch: Any, caplog: Any) -> None:
    states: list[TrainState] = []
    save = TrainState.save
    monkeypatch.setattr(TrainState, "save", lambda self, *number: (states.append(self), save(self, *number))[1])
    shape = stopped_run(settings, "again")
    began = states[-1].pieces
    with monkeypatch.context() as patch:  # another version, which would choose more
        patch.setattr(memory, "needed_bytes", lambda *_, **__: 1)
        plan: Any = prepare_stage(STAGES["GRPO"], shape, settings).plan
    assert plan.sizing.settings == began and not plan.sizing.note
    with monkeypatch.context() as patch:  # nothing fits any more: smaller batches, all else as before
        patch.setattr(memory, "needed_bytes", lambda *_, **__: 10**15)
        small: Any = prepare_stage(STAGES["GRPO"], shape, settings).plan
    assert small.sizing.settings == began | {"micro_batch_size": 1, "rollout_batch_size": 16}
    assert f"The run began with {began['micro_batch_size']} and" in small.sizing.sentence() and "no longer fit" in caplog.text
    run_stage(STAGES["GRPO"], shape, settings)
    assert states[-1].pieces == began


def test_a_run_begun_in_four_bits_goes_on_in_them_or_not_at_all(settings: Any, monkeypatch: Any) -> None:
    shape = stopped_run(settings, "bits")
    resumable, find_spec = TrainingRun.resumable, importlib.util.find_spec

    def in_bits(self: TrainingRun, **pieces: Any) -> Any:
        checkpoint = resumable(self)
        assert checkpoint is not None
        return dataclasses.replace(checkpoint, extra={**checkpoint.extra, "pieces": {**checkpoint.extra["pieces"], **pieces}})

    for pieces, words in (({"load_in_4bit": True}, "its base in 4 bits"), ({"optimizer": "paged_adamw_8bit"}, "8 bits")):
        monkeypatch.setattr(TrainingRun, "resumable", lambda self, pieces=pieces: in_bits(self, **pieces))
        with monkeypatch.context() as patch:
            patch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "bitsandbytes" else find_spec(name))
            with pytest.raises(ConfigError, match=f"{words}.*cannot be had here.*--replace"):
                prepare_stage(STAGES["GRPO"], shape, settings)
    monkeypatch.setattr(TrainingRun, "resumable", lambda self: in_bits(self, load_in_4bit=True))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: object() if name == "bitsandbytes" else find_spec(name))
    plan: Any = prepare_stage(STAGES["GRPO"], shape, settings).plan
    assert plan.config.load_in_4bit


@pytest.mark.parametrize("method", ["PPO", "GRPO", "IRS"])
def test_the_limit_is_lifted_however_the_run_ends(settings: Any, monkeypatch: Any, method: str) -> None:
    shares: list[float] = []
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(total_memory=80e9))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, index: shares.append(share))
    small = {
        name: value for name, value in SMALL.items() if method != "IRS" or name in ("max_new_tokens", "lora_r", "held_out_n")
    }
    shape = STAGES[method].config(**{"model": settings.model, **small, **FILES, "memory_gb": 8.6})
    prepared = prepare_stage(STAGES[method], shape, settings)
    module = f"medloop.train.{method.lower()}"
    device_of = runtime.device_of

    def broken(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(runtime, "device_of", device_of)
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{module}.create_train_state", broken)
    monkeypatch.setattr(runtime, "device_of", lambda *_: device)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(module).run(prepared.plan, settings)
    assert shares == [pytest.approx(0.1), 1.0]


def test_a_checkpoint_of_another_forward_pass_is_told(settings: Any, monkeypatch: Any) -> None:
    shape = stopped_run(settings, "forward")
    restore = TrainState.restore

    def restore_old(self: TrainState, checkpoint: Any) -> None:
        restore(self, dataclasses.replace(checkpoint, extra={**checkpoint.extra, "forward": "library"}))

    monkeypatch.setattr(TrainState, "restore", restore_old)
    card = run_stage(STAGES["GRPO"], shape, settings).card
    assert any("The steps up to 1 were computed by the library forward pass" in line for line in card.warnings)


def test_a_run_without_a_limit_is_as_before_on_a_cpu(settings: Any) -> None:
    plan = prepare_stage(STAGES["GRPO"], config(settings, name="free"), settings).plan
    assert plan is not None and plan.sizing is None and "memory_gb" not in plan.run.identity["config"]  # type: ignore[attr-defined]


def test_the_command_says_what_it_chose(settings: Any) -> None:
    words = ["train", "grpo", "--name", "told", "--model", settings.model, "--memory-gb", "2"]
    pairs = [f"{name}={value}" for name, value in {**SMALL, **FILES}.items()]
    result = CliRunner().invoke(
        app, ["--home", str(settings.home), *words, *(w for pair in pairs for w in ("--set", pair))], catch_exceptions=False
    )
    assert "Memory: about " in result.output and " of 2 GB, with " in result.output, result.output


def test_a_checkpoint_without_a_rate_is_told_and_stands_on_the_card(settings: Any, monkeypatch: Any, caplog: Any) -> None:
    shape = {"name": "old", "steps": 2, "save_every": 1}
    with pytest.raises(KeyboardInterrupt):
        run_stage(STAGES["GRPO"], config(settings, **shape), settings, should_stop=lambda: True)
    restore = TrainState.restore

    def restore_old(self: TrainState, checkpoint: Any) -> None:
        restore(self, dataclasses.replace(checkpoint, extra={"saved": checkpoint.extra["saved"]}))

    monkeypatch.setattr(TrainState, "restore", restore_old)
    with caplog.at_level(logging.WARNING):
        card = run_stage(STAGES["GRPO"], config(settings, **shape), settings).card
    assert "does not say its learning rate" in caplog.text
    assert any("used today's default, 0.002" in line for line in card.warnings)
