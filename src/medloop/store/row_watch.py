"""The server's thread that checks the MACs of the rows, a page at a time, and the tables against the audit log.

What it finds is the alarm of `medloop audit verify`: an error in the server's log, a line `audit.alarm` in the audit log, and a
task on the home page of those who read the log. A page of 500 rows takes about 16 ms of a processor and comes every ten seconds;
a million rows take under six hours. After each round the tables are compared with the log, one table at a time. At the end of a
round the task is about what that round found: a row that was repaired ends it, and its line in the audit log stays.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from medloop.contracts import AuditEvent
from medloop.errors import MedloopError
from medloop.store import audit, row_macs
from medloop.store.background import in_background
from medloop.store.db import Store
from medloop.store.integrity import alarm_text, listed
from medloop.store.row_macs import ANNOUNCED, ChangedRow

log = logging.getLogger(__name__)
ALARM = "audit.alarm"
ROWS = 500  # of one page
EVERY_S = 10.0
MOST_NAMED = 5  # rows in the line of the log


@dataclass
class RowWatch:
    store: Store
    wrong: set[ChangedRow] = field(default_factory=set)  # found by the last round or by this one
    ended: threading.Event = field(default_factory=threading.Event)

    def running(self) -> AbstractContextManager[None]:
        return in_background(self._run, "row-watch", self.ended)

    def _run(self) -> None:
        steps, wrong = self.steps(), set[ChangedRow]()
        while not self.ended.wait(EVERY_S):
            try:
                if (rows := next(steps, None)) is not None:
                    self.raise_alarm(rows)
                    wrong.update(rows)
                    continue
                self.end_round(wrong)
            except MedloopError as error:  # a busy or absent database: the round begins again
                log.warning("%s", error)
            except Exception as error:  # never the text of it
                log.error("the rows of the database were not checked: %s", type(error).__name__)
            steps, wrong = self.steps(), set()

    def steps(self) -> Iterator[list[ChangedRow]]:
        """One round: what does not fit in each page of each table, then in each table as a whole."""
        for table in row_macs.guarded_tables():
            after, checked = 0, ROWS
            while checked == ROWS:
                with self.store.read() as conn:
                    page = row_macs.check_page(self.store, conn, table, after, ROWS)
                after, checked = page.last_row, page.checked
                if checked:
                    yield page.changed
        for name in ANNOUNCED:
            with self.store.read() as conn:
                rows = row_macs.check_announced(conn, name)
            yield rows

    def raise_alarm(self, rows: list[ChangedRow]) -> None:
        """Tell about rows that were not known yet, once."""
        if not (new := [row for row in rows if row not in self.wrong]):
            return
        named = "; ".join(listed(new[:MOST_NAMED]))
        detail: dict[str, str | int | float | bool] = {"rows": len(new), "first": named}
        with self.store.write() as conn:
            audit.append(conn, AuditEvent(actor="api", action=ALARM, subject=new[0].table, detail=detail))
        log.error("%s (%s); run: medloop audit verify", alarm_text(len(new)), named)
        self.wrong.update(new)  # now, so that a line that could not be written is tried again in the next round
        self.store.row_alarm = len(self.wrong)

    def end_round(self, wrong: set[ChangedRow]) -> None:
        """Only what a whole round found is still wrong; the same row may raise the alarm again later."""
        if repaired := self.wrong - wrong:
            log.warning("%s row(s) that did not fit are as they should be again", f"{len(repaired):,}")
        self.wrong = wrong
        self.store.row_alarm = len(wrong)
