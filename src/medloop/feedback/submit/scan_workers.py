"""Processes that scan long texts for a server, so that its own process keeps answering.

    with ScanWorkers(settings.allow_file).running() as workers:
        workers.doubt_about(["a long text", "another of the same record"])

A worker that does not answer within `limit_s` is killed and replaced, and the record is held, as it is when a worker breaks. It
gets texts and returns doubts as JSON lines through pipes, and ends by itself when its server is gone.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from medloop.feedback.submit.doubt import Doubt, doubt_about
from medloop.isolation import isolated, python_command
from medloop.privacy.phi import allowed

WORKERS = 2
LIMIT_S = 15.0  # for one record; the scan itself gives up after 5 seconds of processor time
_TOO_LONG = Doubt(1.0, ("a text that takes too long to scan",))
_BROKEN = Doubt(1.0, ("a scan that broke off",))


class ScanWorkers:
    """Started when they are first needed. `limit_s` counts from when a worker is free."""

    def __init__(self, allow_file: Path, *, workers: int = WORKERS, limit_s: float = LIMIT_S) -> None:
        self._command = python_command(__name__, str(allow_file))
        self.limit_s, self._slots = limit_s, threading.Semaphore(workers)
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._all: set[subprocess.Popen[bytes]] = set()
        self._lock, self._open = threading.Lock(), False

    @contextmanager
    def running(self) -> Iterator["ScanWorkers"]:
        self._open = True
        try:
            yield self
        finally:
            with self._lock:
                self._open, workers = False, list(self._all)
            for worker in workers:
                self._end(worker)

    def doubt_about(self, texts: Sequence[str]) -> Doubt | None:
        """As `doubt.doubt_about`, in another process; held where that process fails."""
        with self._slots:
            worker = self._worker()
            if worker is None:
                return _BROKEN
            answer = self._ask(worker, texts)
            if isinstance(answer, bytes):
                self._idle.put(worker)
                value = json.loads(answer)
                return None if value is None else Doubt(value[0], tuple(value[1]))
            self._end(worker)
            return answer

    def _worker(self) -> subprocess.Popen[bytes] | None:
        with suppress(Empty):
            return self._idle.get_nowait()
        with self._lock:
            if not self._open:
                return None
            worker = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(sys.prefix), env=isolated(os.environ)
            )
            self._all.add(worker)
            return worker

    def _ask(self, worker: subprocess.Popen[bytes], texts: Sequence[str]) -> bytes | Doubt:
        assert worker.stdin and worker.stdout
        try:
            worker.stdin.write(json.dumps(list(texts)).encode() + b"\n")
            worker.stdin.flush()
            poll = select.poll()  # select() cannot watch as many files as a busy server has open
            poll.register(worker.stdout, select.POLLIN)
            if not poll.poll(1000 * self.limit_s):
                return _TOO_LONG
            return worker.stdout.readline() or _BROKEN
        except (OSError, ValueError):
            return _BROKEN

    def _end(self, worker: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):
                assert pipe
                pipe.close()


def main() -> None:
    """The worker: one record a line in, one doubt a line out, until the pipe ends."""
    allowed.use(Path(sys.argv[1]))
    for line in sys.stdin.buffer:
        doubt = doubt_about(json.loads(line))
        answer = None if doubt is None else [doubt.value, list(doubt.reasons)]
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
