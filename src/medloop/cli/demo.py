"""`medloop demo`: the whole path in one command, made of the commands a user would type."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import common

# (what it is for, the command). Each can be repeated: finished work is recognised and kept.
STEPS = (
    (
        "Make up a clinic's own log of questions and answers, good and bad mixed",
        "embedded corpus --output clinic.jsonl --rows 4500",
    ),
    (
        "Import it as it is, with its licence and hash",
        "data import clinic.jsonl --name clinic --licence Apache-2.0",
    ),
    (
        "Clean, de-duplicate, split without leaks, set gold and red-team cases aside",
        "data prepare",
    ),
    (
        "Draw prompts for RL, at least 40 % of them high-risk",
        "data prompts",
    ),
    (
        "Teach the embedded model with LoRA",
        "train sft --name sft --lora-r 8",
    ),
    (
        "Let it learn from the rules' rewards: sample answers, keep the best, fine-tune on them, twice",
        "train irs --adapter sft --name rl --n-iterations 2 --n-questions 64 --set held_out_n=96",
    ),
    (
        "Compare before, after SFT and after RL on questions that none has seen",
        "eval --model embedded:tiny --model embedded:tiny+models/lora/sft --model embedded:tiny+models/rl/rl"
        " --split gold --split red --name demo",
    ),
    (
        "Check that the audit log is whole",
        "audit verify",
    ),
)


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Workspace to make for it.")] = Path("demo"),
) -> None:
    """Run the loop on embedded defaults: no key, no GPU, no network. Shows every command it runs.

    Example:  medloop demo
    """
    began = time.monotonic()
    _run(f"init {shlex.quote(str(folder))}", Path.cwd(), "Lay out a workspace")
    for about, command in STEPS:
        _run(command, folder, about)
    common.say(f"\nDone in {time.monotonic() - began:.0f} s. Where to look, in {common.shown(folder.absolute())}:")
    for path, what in (
        ("data/processed/DATA_CARD.md", "what the data is, what was dropped and why"),
        ("models/lora/sft/README.md", "the adapter: inputs by hash, settings, losses"),
        ("models/rl/rl/report.html", "what RL did: held-out reward with its interval, KL, curves, alarms"),
        ("reports/eval/demo/eval_report.md", "base, SFT and RL side by side, with intervals and the worst answers"),
    ):
        common.say(f"  {path:36} {what}")


def _run(command: str, cwd: Path, about: str) -> None:
    """One step in its own process, exactly as a user would run it; a failure stops the demo with its exit code.

    Settings in the environment stay out: MEDLOOP_HOME would send the demo into somebody's real workspace.
    """
    common.say(f"\n# {about}\n$ medloop {command}")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MEDLOOP_")}
    done = subprocess.run([sys.executable, "-m", "medloop", *shlex.split(command)], cwd=cwd, env=environ, check=False)
    if done.returncode:
        raise typer.Exit(done.returncode)
