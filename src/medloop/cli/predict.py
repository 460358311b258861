"""`medloop predict`: answers for a file of questions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts import ModelRef
from medloop.knobs import load_config
from medloop.models import require_packages


def register(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT.jsonl", help="Records, {'messages': [...]} or {'question': '...'}, one per line.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Answers, one JSON line each; continued if it is there already.")
    ],
    model: Annotated[
        str | None, typer.Option(help="Base model: embedded:NAME, a folder, or a hub id (else the setting 'model').")
    ] = None,
    adapter: Annotated[str | None, typer.Option(help="LoRA adapter: a folder, or its name under models/lora.")] = None,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; above, tokens are drawn.")] = 0.0,
    max_new_tokens: Annotated[int, typer.Option(help="Answers are cut after so many tokens.")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions answered at once; changes speed, not answers.")] = 16,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws (else the setting 'seed').")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write the output anew, whatever it holds.")] = False,
) -> None:
    """Answer every question of a file; a run that was stopped goes on where it was.

    Example:  medloop predict data/processed/test.jsonl --output answers.jsonl --adapter sft
    """
    require_packages()

    from medloop.models.predict import Sampling
    from medloop.models.predict import predict as answer

    settings = ui.settings()
    flags = {"temperature": temperature, "max_new_tokens": max_new_tokens, "seed": seed}
    sampling = load_config(Sampling, file=None, pairs=(), flags=flags, defaults={"seed": settings.seed})
    ref, began = ModelRef(base=model or settings.model, adapter=adapter), time.monotonic()
    with ui.progress("Answering") as bar:
        done = answer(
            source, output, ref, sampling, settings, batch_size=batch_size, replace=replace, progress=bar.update,
        )  # fmt: skip
    seconds = time.monotonic() - began
    there = f", {done.already_there:,} were there already" if done.already_there else ""
    ui.say(f"{ui.shown(output.absolute())}: {done.answered:,} answered{there}, by {ref.label}.")
    if done.answered:
        too_long = f", {done.too_long:,} questions too long for the model" if done.too_long else ""
        ui.say(f"{done.stopped:,} ended by themselves, {done.cut:,} cut at {max_new_tokens} tokens{too_long}.")
        ui.say(f"{done.tokens:,} tokens in {seconds:.1f} s with loading ({done.tokens / seconds:,.0f} tokens/s).")
