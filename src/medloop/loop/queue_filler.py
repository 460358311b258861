"""The server's thread that puts new complaints into the review queue, a moment after they are stored.

It yields to those who send feedback: while others write, it works a thirtieth of the time.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from medloop.data.text.risk import strata_of
from medloop.errors import MedloopError
from medloop.feedback.review.complaints import queue_complaints
from medloop.store.background import in_background
from medloop.store.db import Store
from medloop.store.records.group_commit import GroupCommitWriter

log = logging.getLogger(__name__)
ROWS = 5  # records of one look: a look is short, so that nobody waits for it
REST = 30  # times as long as a look took, while others write
QUIET_S = 0.25  # without a commit: nobody writes
EVERY_S = 5.0  # feedback that another process stores, and what quarantine releases


@dataclass
class QueueFiller:
    store: Store
    writer: GroupCommitWriter
    ended: threading.Event = field(default_factory=threading.Event)

    def running(self) -> AbstractContextManager[None]:
        return in_background(self._run, "queue-filler", self.ended, self.writer.committed)

    def _run(self) -> None:
        while not self.ended.is_set():
            self.writer.committed.clear()
            more, started = False, time.monotonic()
            try:
                more = queue_complaints(self.store, strata_of, rows=ROWS, actor="api").more
            except MedloopError as error:  # a busy or absent database: the next look tries again
                log.warning("%s", error)
            except Exception as error:  # never the text of it: it may hold what people wrote
                log.error("the review queue was not filled: %s", type(error).__name__)
            took = time.monotonic() - started
            if self.writer.committed.is_set():
                self._rest(REST * took)
            elif not more and not self.ended.is_set():  # the end may have been said before this look forgot the last commit
                self.writer.committed.wait(EVERY_S)

    def _rest(self, seconds: float) -> None:
        """Let the others write; until the time is over, or nobody writes any more."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.ended.wait(QUIET_S):
            self.writer.committed.clear()
            if not self.writer.committed.wait(QUIET_S):
                return
