"""Does it fit: a round of IRS under 8 GB, a step of PPO with 2,048-token answers under 24 GB, for a 1.5B model on a GPU.

    python benchmarks/rl_memory.py --out rl_memory.json

The shape of Qwen2.5-1.5B with random weights in bfloat16, LoRA r16, gradient checkpointing. The memory of the process is capped,
so "it fits" is shown, not computed; pieces that do not fit are halved until they do. With bitsandbytes also a round in 4 bits.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from rl_step import make_model, texts, worth

from medloop.models.load import load_tokenizer
from medloop.settings import Settings
from medloop.testing.fakes import FakeScorer
from medloop.train import irs, ppo
from medloop.train.rl.experience import RLPrompt
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.state import TrainState, create_train_state
from medloop.train.runs.run import TrainingRun


def train_state(folder: Path, config: Any, method: str, count: int, prompt: int) -> TrainState:
    settings = Settings(home=folder, model=config.model, device="cuda", offline=True)
    tokenizer = load_tokenizer(folder / "model")
    prompts = [
        RLPrompt(str(n), tuple(tokenizer(text, add_special_tokens=False)["input_ids"]), text)
        for n, text in enumerate(texts(tokenizer, count, prompt))
    ]
    run = TrainingRun(
        folder / f"job-{method}", folder / f"result-{method}", {"config": config.model_dump(), "base_sha256": "", "inputs": {}}
    )
    plan = RLPlan(config, run, prompts, [], 0, FakeScorer(lambda sample: worth(sample.answer or "")), 0, True)
    run.folder.mkdir(parents=True, exist_ok=True)
    state = create_train_state(plan, settings, with_values=method == "ppo")
    state.sampler.stop_ids = state.sampler.stop_ids[:0]
    return state


def measured(name: str, cap_gb: float, work: Any) -> dict[str, Any]:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(cap_gb * 1e9 / torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    state = work()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_reserved() / 1e9
    report = {
        "cap_gb": cap_gb,
        "peak_reserved_gb": round(peak, 2),
        "seconds": round(time.perf_counter() - began, 1),
        "micro": state.micro_batch_size,
    }
    print(name, report, flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model("qwen2.5-1.5b", folder / "model")
        shared = {"model": str(folder / "model"), "held_out_n": 0, "lora_r": 16, "lora_alpha": 32, "gradient_checkpointing": True}

        def one_round(**more: Any) -> TrainState:
            config = irs.IRSRunConfig(
                **shared, **more, n_iterations=1, n_questions=8, n_candidates=8, max_new_tokens=256, batch_size=8, replay=0.0
            )
            state = train_state(folder, config, "irs", 8, 128)
            state.step = 1
            irs._iteration(state, [], lambda: False)
            return state

        def one_step() -> TrainState:
            config = ppo.PPOConfig(
                **shared, steps=1, prompts_per_step=4, samples=4, max_new_tokens=1920, epochs=1, minibatches=1,
                micro_batch_size=4, rollout_batch_size=16,
            )  # fmt: skip
            state = train_state(folder, config, "ppo", 4, 128)
            state.saved["kl"] = ppo.AdaptiveKL(config.beta, config.target_kl, config.horizon).state()
            state.step = 1
            ppo._step(state)
            return state

        report = {"irs_8gb": measured("irs", 8, one_round), "ppo_24gb": measured("ppo", 24, one_step)}
        if importlib.util.find_spec("bitsandbytes"):
            report["irs_4bit_8gb"] = measured("irs in 4 bits", 8, lambda: one_round(load_in_4bit=True))
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
