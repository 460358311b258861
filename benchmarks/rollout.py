"""How fast answers are sampled, against `model.generate` doing the same work in the same run.

    python benchmarks/rollout.py --out rollout.json                     # the embedded model on a CPU
    python benchmarks/rollout.py --arch qwen2.5-1.5b --out rollout.json # that shape with random weights, on a GPU
    python benchmarks/rollout.py --arch qwen2.5-1.5b --four-bit         # the same with its base in 4 bits (bitsandbytes)

Same model, prompts, group size and lengths; nothing ends early. `generate` gets plain sampling (no top-k, no top-p). Reported are
tokens per second (by the wall and, on a CPU, by processor time), the ratio, the peak memory of the GPU, and how near a step comes
to the time that reading the weights once would take.

With `--uneven` also four times as many answers as are sampled at once, which end by chance after about a third of the longest:
in one call, where on a GPU new rows enter as others end, and in one call for each batch, where a long answer holds its batch.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen2Config

from medloop.models.load import load_base
from medloop.models.rollout.sampler import Sampler

TINY = Path(__file__).parent.parent / "src/medloop/assets/tiny"


def policy(arch: str, device: torch.device, *, four_bit: bool) -> Any:
    """A model with a fresh LoRA adapter of rank 16 that is not zero."""
    torch.manual_seed(0)
    if arch == "tiny":
        model = load_base(TINY, device, torch.bfloat16 if device.type == "cuda" else torch.float32, four_bit)
    else:
        shape = Qwen2Config(
            vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
            num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
        )  # fmt: skip
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
        if four_bit:  # from a file: so it is loaded in 4 bits
            with tempfile.TemporaryDirectory() as name:
                model.save_pretrained(name)
                model = load_base(Path(name), device, torch.bfloat16, True)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)
    return model.to(device).eval()


def timed(work: Any, device: torch.device) -> tuple[float, float, int]:
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return time.perf_counter() - wall, time.process_time() - cpu, peak


def measure(name: str, work: Any, tokens: int, device: torch.device, repeats: int) -> dict[str, Any]:
    work()
    runs = [timed(work, device) for _ in range(repeats)]
    wall, cpu = min(run[0] for run in runs), min(run[1] for run in runs)
    speeds = {"seconds": round(wall, 3), "tokens_per_s": round(tokens / wall), "tokens_per_cpu_s": round(tokens / cpu)}
    print(name, speeds, flush=True)
    return {**speeds, "peak_gb": round(max(run[2] for run in runs) / 1e9, 2)}


def uneven(model: Any, args: argparse.Namespace, new: int, device: torch.device) -> dict[str, Any]:
    """Answers in one call and in one call a batch; the same tokens."""
    size = model.get_base_model().get_input_embeddings().num_embeddings
    sampler = Sampler(model, stop_ids=range(300, size, new // 3), pad_id=0)
    groups = torch.randint(
        300, size - 300, (4 * args.rows // args.group, args.prompt), generator=torch.Generator().manual_seed(2)
    )
    prompts = sorted(groups.repeat_interleave(args.group, 0).tolist())
    streams = [f"uneven {n}" for n in range(len(prompts))]
    options = {"max_new_tokens": new, "batch_size": args.rows}
    lengths = [len(row.tokens) for row in sampler(prompts, streams, **options)]

    def in_batches() -> None:
        for start in range(0, len(prompts), args.rows):
            sampler(prompts[start : start + args.rows], streams[start : start + args.rows], **options)

    tokens = sum(lengths)
    batches = measure("in batches", in_batches, tokens, device, args.repeats)
    at_once = measure("one call", lambda: sampler(prompts, streams, **options), tokens, device, args.repeats)
    by = "tokens_per_s" if device.type == "cuda" else "tokens_per_cpu_s"
    return {
        "answers": len(prompts), "mean_length": round(tokens / len(prompts), 1), "in_batches": batches, "one_call": at_once,
        "times_batches": round(at_once[by] / batches[by], 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=["tiny", "qwen2.5-1.5b"], default="tiny")
    parser.add_argument("--four-bit", action="store_true", help="The base in 4 bits.")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--group", type=int, default=8, help="Samples per prompt.")
    parser.add_argument("--prompt", type=int, default=128, help="Tokens of a prompt.")
    parser.add_argument("--new", type=int, default=0, help="Tokens of an answer (default: 128 on a CPU, 256 on a GPU).")
    parser.add_argument("--uneven", action="store_true", help="Also answers of uneven lengths, more than are sampled at once.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file for the numbers.")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    new = args.new or (256 if device.type == "cuda" else 128)
    model = policy(args.arch, device, four_bit=args.four_bit)
    size = model.get_base_model().get_input_embeddings().num_embeddings
    distinct = torch.randint(300, size - 300, (args.rows // args.group, args.prompt), generator=torch.Generator().manual_seed(1))
    ids = distinct.repeat_interleave(args.group, 0).to(device)
    prompts, streams = ids.tolist(), [f"row {n}" for n in range(args.rows)]
    model.generation_config.eos_token_id = None

    @torch.inference_mode()
    def generate() -> None:
        model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=True, top_k=0,
            top_p=1.0, temperature=1.0, pad_token_id=0,
        )  # fmt: skip

    tokens = args.rows * new
    report: dict[str, Any] = {"arch": args.arch, "rows": args.rows, "group": args.group, "prompt": args.prompt, "new": new}
    report["four_bit"] = args.four_bit
    report["device"] = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    report["generate"] = measure("generate", generate, tokens, device, args.repeats)
    library = Sampler(model, stop_ids=[], pad_id=0, library=True)
    ours = Sampler(model, stop_ids=[], pad_id=0)
    for sampler in (library, ours):
        name = sampler.backend
        report[name] = measure(
            name, lambda s=sampler: s(prompts, streams, max_new_tokens=new, batch_size=args.rows), tokens, device, args.repeats
        )
    by = "tokens_per_s" if device.type == "cuda" else "tokens_per_cpu_s"
    report["times_generate"] = round(report[ours.backend][by] / report["generate"][by], 2)
    first, second = (s(prompts[:4], streams[:4], max_new_tokens=16) for s in (library, ours))
    same = [(x.logprobs[0], y.logprobs[0]) for x, y in zip(first, second, strict=True) if x.tokens[0] == y.tokens[0]]
    report["first_token_drift"] = max((abs(a - b) for a, b in same), default=None)
    if device.type == "cuda":
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        report["weight_reading_limit_tokens_per_s"] = round(args.rows / (weights / 4.8e12))  # an H200 reads 4.8 TB/s
    if args.uneven:
        report["uneven"] = uneven(model, args, new, device)
    print(json.dumps(report, indent=2))
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
