"""Processes that scan texts for a server, so that its own process keeps answering.

    with ScanWorkers(settings.allow_file).running() as workers:
        workers.doubt_about(["a long text", "another of the same record"])
        workers.scan_short("usr_1", [("a comment",), ("another record",)]).result()      # -> a doubt for each record

Long records have processes of their own, which give way to everything else on the machine: a text can take seconds. Short ones
have one or two others and are sent to them some at a time, senders in turn. A worker that does not answer within `limit_s` is
killed and replaced, and the record is held, as it is when a worker breaks.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from medloop.feedback.submit.doubt import Doubt
from medloop.feedback.submit.scan_process import Records, ScanProcess
from medloop.store.records.fair_threads import FairQueue

WORKERS = 2  # for long records; each takes 90 MB
SHORT_WORKERS = max(1, min(2, (os.cpu_count() or 1) - 1))  # for short ones; the server itself needs a core
LIMIT_S = 15.0  # for one record; the scan itself gives up after 5 seconds of processor time
NICE = 10  # of processes that scan long texts
BATCH_CHARACTERS = 4000  # of short records that are sent together: at most 50 ms of work
MAX_WAITING = 1024  # short records
_TOO_LONG = Doubt(1.0, ("a text that takes too long to scan",))
_BROKEN = Doubt(1.0, ("a scan that broke off",))


class ScanWorkers:
    """Processes are started when they are first needed. `limit_s` counts from when a worker is free."""

    def __init__(self, allow_file: Path, *, workers: int = WORKERS, limit_s: float = LIMIT_S) -> None:
        self.allow_file, self.limit_s, self._slots = allow_file, limit_s, threading.Semaphore(workers)
        self._idle: SimpleQueue[ScanProcess] = SimpleQueue()
        self._all: set[ScanProcess] = set()
        self._lock, self._open = threading.Lock(), False
        self._short: FairQueue[Records] = FairQueue(MAX_WAITING)

    @contextmanager
    def running(self) -> Iterator["ScanWorkers"]:
        self._open = True
        for number in range(SHORT_WORKERS):
            threading.Thread(target=self._scan_short, name=f"medloop-scan-{number}", daemon=True).start()
        try:
            yield self
        finally:
            self._short.close()
            self.stop()

    def stop(self) -> None:
        """End all processes. The records that they are scanning are held."""
        with self._lock:
            self._open, workers = False, list(self._all)
        for worker in workers:
            self._end(worker)

    def doubt_about(self, texts: Sequence[str]) -> Doubt | None:
        """As `doubt.doubt_about`, in another process; held where that process fails."""
        with self._slots:
            try:
                worker: ScanProcess | None = self._idle.get_nowait()
            except Empty:
                worker = self._start(NICE)
            worker, (doubt,) = self._ask(worker, [texts])
            if worker is not None:
                self._idle.put(worker)
            return doubt

    def scan_short(self, caller: str, records: Records) -> Future[list[Doubt | None]]:
        """The doubts about short records, when there are."""
        return self._short.put(caller, records)

    def _scan_short(self) -> None:
        """A thread of the short records."""
        worker = self._start()
        while batch := self._short.take(_fill_a_batch):
            records = [texts for item, _ in batch for texts in item]
            worker, doubts = self._ask(worker, records)
            if worker is None and len(records) > 1:  # one of them may be to blame: each is scanned without the others
                doubts = []
                for texts in records:
                    worker, doubt = self._ask(worker or self._start(), [texts])
                    doubts += doubt
            worker = worker or self._start()
            for item, future in batch:
                future.set_result(doubts[: len(item)])
                doubts = doubts[len(item) :]

    def _ask(self, worker: ScanProcess | None, records: Records) -> tuple[ScanProcess | None, list[Doubt | None]]:
        """The doubts, and the worker if it can be used again; all are held where it fails."""
        if worker is None:
            return None, [_BROKEN] * len(records)
        try:
            return worker, worker.ask(records, self.limit_s)
        except OSError as error:
            self._end(worker)
            return None, [_TOO_LONG if isinstance(error, TimeoutError) else _BROKEN] * len(records)

    def _start(self, nice: int = 0) -> ScanProcess | None:
        with self._lock:
            if not self._open:
                return None
            worker = ScanProcess(self.allow_file, nice)
            self._all.add(worker)
            return worker

    def _end(self, worker: ScanProcess) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.end()


def _fill_a_batch(items: list[Records]) -> bool:
    return sum(len(text) for records in items for texts in records for text in texts) >= BATCH_CHARACTERS
