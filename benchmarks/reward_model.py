"""How good a reward model gets on real pairs, beside baselines that understand nothing, and whether PPO gains by it.

python benchmarks/reward_model.py --out reward_model.json --data FOLDER          # real pairs and PPO, some minutes
python benchmarks/reward_model.py --out reward_model.json                        # made-up pairs, embedded:tiny

real      the sets of FOLDER (_pair_sets.py), each split by question into three folds; every pair is held out once. The heads
          without a base, the bag of words, the longer and the shorter answer, and, on some of the pairs (--base-pairs), the
          fine-tuned embedded:tiny alone, as before there were heads. Intervals: bootstrap over questions
cross     heads trained on all sets, measured on sets that are never trained on
ppo       pairs -> reward model -> PPO, judged by a reward model of the other half of the pairs (_document_002.py)
made_up   pairs of the embedded corpus, `embedded:tiny`, all weights and heads; the aim is 90 % right, and length no help
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _document_002 import document_002
from _pair_sets import MEASURED, TRAINED, read_sets

from medloop.bootstrap import Numbers
from medloop.embedded.pairs import generate_pairs
from medloop.loop.train import STAGES, run_stage
from medloop.loop.workspace import init_workspace
from medloop.models.heads import HeadWeights, Judged, combine
from medloop.models.preference_model import open_preference_model
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.configs.reward_model_config import RewardModelConfig
from medloop.train.examples.hard_negatives import hard_negatives
from medloop.train.examples.pairs import Pair, read_pairs, split_by_prompt
from medloop.train.heads import HeadSettings, fit_heads, tabulate
from medloop.train.reports.bag_of_words import bag_of_words
from medloop.train.reports.pair_metrics import equally_long, question_mean

FOLDS = 3
WANTED = 0.90
SHOWN = (
    "train",
    "test",
    "test_questions",
    "baselines",
    "ahead_of",
    "parts",
    "length_matched",
    "uncertainty",
    "calibration",
    "length",
)


def train(settings: Settings, config: RewardModelConfig) -> dict[str, Any]:
    """Train and read the report."""
    began, spent = time.monotonic(), time.process_time()
    result = run_stage(STAGES["REWARD"], config, settings)
    plan, card = result.plan, result.card
    report = json.loads((result.run.target / "report.json").read_text(encoding="utf-8"))
    return {
        "base": config.model,
        "train_pairs": len(plan.train.items),
        "left_out": {name: pairs.left_out(config.max_length) for name, pairs in (("train", plan.train), ("test", plan.test))},
        "contradictions": plan.contradictions,
        "steps": plan.steps,
        "learning_rate": card.metrics.get("learning_rate"),
        "seconds": round(time.monotonic() - began),
        "processor_seconds": round(time.process_time() - spent),
        **{key: report[key] for key in SHOWN},
    }


def made_up(settings: Settings, count: int) -> dict[str, Any]:
    path = settings.workspace.preferences / "preferences.jsonl"
    rows = list(generate_pairs(count, seed=1))
    jsonl.write(path, rows)
    config = RewardModelConfig(name="made-up", model="embedded:tiny", full=True, test_share=0.25, epochs=2)
    report = train(settings, config)
    return report | {"by_kind": by_kind(settings, config, rows), "met": report["test"]["value"] >= WANTED}


def by_kind(settings: Settings, config: RewardModelConfig, rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Held-out accuracy for each kind of pair, by the published model opened again."""
    kinds = {(row["prompt"], row["chosen"]): row["metadata"]["kind"] for row in rows}
    model, _ = open_preference_model(settings.workspace.models / "reward" / config.name, settings)
    pairs = read_pairs(settings.workspace.preferences / "preferences.jsonl")
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for pair in split_by_prompt(pairs, config.test_share, config.seed)[1]:
        chosen, rejected = model.judge_all([(pair.prompt, pair.chosen), (pair.prompt, pair.rejected)]).lowered
        right[kinds[pair.prompt[-1].content, pair.chosen]].append(bool(chosen > rejected))
    return {kind: {"pairs": len(hits), "accuracy": sum(hits) / len(hits)} for kind, hits in sorted(right.items())}


