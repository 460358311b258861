"""A process that ends itself with SIGKILL at its n-th step, for tests of what a kill leaves behind.

    code, steps = run_until(fork_server(), work, home, "deploy", 7)   # killed at step 7; 0: never, and `steps` counts them

A step is a statement or a commit of a database, a file of the workspace that is opened to be written, renamed or removed, and
what `work` counts itself by `steps.step()`. `work` is called in the process, as `work(home, name, steps)`.
"""

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "shutil.rmtree")


class Steps:
    """Counts steps, and kills this process at the chosen one."""

    def __init__(self, last: int) -> None:
        self.count, self.last = 0, last

    def step(self, *_: object) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, home: Path) -> None:
        def audit_hook(name: str, args: tuple[object, ...]) -> None:
            if name in FILE_EVENTS and str(args[0]).startswith(str(home)) and (name != "open" or _is_writing(args)):
                self.step()

        sys.addaudithook(audit_hook)
        event.listen(Engine, "before_cursor_execute", self.step)
        event.listen(Engine, "commit", self.step)


def run_until(
    processes: BaseContext, work: Callable[[Path, str, Steps], None], home: Path, name: str, last: int
) -> tuple[int | None, int]:
    """(exit code, steps) of a process that does `name` and is killed at step `last`; 0: never."""
    mine, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=_run, args=(work, home, name, last, theirs))  # type: ignore[attr-defined]
    child.start()
    theirs.close()
    child.join()
    count = mine.recv() if child.exitcode == 0 else 0
    mine.close()
    return child.exitcode, count


def _run(work: Callable[[Path, str, Steps], None], home: Path, name: str, last: int, pipe: Any) -> None:
    steps = Steps(last)
    steps.watch(home)
    work(home, name, steps)
    pipe.send(steps.count)


def _is_writing(args: tuple[object, ...]) -> bool:
    return isinstance(args[2], int) and bool(args[2] & (os.O_WRONLY | os.O_RDWR))
