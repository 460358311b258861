"""`medloop train dpo|kto`: an adapter learns from what people preferred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medloop.cli import ui
from medloop.cli.train.options import (
    Adapter,
    BatchSize,
    Epochs,
    LearningRate,
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
from medloop.train.reports.preference_report import summary

if TYPE_CHECKING:
    from medloop.train.preference import PreferencePlan
    from medloop.train.runs.estimate import Cost

Beta = Annotated[
    float | None, typer.Option(help="Strength of the pull towards the reference (default: 0.1; DPO with --replay-data: 1).")
]


def train_dpo(
    name: Annotated[str | None, typer.Option(help="Name of the result, under models/lora (default: dpo).")] = None,
    model: Model = None, adapter: Adapter = None, data: Pairs = None,
    replay_data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Rows learnt before, when the pairs are a few corrections: they show where those end."),
    ] = None,
    replay_check: ReplayCheck = None,
    loss: Annotated[
        str | None,
        typer.Option(help="sigmoid, robust, ipo, hinge, exo_pair, sigmoid_norm, apo_zero, apo_down, bco_pair, nca_pair."),
    ] = None,
    beta: Beta = None,
    label_smoothing: Annotated[
        float | None, typer.Option(help="Share of choices taken to be wrong, for robust and exo_pair (default: 0).")
    ] = None,
    test_share: TestShare = None, epochs: Epochs = None, batch_size: BatchSize = None, learning_rate: LearningRate = None,
    max_length: MaxLength = None, seed: Seed = None, config: ConfigFile = None, set_: SetPairs = None, replace: Replace = False,
) -> None:  # fmt: skip
    """DPO: make chosen answers likelier than rejected ones, without moving far from the adapter it starts from.

    Example:  medloop train dpo --adapter sft --name dpo --data pairs.jsonl

    Example:  medloop train dpo --adapter sft --data corrections.jsonl --replay-data data/processed/train.jsonl
    """
    flags = {
        "name": name, "model": model, "adapter": adapter, "data": data, "replay_data": replay_data,
        "replay_check": replay_check, "loss": loss, "beta": beta,
        "label_smoothing": label_smoothing, "test_share": test_share, "epochs": epochs, "batch_size": batch_size,
        "learning_rate": learning_rate, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    _train("DPO", flags, config, set_, replace)


def train_kto(
    name: Annotated[str | None, typer.Option(help="Name of the result, under models/lora (default: kto).")] = None,
    model: Model = None, adapter: Adapter = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Thumbs or pairs (default: thumbs.jsonl or preferences.jsonl in data/preferences)."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="kto or apo_zero_unpaired (default: kto).")] = None,
    beta: Beta = None,
    desirable_weight: Annotated[float | None, typer.Option(help="Weight of liked answers (default: 1).")] = None,
    undesirable_weight: Annotated[float | None, typer.Option(help="Weight of disliked answers (default: 1).")] = None,
    test_share: TestShare = None, epochs: Epochs = None, batch_size: BatchSize = None, learning_rate: LearningRate = None,
    max_length: MaxLength = None, seed: Seed = None, config: ConfigFile = None, set_: SetPairs = None, replace: Replace = False,
) -> None:  # fmt: skip
    """KTO: make liked answers likelier and the others less likely, from thumbs alone; no pairs are needed.

    Example:  medloop train kto --adapter sft --name kto --data thumbs.jsonl
    """
    flags = {
        "name": name, "model": model, "adapter": adapter, "data": data, "loss": loss, "beta": beta,
        "desirable_weight": desirable_weight, "undesirable_weight": undesirable_weight, "test_share": test_share,
        "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    _train("KTO", flags, config, set_, replace)


def _train(stage: str, flags: dict[str, Any], file: Path | None, pairs: list[str] | None, replace: bool) -> None:
    trained = train(stage, flags, file, pairs, replace=replace, announce=_announce, outcome=_accuracy)
    if trained is not None:
        report(trained, _accuracy(trained.result.card))
        _say_report(trained.result.run.target)
        say_next(trained)


def _announce(plan: PreferencePlan, cost: Cost) -> None:
    from medloop.train.preference import balance  # torch

    rows, config = plan.train, plan.config
    rank = plan.run.identity["config"]["lora_r"]
    start = f"from {config.adapter}, which is the reference" if config.adapter else "from the base, which is the reference"
    words = rows.left_out(plan.config.max_length)
    left_out = f" ({words})" if words else ""
    noun = "thumbs" if config.method == "kto" else "pairs"
    ui.say(f"{config.model}, LoRA of rank {rank}, {start}.")
    ui.say(f"{len(rows.items):,} {noun}{left_out}, {rows.tokens:,} tokens each epoch.")
    ui.say(f"{len(plan.test.items):,} {noun} held out; no prompt is on both sides.")
    if plan.contrast:
        ui.say(f"{plan.contrast:,} of them show where the corrected sentence does not belong.")
    if said := plan.checked.sentence():
        ui.say(said)
    for reason, count in plan.skipped.items():
        ui.say(f"{count:,} lines skipped: {reason}.")
    if plan.contradictions:
        ui.say(f"{plan.contradictions:,} {noun} contradict another one: people disagreed there.")
    if (advice := balance(plan)) is not None:
        ui.say(advice)
    announce_cost(plan, cost)


def _accuracy(card: TrainingCard) -> str:
    return held_out_accuracy(card, "rows", "50.0% -> ")


def _say_report(folder: Path) -> None:
    for line in summary(json.loads((folder / "report.json").read_text(encoding="utf-8"))):
        ui.say(f"  {line}")
