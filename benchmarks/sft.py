"""SFT on a GPU on the same examples: our forward pass, the library's through the same command, and TRL with packing.

    python benchmarks/sft.py --home WORKSPACE --model embedded:smollm2 --steps 120 --out sft.json

WORKSPACE is a prepared one (`medloop data prepare`). The first two train on the same batches in the same order, so their losses
are compared, over windows of ten steps. TRL's SFTTrainer packs rows to `--length` tokens; its batch has about as many tokens as
ours. Times are medians of the second half of the steps, after kernels have been compiled. With `--rounds` our side and TRL take
turns, and the best of each counts; `--side fast` leaves the library's side out.

    python benchmarks/sft.py --home WORKSPACE --model embedded:smollm2 --steps 200 --side curve --out curve.json

compares losses with TRL's SFTTrainer as it is, padded, on our batches in our order, with the same rates and first adapter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

BATCH, RATE = 16, 2e-4


def ours(args: argparse.Namespace, name: str, *more: str) -> dict[str, Any]:
    """Through the command; a dropout that drops nothing takes the library's forward pass."""
    words = ["--home", str(args.home), "train", "sft", "--model", args.model, "--name", name, "--lora-r", "8"]
    sets = [f"max_steps={args.steps}", f"batch_size={BATCH}", f"learning_rate={RATE}", "dev_rows=0", "save_every=1000", *more]
    for setting in sets:
        words += ["--set", setting]
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "medloop", *words], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    lines = (args.home / f"models/lora/{name}/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["phase"] == "TRAINING"]
    times = [datetime.fromisoformat(row["ts"]).timestamp() for row in rows]
    half = len(rows) // 2
    step = median(b - a for a, b in zip(times[half:], times[half + 1 :], strict=False))
    tokens = (rows[-1]["extra"]["tokens"] - rows[half]["extra"]["tokens"]) / (len(rows) - 1 - half)
    return {
        "backend": rows[-1]["extra"]["backend"], "step_s": step, "tokens_per_step": tokens, "tokens_per_s": tokens / step,
        "command_s": seconds, "losses": [row["loss"] for row in rows],
    }  # fmt: skip


def trl(args: argparse.Namespace) -> dict[str, Any]:
    """TRL's trainer with its own packing, in this process."""
    import torch
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from medloop.contracts import ModelRef
    from medloop.models.adapter import fresh_lora
    from medloop.models.find import resolve
    from medloop.models.load import load_tokenizer
    from medloop.settings import resolve as resolve_settings
    from medloop.train.examples.sft_examples import encode_file

    cuda = torch.cuda.is_available()
    folder = resolve(ModelRef(base=args.model), resolve_settings({"home": args.home}).settings).folder
    tokenizer = load_tokenizer(folder)
    examples = encode_file(tokenizer, args.home / "data/processed/train.jsonl", max_length=args.length)
    per_row = sum(examples.lengths) / len(examples.lengths)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if cuda else torch.float32)
    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.monotonic())

    config = SFTConfig(
        output_dir=str(args.home / "trl"), max_steps=args.steps, learning_rate=RATE, packing=True, max_length=args.length,
        per_device_train_batch_size=max(1, round(BATCH * per_row / args.length)), bf16=cuda, use_cpu=not cuda, logging_steps=1,
        gradient_checkpointing=False, report_to="none", save_strategy="no", disable_tqdm=True, lr_scheduler_type="cosine",
        num_train_epochs=100,
    )  # fmt: skip
    rows = examples.rows.select(range(min(len(examples.lengths), 2 * BATCH * args.steps)))
    trainer = SFTTrainer(
        model, config, train_dataset=rows, processing_class=tokenizer, callbacks=[Clock()],
        peft_config=fresh_lora(model, r=8, lora_alpha=16, lora_dropout=0.0),
    )  # fmt: skip
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.train()
    half = len(ends) // 2
    step = median(b - a for a, b in zip(ends[half:], ends[half + 1 :], strict=False))
    tokens = float(trainer._total_train_tokens) / len(ends)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return {
        "backend": model.config._attn_implementation, "shape": list(batch["input_ids"].shape), "step_s": step,
        "tokens_per_step": tokens, "tokens_per_s": tokens / step, "losses": losses,
    }  # fmt: skip


