"""Deploy in a process that ends itself with SIGKILL at its n-th step.

A step is a statement or a commit of the database, a call to a model server (before and after it), or a file of the workspace that
is opened to be written, renamed or removed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from medloop.deploy.server import HttpServer
from medloop.loop.deploy import deploy_alias, open_fleet
from medloop.loop.rollback import roll_back
from medloop.settings import resolve
from medloop.store.db import open_store
from medloop.testing.processes import fork_server

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "shutil.rmtree")


class Steps:
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

        call = HttpServer._call

        def counted(server: HttpServer, *args: Any, **more: Any) -> Any:
            self.step()
            answer = call(server, *args, **more)
            self.step()
            return answer

        sys.addaudithook(audit_hook)
        event.listen(Engine, "before_cursor_execute", self.step)
        event.listen(Engine, "commit", self.step)
        HttpServer._call = counted  # type: ignore[method-assign]


def is_writing(args: tuple[object, ...]) -> bool:
    return isinstance(args[2], int) and bool(args[2] & (os.O_WRONLY | os.O_RDWR))


def work_until(home: Path, work: str, last: int) -> tuple[int | None, int]:
    """(exit code, steps) of a process that is killed at step `last`; 0: never."""
    processes = fork_server()
    mine, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=_work, args=(home, work, last, theirs))
    child.start()
    theirs.close()
    child.join()
    count = mine.recv() if child.exitcode == 0 else 0
    mine.close()
    return child.exitcode, count


def _work(home: Path, work: str, last: int, pipe: Any) -> None:
    steps = Steps(last)
    steps.watch(home)
    with open_store(resolve({"home": home}).settings) as store, open_fleet(store) as fleet:
        if work == "deploy":
            deploy_alias(fleet, actor="test")
        else:
            roll_back(fleet, actor="test", reason="worse in triage")
    pipe.send(steps.count)
