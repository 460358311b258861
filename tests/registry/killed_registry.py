"""Register or promote in a forked process that ends itself with SIGKILL at its n-th step.

A step is a statement or a commit of either database, or a file of the workspace that is opened to be written, renamed or removed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from medloop.registry.promote import promote
from medloop.registry.register import register
from medloop.settings import Settings

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate")


class Steps:
    """Counts steps, and kills this process before the chosen one."""

    def __init__(self, last: int) -> None:
        self.count, self.last = 0, last

    def step(self, *_: object) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, home: Path) -> None:
        def audit_hook(name: str, args: tuple[object, ...]) -> None:
            if name in FILE_EVENTS and str(args[0]).startswith(str(home)) and (name != "open" or is_writing(args)):
                self.step()

        sys.addaudithook(audit_hook)
        event.listen(Engine, "before_cursor_execute", self.step)
        event.listen(Engine, "commit", self.step)


def is_writing(args: tuple[object, ...]) -> bool:
    return isinstance(args[2], int) and bool(args[2] & (os.O_WRONLY | os.O_RDWR))


def work_until(home: Path, work: str, last: int) -> tuple[int | None, int]:
    """(exit code, steps) of a process that is killed at step `last`; 0: never."""
    processes = multiprocessing.get_context("fork")  # MLflow is imported here already, and its connections are closed
    mine, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=_work, args=(home, work, last, theirs))
    child.start()
    theirs.close()
    child.join()
    return child.exitcode, mine.recv() if child.exitcode == 0 else 0


def _work(home: Path, work: str, last: int, pipe) -> None:
    settings, steps = Settings(home=home), Steps(last)
    steps.watch(home)
    if work == "register":
        register(settings, "second", actor="test")
    else:
        promote(settings, 2, actor="test")
    pipe.send(steps.count)
