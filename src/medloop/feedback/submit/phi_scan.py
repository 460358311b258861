"""Whether the texts that somebody sent may name a person. What is doubtful is stored, and waits in quarantine for a reviewer.

Scanning takes time that the one writer cannot spare. A server has `workers`: other processes scan every text before the
submission waits for the writer. Without them, long texts are scanned before that on another thread, and short ones when the rows
are built.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from medloop.feedback.submit.doubt import Doubt, doubt_about
from medloop.feedback.submit.scan_workers import ScanWorkers

LONG = 2000  # characters of one record


class PhiScan:
    """The doubts about one submission; `records` are the texts it brings along, record by record."""

    workers: ScanWorkers | None = None
    """Set by a server while it runs."""

    def __init__(self, sender: str, records: Sequence[tuple[str, ...]]) -> None:
        self._sender, self._known = sender, dict[tuple[str, ...], Doubt | None]()
        self._records = [texts for texts in records if texts]
        long = [texts for texts in self._records if sum(map(len, texts)) > LONG]
        if long and self.workers is None:
            self._records = long
        self.prepare: Callable[[], None] | None = self._scan_long if long else None
        self.begin: Callable[[], Future[Any]] | None = None
        if self._records and not long and self.workers is not None:
            self.begin = self._begin

    def _scan_long(self) -> None:
        scan = self.workers.doubt_about if self.workers else doubt_about
        self._known = {texts: scan(texts) for texts in self._records}

    def _begin(self) -> Future[Any]:
        """Have the short records scanned; the doubts are known when the future is done."""
        assert self.workers is not None
        future = self.workers.scan_short(self._sender, self._records)
        future.add_done_callback(self._keep)
        return future

    def _keep(self, future: Future[list[Doubt | None]]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._known = dict(zip(self._records, future.result(), strict=True))

    def doubts(self, records: Sequence[tuple[str, ...]]) -> list[Doubt | None]:
        """The doubt about each record's texts."""
        return [self._known[texts] if texts in self._known else doubt_about(texts) for texts in records]


@contextmanager
def scanning_with(workers: ScanWorkers) -> Iterator[None]:
    """Texts are scanned by these workers."""
    with workers.running():
        PhiScan.workers = workers
        try:
            yield
        finally:
            PhiScan.workers = None
