"""One GRPO step against TRL's GRPOTrainer: same model, prompts, group size, lengths and epochs, in the same run.

    python benchmarks/rl_step.py --out rl_step.json                       # the embedded model on a CPU
    python benchmarks/rl_step.py --arch qwen2.5-1.5b --out rl_step.json   # that shape with random weights, LoRA r16, on a GPU

Each side runs in a process of its own. 64 answers, 8 per question, all of the full length; one optimizer step on them, no KL
term, the reward a cheap function of the text, so that what is measured is sampling and learning. The first step warms up and is
left out. Tokens are prompt and answer tokens of the step. Memory is the GPU's peak, or the process's on a CPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
TINY = ROOT / "src/medloop/assets/tiny"
WORDS = ("pain", "fever", "cough", "rash", "nausea", "headache", "chest", "child")


def make_model(arch: str, folder: Path) -> None:
    """A model folder: the embedded one, or a large shape with random weights and the embedded tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.save_pretrained(folder)
    if arch == "tiny":
        model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    else:
        shape = Qwen2Config(
            vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
            num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=151643, pad_token_id=0,
            bos_token_id=None,
        )  # fmt: skip
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)


def texts(tokenizer: Any, count: int, length: int) -> list[str]:
    """Prompts of exactly `length` tokens, all different."""
    prompts = []
    for number in range(count):
        text = f"{WORDS[number % len(WORDS)]} {number}"
        while len(tokenizer(text + " pain", add_special_tokens=False)["input_ids"]) <= length:
            text += " pain"
        while len(tokenizer(text + ".", add_special_tokens=False)["input_ids"]) <= length:
            text += "."
        prompts.append(text)
    return prompts


def worth(text: str) -> float:
    return (len(text) % 97) / 97


def peak(device: str) -> float:
    used = torch.cuda.max_memory_allocated() if device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return round(used / 1e9, 3)


