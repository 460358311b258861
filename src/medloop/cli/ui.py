"""What the commands share: settings from the global flags, and plain printing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from medloop.settings import Resolved, Settings

_flags: dict[str, Any] = {}  # what stood before the command: `medloop --home DIR --set seed=7 data prepare`


def remember_flags(home: Path | None, pairs: list[str]) -> None:
    _flags.clear()
    if pairs:
        from medloop.knobs import split_pairs

        _flags.update(split_pairs("--set", pairs))
    if home is not None:
        _flags["home"] = home


def given_flags() -> dict[str, Any]:
    return dict(_flags)


def resolved(*, must_exist: bool = True) -> Resolved:
    from medloop.settings import resolve

    return resolve(_flags, must_exist=must_exist)


def settings() -> Settings:
    return resolved().settings


def console() -> Console:
    """Results go to stdout; progress and messages to stderr."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def messages() -> Console:
    """Where progress goes: stderr, silent when nobody is looking at a terminal."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, quiet=not sys.stderr.isatty())


def say(text: str = "") -> None:
    typer.echo(text)


def shown(path: Path) -> str:
    """A path as a person would type it: relative to the current folder where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
