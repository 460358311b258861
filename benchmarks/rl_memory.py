"""Does it fit: a round of IRS under 8 GB, a step of PPO with 2,048-token answers under 24 GB, for a 1.5B model on a GPU.

    python benchmarks/rl_memory.py --out rl_memory.json
    python benchmarks/rl_memory.py --preset configs/ppo-16gb.yaml --cap-gb 16 --out preset.json     # PPO steps with a preset
    python benchmarks/rl_memory.py --preset configs/ppo-16gb.yaml --arch tiny --device cpu          # the same path, for a test

The shape of Qwen2.5-1.5B with random weights in bfloat16, LoRA r16, gradient checkpointing. The memory of the process is capped,
so "it fits" is shown, not computed; pieces that do not fit are halved until they do. With bitsandbytes also a round in 4 bits.

With a preset, all prompts and answers have the longest length that it allows. With bitsandbytes and a GPU it is measured a second
time with the optimizer in 8 bits. The policy starts from a fresh adapter; a frozen copy of one to start from would come on top.
`peak_reserved_gb` is what torch took, `device_used_gb` what the whole GPU had in use, CUDA itself included.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from rl_step import make_model, peak, texts, worth

from medloop.knobs import load_config
from medloop.models.load import load_tokenizer
from medloop.settings import Settings
from medloop.testing.fakes import FakeScorer
from medloop.train import irs, ppo
from medloop.train.rl.experience import RLPrompt
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.state import TrainState, create_train_state
from medloop.train.rl.step import try_step
from medloop.train.runs.run import TrainingRun


def train_state(folder: Path, config: Any, method: str, count: int, prompt: int, device: str = "cuda") -> TrainState:
    settings = Settings(home=folder, model=config.model, device=device, offline=True)
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


def measured(name: str, cap_gb: float | None, work: Callable[[], TrainState]) -> dict[str, Any]:
    cuda = cap_gb is not None
    if cap_gb is not None:
        gc.collect()  # of an earlier measurement
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(cap_gb * 1e9 / torch.cuda.get_device_properties(0).total_memory, 1.0))
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    state = work()
    report: dict[str, Any] = {"cap_gb": cap_gb, "micro": state.micro_batch_size, "backend": state.sampler.backend}
    if cuda:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        report |= {
            "peak_reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
            "peak_allocated_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
            "device_used_gb": round((total - free) / 1e9, 2),
        }
    else:
        report["peak_process_gb"] = peak("cpu")
    report["seconds"] = round(time.perf_counter() - began, 1)
    print(name, report, flush=True)
    return report


def measure_preset(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """PPO steps with the settings of a preset, and a checkpoint; only the first step has to warm up."""
    values = {"model": str(folder / "model"), "held_out_n": 0, "steps": args.steps}
    seconds: list[float] = []

    def steps(optimizer: str) -> TrainState:
        pairs = args.set or []
        config = load_config(ppo.PPOConfig, file=args.preset, pairs=pairs, flags={"optimizer": optimizer, **values})
        config = config.model_copy(update={"adapter": None})  # a flag that is None does not win over the file
        state = train_state(folder, config, "ppo", config.prompts_per_step * args.steps, config.max_prompt, args.device)
        state.saved["kl"] = ppo.kl_controller(config).state()
        for state.step in range(1, args.steps + 1):
            began = time.perf_counter()
            try_step(state, lambda: ppo._step(state))
            seconds.append(round(time.perf_counter() - began, 1))
        state.save()
        return state

    cap = args.cap_gb if args.device == "cuda" else None
    optimizers = ["adamw"]
    if cap is not None and importlib.util.find_spec("bitsandbytes"):
        optimizers.append("paged_adamw_8bit")
    report = {}
    for optimizer in optimizers:
        seconds.clear()
        report[optimizer] = measured(optimizer, cap, partial(steps, optimizer)) | {"step_seconds": [*seconds]}
    return {"preset": args.preset.name, "arch": args.arch, **report}


def measure_limits(folder: Path) -> dict[str, Any]:
    """A round of IRS under 8 GB, and a PPO step under 24 GB."""
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
        state.saved["kl"] = ppo.kl_controller(config).state()
        state.step = 1
        ppo._step(state)
        return state

    report = {"irs_8gb": measured("irs", 8, one_round), "ppo_24gb": measured("ppo", 24, one_step)}
    if importlib.util.find_spec("bitsandbytes"):
        report["irs_4bit_8gb"] = measured("irs in 4 bits", 8, lambda: one_round(load_in_4bit=True))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--preset", type=Path, help="YAML of PPO settings to measure instead")
    parser.add_argument("--cap-gb", type=float, default=16.0, help="with --preset: memory that the process may take")
    parser.add_argument("--arch", choices=["qwen2.5-1.5b", "tiny"], default="qwen2.5-1.5b", help="with --preset")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="with --preset")
    parser.add_argument("--steps", type=int, default=2, help="with --preset")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="with --preset: a setting that wins over it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(args.arch, folder / "model")
        report = measure_preset(args, folder) if args.preset else measure_limits(folder)
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
