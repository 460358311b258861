"""Beside the API: watches what is deployed, every `deploy.check_every_s` seconds (loop/live_watch.py)."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from medloop.deploy.alarms import LiveAnswers
from medloop.errors import MedloopError
from medloop.loop.deploy import open_fleet
from medloop.loop.live_watch import LiveWatch
from medloop.store.background import in_background
from medloop.store.db import Store

log = logging.getLogger(__name__)


@dataclass
class DeployWatch:
    """A thread of the server; without model servers in the settings there is nothing to watch."""

    store: Store
    answers: LiveAnswers
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        limits = self.store.settings.deploy
        if not limits.urls or not limits.check_every_s:
            yield
            return
        with in_background(self._run, type(self).__name__, self.ended):
            yield

    def _run(self) -> None:
        every_s = self.store.settings.deploy.check_every_s
        try:
            with open_fleet(self.store) as fleet:
                watch = LiveWatch(fleet, self.answers)
                while not self.ended.wait(every_s):
                    self._look(watch)
        except MedloopError as error:  # a setting that is wrong: the API serves without it
            log.error("What is deployed is not watched: %s", error)

    def _look(self, watch: LiveWatch) -> None:
        try:
            report = watch.check()
        except MedloopError as error:  # a busy or absent database: the next look tries again
            log.warning("%s", error)
            return
        for alarm in report.alarms:
            log.warning("Alarm about the live version: %s", alarm.kind)
        if report.rollback is not None:
            log.warning("Rolled back: %s answers now", report.rollback.route.served_name)
        for sentence in report.sites:
            log.warning("Champion of a site: %s", sentence)
        if report.problem:
            log.warning("%s", report.problem)
