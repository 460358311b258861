"""Whether the texts that somebody sent may name a person. What is doubtful is stored, and waits in quarantine for a reviewer.

Scanning a long text takes time that the one writer cannot spare: `prepare` does it before the submission waits for the writer, on
another thread, and in another process where a server has `workers`. Short texts are scanned when the rows are built.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from medloop.feedback.submit.doubt import Doubt, doubt_about
from medloop.feedback.submit.scan_workers import ScanWorkers

LONG = 2000  # characters of one record


class PhiScan:
    """The doubts about one submission; `records` are the texts it brings along, record by record."""

    workers: ScanWorkers | None = None
    """Set by a server while it runs."""

    def __init__(self, records: Sequence[tuple[str, ...]]) -> None:
        self._long = [texts for texts in records if sum(map(len, texts)) > LONG]
        self._known: dict[tuple[str, ...], Doubt | None] = {}
        self.prepare: Callable[[], None] | None = self._scan_long if self._long else None

    def _scan_long(self) -> None:
        scan = self.workers.doubt_about if self.workers else doubt_about
        self._known = {texts: scan(texts) for texts in self._long}

    def doubts(self, records: Sequence[tuple[str, ...]]) -> list[Doubt | None]:
        """The doubt about each record's texts."""
        return [self._known[texts] if texts in self._known else doubt_about(texts) for texts in records]


@contextmanager
def scanning_with(workers: ScanWorkers) -> Iterator[None]:
    """Long texts are scanned by these workers."""
    with workers.running():
        PhiScan.workers = workers
        try:
            yield
        finally:
            PhiScan.workers = None
