"""Models with real weights: is the fast path as near to float32 as the library, what does a step take, what does a run fit into?

    python benchmarks/real_weights.py agreement --home WORKSPACE --model embedded:smollm2 --model FILE.gguf --out agreement.json
    python benchmarks/real_weights.py sampling  --model embedded:smollm2 --model FILE.gguf --out sampling.json
    python benchmarks/real_weights.py steps     --home WORKSPACE --model embedded:smollm2 --out steps.json
    python benchmarks/real_weights.py memory    --home WORKSPACE --model FILE.gguf --adapter sft --out memory.json

With --four-bit, agreement and sampling load the base in 4 bits (bitsandbytes). For steps it is `--set load_in_4bit=true`, for
memory the preset irs-8-4bit.

The workspace has prepared data and prompts (`medloop data prepare`, `medloop data prompts`); `memory` also an SFT adapter.
`agreement` and `sampling` take generated records without one.

    agreement  distance to the library in float32 on 64 windows of records, every second one padded: root mean square over the
               vocabulary (median over positions), KL per token, share of the same most likely token. The library and both of
               our passes (sampling, training) in the type of the weights.
    sampling   answers of up to 160 tokens to questions in groups of 8, with 64, 128 and 256 rows at once: the best of three,
               after one that captures; tokens that were kept, by the wall; peak memory.
    steps      `medloop train grpo`, 16 questions of 8 answers, up to 160 tokens, the default reward; seconds between the steps'
               lines in metrics.jsonl, the best of the last three; what sampled, and how long the answers were. --set sets more.
    memory     `medloop train ... --memory-gb N` for 8, 16, 24 and 80: what was chosen, expected and reached. The limit is hard:
               torch gets no more. The runs share the GPU, so their times are not told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from medloop.embedded.corpus import generate
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write

WINDOWS, ROWS, NEW_TOKENS, GROUP = 64, (64, 128, 256), 160, 8
STEP = ("--steps", "5", "--samples", "8", "--set", "prompts_per_step=16", "--set", "max_new_tokens=160", "--set", "held_out_n=0")
LONG = ("--set", "max_prompt=512", "--set", "max_new_tokens=1024", "--set", "prompts_per_step=16")
IRS = ("--set", "n_iterations=1", "--set", "n_questions=32", "--set", "n_candidates=8", "--set", "max_new_tokens=256")
SHORT = ("--set", "held_out_n=0")
PRESETS: dict[str, tuple[str, ...]] = {
    "irs-8": ("irs", "--memory-gb", "8", *IRS, "--set", "held_out_n=0"),
    "irs-8-4bit": ("irs", "--memory-gb", "8", *IRS, "--set", "held_out_n=0", "--set", "load_in_4bit=true"),
    "ppo-16": ("ppo", "--memory-gb", "16", "--steps", "2", "--samples", "4", *LONG, *SHORT),
    "ppo-24": ("ppo", "--memory-gb", "24", "--steps", "2", "--samples", "4", *LONG, *SHORT),
    "ppo-80": ("ppo", "--memory-gb", "80", "--steps", "2", "--samples", "4", *LONG, *SHORT),
}


def medloop(home: Path, words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "medloop", "--home", str(home), *words]
        return subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "OMP_NUM_THREADS": "1"})


def texts(home: Path | None) -> Iterator[str]:
    """Questions with their answers: held-out records of the workspace, or generated ones without one."""
    rows = generate(500, seed=1, language="en") if home is None else jsonl.read(home / "data/processed/dev.jsonl")
    for row in rows:
        yield " ".join(message["content"] for message in row.get("conversation", row)["messages"])


def agreement(home: Path | None, base: str, four_bit: bool) -> dict[str, Any]:
    import torch

    from medloop.contracts import ModelRef
    from medloop.models.fast_forward import open_fast_forward
    from medloop.models.load import load
    from medloop.models.packing import pack
    from medloop.models.rollout.agreement import STEPS, WIDTH, decoder_logprobs, in_float32, library_logprobs
    from medloop.settings import Settings
    from medloop.train.rl.policy import open_policy

    settings = Settings(home=home or Path(), model=base, offline=True)
    policy = open_policy(ModelRef(base=base), settings, lora_r=8, lora_alpha=16, load_in_4bit=four_bit)
    model, tokenizer, device = policy.model, load(ModelRef(base=base), settings).tokenizer, policy.device
    torch.manual_seed(1)
    with torch.no_grad():  # an adapter that does something, small beside the weights
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.01)
    rows = []
    for text in texts(home):
        ids = tokenizer(text)["input_ids"]
        if len(ids) >= WIDTH + STEPS:
            rows.append(ids[: WIDTH + STEPS])
        if len(rows) == WINDOWS:
            break
    input_ids = torch.tensor(rows, device=device)
    mask = torch.ones_like(input_ids, dtype=torch.bool)
    mask[1::2, : WIDTH // 3] = False
    with torch.no_grad():
        model.eval()
        library = library_logprobs(model, input_ids, mask)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            training_library = library_logprobs(model, input_ids, mask)
        with in_float32(model):
            truth = library_logprobs(model, input_ids, mask)
    report: dict[str, Any] = {
        "model": base,
        "four_bit": four_bit,
        "backend": policy.sampler().backend,
        "positions": truth.shape[0] * truth.shape[1],
    }
    report["library"], report["library, training"] = _distances(library, truth), _distances(training_library, truth)
    try:
        forward = policy.fast or open_fast_forward(model)
    except Exception as error:  # told in the table
        return {**report, "refused": str(error)}
    forward.decoder.refresh()
    with torch.no_grad():
        report["ours, sampling"] = _distances(decoder_logprobs(forward.decoder, input_ids, mask), truth)
        prompts = [ids[seen][:-STEPS].tolist() for ids, seen in zip(input_ids, mask, strict=True)]
        packed, predictors = pack(prompts, [[*ids[-STEPS:].tolist(), 0] for ids in input_ids], device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            states = forward(packed)[predictors]
        report["ours, training"] = _distances(forward.decoder.logits(states).float().log_softmax(-1), truth)
    return report


def sampling(home: Path | None, base: str, four_bit: bool) -> dict[str, Any]:
    import torch

    from medloop.contracts import Message, ModelRef
    from medloop.models.template import encode_prompt
    from medloop.settings import Settings
    from medloop.train.rl.policy import open_policy

    settings = Settings(home=home or Path(), model=base, offline=True)
    policy = open_policy(ModelRef(base=base), settings, lora_r=8, lora_alpha=16, load_in_4bit=four_bit)
    on_gpu, sampler = policy.device.type == "cuda", policy.sampler()
    report: dict[str, Any] = {"model": base, "four_bit": four_bit, "backend": sampler.backend, "rows": {}}
    asked = []
    for text in texts(home):
        asked.append(encode_prompt(policy.loaded.tokenizer, [Message(role="user", content=text[:200])]))
        if len(asked) * GROUP >= max(ROWS):
            break
    for rows in ROWS:
        prompts = [ids for ids in asked[: rows // GROUP] for _ in range(GROUP)]
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        best: tuple[float, int] = (0.0, 0)
        for turn in range(4):
            began = time.perf_counter()
            names = [f"{turn}:{row}" for row in range(rows)]
            answers = sampler(prompts, names, max_new_tokens=NEW_TOKENS, batch_size=rows)
            tokens = sum(len(answer.tokens) for answer in answers)
            rate = tokens / (time.perf_counter() - began)
            best = max(best, (rate, tokens)) if turn else best
        peak = {"peak_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2)} if on_gpu else {}
        report["rows"][rows] = {"tokens_per_second": round(best[0]), "mean_length": round(best[1] / rows, 1), **peak}
    return report


def _distances(logprobs: Any, truth: Any) -> dict[str, float]:
    difference = (logprobs - truth).square().mean(-1).sqrt()
    kl = (truth.exp() * (truth - logprobs)).sum(-1)
    same = (logprobs.argmax(-1) == truth.argmax(-1)).float()
    numbers = {"distance": difference.median(), "kl": kl.mean(), "kl_median": kl.median(), "same_top": same.mean()}
    return {name: round(float(value), 5) for name, value in numbers.items()}


def steps(home: Path, base: str, name: str, adapter: str | None, pairs: list[str]) -> dict[str, Any]:
    log = home / f"{name}.log"
    words = ["train", "grpo", "--name", name, "--model", base, *STEP, "--accept-untrusted", "--replace"]
    words += [word for pair in pairs for word in ("--set", pair)]
    words += ["--adapter", adapter] if adapter else []
    code = medloop(home, words, log).wait()
    said = log.read_text(errors="replace").splitlines()
    folder = home / f"models/rl/{name}"
    if not (folder / "card.json").is_file():
        return {"model": base, "exit": code, "log": said[-8:]}
    card = json.loads((folder / "card.json").read_text())
    rows = list(jsonl.read(folder / "metrics.jsonl"))
    times = [datetime.fromisoformat(row["ts"]) for row in rows if row["phase"] == "TRAINING"]
    seconds = [round((b - a).total_seconds(), 2) for a, b in pairwise(times)]
    lengths = [row["extra"]["length"] for row in rows if row["phase"] == "METRICS"]
    drift = [row["extra"].get("drift") for row in rows if row["phase"] == "TRAINING"]
    told = [line for line in said if "sampled by" in line or "forward pass" in line or "Memory" in line]
    return {
        "model": base, "adapter": adapter, "set": pairs, "exit": code, "backend": card["backend"], "seconds": seconds,
        "best": min(seconds[-3:]), "lengths": lengths, "drift": drift, "memory": card.get("memory"), "told": told,
    }  # fmt: skip


def memory(home: Path, base: str, adapter: str | None, only: list[str]) -> dict[str, Any]:
    processes = {}
    for name, words in PRESETS.items():
        if not only or name in only:
            start = ["--adapter", adapter] if adapter else []
            full = ["train", words[0], "--name", f"memory-{name}", "--model", base, *start, *words[1:], "--accept-untrusted"]
            processes[name] = (full, medloop(home, [*full, "--replace"], home / f"memory-{name}.log"))
    report: dict[str, Any] = {}
    for name, (words, process) in processes.items():
        code = process.wait()
        card = home / f"models/rl/memory-{name}/card.json"
        shown = json.loads(card.read_text()) if card.is_file() else {}
        said = (home / f"memory-{name}.log").read_text(errors="replace").splitlines()
        report[name] = {
            "command": "medloop " + " ".join(words), "exit": code, "memory": shown.get("memory"), "backend": shown.get("backend"),
            "length": shown.get("metrics", {}).get("length_last"), "warnings": shown.get("warnings"),
            "log": [line for line in said if "Memory" in line] or said[-6:],
        }  # fmt: skip
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("agreement", "sampling", "steps", "memory"), nargs="?", default="agreement")
    parser.add_argument("--home", type=Path, help="prepared workspace; agreement and sampling take generated records without one")
    parser.add_argument("--model", action="append", help="default: embedded:tiny")
    parser.add_argument("--four-bit", action="store_true", help="the base in 4 bits (agreement, sampling)")
    parser.add_argument("--adapter", help="to start from (steps, memory)")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="more settings (steps)")
    parser.add_argument("--only", nargs="+", default=[], help=f"of {', '.join(PRESETS)}")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.home is None and args.what not in ("agreement", "sampling"):
        parser.error(f"{args.what} needs --home")
    report: Any = []
    for number, base in enumerate(args.model or ["embedded:tiny"]):
        if args.what == "agreement":
            report.append(agreement(args.home, base, args.four_bit))
        elif args.what == "sampling":
            report.append(sampling(args.home, base, args.four_bit))
        elif args.what == "steps":
            report.append(steps(args.home, base, f"steps-{number}", args.adapter, args.set))
        else:
            report.append({"model": base, **memory(args.home, base, args.adapter, args.only)})
        print(json.dumps(report[-1], indent=1), flush=True)
        if args.out:
            atomic_write(args.out, (json.dumps(report, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