def trl_in_our_order(args: argparse.Namespace) -> dict[str, Any]:
    """TRL's trainer as it is, without packing, on the batches of our command; in this process."""
    from trl import SFTConfig, SFTTrainer

    from medloop.contracts import ModelRef
    from medloop.models.adapter import fresh_lora
    from medloop.models.load import load
    from medloop.settings import resolve as resolve_settings
    from medloop.train import sft
    from medloop.train.examples.batch_order import LengthGroupedSampler
    from medloop.train.runs.find_run import find_run
    from medloop.train.trl.resumable import training_arguments

    settings = resolve_settings({"home": args.home}).settings
    config = sft.SFTConfig(
        name="bench-trl", model=args.model, lora_r=8, max_steps=args.steps, batch_size=BATCH, learning_rate=RATE, dev_rows=0
    )
    plan = sft.make_plan(config, settings, find_run(config, settings))
    loaded = load(ModelRef(base=args.model), settings)
    order = LengthGroupedSampler(plan.train.lengths, BATCH, config.seed)
    cuda = loaded.device.type == "cuda"
    arguments = training_arguments(config, args.home / "trl", steps=plan.steps, micro=BATCH, rate=RATE, eval_every=0, cuda=cuda)
    arguments |= {"save_strategy": "no", "prediction_loss_only": False}

    class InOurOrder(SFTTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> LengthGroupedSampler:
            return order

    trainer = InOurOrder(
        loaded.model, SFTConfig(**arguments, dataset_kwargs={"skip_prepare_dataset": True}), train_dataset=plan.train.rows,
        processing_class=loaded.tokenizer,
        peft_config=fresh_lora(loaded.model, r=8, lora_alpha=config.lora_alpha, lora_dropout=0.0),
    )  # fmt: skip
    trainer.train()
    return {"losses": [row["loss"] for row in trainer.state.log_history if "loss" in row]}


def curve(args: argparse.Namespace) -> dict[str, Any]:
    """The losses of our command and of TRL's trainer, by windows of ten steps."""
    mine = ours(args, "bench-curve")
    words = [sys.executable, __file__, "--side", "trl-curve", "--home", str(args.home), "--model", args.model]
    side = subprocess.run([*words, "--steps", str(args.steps)], capture_output=True, text=True, env={**os.environ})
    if side.returncode:
        raise SystemExit(side.stderr[-2000:])
    theirs = json.loads(side.stdout.splitlines()[-1])
    steps = list(zip(mine["losses"], theirs["losses"], strict=True))
    pairs = list(zip(windows(mine["losses"]), windows(theirs["losses"]), strict=True))
    return {
        "model": args.model, "backend": mine["backend"], "steps": len(steps), "windows": pairs,
        "largest_difference_of_windows": max(abs(a - b) / b for a, b in pairs),
        "largest_difference_of_steps": max(abs(a - b) / b for a, b in steps),
    }  # fmt: skip


def windows(losses: list[float]) -> list[float]:
    return [sum(losses[i : i + 10]) / 10 for i in range(0, len(losses) - 9, 10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--model", default="embedded:smollm2")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=("all", "fast", "trl", "curve", "trl-curve"), default="all")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    if args.side == "trl":
        print(json.dumps(trl(args)), flush=True)
        return
    if args.side == "trl-curve":
        print(json.dumps(trl_in_our_order(args)), flush=True)
        return
    if args.side == "curve":
        text = json.dumps(curve(args), indent=1)
        print(text)
        if args.out:
            args.out.write_text(text + "\n", encoding="utf-8")
        return
    words = [sys.executable, __file__, "--side", "trl", "--home", str(args.home), "--model", args.model]
    words += ["--steps", str(args.steps), "--length", str(args.length)]
    fast, theirs, report = [], [], dict[str, Any]()
    for turn in range(args.rounds):
        fast.append(ours(args, f"bench-fast-{turn}"))
        side = subprocess.run(words, capture_output=True, text=True, env={**os.environ})
        if side.returncode == 0:
            theirs.append(json.loads(side.stdout.splitlines()[-1]))
        else:
            report["trl_error"] = side.stderr[-1500:]
        print(
            f"round {turn}: {fast[-1]['tokens_per_s']:.0f} tokens/s, TRL {[round(row['tokens_per_s']) for row in theirs[-1:]]}",
            flush=True,
        )
    report["fast"] = max(fast, key=lambda row: row["tokens_per_s"])
    report["rounds"] = {"fast": [row["tokens_per_s"] for row in fast], "trl": [row["tokens_per_s"] for row in theirs]}
    if theirs:
        report["trl"] = max(theirs, key=lambda row: row["tokens_per_s"])
        report["times_trl_packing"] = report["fast"]["tokens_per_s"] / report["trl"]["tokens_per_s"]
    if args.side == "all":
        report["library"] = ours(args, "bench-library", "lora_dropout=1e-9")
        a, b = windows(report["fast"]["losses"]), windows(report["library"]["losses"])
        report["largest_difference_of_losses"] = max(abs(x - y) / y for x, y in zip(a, b, strict=True))
        report["times_the_library"] = report["library"]["step_s"] / report["fast"]["step_s"]
    text = json.dumps(report, indent=1)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    print(json.dumps({k: v if k != "losses" else None for k, v in report.items()}, default=str)[:3000])


if __name__ == "__main__":
    main()