def ours(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from medloop.models.load import load_tokenizer
    from medloop.settings import Settings
    from medloop.testing.fakes import FakeScorer
    from medloop.train import grpo
    from medloop.train.rl.experience import RLPrompt
    from medloop.train.rl.memory import model_facts, size_run
    from medloop.train.rl.plan import RLPlan
    from medloop.train.rl.state import create_train_state
    from medloop.train.runs.run import TrainingRun

    settings = Settings(home=folder, model=str(folder / "model"), device=args.device, offline=True)
    config = grpo.GRPOConfig(
        model=settings.model, steps=args.steps + 1, prompts_per_step=args.rows // args.group, samples=args.group,
        max_new_tokens=args.new, lora_r=16, lora_alpha=32, beta=0.0, held_out_n=0, micro_batch_size=args.micro,
        rollout_batch_size=args.rows, learning_rate=1e-5, gradient_checkpointing=args.checkpointing,
    )  # fmt: skip
    if args.device == "cuda" and not args.micro:  # as the command chooses it
        facts = model_facts(folder / "model", torch.bfloat16)
        sizing = size_run(config, facts, device="cuda", row=args.prompt + args.new, budget=torch.cuda.mem_get_info()[0])
        config = config.model_copy(update={"micro_batch_size": sizing.pieces.micro_batch_size})
    tokenizer = load_tokenizer(folder / "model")
    prompts = [
        RLPrompt(str(n), tuple(tokenizer(text, add_special_tokens=False)["input_ids"]), text)
        for n, text in enumerate(texts(tokenizer, args.rows // args.group * (args.steps + 1), args.prompt))
    ]
    scorer = FakeScorer(lambda sample: worth(sample.answer or ""))
    run = TrainingRun(folder / "job", folder / "result", {"config": config.model_dump(), "base_sha256": "", "inputs": {}})
    plan = RLPlan(config, run, prompts, [], 0, scorer, 0, True)
    with run.lock():
        state = create_train_state(plan, settings)
        state.sampler.stop_ids = state.sampler.stop_ids[:0]  # every answer has its full length
        marks: list[tuple[str, float]] = []
        state.on_progress = lambda progress: marks.append((progress.phase, time.perf_counter()))
        steps = []
        for step in range(1, args.steps + 2):
            state.step = step
            marks.clear()
            began, cpu = time.perf_counter(), time.process_time()
            grpo._step(state)
            if args.device == "cuda":
                torch.cuda.synchronize()
            steps.append(_split(began, marks, time.process_time() - cpu))
            if step == 1 and args.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
    return {"steps": steps[1:], "first_step": steps[0], "peak_gb": peak(args.device), "backend": state.sampler.backend}


def _split(began: float, marks: list[tuple[str, float]], cpu: float) -> dict[str, float]:
    sampled = max(timestamp for phase, timestamp in marks if phase == "GENERATING")
    scored = max(timestamp for phase, timestamp in marks if phase == "SCORING")
    end = time.perf_counter()
    timings = {"step": end - began, "rollout": sampled - began, "scoring": scored - sampled, "update": end - scored, "cpu": cpu}
    return {name: round(seconds, 3) for name, seconds in timings.items()}


def trl(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    cuda = args.device == "cuda"
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.bfloat16 if cuda else torch.float32)
    model.generation_config.eos_token_id = None
    rows = Dataset.from_dict({"prompt": texts(tokenizer, args.rows // args.group * (args.steps + 1), args.prompt)})
    marks: list[tuple[float, float]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if cuda:
                torch.cuda.synchronize()
                if len(marks) == 1:
                    torch.cuda.reset_peak_memory_stats()
            marks.append((time.perf_counter(), time.process_time()))

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [worth(text) for text in completions]

    config = GRPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=args.rows, num_generations=args.group,
        max_steps=args.steps + 1, max_completion_length=args.new, temperature=1.0, top_k=0, beta=0.0, learning_rate=1e-5,
        bf16=cuda, use_cpu=not cuda,
        gradient_checkpointing=args.checkpointing, report_to="none", save_strategy="no", logging_steps=1000, disable_tqdm=True,
        generation_kwargs={"min_new_tokens": args.new}, shuffle_dataset=False,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, args=config, train_dataset=rows, processing_class=tokenizer, callbacks=[Clock()],
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )  # fmt: skip
    marks.append((time.perf_counter(), time.process_time()))
    trainer.train()
    spans = list(pairwise(marks[1:]))
    return {
        "steps": [{"step": round(b[0] - a[0], 3), "cpu": round(b[1] - a[1], 3)} for a, b in spans],
        "first_step": {"step": round(marks[1][0] - marks[0][0], 3)}, "peak_gb": peak(args.device),
    }  # fmt: skip


def side(args: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    out = folder / f"{name}.json"
    given = [
        word
        for key in ("arch", "rows", "group", "prompt", "new", "steps", "micro")
        for word in (f"--{key}", str(getattr(args, key)))
    ]
    command = [sys.executable, __file__, "--side", name, "--folder", str(folder), "--out", str(out), *given]
    command += ["--checkpointing"] if args.checkpointing else []
    if subprocess.run(command, check=False).returncode:
        return {"failed": True}
    return dict(json.loads(out.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=["tiny", "qwen2.5-1.5b"], default="tiny")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--micro", type=int, default=0)
    parser.add_argument("--checkpointing", action="store_true", help="Gradient checkpointing, on both sides.")
    parser.add_argument("--side", choices=["both", "ours", "trl"], default="both")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    args.new = args.new or (256 if args.device == "cuda" else 128)
    if args.side != "both":
        args.out.write_text(json.dumps((ours if args.side == "ours" else trl)(args, args.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(args.arch, folder / "model")
        report: dict[str, Any] = {
            key: getattr(args, key) for key in ("arch", "rows", "group", "prompt", "new", "device", "checkpointing")
        }
        report |= {"ours": side(args, "ours", folder), "trl": side(args, "trl", folder)}
    tokens, by = args.rows * (args.prompt + args.new), "step" if args.device == "cuda" else "cpu"
    for library in ("ours", "trl"):
        if "steps" in report[library]:
            report[library]["best_step_s"] = min(step[by] for step in report[library]["steps"])
            report[library]["tokens_per_s"] = round(tokens / report[library]["best_step_s"])
    if "steps" in report["ours"]:
        report["ours"]["rollout_tokens_per_s"] = round(args.rows * args.new / min(s["rollout"] for s in report["ours"]["steps"]))
    if "steps" in report["trl"] and "steps" in report["ours"]:
        report["times_faster"] = round(report["trl"]["best_step_s"] / report["ours"]["best_step_s"], 2)
        report["share_of_memory"] = round(report["ours"]["peak_gb"] / report["trl"]["peak_gb"], 3)
    print(json.dumps(report, indent=2))
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
