"""How good a reward model gets, beside baselines that understand nothing, on the same held-out pairs.

    python benchmarks/reward_model.py --out reward_model.json                                  # made-up pairs, embedded:tiny
    python benchmarks/reward_model.py --out reward_model.json --pairs hh_harmless.jsonl.gz     # and people's, embedded:minilm

    made up   pairs of the embedded corpus, `embedded:tiny`, all weights; wanted: 90 % right, and length no help
    people    a file of human preferences (JSONL, gzip or not), `embedded:minilm`, all weights, at most 256 tokens; wanted: a 95 %
              interval that excludes 50 %. Lines that are no pair (an empty turn in the prompt) are left out and counted

Prompts of held-out pairs are never trained on. `met` says whether it held here. Takes 10 to 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from medloop.embedded.pairs import generate_pairs
from medloop.loop.train import STAGES, run_stage
from medloop.loop.workspace import init_workspace
from medloop.models.classify import open_classifier
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.examples.encode_preferences import encode_reward_pairs
from medloop.train.examples.pairs import InvalidPreference, parse_pair, read_pairs, split_by_prompt
from medloop.train.reward_model import RewardModelConfig

WANTED = 0.90
SHOWN = ("train", "test", "test_questions", "baselines", "ahead_of", "calibration", "length")


def train(settings: Settings, config: RewardModelConfig) -> dict[str, Any]:
    """Train and read the report."""
    began, spent = time.monotonic(), time.process_time()
    result = run_stage(STAGES["REWARD"], config, settings)
    plan, card = result.plan, result.card
    report = json.loads((result.run.target / "report.json").read_text(encoding="utf-8"))
    return {
        "base": config.model,
        "train_pairs": len(plan.train.items),
        "left_out": {"train": plan.train.left_out(), "test": plan.test.left_out()},
        "contradictions": plan.contradictions,
        "steps": plan.steps,
        "learning_rate": card.metrics["learning_rate"],
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
    model, _ = open_classifier(settings.workspace.models / "reward" / config.name, settings)
    held_out = split_by_prompt(read_pairs(settings.workspace.preferences / "preferences.jsonl"), config.test_share, config.seed)[
        1
    ]
    test = encode_reward_pairs(model.tokenizer, held_out, max_length=config.max_length)
    right: defaultdict[str, list[bool]] = defaultdict(list)
    logits = [model.logits(test.table[column]) for column in ("chosen_ids", "rejected_ids")]
    for pair, chosen, rejected in zip(test.items, *logits, strict=True):
        right[kinds[pair.prompt[-1].content, pair.chosen]].append(chosen > rejected)
    return {kind: {"pairs": len(hits), "accuracy": sum(hits) / len(hits)} for kind, hits in sorted(right.items())}


def people(settings: Settings, source: Path, epochs: float) -> dict[str, Any]:
    path = settings.home / "people.jsonl"
    left_out = _usable(source, path)
    config = RewardModelConfig(
        name="people", model="embedded:minilm", full=True, data=str(path), test_share=0.35, max_length=256, epochs=epochs
    )
    report = train(settings, config)
    return report | {"file": source.name, "lines_left_out": left_out, "met": report["test"]["low"] > 0.5}


def _usable(source: Path, target: Path) -> int:
    """Copy the lines that are pairs; returns how many are not."""
    opened = gzip.open(source, "rt", encoding="utf-8") if source.suffix == ".gz" else source.open(encoding="utf-8")
    usable, left_out = [], 0
    with opened as file:
        for line in file:
            try:
                parse_pair(json.loads(line))
                usable.append(json.loads(line))
            except InvalidPreference:
                left_out += 1
    jsonl.write(target, usable)
    return left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    parser.add_argument("--pairs", type=Path, help="file of human preferences; without it only the made-up pairs are tried")
    parser.add_argument("--count", type=int, default=2000, help="made-up pairs; 0 leaves them out")
    parser.add_argument("--epochs", type=float, default=1.0, help="passes over the human preferences")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="medloop-bench-") as place:
        home = Path(place) / "bench"
        init_workspace(home)
        settings = Settings(home=home, offline=True)
        report: dict[str, Any] = {"machine": platform.platform(), "python": platform.python_version()}
        if args.pairs is not None:
            report["people"] = people(settings, args.pairs, args.epochs)
            args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if args.count:
            report["made_up"] = made_up(settings, args.count)
    args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
