"""DPO, KTO and the reward model: our own forward pass against the library's, on the same batches, turn by turn.

    OMP_NUM_THREADS=1 python benchmarks/preference.py --out preference.json
    python benchmarks/preference.py --model embedded:smollm2 --rows 32 --rounds 1
    python benchmarks/preference.py --model embedded:smollm2 --rows 32 --rounds 5 --device cuda    # wall time

Pairs are made up: a question of about 60 words, two answers of 20 to 120. Measured is a forward and a backward pass over a batch
in processor seconds, the best of `--rounds`; tokens are those of prompts and answers, without padding. `direct` is the library
with the output layer on answer tokens only, `library` as TRL does it. Losses and gradients are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from medloop.contracts import ModelRef
from medloop.models.classify import new_classifier
from medloop.models.load import load
from medloop.settings import Settings
from medloop.train import preference, reward_model
from medloop.train.configs.preference_config import DPOConfig, KTOConfig
from medloop.train.runs.find_run import find_run
from medloop.train.trl.fast_path import FastPath
from medloop.train.trl.resumable import MetricsCallback

WORDS = "patient has chest pain fever rest drink water call doctor today dose tablets mild severe since night child".split()


def write_pairs(path: Path, count: int) -> None:
    draw = random.Random(0)

    def text(low: int, high: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(low, high)))

    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": f"{n} {text(40, 80)}?", "chosen": text(20, 120), "rejected": text(20, 120)} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def trainers(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """A trainer of each kind before its first step."""
    made: dict[str, Any] = {}
    for name, kind in (("dpo", DPOConfig), ("kto", KTOConfig)):
        config = kind(name=name, model=args.model, batch_size=args.rows, max_length=512, lora_r=8)
        plan = preference.make_plan(config, settings, find_run(config, settings))
        callback = preference.PreferenceCallback(plan.run.metrics, lambda _: None, lambda: False)
        made[name] = preference._trainer(plan, load(ModelRef(base=args.model), settings), None, args.rows, callback)
    config = reward_model.RewardModelConfig(name="rm", model=args.model, batch_size=args.rows, max_length=512, lora_r=8)
    plan = reward_model.make_plan(config, settings, find_run(config, settings))
    fresh = new_classifier(args.model, settings, seed=0, trainable=False)
    callback = MetricsCallback(plan.run.metrics, lambda _: None, lambda: False)
    made["reward"] = reward_model._trainer(plan, fresh, None, args.rows, callback)
    return made


def clock(device: torch.device) -> float:
    """Processor seconds, or by the wall once a GPU has done its work."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def compare(trainer: Any, rows: int, rounds: int) -> dict[str, Any]:
    examples = [trainer.train_dataset[index] for index in range(rows)]
    columns = [name for name in examples[0] if name.endswith("_ids") and not name.startswith("KL_")]
    answers = [name for name in columns if name != "prompt_ids"]
    tokens = sum(len(row[name]) + len(row.get("prompt_ids", ())) for row in examples for name in answers)
    fast, ways = trainer.path, {"fast": None, "direct": True, "library": False}
    if not hasattr(trainer, "direct"):
        ways.pop("direct")
    seconds: dict[str, float] = dict.fromkeys(ways, float("inf"))
    results: dict[str, tuple[float, torch.Tensor]] = {}
    for _ in range(rounds):
        for way, direct in ways.items():
            trainer.path = fast if way == "fast" else FastPath("", reason="asked for")
            trainer.direct = direct
            trainer.model.zero_grad()
            batch = trainer.data_collator([dict(row) for row in examples])
            batch = trainer._prepare_inputs(batch)
            began = clock(trainer.model.device)
            cuda = trainer.model.device.type == "cuda"
            with torch.autocast("cuda", torch.bfloat16, enabled=cuda and way != "fast"):  # as in training
                loss = trainer.compute_loss(trainer.model, batch)
            loss.backward()
            seconds[way] = min(seconds[way], clock(trainer.model.device) - began)
            gradients = [p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]
            results[way] = loss.item(), torch.cat(gradients)
    loss, gradient = results["library"]
    away = float((results["fast"][1] - gradient).norm() / gradient.norm())
    return {
        "backend": fast.backend, "tokens": tokens, "seconds": {way: round(value, 4) for way, value in seconds.items()},
        "tokens_per_second": {way: round(tokens / value) for way, value in seconds.items()},
        "times_faster_than_library": round(seconds["library"] / seconds["fast"], 2),
        "loss_difference": abs(results["fast"][0] - loss), "gradient_difference": away,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:tiny")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder), model=args.model, device=args.device, offline=True)
        write_pairs(settings.home / "data/preferences/preferences.jsonl", 4 * args.rows)
        result = {name: compare(trainer, args.rows, args.rounds) for name, trainer in trainers(args, settings).items()}
    text = json.dumps({"model": args.model, "threads": torch.get_num_threads(), "rows": args.rows, **result}, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