def real(folder: Path, names: list[str], seed: int, base_pairs: int) -> dict[str, Any]:
    sets, absent = read_sets(folder, {name: TRAINED[name] for name in names})
    report: dict[str, Any] = {"absent": absent, "sets": {}}
    everything: list[HeldOutMargins] = []
    for name, pairs in sets.items():
        began = time.process_time()
        margins = cross_validate(pairs, seed)
        report["sets"][name] = margins.table(seed) | {"processor_seconds": round(time.process_time() - began)}
        everything.append(margins)
        print(name, json.dumps({key: report["sets"][name][key] for key in ("accuracy", "lead", "by_spread")}), flush=True)
    if everything:
        report["all"] = HeldOutMargins.joined(everything).table(seed)
    if base_pairs and sets:
        report["fine_tuned_base"] = base_alone(sets, base_pairs, seed)
    return report


@dataclass(frozen=True)
class HeldOutMargins:
    """Margins of held-out pairs by everyone who chooses; `spread` is that of the heads."""

    pairs: list[Pair]
    margins: dict[str, Numbers]
    spread: Numbers

    @classmethod
    def joined(cls, parts: list[HeldOutMargins]) -> HeldOutMargins:
        margins = {name: np.concatenate([part.margins[name] for part in parts]) for name in parts[0].margins}
        return cls([pair for part in parts for pair in part.pairs], margins, np.concatenate([part.spread for part in parts]))

    def table(self, seed: int) -> dict[str, Any]:
        questions = [pair.first_question for pair in self.pairs]
        right = {name: (margins > 0) + 0.5 * (margins == 0) for name, margins in self.margins.items()}
        lengths = [np.array([len(getattr(pair, side)) for pair in self.pairs], float) for side in ("chosen", "rejected")]
        close = np.flatnonzero(equally_long(*lengths))
        thirds = np.array_split(np.argsort(self.spread, kind="stable"), 3)
        rivals = [name for name in right if name not in ("heads", "heads, no caution")]
        return {
            "pairs": len(questions), "questions": len(set(questions)),
            "accuracy": {name: question_mean(values, questions, seed) for name, values in right.items()},
            "lead": {name: question_mean(right["heads"] - right[name], questions, seed) for name in rivals},
            "equal_length": {
                name: question_mean(values[close], [questions[n] for n in close], seed) for name, values in right.items()
            } if len(close) else {},
            "by_spread": [float(right["heads, no caution"][rows].mean()) for rows in thirds],
        }  # fmt: skip


def cross_validate(pairs: list[Pair], seed: int) -> HeldOutMargins:
    """Folds by question; nobody who chooses has seen the question."""
    folds = [zlib.crc32(f"{seed}:{pair.first_question}".encode()) % FOLDS for pair in pairs]
    parts = []
    for fold in range(FOLDS):
        train, test = ([pair for pair, n in zip(pairs, folds, strict=True) if (n == fold) == held] for held in (False, True))
        if not train or not test:
            continue
        judged = judge_heads(train, test, seed)
        longer = np.array([len(pair.chosen) - len(pair.rejected) for pair in test], float)
        margins = {
            "heads": judged.lowered[0::2] - judged.lowered[1::2], "heads, no caution": judged.mean[0::2] - judged.mean[1::2],
            "bag of words": bag_of_words(train, test, seed), "longer": longer, "shorter": -longer,
        }  # fmt: skip
        parts.append(HeldOutMargins(test, margins, np.hypot(judged.spread[0::2], judged.spread[1::2])))
    return HeldOutMargins.joined(parts)


def judge_heads(train: list[Pair], test: list[Pair], seed: int) -> Judged:
    """Heads as `medloop train reward --encoder none` trains them, on the test pairs."""
    config = RewardModelConfig()
    negatives = [pair for _, pair in hard_negatives(train, config.hard_negatives, seed)]
    fitted = fit_heads(train, negatives, HeadSettings(config.ensemble, seed))
    table, own = tabulate(test), tabulate(train[:400])
    unit = max(float(fitted.head_weight * fitted.heads.members(own.rows).mean(1).std()), 1e-6)
    weights = HeadWeights(head_weight=fitted.head_weight, caution=config.caution, unit=unit)
    return combine(weights, members=fitted.heads.members(table.rows), distances=fitted.heads.distances(table.rows))


