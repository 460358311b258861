"""`medloop train sft|reward`: adapters and models from records, reward models from pairs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from medloop.cli import ui
from medloop.contracts import TrainingCard
from medloop.knobs import build
from medloop.models import require_packages
from medloop.settings import Settings
from medloop.store.audit_trail import open_audit_trail

if TYPE_CHECKING:
    from medloop.train import reward_model, sft
    from medloop.train.runs import estimate
    from medloop.train.trl.resumable import Tick

train_app = typer.Typer(no_args_is_help=True, help="Train: supervised fine-tuning and reward models (LoRA or all weights).")


def register(app: typer.Typer) -> None:
    app.add_typer(train_app, name="train")


@train_app.command("sft")
def train_sft(
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
    require()
    from medloop.train import sft

    flags = {
        "name": name, "model": model, "data": data, "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate,
        "lora_r": lora_r, "full": full, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    wish, settings = wish_of(sft.SFTConfig, config, set_, flags)
    kind = "model" if wish.full else "adapter"
    done = train_stage(sft, wish, settings, kind=kind, replace=replace, announce=_announce_sft, outcome=_losses)
    if done is not None:
        use = f"--model {ui.shown(done.job.target)}" if wish.full else f"--model {wish.model} --adapter {wish.name}"
        ui.say(f"Next: medloop predict QUESTIONS.jsonl --output ANSWERS.jsonl {use}")


@train_app.command("reward")
def train_reward(
    name: Annotated[str | None, typer.Option(help="Name of the result, under models/reward [reward].")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Base model: embedded:NAME, a folder, or a hub id; encoders such as embedded:minilm too."),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="File of pairs [data/preferences/preferences.jsonl].")] = None,
    test_share: Annotated[float | None, typer.Option(help="Share of the pairs that is held out, by prompt [0.2].")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the pairs [1].")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pairs per step [16].")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate [by model size].")] = None,
    lora_r: Annotated[int | None, typer.Option(help="Rank of the adapter [16].")] = None,
    full: Annotated[bool | None, typer.Option("--full", help="Train all weights.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of prompt and answer together [512].")] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="BASE[+ADAPTER]", help="Model whose answers centre the score [the training answers]."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed (else the setting 'seed').")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with these and more settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the run; may be repeated.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Train anew over a result or an unfinished run of that name.")
    ] = False,
) -> None:
    """Teach a model which of two answers people like better; after a crash, the same command goes on where it was.

    Example:  medloop train reward --name first --model embedded:minilm --full --data pairs.jsonl
    """
    require()
    from medloop.train import reward_model

    flags = {
        "name": name, "model": model, "data": data, "test_share": test_share, "epochs": epochs, "batch_size": batch_size,
        "learning_rate": learning_rate, "lora_r": lora_r, "full": full, "max_length": max_length, "reference": reference,
        "seed": seed,
    }  # fmt: skip
    wish, settings = wish_of(reward_model.RewardModelConfig, config, set_, flags)
    done = train_stage(
        reward_model, wish, settings, kind="reward model", replace=replace, announce=_announce_reward, outcome=_accuracy
    )
    if done is not None:
        _say_report(done.job.target)


def require() -> None:

    require_packages("trl", "datasets", "matplotlib")


def wish_of(kind: type[Any], file: Path | None, pairs: list[str] | None, flags: dict[str, Any]) -> tuple[Any, Settings]:
    """The run's settings out of file, --set and flags, and those of the workspace."""
    settings = ui.settings()
    defaults = {"model": settings.model, "seed": settings.seed}
    return build(kind, file=file, pairs=pairs or (), flags=flags, defaults=defaults), settings


