"""Whether PPO holds its target KL at the default learning rate and at multiples of it: embedded model, default mix.

    python benchmarks/ppo_kl.py --out ppo_kl.json                                      # 3 rates x 3 seeds, 15 steps each
    python benchmarks/ppo_kl.py --workspace demo --adapter sft --out ppo_kl.json       # from an adapter, on prepared data
    python benchmarks/ppo_kl.py --set prompts_per_step=16 --set samples=8              # PPO's own batch, four times the work

Each run is `medloop train ppo` with --target-kl, in a process of its own, one after the other. A step has 32 answers. Without a
workspace the questions are those of the embedded corpus, and the policy starts from the embedded model. A run `holds` its target
if, from step 5 on, the KL of every step is at most twice the target, or if it ended cleanly beyond `abort_kl` (`stopped`). Beside
it, per step: beta, the share of the update that was kept, the critic's explained variance and loss; and the held-out gain.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from medloop.embedded.corpus import generate
from medloop.store.files import jsonl

RATE = 7e-4  # PPO's default for a model of this size
FIRST = 5  # from this step on, the KL must be near its target
NEAR = 2.0


def make_workspace(home: Path) -> dict[str, str]:
    """Questions to train on and to hold out; the settings that name them."""
    files = {}
    for name, count, seed in (("prompts", 400, 1), ("held_out", 64, 2)):
        rows = [{"id": f"{name}{n}", "messages": row["messages"][:-1]} for n, row in enumerate(generate(count, seed=seed))]
        files[name] = str(home / f"{name}.jsonl")
        jsonl.write(Path(files[name]), rows)
    return files


def train(home: Path, files: dict[str, str], scale: float, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One run by the command line, and what its metrics say."""
    name = f"kl-x{scale:g}-s{seed}"
    pairs = {**files, "eval_every": args.steps, "held_out_n": args.held_out, "learning_rate": RATE * scale}
    pairs |= {"prompts_per_step": 8, "samples": 4}
    pairs |= dict(pair.split("=", 1) for pair in args.set)
    words = ["--home", str(home), "train", "ppo", "--name", name, "--steps", str(args.steps), "--seed", str(seed), "--replace"]
    words += ["--target-kl", str(args.target), *(["--adapter", args.adapter] if args.adapter else [])]
    words += [word for key, value in pairs.items() for word in ("--set", f"{key}={value}")]
    began = time.monotonic()
    program = "import sys; from medloop.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, env=os.environ, check=False)
    rows = jsonl.read(home / f"jobs/train_ppo-{name}/metrics.jsonl")
    steps = [row["extra"] for row in rows if row["phase"] == "TRAINING" and "kl" in (row.get("extra") or {})]
    card_file = home / f"models/rl/{name}/card.json"
    if not card_file.is_file():
        raise SystemExit(f"{name} failed with {done.returncode}: {done.stderr[-800:]}")
    card = json.loads(card_file.read_text(encoding="utf-8"))
    kl = [round(step["kl"], 4) for step in steps]
    return {
        "rate": RATE * scale, "scale": scale, "seed": seed, "exit": done.returncode, "stopped": card["stopped"],
        "seconds": round(time.monotonic() - began, 1), "kl": kl, "beta": [round(step["beta"], 5) for step in steps],
        "update_share": [step.get("update_share") for step in steps],
        "explained_variance": [round(step.get("explained_variance", 0.0), 4) for step in steps],
        "value_loss": [round(step.get("value_loss", 0.0), 4) for step in steps],
        "highest_from_step_5": max(kl[FIRST - 1 :], default=None),
        "holds": card["stopped"] is not None or max(kl[FIRST - 1 :], default=0.0) <= NEAR * args.target,
        "held_out_gain": [card["metrics"].get(f"held_out_gain{end}") for end in ("", "_low", "_high")],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workspace", type=Path, help="a workspace with prepared data (default: the embedded corpus)")
    parser.add_argument("--adapter", help="adapter to start from, in that workspace")
    parser.add_argument("--target", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--held-out", type=int, default=32)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="three of them take about half an hour on two cores")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    report: dict[str, Any] = {
        "target": args.target,
        "steps": args.steps,
        "adapter": args.adapter,
        "settings": args.set,
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        home = args.workspace or Path(folder)
        files = {} if args.workspace else make_workspace(home)
        for seed in args.seeds:
            for scale in args.scales:
                run = train(home.resolve(), files, scale, seed, args)
                report["runs"].append(run)
                print(json.dumps({key: run[key] for key in ("scale", "seed", "holds", "stopped", "kl", "seconds")}), flush=True)
                report["met"] = all(entry["holds"] for entry in report["runs"])
                if args.out:
                    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(entry['holds'] for entry in report['runs'])} of {len(report['runs'])} runs hold their target")


if __name__ == "__main__":
    main()
