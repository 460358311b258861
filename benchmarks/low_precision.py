"""Sampling on a CPU with products in float32, bfloat16 and int8: what it gains, and how far the sampler is from the policy.

    python benchmarks/low_precision.py --model embedded:smollm2 --rows 64 --new 64 --out low.json
    python benchmarks/low_precision.py --model embedded:tiny --threads 2

Answers to generated questions in groups of 8, with a small random adapter; nothing ends early. `float32` and `bfloat16` are the
built-in sampler (`rollout_dtype`). `int8` is here only, because it was measured and not built: weights in int8 with a scale for
each output, inputs quantised row by row as they come, products by `torch._int_mm`, the output layer in bfloat16 (`int8 all`: in
int8 too).

Told are tokens per processor second (the best of `--repeats`), the mean distance of the sampler's log-probability of a token from
the policy's own, the share of tokens with an importance weight above 2, the effective share of tokens after weighing (ESS), and
the standard deviation of the log-weight of a whole answer. `refused` says where it is farther from float32 than 1.25 times the
library in bfloat16, by the check that every sampler has to pass.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import Message, ModelRef
from medloop.embedded.corpus import generate
from medloop.models.rollout.agreement import check_agreement
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import FusedLinear, UnsupportedModelError
from medloop.models.rollout.sampler import Sampler
from medloop.models.template import encode_prompt
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write
from medloop.train.rl.policy import Policy, open_policy

KINDS = ("float32", "bfloat16", "int8", "int8 all")
GROUP = 8


class Int8Linear(FusedLinear):
    """A fused matrix with its adapter merged, in int8."""

    def quantise(self) -> Int8Linear:
        assert isinstance(self.stored, Tensor)
        self.scales = self.stored.abs().amax(1) / 127
        self.quantised = (self.stored / self.scales[:, None]).round().to(torch.int8).T
        self.stored = self.stored[:0]
        return self

    def with_lora_inputs(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        scales = flat.abs().amax(1, keepdim=True).clamp_(min=1e-9) / 127
        y = torch._int_mm((flat / scales).round_().to(torch.int8), self.quantised).float().mul_(scales).mul_(self.scales)
        return (y if self.bias is None else y + self.bias).view(*x.shape[:-1], -1)


def int8_sampler(policy: Policy, *, head: bool) -> Sampler:
    decoder = build_fast_decoder(policy.model)
    for layer in decoder.layers:
        for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"):
            plain = getattr(layer, name)
            setattr(layer, name, Int8Linear(plain.layers, plain.stored, plain.bias, plain.sizes, plain.ranks).quantise())
    if head:
        last = Int8Linear([], decoder.lm_head, None, (len(decoder.lm_head),), (0,)).quantise()
        decoder.logits = last.with_lora_inputs  # type: ignore[method-assign]
    else:
        decoder.lm_head = decoder.lm_head.bfloat16()
    return Sampler(policy.model, stop_ids=[], pad_id=0, decoder=decoder)


def sampler_of(policy: Policy, kind: str) -> Sampler:
    if kind.startswith("int8"):
        return int8_sampler(policy, head=kind == "int8 all")
    return Sampler(policy.model, stop_ids=[], pad_id=0, products=torch.bfloat16 if kind == "bfloat16" else None)


def measure(policy: Policy, kind: str, prompts: list[list[int]], new: int, repeats: int) -> dict[str, Any]:
    sampler, seconds = sampler_of(policy, kind), []
    for _ in range(repeats):
        began = time.process_time()
        drawn = sampler(prompts, [f"row {n}" for n in range(len(prompts))], max_new_tokens=new, batch_size=len(prompts))
        seconds.append(time.process_time() - began)
    own = []
    with torch.no_grad():
        for first in range(0, len(drawn), 16):
            own.append(policy.forward(policy.collate(drawn[first : first + 16]), temperature=1.0).logprobs)
    log_weights = torch.cat(own) - torch.tensor([row.logprobs for row in drawn])
    weights, refused = log_weights.exp(), None
    try:
        check_agreement(sampler.fast_decoder, policy.model, autocast=True)  # type: ignore[arg-type]
    except UnsupportedModelError as error:
        refused = str(error)
    return {
        "backend": sampler.backend, "tokens_per_cpu_s": round(len(prompts) * new / min(seconds)),
        "drift": round(float(log_weights.abs().mean()), 4), "weight_above_2": round(float((weights > 2).float().mean()), 4),
        "ess": round(float(weights.sum() ** 2 / weights.square().sum() / weights.numel()), 4),
        "answer_log_weight_std": round(float(log_weights.sum(1).std()), 3), "refused": refused,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:smollm2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--new", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    settings = Settings(home=Path(), model=args.model, offline=True, threads=args.threads, device="cpu")
    policy = open_policy(ModelRef(base=args.model), settings)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.01)
    prompts: list[list[int]] = []
    for row in generate(500, seed=1, language="en"):
        question = row.get("conversation", row)["messages"][0]["content"][:200]
        prompts += [list(encode_prompt(policy.loaded.tokenizer, [Message(role="user", content=question)]))] * GROUP
        if len(prompts) >= args.rows:
            break
    report: dict[str, Any] = {"model": args.model, "threads": args.threads, "rows": args.rows, "new": args.new}
    for kind in args.only:
        report[kind] = measure(policy, kind, prompts[: args.rows], args.new, args.repeats)
        print(kind, report[kind], flush=True)
    if args.out:
        atomic_write(args.out, (json.dumps(report, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
