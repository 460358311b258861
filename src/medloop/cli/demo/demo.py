"""`medloop demo`: the whole path in one command, made of the commands a user would type."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.demo import clinicians

# (what it is for, the command or the function). Each can be repeated: finished work is recognised and kept.
STEPS: tuple[tuple[str, str | Callable[[Path], None]], ...] = (
    (
        "Make up a clinic's own log of questions and answers, good and bad mixed",
        "embedded corpus --output clinic.jsonl --rows 4500",
    ),
    (
        "Import it as it is, with its licence and hash",
        "data import clinic.jsonl --name clinic --licence Apache-2.0",
    ),
    (
        "Clean, de-duplicate, split without leaks, set gold and red-team cases aside (made-up people need no scrubbing)",
        "data prepare --no-scrub",
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
        "Ask people: serve the feedback API, log answers of the model, have them rated, compared, corrected, one of them flagged",
        clinicians.people,
    ),
    (
        "Make training data of what they said",
        "data build --name demo",
    ),
    (
        "Names and numbers that were planted in two questions, as training sees them",
        clinicians.placeholders,
    ),
    (
        "Count: volume, agreement of the raters, coverage by risk",
        "feedback metrics",
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
    for about, step in STEPS:
        if isinstance(step, str):
            _run(step, folder, about)
        else:
            ui.say(f"\n# {about}")
            step(folder)
    ui.say(f"\nDone in {time.monotonic() - began:.0f} s. Where to look, in {ui.shown(folder.absolute())}:")
    for path, what in (
        ("data/processed/DATA_CARD.md", "what the data is, what was dropped and why"),
        ("models/lora/sft/README.md", "the adapter: inputs by hash, settings, losses"),
        ("models/rl/rl/report.html", "what RL did: held-out reward with its interval, KL, curves, alarms"),
        ("reports/eval/demo/eval_report.md", "base, SFT and RL side by side, with intervals and the worst answers"),
        ("data/feedback/demo/DATA_CARD.md", "what people said as training data: what was used, what was left out and why"),
    ):
        ui.say(f"  {path:36} {what}")
    ui.say(f"The pages to rate, compare and correct: cd {shlex.quote(str(folder))} && medloop api serve")
    ui.say("(user admin, password as above when it was first shown; a new one: medloop users password admin)")


def _run(command: str, cwd: Path, about: str) -> None:
    """One step in its own process, exactly as a user would run it; a failure stops the demo with its exit code."""
    ui.say(f"\n# {about}\n$ medloop {command}")
    done = subprocess.run(
        [sys.executable, "-m", "medloop", *shlex.split(command)], cwd=cwd, env=clinicians.environ(), check=False
    )
    if done.returncode:
        raise typer.Exit(done.returncode)
