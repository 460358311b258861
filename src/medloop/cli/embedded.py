"""`medloop embedded`: the built-in model, its corpus and how to rebuild it."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from medloop.cli import ui
from medloop.contracts import ModelRef, canonical_json
from medloop.embedded.corpus import generate
from medloop.embedded.pairs import generate_pairs
from medloop.embedded.sample import sample_answers
from medloop.models import require_packages
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_open

embedded_app = typer.Typer(no_args_is_help=True, help="The built-in model: its corpus, its recipe, sample answers.")


def register(app: typer.Typer) -> None:
    app.add_typer(embedded_app, name="embedded")


@embedded_app.command("corpus")
def corpus(
    output: Annotated[Path, typer.Option(help="JSONL file to write.")],
    rows: Annotated[int, typer.Option(min=1, help="Number of conversations.")] = 6000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same rows.")] = 1,
    part: Annotated[
        Literal["clinic", "base"], typer.Option(help="clinic: mostly careful answers; base: the training corpus of the model.")
    ] = "clinic",
    language: Annotated[Literal["both", "en", "zh"], typer.Option(help="Language of the rows.")] = "both",
) -> None:
    """Write synthetic questions and answers of varying quality, to try the loop without real data.

    Example:  medloop embedded corpus --output clinic.jsonl --rows 6000
    """
    with atomic_open(output) as file:
        for row in generate(rows, seed=seed, part=part, language=None if language == "both" else language):
            file.write(canonical_json(row).encode() + b"\n")
    ui.say(f"{rows} conversations in {ui.shown(output)} (synthetic, Apache-2.0).")
    ui.next_step(f"data import {shlex.quote(ui.shown(output))} --licence Apache-2.0")


@embedded_app.command("pairs")
def pairs(
    output: Annotated[Path, typer.Option(help="JSONL file to write, for medloop train reward --data.")],
    n: Annotated[int, typer.Option(min=1, help="Number of pairs.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same pairs.")] = 1,
    language: Annotated[Literal["both", "en", "zh"], typer.Option(help="Language of the pairs.")] = "both",
    noise: Annotated[float, typer.Option(min=0.0, max=0.5, help="Share of pairs with the wrong choice.")] = 0.0,
) -> None:
    """Write synthetic preference pairs, in which the better answer is known and length says nothing about it.

    Example:  medloop embedded pairs --n 2000 --output preferences.jsonl
    """
    count = jsonl.write(output, generate_pairs(n, seed=seed, language=None if language == "both" else language, noise=noise))
    ui.say(f"{count:,} pairs in {ui.shown(output)} (synthetic, Apache-2.0).")
    ui.next_step(f"train reward --data {shlex.quote(ui.shown(output))}")


@embedded_app.command("build")
def build(
    output: Annotated[Path, typer.Option(help="Folder to create.")],
    rows: Annotated[int | None, typer.Option(min=100, help="Conversations to train on (default: as in the recipe).")] = None,
    rule_rows: Annotated[
        int | None, typer.Option(min=0, help="Further conversations that follow rules in the prompt (default: as in the recipe).")
    ] = None,
    obedient: Annotated[
        bool,
        typer.Option("--obedient", help="The recipe of embedded:obedient: 40,000 rows that follow rules in the prompt join."),
    ] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs (default: as in the recipe).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed (default: as in the recipe).")] = None,
    replace: Annotated[bool, typer.Option(help="Replace the folder if it exists.")] = False,
) -> None:
    """Train the built-in model from scratch (about 40 minutes on two cores, 2 on a GPU; with --obedient 3 on a GPU).

    Example:  medloop embedded build --output models/full/my-tiny

    Example:  medloop embedded build --output models/full/my-obedient --obedient
    """
    require_packages()
    settings = ui.resolved(must_exist=False).settings
    from medloop.embedded.build import OBEDIENT, BuildConfig, build_model  # torch
    from medloop.models.runtime import device_of

    flags = {"rows": rows, "rule_rows": rule_rows, "epochs": epochs, "seed": seed}
    given = {name: value for name, value in flags.items() if value is not None}
    config = BuildConfig.model_validate((OBEDIENT if obedient else {}) | given)
    with ui.progress("Training") as bar:
        card = build_model(
            config, output, device=str(device_of(settings)), replace=replace,
            report=lambda step, steps, loss: bar.update(step, steps, f"loss {loss:.3f}"),
        )  # fmt: skip
    ui.say(f"{card.total_parameters:,} parameters, loss {card.metrics['loss']:.3f}, in {ui.shown(output)}.")
    ui.next_step(f"embedded sample --model {shlex.quote(ui.shown(output))}", "Try it:")


@embedded_app.command("sample")
def sample(
    model: Annotated[str, typer.Option(help="Model: embedded:NAME, a folder, a GGUF file, or a hub id.")] = "embedded:tiny",
    adapter: Annotated[str | None, typer.Option(help="LoRA adapter for it: its name in the workspace, or a folder.")] = None,
    n: Annotated[int, typer.Option(min=1, max=1000, help="Number of questions, half in each language.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the questions.")] = 3,
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.")] = 0.0,
) -> None:
    """Ask the model unseen questions, and count how many of its sentences fit the condition asked about.

    Example:  medloop embedded sample --n 10
    """
    require_packages()
    settings = ui.resolved(must_exist=False).settings
    from medloop.models.generate import load_generator  # torch

    generate_answers = load_generator(ModelRef(base=model, adapter=adapter), settings)
    samples = sample_answers(generate_answers, n=n, seed=seed, temperature=temperature)
    for item in samples:
        ui.say(f"Q: {item.question}\nA: {item.answer}\n")
    fit = sum(item.coherence for item in samples) / len(samples)
    ui.say(f"{fit:.0%} of the sentences fit the condition asked about ({len(samples)} questions).")
