"""`medloop train dpo|kto`: an adapter learns from what people preferred; after a crash, the same command goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medloop.cli import ui
from medloop.cli.train.sft import require, train_app, train_stage, wish_of
from medloop.contracts import TrainingCard
from medloop.train.configs.preference_config import DPOConfig, KTOConfig

if TYPE_CHECKING:
    from medloop.train.preference import Plan

Model = Annotated[str | None, typer.Option(help="Base model: embedded:NAME, a folder, or a hub id (else the setting 'model').")]
Adapter = Annotated[str | None, typer.Option(help="Adapter to start from; it is the reference too [none: the base model].")]
TestShare = Annotated[float | None, typer.Option(help="Share of the rows that is held out, by prompt [0.2].")]
Beta = Annotated[float | None, typer.Option(help="Pull to the reference; higher stays closer [0.1].")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data [1].")]
Batch = Annotated[int | None, typer.Option(help="Rows per step [16].")]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate [by model size].")]
Length = Annotated[int | None, typer.Option(help="Tokens of prompt and answer together [512].")]
Seed = Annotated[int | None, typer.Option(help="Seed (else the setting 'seed').")]
Config = Annotated[Path | None, typer.Option(help="YAML file with these and more settings.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the run; may be repeated.")]
Replace = Annotated[bool, typer.Option("--replace", help="Train anew over a result or an unfinished run of that name.")]


@train_app.command("dpo")
def train_dpo(
    name: Annotated[str | None, typer.Option(help="Name of the result, under models/lora [dpo].")] = None,
    model: Model = None, adapter: Adapter = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="File of pairs [data/preferences/preferences.jsonl].")] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="sigmoid, robust, ipo, hinge, exo_pair, sigmoid_norm, apo_zero, apo_down, bco_pair, nca_pair."),
    ] = None,
    beta: Beta = None,
    label_smoothing: Annotated[
        float | None, typer.Option(help="Share of choices taken to be wrong, for robust and exo_pair [0].")
    ] = None,
    test_share: TestShare = None, epochs: Epochs = None, batch_size: Batch = None, learning_rate: Rate = None,
    max_length: Length = None, seed: Seed = None, config: Config = None, set_: Set = None, replace: Replace = False,
) -> None:  # fmt: skip
    """DPO: make chosen answers likelier than rejected ones, not far from the adapter it starts from.

    Example:  medloop train dpo --adapter sft --name dpo --data pairs.jsonl
    """
    require()

    flags = {
        "name": name, "model": model, "adapter": adapter, "data": data, "loss": loss, "beta": beta,
        "label_smoothing": label_smoothing, "test_share": test_share, "epochs": epochs, "batch_size": batch_size,
        "learning_rate": learning_rate, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    _run(DPOConfig, flags, config, set_, replace)


@train_app.command("kto")
def train_kto(
    name: Annotated[str | None, typer.Option(help="Name of the result, under models/lora [kto].")] = None,
    model: Model = None, adapter: Adapter = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File of thumbs or pairs [thumbs.jsonl or preferences.jsonl in data/preferences]."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="kto or apo_zero_unpaired [kto].")] = None,
    beta: Beta = None,
    desirable_weight: Annotated[float | None, typer.Option(help="Weight of liked answers [1].")] = None,
    undesirable_weight: Annotated[float | None, typer.Option(help="Weight of answers that were not liked [1].")] = None,
    test_share: TestShare = None, epochs: Epochs = None, batch_size: Batch = None, learning_rate: Rate = None,
    max_length: Length = None, seed: Seed = None, config: Config = None, set_: Set = None, replace: Replace = False,
) -> None:  # fmt: skip
    """KTO: make liked answers likelier and the others less likely, from thumbs alone; no pairs are needed.

    Example:  medloop train kto --adapter sft --name kto --data thumbs.jsonl
    """
    require()

    flags = {
        "name": name, "model": model, "adapter": adapter, "data": data, "loss": loss, "beta": beta,
        "desirable_weight": desirable_weight, "undesirable_weight": undesirable_weight, "test_share": test_share,
        "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "max_length": max_length, "seed": seed,
    }  # fmt: skip
    _run(KTOConfig, flags, config, set_, replace)


def _run(kind: type[Any], flags: dict[str, Any], file: Path | None, pairs: list[str] | None, replace: bool) -> None:
    from medloop.train import preference

    wish, settings = wish_of(kind, file, pairs, flags)
    done = train_stage(preference, wish, settings, kind="adapter", replace=replace, announce=_announce, outcome=_accuracy)
    if done is not None:
        _say_report(done.job.target)
        use = f"--model {wish.model} --adapter {wish.name}"
        ui.say(f"Next: medloop predict QUESTIONS.jsonl --output ANSWERS.jsonl {use}")


def _announce(plan: Plan) -> None:
    from medloop.train.preference import balance

    train, config = plan.train, plan.config
    rank = plan.job.identity["config"]["lora_r"]
    start = f"from {config.adapter}, which is the reference" if config.adapter else "from the base, which is the reference"
    left_out = f" ({train.left_out()})" if train.left_out() else ""
    what = "thumbs" if config.method == "kto" else "pairs"
    ui.say(f"{config.model}, LoRA of rank {rank}, {start}.")
    ui.say(f"{len(train.items):,} {what}{left_out}, {train.tokens:,} tokens each epoch.")
    ui.say(f"{len(plan.test.items):,} {what} held out; no prompt is on both sides.")
    for reason, count in plan.passed.items():
        ui.say(f"{count:,} lines passed over: {reason}.")
    if plan.contradictions:
        ui.say(f"{plan.contradictions:,} {what} contradict another one: people disagreed there.")
    if (advice := balance(plan)) is not None:
        ui.say(advice)


def _accuracy(card: TrainingCard) -> str:
    found = card.metrics
    interval = f"{found['test_accuracy_low']:.1%} to {found['test_accuracy_high']:.1%}"
    return f"held-out accuracy 50.0% -> {found['test_accuracy']:.1%} ({interval}, {found['test_rows']:,.0f} rows)"


def _say_report(folder: Path) -> None:

    from medloop.train.reports.preference_report import summary

    for line in summary(json.loads((folder / "report.json").read_text(encoding="utf-8"))):
        ui.say(f"  {line}")
