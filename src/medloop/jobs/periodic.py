"""Work that the API has done again and again in a process of its own, because it takes minutes of a processor."""

import logging
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from medloop.errors import MedloopError
from medloop.isolation import python_command
from medloop.jobs.supervisor import environment
from medloop.settings import Settings
from medloop.store.background import in_background
from medloop.store.db import Store

log = logging.getLogger(__name__)
MAX_REST_S = 3600.0  # between two tries
Start = Callable[[Settings], subprocess.Popen[bytes]]


def command_in_a_process(*words: str) -> Start:
    """A command of medloop on the workspace, in its own session; its errors go to the log of the server."""

    def start(settings: Settings) -> subprocess.Popen[bytes]:
        command = python_command("medloop", "--home", str(settings.home), *words)
        return subprocess.Popen(
            command, cwd=settings.home, env=environment(settings), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    return start


@dataclass
class PeriodicProcess(ABC):
    """Asks every few seconds whether there is something to do, and starts the process for it."""

    store: Store
    settings: Settings
    start: Start
    every_s: float = 10.0
    child: subprocess.Popen[bytes] | None = None
    failed: int = 0  # processes in a row
    rest_until: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    @abstractmethod
    def is_due(self) -> bool:
        """Whether the process is to start now."""

    def on_end(self, code: int) -> None:
        """What to do when the process has ended."""
        log.debug("%s: its process ended with code %s", type(self).__name__, code)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            with in_background(self._run, type(self).__name__, self.ended):
                yield
        finally:
            if self.child is not None:
                with suppress(subprocess.TimeoutExpired):
                    self.child.wait(5)  # it continues by itself

    def _run(self) -> None:
        while not self.ended.wait(self.every_s):
            try:
                self.poll()
            except MedloopError as error:  # a busy or absent database: the next round tries again
                log.warning("%s", error)

    def poll(self) -> None:
        """One round. Two processes never run at once; one that failed is tried again, each time after a longer rest."""
        if self.child is not None and (code := self.child.poll()) is None:
            return
        if self.child is not None:
            self.failed = self.failed + 1 if code else 0
            self.rest_until = time.monotonic() + (min(self.every_s * 4**self.failed, MAX_REST_S) if code else 0.0)
            self.child = None
            self.on_end(code or 0)
        if time.monotonic() >= self.rest_until and self.is_due():
            self.child = self.start(self.settings)
