"""`medloop predict`: answer every question in a file."""

import time
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts import ModelRef
from medloop.models import leave_out_bitsandbytes, require_packages
from medloop.models.context_limits import trained_limits
from medloop.models.find import resolve_chat_model
from medloop.models.predict import Sampling
from medloop.models.predict import predict as answer_file
from medloop.store.files.atomic import require_writable


def register(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT.jsonl", help="JSON lines: records, {'messages': [...]} or {'question': '...'}.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the answers, one JSON line each; an existing file is continued.")
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Base model: embedded:NAME, a folder, a GGUF file, or a hub id (default: the setting 'model')."),
    ] = None,
    adapter: Annotated[str | None, typer.Option(help="LoRA adapter: its name in the workspace, or a folder.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="Sampling temperature; 0 is greedy.")] = 0.0,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")] = 256,
    top_k: ui.ContextPassages = None,
    max_prompt: ui.MaxPrompt = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions answered together; changes the speed, not the answers.")] = 64,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed (default: the setting 'seed').")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Start the output file anew.")] = False,
) -> None:
    """Answer every question in a file; an interrupted run continues where it stopped.

    The prompt contains the context passages of its question (`context`) as in RL training.

    Example:  medloop predict data/processed/test.jsonl --output answers.jsonl --adapter sft
    """
    require_packages()
    settings = ui.settings()
    ref, began = ModelRef(base=model or settings.model, adapter=adapter), time.monotonic()
    resolve_chat_model(ref, settings)
    limits = trained_limits([ref], settings, top_k=top_k, max_prompt=max_prompt)
    require_writable(output)
    leave_out_bitsandbytes()
    sampling = Sampling(temperature=temperature, max_new_tokens=max_new_tokens, seed=settings.seed if seed is None else seed)
    with ui.progress("Answering", every=10) as bar:
        done = answer_file(
            source, output, ref, sampling, settings, limits=limits, batch_size=batch_size, replace=replace, progress=bar.update
        )
    seconds = time.monotonic() - began
    earlier = f", {done.already_there:,} answered earlier" if done.already_there else ""
    ui.say(f"{ui.shown(output.absolute())}: {done.answered:,} answered{earlier}, by {ref.label}.")
    if done.answered:
        too_long = f", {done.too_long:,} questions were too long for the model" if done.too_long else ""
        ui.say(f"{done.stopped:,} finished, {done.truncated:,} were truncated at {max_new_tokens} tokens{too_long}.")
        ui.say(f"{done.tokens:,} tokens in {seconds:.1f} s including loading ({done.tokens / seconds:,.0f} tokens/s).")
