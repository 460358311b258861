"""Register or promote in a process that ends itself with SIGKILL at its n-th step; started by test_registry_kills.py.

    python kill_worker.py HOME register|promote STEP          # STEP 0: count the steps and print them

A step is a statement or a commit of either database, or a file that is opened to be written, renamed or removed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from medloop.registry import mirror, promote, register
from medloop.settings import Settings

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate")


class Steps:
    """Counts steps, and kills this process before the chosen one."""

    def __init__(self, last: int) -> None:
        self.count, self.last, self.on = 0, last, False

    def step(self, *_: object) -> None:
        if self.on:
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


def run(home: Path, work: str, last: int) -> int:
    settings, steps = Settings(home=home), Steps(last)
    steps.watch(home)
    with mirror.open_mirror(settings):  # its imports are no steps
        pass
    steps.on = True
    if work == "register":
        register.register(settings, "second", actor="test")
    else:
        promote.promote(settings, 2, actor="test")
    steps.on = False
    return steps.count


if __name__ == "__main__":
    sys.stdout.write(f"{run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))}\n")
