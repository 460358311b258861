"""`medloop embedded`: the model that ships inside, its corpus and its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from medloop.cli import ui
from medloop.contracts import ModelRef, canonical_json
from medloop.embedded.corpus import generate
from medloop.embedded.pairs import generate_pairs
from medloop.embedded.sample import ask_unseen
from medloop.models import require_packages
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_open

embedded_app = typer.Typer(no_args_is_help=True, help="The small model inside medloop: its corpus, its recipe, samples of it.")


def register(app: typer.Typer) -> None:
    app.add_typer(embedded_app, name="embedded")


@embedded_app.command("corpus")
def corpus(
    output: Annotated[Path, typer.Option(help="JSONL file to write.")],
    rows: Annotated[int, typer.Option(min=1, help="Conversations to make.")] = 6000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same rows.")] = 1,
    part: Annotated[
        Literal["clinic", "base"], typer.Option(help="clinic: mostly careful answers; base: what the model has read.")
    ] = "clinic",
    language: Annotated[Literal["both", "en", "zh"], typer.Option(help="Language of the rows.")] = "both",
) -> None:
    """Write made-up questions and answers of varying quality, to try the loop without any real data.

    Example:  medloop embedded corpus --output clinic.jsonl --rows 6000
    """
    lines = (
        canonical_json(row) for row in generate(rows, seed=seed, part=part, language=None if language == "both" else language)
    )
    with atomic_open(output) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
    ui.say(f"{rows} conversations in {ui.shown(output)} (made up, free to use under Apache-2.0).")


@embedded_app.command("pairs")
def pairs(
    output: Annotated[Path, typer.Option(help="JSONL file to write, for medloop train reward --data.")],
    n: Annotated[int, typer.Option(min=1, help="Pairs to make.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same pairs.")] = 1,
    language: Annotated[Literal["both", "en", "zh"], typer.Option(help="Language of the pairs.")] = "both",
    noise: Annotated[float, typer.Option(min=0.0, max=0.5, help="Share of pairs in which the rater chose wrongly.")] = 0.0,
) -> None:
    """Write made-up preferences: two answers to a question, of which the generator knows the better one; length tells nothing.

    Example:  medloop embedded pairs --n 2000 --output preferences.jsonl
    """
    made = jsonl.write(output, generate_pairs(n, seed=seed, language=None if language == "both" else language, noise=noise))
    ui.say(f"{made:,} pairs in {ui.shown(output)} (made up, free to use under Apache-2.0).")
    ui.say(f"Next: medloop train reward --data {ui.shown(output)}")


@embedded_app.command("build")
def build(
    output: Annotated[Path, typer.Option(help="Folder to make.")],
    rows: Annotated[int | None, typer.Option(min=100, help="Conversations to train on (default: the recipe's).")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over them (default: the recipe's).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of corpus, weights and order (default: the recipe's).")] = None,
    replace: Annotated[bool, typer.Option(help="Replace the folder if it is there.")] = False,
) -> None:
    """Train the embedded model from nothing (about 40 minutes on two cores, two on a GPU).

    Example:  medloop embedded build --output models/full/my-tiny
    """
    require_packages()

    from medloop.embedded.build import BuildConfig, build_model
    from medloop.models.runtime import device_of

    changes = {name: value for name, value in {"rows": rows, "epochs": epochs, "seed": seed}.items() if value is not None}
    device = str(device_of(ui.resolved(must_exist=False).settings))
    with ui.progress("Training") as bar:
        card = build_model(
            BuildConfig.model_validate(changes),
            output,
            device=device,
            replace=replace,
            report=lambda step, steps, loss: bar.update(step, steps, f"loss {loss:.3f}"),
        )
    ui.say(f"{card.total_parameters:,} parameters, loss {card.metrics['loss']:.3f}, in {ui.shown(output)}.")
    ui.say(f"Try it: medloop embedded sample --model {ui.shown(output)}")


@embedded_app.command("sample")
def sample(
    model: Annotated[str, typer.Option(help="Model to ask: embedded:tiny, a folder, a hub id.")] = "embedded:tiny",
    adapter: Annotated[Path | None, typer.Option(help="LoRA adapter folder on top of it.")] = None,
    n: Annotated[int, typer.Option(min=1, max=1000, help="Questions to ask, half in each language.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the questions.")] = 3,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
) -> None:
    """Ask the model questions it has never read, and say how many of its sentences fit the condition asked about.

    Example:  medloop embedded sample --n 10
    """
    require_packages()
    from medloop.models.generate import load_generator

    ref = ModelRef(base=model, adapter=str(adapter) if adapter else None)
    generate = load_generator(ref, ui.resolved(must_exist=False).settings)
    shown = ask_unseen(generate, n=n, seed=seed, temperature=temperature)
    for item in shown:
        ui.say(f"Q: {item.question}\nA: {item.answer}\n")
    fit = sum(item.coherence for item in shown) / len(shown)
    ui.say(f"{fit:.0%} of the sentences fit the condition asked about ({len(shown)} questions).")
