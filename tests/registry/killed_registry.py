"""Register or promote in a forked process that ends itself with SIGKILL at its n-th step, of either database or the files."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from killed_steps import Steps, run_until
from medloop.registry.promote import promote
from medloop.registry.register import register
from medloop.settings import Settings


def work_until(home: Path, work: str, last: int) -> tuple[int | None, int]:
    """(exit code, steps) of a process that is killed at step `last`; 0: never."""
    processes = multiprocessing.get_context("fork")  # MLflow is imported here already, and its connections are closed
    return run_until(processes, _work, home, work, last)


def _work(home: Path, work: str, steps: Steps) -> None:
    if work == "register":
        register(Settings(home=home), "second", actor="test")
    else:
        promote(Settings(home=home), 2, actor="test")