def cross(folder: Path, seed: int) -> dict[str, Any]:
    """Trained on the sets that may be trained on, measured on the others."""
    trained, measured = read_sets(folder, TRAINED)[0], read_sets(folder, MEASURED)[0]
    train = [pair for pairs in trained.values() for pair in pairs]
    tests = [pair for pairs in measured.values() for pair in pairs]
    if not train or not tests:
        return {}
    judged = judge_heads(train, tests, seed)
    longer = np.array([len(pair.chosen) - len(pair.rejected) for pair in tests], float)
    margins = {"heads": judged.lowered[0::2] - judged.lowered[1::2], "heads, no caution": judged.mean[0::2] - judged.mean[1::2]}
    margins |= {"longer": longer, "shorter": -longer}
    spread, start, report = np.hypot(judged.spread[0::2], judged.spread[1::2]), 0, {}
    for name, test in measured.items():
        rows = slice(start, start := start + len(test))
        part = HeldOutMargins(test, {who: values[rows] for who, values in margins.items()}, spread[rows])
        report[name] = part.table(seed)
    return report


def base_alone(sets: dict[str, list[Pair]], count: int, seed: int) -> dict[str, Any]:
    """The fine-tuned base without heads, the heads, and both, trained and tested on the same `count` pairs of all sets."""
    pairs = [pair for part in sets.values() for pair in part]
    pairs = [pairs[n] for n in sorted(random.Random(seed).sample(range(len(pairs)), min(count, len(pairs))))]
    report: dict[str, Any] = {}
    for name, more in {"base alone": {"ensemble": 0}, "heads alone": {"encoder": "none"}, "both": {}}.items():
        with workspace() as settings:
            rows = [{"prompt": [m.model_dump() for m in p.prompt], "chosen": p.chosen, "rejected": p.rejected} for p in pairs]
            jsonl.write(settings.home / "pairs.jsonl", rows)
            config = RewardModelConfig(name="some", data="pairs.jsonl", test_share=0.4, max_length=256, seed=seed, **more)
            report[name] = train(settings, config)
            print(name, json.dumps(report[name]["test"]), flush=True)
    return report


@contextmanager
def workspace() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory(prefix="medloop-bench-") as place:
        init_workspace(Path(place) / "bench")
        yield Settings(home=Path(place) / "bench", offline=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    parser.add_argument("--data", type=Path, help="folder with sets of pairs; without it only the made-up pairs are tried")
    parser.add_argument("--parts", nargs="*", default=["real", "cross", "ppo"], choices=["real", "cross", "ppo"])
    parser.add_argument("--sets", nargs="*", default=list(TRAINED), choices=list(TRAINED), help="real pairs (default: all sets)")
    parser.add_argument("--count", type=int, help="made-up pairs (default: 2000 without --data, else none)")
    parser.add_argument("--base-pairs", type=int, default=0, help="real pairs for the fine-tuned base; minutes")
    parser.add_argument("--ppo-steps", type=int, default=16)
    parser.add_argument("--ppo-set", default="pref_en_hh_harmless", help="the set whose pairs lead to PPO")
    parser.add_argument("--length-free", action="store_true", help="both reward models of PPO without what length explains")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    report: dict[str, Any] = {"machine": platform.platform(), "python": platform.python_version()}
    if args.data is not None:
        for part in args.parts:
            report[part] = measure(part, args)
            args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if count := args.count if args.count is not None else 0 if args.data else 2000:
        with workspace() as settings:
            report["made_up"] = made_up(settings, count)
    args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))


def measure(part: str, args: argparse.Namespace) -> dict[str, Any]:
    if part == "real":
        return real(args.data, args.sets, args.seed, args.base_pairs)
    if part == "cross":
        return cross(args.data, args.seed)
    pairs = read_sets(args.data, {args.ppo_set: TRAINED[args.ppo_set]})[0].get(args.ppo_set)
    if not pairs:
        return {"absent": [args.ppo_set]}
    with workspace() as settings:
        return document_002(settings, pairs, steps=args.ppo_steps, seed=args.seed, length_free=args.length_free)


if __name__ == "__main__":
    main()
