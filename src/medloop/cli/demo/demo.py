"""`medloop demo`: the whole loop in one command, made of the commands that a user would type."""

import resource
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.demo import clinicians, live, release
from medloop.cli.demo.run import run_step
from medloop.cli.demo.summary import show_table
from medloop.contracts import utc_now

DONE = "demo.txt"  # written at the end: the next demo shows what this one made
# (purpose, command or function). Each can be repeated: finished work is recognised and kept.
STEPS: tuple[tuple[str, str | Callable[[Path], None]], ...] = (
    (
        "Generate a synthetic log of questions and answers of a clinic, good and bad mixed",
        "embedded corpus --output clinic.jsonl --rows 4500",
    ),
    (
        "Import it unchanged, with its licence and hash",
        "data import clinic.jsonl --name clinic --licence Apache-2.0",
    ),
    (
        "Clean, deduplicate, split without leaks, set gold and red-team cases aside (synthetic people need no scrubbing)",
        "data prepare --no-scrub",
    ),
    (
        "Draw prompts for RL, at least 40 % of them high-risk",
        "data prompts",
    ),
    (
        "Fine-tune the built-in model with LoRA",
        "train sft --name sft --lora-r 8",
    ),
    (
        "Ask whether the reward agrees with the labelled cases in the package (by a language model; not clinical evidence)",
        "reward validate --bundled",
    ),
    (
        "Train on the rewards of the rules: sample answers, keep the best, fine-tune on them, twice",
        "train irs --adapter sft --name rl --n-iterations 2 --n-questions 96 --set held_out_n=128",
    ),
    (
        "Compare the model before, after SFT and after RL on unseen questions",
        "eval --model embedded:tiny --model embedded:tiny+models/lora/sft --model embedded:tiny+models/rl/rl"
        " --split gold --split red --name demo",
    ),
    (
        "Decide with the gate, and release",
        release.decide_and_release,
    ),
    (
        "Serve: bring the released model live behind the gateway, ask it, and roll it back",
        live.serve_live,
    ),
    (
        "Collect feedback: serve the API, log answers of the model, have them rated, compared, corrected and one flagged",
        clinicians.collect_feedback,
    ),
    (
        "Fill the review queue with more answers that people should judge: new, risky, or two that can be compared",
        "feedback queue fill --size 30",
    ),
    (
        "Build training data from the feedback",
        "data build --name demo",
    ),
    (
        "Show how names and numbers in two questions look in the training data",
        clinicians.show_placeholders,
    ),
    (
        "Measure the feedback: volume, agreement of the raters, coverage by risk",
        "feedback metrics",
    ),
    (
        "Verify the audit log",
        "audit verify",
    ),
)


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Workspace to create for it.")] = Path("demo"),
) -> None:
    """Run the whole loop on built-in defaults: no key, no GPU, no network. Prints every command it runs.

    Example:  medloop demo
    """
    done = folder / DONE
    if done.is_file():
        when = done.read_text(encoding="utf-8").strip()
        ui.say(f"This demo ran already, {when} To run it anew, remove {ui.shown(folder.absolute())}.")
        show_table(folder)
        clinicians.show_login(folder)
        return
    began, cpu = time.monotonic(), _children_s()
    run_step(f"init {shlex.quote(str(folder))}", Path.cwd(), "Create a workspace")
    for about, step in STEPS:
        if isinstance(step, str):
            run_step(step, folder, about)
        else:
            ui.say(f"\n# {about}")
            step(folder)
    took = f"{time.monotonic() - began:.0f} s ({_children_s() - cpu:.0f} s of processor time)"
    ui.say(f"\nDone in {took}.")
    show_table(folder)
    clinicians.show_login(folder)
    done.write_text(f"on {utc_now():%Y-%m-%d}, in {took}.\n", encoding="utf-8")


def _children_s() -> float:
    """Processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
