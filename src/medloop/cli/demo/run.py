"""One step of `medloop demo`, in its own process, as a user would run it."""

import shlex
import subprocess
from pathlib import Path

import typer

from medloop.cli import ui
from medloop.cli.demo.clinicians import environ
from medloop.isolation import python_command


def run_step(command: str, cwd: Path, about: str, *, expected: tuple[int, ...] = (0,)) -> int:
    """The exit code; one that is not expected stops the demo with it."""
    ui.say(f"\n# {about}\n$ medloop {command}")
    done = subprocess.run(python_command("medloop", *shlex.split(command)), cwd=cwd, env=environ(), check=False)
    if done.returncode not in expected:
        raise typer.Exit(done.returncode or 1)
    return done.returncode
