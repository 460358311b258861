"""A model server of our own beside the API: `medloop api serve --with-model embedded:tiny` starts it, and starts it again.

    with ModelChild("embedded:tiny", settings).running() as address: ...        # a BackendAddress; it may still be loading

It is a process of its own (`medloop serve`), because a model takes the processor for seconds. It ends with the API, also with one
that was killed, and a server that dies is started again after a pause that grows. Its output is in logs/model-server.log.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medloop.isolation import isolated, python_command
from medloop.serve.gateway.backends import BackendAddress
from medloop.settings import Settings
from medloop.store.background import in_background

log = logging.getLogger(__name__)
LOG = "model-server.log"
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
HEALTHY_S = 60.0  # after which a server that dies counts as the first one
END_S = 10.0
# The kernel ends it with the process that started it (PR_SET_PDEATHSIG), which outlives the call of exec.
_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"


class ModelChild:
    def __init__(self, model: str, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.port = _free_port()
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    @property
    def command(self) -> list[str]:
        words = ["serve", "--model", self.model, "--host", "127.0.0.1", "--port", str(self.port), "--drain", "5"]
        python = python_command("medloop", *words)
        return [*python[:2], "-c", _WITH_PARENT, *python] if sys.platform == "linux" else python

    @contextmanager
    def running(self) -> Iterator[BackendAddress]:
        """Keep it running inside the block."""
        with in_background(self._supervise, "model-server", self._ended):
            try:
                yield BackendAddress(f"http://127.0.0.1:{self.port}", log=f"{self.settings.workspace.logs.name}/{LOG}")
            finally:
                self._ended.set()
                self._end()

    def _supervise(self) -> None:
        failures = 0
        path = self.settings.workspace.logs / LOG
        while not self._ended.is_set():
            started = time.monotonic()
            code = self._run(path)
            if self._ended.is_set():
                return
            failures = 0 if time.monotonic() - started > HEALTHY_S else failures + 1
            log.error("the model server ended with code %s; see %s", code, path)
            self._ended.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    def _run(self, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        environ = {**isolated(os.environ), "MEDLOOP_HOME": str(self.settings.home)}
        with path.open("ab") as output:
            self.starts += 1
            with subprocess.Popen(
                self.command, cwd=self.settings.home, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as process:
                self.process = process
                if self._ended.is_set():
                    process.send_signal(signal.SIGTERM)
                return process.wait()

    def _end(self) -> None:
        process = self.process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is None:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
