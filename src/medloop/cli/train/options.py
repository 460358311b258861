"""Options that several `medloop train` commands share. What is not given stays None and leaves the setting's default."""

from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(help="Base model: embedded:NAME, a folder, a GGUF file, or a hub id (else the setting 'model')."),
]
Adapter = Annotated[
    str | None, typer.Option(help="Name or folder of the adapter to start from; also the reference (default: the base).")
]
Pairs = Annotated[str | None, typer.Option(metavar="FILE", help="File of pairs (default: data/preferences/preferences.jsonl).")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data (default: 1).")]
BatchSize = Annotated[int | None, typer.Option(help="Examples per step (default: 16).")]
TestShare = Annotated[float | None, typer.Option(help="Share of the data that is held out, by prompt (default: 0.2).")]
LearningRate = Annotated[float | None, typer.Option(help="Peak learning rate (default: by model size).")]
LoraRank = Annotated[int | None, typer.Option(help="Rank of the adapter (default: 8).")]
MaxLength = Annotated[int | None, typer.Option(help="Tokens of prompt and answer together (default: 512).")]
Seed = Annotated[int | None, typer.Option(help="Seed (else the setting 'seed').")]
ReplayCheck = Annotated[
    bool | None,
    typer.Option(
        "--replay-check/--no-replay-check", help="Leave out rows of the replay whose answer the rules find faulty (default: yes)."
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Train again over a result or an unfinished run of that name.")]
