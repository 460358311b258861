"""GRPO with a slow teacher, with and without `overlap`: seconds a step.

    OMP_NUM_THREADS=1 python benchmarks/overlap.py --latency 0.05 --out overlap.json

The teacher is a double that takes `--latency` seconds for each answer, one after the other, and uses no processor, as one behind
a network does. Both runs have the same seed and questions; they take turns, `--rounds` times, and the result is the median of all
steps but the first two, in wall time. `reward` is the mean of the last five steps: what one step off-policy costs shows there.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from medloop.contracts import Reward, Sample
from medloop.settings import Settings
from medloop.testing.fakes import FakeScorer
from medloop.train import grpo
from medloop.train.rl.plan import make_plan
from medloop.train.runs.find_run import find_run

WORDS = "patient has chest pain fever rest drink water call doctor today dose tablets mild severe since night child".split()


class SlowScorer(FakeScorer):
    """The share of vowels, after a while."""

    def __init__(self, latency: float) -> None:
        super().__init__(
            lambda sample: sum(letter in "aeiou" for letter in sample.answer or "") / max(len(sample.answer or ""), 1)
        )
        self.latency = latency

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        time.sleep(self.latency * len(samples))
        return super().score(samples)


def write_questions(path: Path, count: int) -> None:
    draw = random.Random(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"messages": [{"role": "user", "content": f"{n} {' '.join(draw.choices(WORDS, k=20))}?"}]} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def run(args: argparse.Namespace, settings: Settings, name: str, *, overlap: bool) -> dict[str, Any]:
    config = grpo.GRPOConfig(
        model=args.model, name=name, steps=args.steps, prompts_per_step=args.rows // 4, samples=4, max_new_tokens=args.tokens,
        held_out_n=0, prompts="questions.jsonl", overlap=overlap, save_every=args.steps, learning_rate=2e-3, beta=0.0,
    )  # fmt: skip
    scorer = SlowScorer(args.latency)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    grpo.run(plan, settings)
    lines = [json.loads(line) for line in plan.run.metrics.read_text(encoding="utf-8").splitlines()]
    ends = [datetime.fromisoformat(row["ts"]).timestamp() for row in lines if row["phase"] == "TRAINING"]
    rewards = [row["avg_reward"] for row in lines if row["phase"] == "METRICS"]
    drift = [row["extra"]["drift"] for row in lines if row["phase"] == "TRAINING"]
    steps = [later - earlier for earlier, later in pairwise(ends[1:])]
    return {"steps": steps, "reward": mean(rewards[-5:]), "drift": mean(drift[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder), model=args.model, device=args.device, offline=True)
        write_questions(settings.home / "questions.jsonl", 64)
        for number in range(args.rounds):
            for way in runs:
                runs[way].append(run(args, settings, f"{way}{number}", overlap=way == "with"))
    result: dict[str, Any] = {name: getattr(args, name) for name in ("model", "latency", "rows", "tokens", "steps", "rounds")}
    for way, made in runs.items():
        step = median(second for one in made for second in one["steps"])
        result[way] = {"step_s": round(step, 3), "reward": made[0]["reward"], "drift": made[0]["drift"]}
    result["scoring_s"] = args.latency * args.rows
    result["times_faster"] = round(result["without"]["step_s"] / result["with"]["step_s"], 2)
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
