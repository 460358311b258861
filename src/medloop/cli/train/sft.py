"""`medloop train sft|reward`: adapters and models from records, reward models from pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medloop.cli import ui
from medloop.cli.train.options import (
    BatchSize,
    Epochs,
    LearningRate,
    LoraRank,
    MaxLength,
    Model,
    Pairs,
    Replace,
    ReplayCheck,
    Seed,
    TestShare,
)
from medloop.cli.train.runner import announce_cost, held_out_accuracy, report, say_next, train
from medloop.cli.ui import ConfigFile, SetPairs
from medloop.contracts import TrainingCard

if TYPE_CHECKING:
    from medloop.train.reward_model import RewardPlan
    from medloop.train.runs.estimate import Cost
    from medloop.train.sft import SFTPlan


def train_sft(
    name: Annotated[str | None, typer.Option(help="Name of the result (default: sft).")] = None,
    model: Model = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Training file (default: data/processed/train.jsonl).")] = None,
    replay_data: Annotated[
        str | None, typer.Option(metavar="FILE", help="Rows learnt before, to mix in when the data is a few corrections.")
    ] = None,
    replay_check: ReplayCheck = None,
    epochs: Epochs = None, batch_size: BatchSize = None, learning_rate: LearningRate = None, lora_r: LoraRank = None,
    full: Annotated[bool | None, typer.Option("--full", help="Train all weights, into models/full.")] = None,
    max_length: MaxLength = None, seed: Seed = None, config: ConfigFile = None, set_: SetPairs = None, replace: Replace = False,
) -> None:  # fmt: skip
    """Teach a model to answer as the records do; after a crash, the same command continues where it stopped.

    Example:  medloop train sft --name sft --epochs 2

    Example:  medloop train sft --data corrections.jsonl --replay-data data/processed/train.jsonl
    """
    flags = {
        "name": name, "model": model, "data": data, "replay_data": replay_data, "replay_check": replay_check,
        "epochs": epochs, "batch_size": batch_size,
        "learning_rate": learning_rate, "lora_r": lora_r, "full": full, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    trained = train("SFT", flags, config, set_, replace=replace, announce=_announce_sft, outcome=_losses)
    if trained is not None:
        report(trained, _losses(trained.result.card))
        say_next(trained)


def train_reward(
    name: Annotated[str | None, typer.Option(help="Name of the result, under models/reward (default: reward).")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Base model: embedded:NAME, a folder, a GGUF file, or a hub id; encoders such as embedded:minilm too."),
    ] = None,
    data: Pairs = None, test_share: TestShare = None, epochs: Epochs = None, batch_size: BatchSize = None,
    learning_rate: LearningRate = None, lora_r: LoraRank = None,
    full: Annotated[bool | None, typer.Option("--full", help="Train all weights.")] = None,
    ensemble: Annotated[
        int | None, typer.Option(min=0, help="Heads whose spread lowers the reward where they disagree; 0: none (default: 8).")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="The base is fine-tuned (default), frozen (its vectors are features), or none (seconds).")
    ] = None,
    extra_data: Annotated[
        list[str] | None, typer.Option("--extra-data", metavar="FILE", help="Another file of pairs; may be repeated.")
    ] = None,
    max_length: MaxLength = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="BASE[+ADAPTER]", help="Model whose answers centre the score (default: the training answers)."),
    ] = None,
    seed: Seed = None, config: ConfigFile = None, set_: SetPairs = None, replace: Replace = False,
) -> None:  # fmt: skip
    """Teach a model which of two answers people prefer; after a crash, the same command continues where it stopped.

    Example:  medloop train reward --name first --model embedded:minilm --full --data pairs.jsonl
    """
    flags = {
        "name": name, "model": model, "data": data, "test_share": test_share, "epochs": epochs, "batch_size": batch_size,
        "learning_rate": learning_rate, "lora_r": lora_r, "full": full, "max_length": max_length, "reference": reference,
        "seed": seed, "ensemble": ensemble, "encoder": encoder, "extra_data": extra_data or None,
    }  # fmt: skip
    trained = train("REWARD", flags, config, set_, replace=replace, announce=_announce_reward, outcome=_accuracy)
    if trained is not None:
        report(trained, _accuracy(trained.result.card))
        _say_report(trained.result.run.target)
        say_next(trained)


def _announce_sft(plan: SFTPlan, cost: Cost) -> None:
    examples = plan.train
    words = examples.left_out(plan.config.max_length)
    left_out = f" ({words})" if words else ""
    ui.say(f"{_base(plan)}: {len(examples.lengths):,} examples{left_out}, {examples.tokens:,} tokens each epoch.")
    if said := plan.checked.sentence():
        ui.say(said)
    announce_cost(plan, cost)


def _announce_reward(plan: RewardPlan, cost: Cost) -> None:
    pairs, config = plan.train, plan.config
    words = pairs.left_out(plan.config.max_length)
    left_out = f" ({words})" if words else ""
    if config.encoder == "fine-tuned":
        ui.say(f"{_base(plan)}: {len(pairs.items):,} pairs{left_out}, {pairs.tokens:,} tokens each epoch.")
    else:
        ui.say(f"Heads only, {config.encoder_sentence}: {len(pairs.items):,} pairs.")
    if len(plan.sources) > 1:
        ui.say(f"Pairs by file: {', '.join(f'{name} {count:,}' for name, count in plan.sources.items())}.")
    if config.ensemble:
        ui.say(
            f"{config.ensemble} heads on resampled questions; their spread lowers the reward (caution {config.caution:g}); "
            f"{len(plan.negatives):,} synthetic negatives ({config.hard_negatives:.0%})."
        )
    if plan.tune.items:
        ui.say(f"{len(plan.tune.items):,} pairs are kept from the base; they decide how much base and heads count.")
    ui.say(f"{len(plan.test.items):,} pairs held out; no prompt is on both sides.")
    if plan.contradictions:
        ui.say(f"{plan.contradictions:,} pairs contradict another one: people disagreed there.")
    if config.encoder == "fine-tuned":
        announce_cost(plan, cost)
    else:
        ui.say(f"About {cost.duration} on {cost.device}.")


def _base(plan: Any) -> str:
    config = plan.config
    full = "all weights (max_trainable_share does not apply)"
    return f"{config.model}, {full if config.full else f'LoRA of rank {config.lora_r}'}"


def _losses(card: TrainingCard) -> str:
    metrics = card.metrics
    dev = f", dev loss {metrics['dev_loss_before']:.3f} -> {metrics['dev_loss_after']:.3f}" if "dev_loss_after" in metrics else ""
    return f"train loss {metrics['train_loss_first']:.3f} -> {metrics['train_loss_last']:.3f}{dev}"


def _accuracy(card: TrainingCard) -> str:
    return held_out_accuracy(card, "pairs")


def _say_report(folder: Path) -> None:
    """The report in some lines: the model beside the baselines, length, calibration."""
    from medloop.train.reports.reward_report import summary  # numpy

    for line in summary(json.loads((folder / "report.json").read_text(encoding="utf-8"))):
        ui.say(line)
    ui.say(f"Full report: {ui.shown(folder / 'report.md')}")
