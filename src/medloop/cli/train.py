"""`medloop train sft`: adapters and models from records."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medloop.cli import common

if TYPE_CHECKING:
    from medloop.contracts import TrainingCard
    from medloop.settings import Settings
    from medloop.train.sft import Plan
    from medloop.train.trl_resume import Tick

train_app = typer.Typer(no_args_is_help=True, help="Train: supervised fine-tuning (LoRA or all weights).")


def register(app: typer.Typer) -> None:
    app.add_typer(train_app, name="train")


@train_app.command("sft")
def sft(
    name: Annotated[str | None, typer.Option(help="Name of the result [sft].")] = None,
    model: Annotated[
        str | None, typer.Option(help="Base model: embedded:NAME, a folder, or a hub id (else the setting 'model').")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Training file [data/processed/train.jsonl].")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data [1].")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step [16].")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate [by model size].")] = None,
    lora_r: Annotated[int | None, typer.Option(help="Rank of the adapter [16].")] = None,
    full: Annotated[bool | None, typer.Option("--full", help="Train all weights, into models/full.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens per example [512].")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed (else the setting 'seed').")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with these and more settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the run; may be repeated.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Train anew over a result or an unfinished run of that name.")
    ] = False,
) -> None:
    """Teach a model to answer as the records do; after a crash, the same command goes on where it was.

    Example:  medloop train sft --name sft --epochs 2
    """
    from medloop.models import require_packages

    require_packages("trl", "datasets")
    from medloop.knobs import build
    from medloop.loop import open_books
    from medloop.train import sft as stage

    settings = common.settings()
    flags = {
        "name": name, "model": model, "data": data, "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate,
        "lora_r": lora_r, "full": full, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    defaults = {"model": settings.model, "seed": settings.seed}
    wish = build(stage.SFTConfig, file=config, pairs=set_ or (), flags=flags, defaults=defaults)
    job = stage.find_job(wish, settings)
    with open_books(settings) as books:
        if not replace and (card := job.finished()) is not None:
            books.enter("model" if wish.full else "adapter", job.target, card)
            common.say(f"Already trained: {common.shown(job.target)} ({_losses(card)}). Nothing to do.")
            return
        plan = stage.plan(wish, settings, job, replace=replace)
        _announce(plan, settings)
        began = time.monotonic()
        with _stop_on_signal() as stopped, _bar(plan) as tick:
            card = stage.run(plan, settings, tick=tick, should_stop=stopped)
        books.enter("model" if wish.full else "adapter", job.target, card)
    _report(plan, card, time.monotonic() - began)


def _announce(plan: Plan, settings: Settings) -> None:
    """What will happen and what it costs, before it does."""
    from medloop.train.sft import cost

    config, train = plan.config, plan.train
    kind = "all weights" if config.full else f"LoRA of rank {config.lora_r}"
    left_out = f" ({train.left_out()})" if train.left_out() else ""
    common.say(f"{config.model}, {kind}: {len(train.lengths):,} examples{left_out}, {train.tokens:,} tokens each epoch.")
    found = cost(plan, settings)
    minutes = f"{found.seconds / 60:.0f} min" if found.seconds > 90 else f"{found.seconds:.0f} s"
    common.say(f"{plan.steps:,} steps of {config.batch_size} on {found.device}, about {minutes} and {found.memory / 1e9:.1f} GB.")
    if found.memory > found.free:
        common.say(f"Only {found.free / 1e9:.1f} GB are free: micro_batch_size, max_length or load_in_4bit make it smaller.")
    if plan.continues_at:
        common.say(f"Continuing at step {plan.continues_at:,} of {plan.steps:,}.")


def _report(plan: Plan, card: TrainingCard, seconds: float) -> None:
    common.say(f"Trained in {seconds:.0f} s: {_losses(card)}.")
    common.say(
        f"{common.shown(plan.job.target)}: {card.trainable_parameters:,} trained parameters, card.json, README.md, metrics.jsonl."
    )
    use = f"--model {common.shown(plan.job.target)}" if plan.config.full else f"--model {card.base} --adapter {card.name}"
    common.say(f"Next: medloop predict QUESTIONS.jsonl --output ANSWERS.jsonl {use}")


def _losses(card: TrainingCard) -> str:
    found = card.metrics
    dev = f", dev loss {found['dev_loss_before']:.3f} -> {found['dev_loss_after']:.3f}" if "dev_loss_after" in found else ""
    return f"train loss {found['train_loss_first']:.3f} -> {found['train_loss_last']:.3f}{dev}"


@contextmanager
def _bar(plan: Plan) -> Iterator[Callable[[Tick], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=common.messages(), transient=True) as bar:
        task = bar.add_task("", total=plan.steps, completed=plan.continues_at)

        def tick(at: Tick) -> None:
            words = f"loss {at.loss:.3f}  rate {at.learning_rate:.1e}  {at.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=at.step, total=at.total, description=words)

        yield tick


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks for a checkpoint and an end; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        typer.echo("Stopping after this step, with a checkpoint. The same command will go on from there.", err=True)
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