def train_stage(
    stage: Any,
    wish: Any,
    settings: Settings,
    *,
    kind: str,
    replace: bool,
    announce: Callable[[Any], None],
    outcome: Callable[[TrainingCard], str],
) -> Any:
    """The plot of every trainer: found finished, or planned, announced, run and entered in the trail. Returns the plan run."""
    job = stage.find_job(wish, settings)
    with open_audit_trail(settings) as trail:
        if not replace and (card := job.finished()) is not None:
            trail.enter(kind, job.target, card)
            ui.say(f"Already trained: {ui.shown(job.target)} ({outcome(card)}). Nothing to do.")
            return None
        plan = stage.plan(wish, settings, job, replace=replace)
        announce(plan)
        _announce_cost(plan, stage.cost(plan, settings))
        began = time.monotonic()
        with stop_on_signal() as stopped, _bar(plan) as tick:
            card = stage.run(plan, settings, tick=tick, should_stop=stopped)
        trail.enter(kind, job.target, card)
    ui.say(f"Trained in {time.monotonic() - began:.0f} s: {outcome(card)}.")
    files = "card.json, README.md, metrics.jsonl" + (", report.md" if (job.target / "report.md").is_file() else "")
    ui.say(f"{ui.shown(job.target)}: {card.trainable_parameters:,} trained parameters, {files}.")
    return plan


def _announce_sft(plan: sft.Plan) -> None:
    train = plan.train
    left_out = f" ({train.left_out()})" if train.left_out() else ""
    ui.say(f"{_kind(plan)}: {len(train.lengths):,} examples{left_out}, {train.tokens:,} tokens each epoch.")


def _announce_reward(plan: reward_model.Plan) -> None:
    train, test = plan.train, plan.test
    left_out = f" ({train.left_out()})" if train.left_out() else ""
    ui.say(f"{_kind(plan)}: {len(train.pairs):,} pairs{left_out}, {train.tokens:,} tokens each epoch.")
    ui.say(f"{len(test.pairs):,} pairs held out; no prompt is on both sides.")
    if plan.contradictions:
        ui.say(f"{plan.contradictions:,} pairs contradict another one: people disagreed there.")


def _kind(plan: Any) -> str:
    config = plan.config
    return f"{config.model}, {'all weights' if config.full else f'LoRA of rank {config.lora_r}'}"


def _announce_cost(plan: Any, found: estimate.Cost) -> None:
    """What it costs, before it does."""
    minutes = f"{found.seconds / 60:.0f} min" if found.seconds > 90 else f"{found.seconds:.0f} s"
    size = plan.config.batch_size
    ui.say(f"{plan.steps:,} steps of {size} on {found.device}, about {minutes} and {found.memory / 1e9:.1f} GB.")
    if found.memory > found.free:
        ui.say(f"Only {found.free / 1e9:.1f} GB are free: micro_batch_size and max_length make it smaller.")
    if plan.continues_at:
        ui.say(f"Continuing at step {plan.continues_at:,} of {plan.steps:,}.")


def _losses(card: TrainingCard) -> str:
    found = card.metrics
    dev = f", dev loss {found['dev_loss_before']:.3f} -> {found['dev_loss_after']:.3f}" if "dev_loss_after" in found else ""
    return f"train loss {found['train_loss_first']:.3f} -> {found['train_loss_last']:.3f}{dev}"


def _accuracy(card: TrainingCard) -> str:
    found = card.metrics
    interval = f"{found['test_accuracy_low']:.1%} to {found['test_accuracy_high']:.1%}"
    return f"held-out accuracy {found['test_accuracy']:.1%} ({interval}, {found['test_pairs']:,.0f} pairs)"


def _say_report(folder: Path) -> None:
    """The report in some lines: the model beside the baselines, length, calibration."""

    from medloop.train.reports.reward_report import summary

    for line in summary(json.loads((folder / "report.json").read_text(encoding="utf-8"))):
        ui.say(line)
    ui.say(f"All of it: {ui.shown(folder / 'report.md')}")


@contextmanager
def _bar(plan: Any) -> Iterator[Callable[[Tick], None]]:

    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=ui.messages(), transient=True) as bar:
        task = bar.add_task("", total=plan.steps, completed=plan.continues_at)

        def tick(at: Tick) -> None:
            words = f"loss {at.loss:.3f}  rate {at.learning_rate:.1e}  {at.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=at.step, total=at.total, description=words)

        yield tick


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
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
