"""The server's thread that reads new traces and ratings for the running experiments and lets a verdict take effect.

It looks a moment after something new was stored and analyses at most every few seconds, so a guard stops harm within seconds
without anybody looking.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from medloop.contracts.experiment import ExperimentReport
from medloop.errors import MedloopError
from medloop.loop.experiment import Judge, default_judge, refresh, report_of, withdraw_again
from medloop.store.background import in_background
from medloop.store.db import Store
from medloop.store.records import experiments

log = logging.getLogger(__name__)
EVERY_S = 5.0
RETRY_S = 30.0  # between two tries to withdraw a version that harmed
MOVING_S = 60.0  # without anything new, windows of users close all the same


@dataclass
class ReportCache:
    """Reports for pages: made anew when something has changed, and for a running experiment at most every few seconds."""

    store: Store
    every_s: float = EVERY_S
    _reports: dict[str, tuple[float, tuple[int, int, int], ExperimentReport]] = field(default_factory=dict)

    def get(self, experiment_id: str) -> ExperimentReport:
        state, now = experiments.observed_so_far(self.store, experiment_id), time.monotonic()
        made, known, report = self._reports.get(experiment_id, (0.0, (-1, -1, -1), None))
        is_same = known == state and (report is not None and (report.state != "running" or now - made < MOVING_S))
        is_fresh = known[2] == state[2] and known[1] == state[1] and now - made < self.every_s
        if report is None or not (is_same or is_fresh):
            report = report_of(self.store, experiment_id, checked=False)
            self._reports[experiment_id] = (now, state, report)
        return report


@dataclass
class ExperimentWatch:
    store: Store
    every_s: float = EVERY_S
    judge: Judge | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    _retried: float = float("-inf")

    def running(self) -> AbstractContextManager[None]:
        return in_background(self._run, "experiment-watch", self.ended)

    def _run(self) -> None:
        while not self.ended.wait(self.every_s):
            try:
                self.look()
            except MedloopError as error:  # a busy or absent database: the next look tries again
                log.warning("%s", error)
            except Exception as error:  # never the text of it: it may hold what people wrote
                log.error("the running experiments were not read: %s", type(error).__name__)

    def look(self) -> None:
        """One round over the running experiments of all sites; now and then, again the withdrawals that failed."""
        if time.monotonic() - self._retried >= RETRY_S:
            withdraw_again(self.store)
            self._retried = time.monotonic()
        for experiment_id in experiments.running_ids(self.store):
            if self.judge is None:
                self.judge = default_judge()
            refresh(self.store, experiment_id, judge=self.judge)
