"""`medloop <stage> <verb>`: parse, call, print. One file per stage; stages are imported when a command runs.

Every failure that a person can cause is one sentence on stderr and an exit code; `--debug` shows the traceback.
"""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from medloop import __version__
from medloop.cli import common

app = typer.Typer(
    name="medloop",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The closed loop that turns feedback on a medical LLM assistant into a better, safer assistant.",
    epilog="First steps:  medloop init clinic  |  cd clinic  |  medloop data import FILE  |  medloop data prepare",
)

for _stage in (
    "demo",
    "workspace",
    "data",
    "embedded",
    "store",
    "train",
    "train_preference",
    "train_rl",
    "feedback",
    "jobs",
    "api",
    "users",
    "predict",
    "eval",
    "reward",
    "teacher",
    "inspect",
    "privacy",
    "consent",
    "quarantine",
    "erase",
):
    importlib.import_module(f"medloop.cli.{_stage}").register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"medloop {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    home: Annotated[
        Path | None, typer.Option(help="Workspace folder (else MEDLOOP_HOME, else the nearest medloop.yaml).")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Override one setting; may be repeated.")
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    common.remember_flags(home, set_ or [])


def main() -> None:
    """The console script: turn what a person caused into one sentence, and leave bugs their traceback."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows ? instead of ending the work
    from medloop.errors import MedloopError, from_os

    try:
        app()
    except MedloopError as error:
        if debug:
            raise
        typer.echo(f"medloop: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if debug or error.errno is None:
            raise
        mapped = from_os(error, str(error.filename or "the workspace"))
        typer.echo(f"medloop: {mapped}", err=True)
        sys.exit(mapped.exit_code)
    except KeyboardInterrupt:
        typer.echo("medloop: stopped.", err=True)
        sys.exit(130)
