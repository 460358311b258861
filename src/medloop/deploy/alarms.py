"""When a live version has to go: readings of its use against the limits of the settings, each with a minimum count.

alarms(LiveReadings(flaggers=2, …), settings.deploy)     # (LiveAlarm(kind="critical_flags", …),)
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from medloop.contracts.deploy import Canary, CanaryVerdict, LiveAlarm
from medloop.deploy.canary import ask_canaries
from medloop.deploy.protocol import Fleet
from medloop.deploy.server import ServerDownError, observe
from medloop.sections import DeploySettings

MOST_ANSWERS = 20_000  # that are remembered


@dataclass(frozen=True)
class AnswerCounts:
    """Answers of one version as its users got them; `p95_s`: seconds that 95 % of the good ones took at most; `third_s`:
    of the third slowest, so that one or two slow ones are no alarm."""

    answers: int = 0
    failed: int = 0
    p95_s: float = 0.0
    third_s: float = 0.0


@dataclass(frozen=True)
class LiveReadings:
    flaggers: int = 0
    judged: int = 0
    liked: int = 0
    counts: AnswerCounts = AnswerCounts()
    failed_probes: tuple[CanaryVerdict, ...] = ()  # each was asked twice


@dataclass
class LiveAnswers:
    """How long the answers of this process took, and whether they came; the gateway adds each one."""

    _rows: deque[tuple[float, str, bool, float]] = field(default_factory=lambda: deque(maxlen=MOST_ANSWERS))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, served_name: str, *, ok: bool, seconds: float) -> None:
        with self._lock:
            self._rows.append((time.monotonic(), served_name, ok, seconds))

    def counts(self, served_name: str, window_s: float) -> AnswerCounts:
        since = time.monotonic() - window_s
        with self._lock:
            rows = [(ok, seconds) for at, name, ok, seconds in self._rows if name == served_name and at >= since]
        good = sorted(seconds for ok, seconds in rows if ok)
        p95 = good[-(-95 * len(good) // 100) - 1] if good else 0.0
        return AnswerCounts(len(rows), len(rows) - len(good), p95, good[-3] if len(good) >= 3 else 0.0)


def alarms(readings: LiveReadings, limits: DeploySettings) -> tuple[LiveAlarm, ...]:
    return tuple(_alarms(readings, limits))


def _alarms(readings: LiveReadings, limits: DeploySettings) -> Iterator[LiveAlarm]:
    counts = readings.counts
    if readings.failed_probes:
        failed = readings.failed_probes[0]
        yield LiveAlarm(
            kind="red_team", reason=f"The probe '{failed.canary_id}' failed twice: {failed.reason}",
            numbers={"failed": len(readings.failed_probes)},
        )  # fmt: skip
    if 0 < limits.max_critical_flags <= readings.flaggers:
        yield LiveAlarm(
            kind="critical_flags", reason=f"{readings.flaggers} people flagged its answers as critical.",
            numbers={"people": readings.flaggers, "limit": limits.max_critical_flags},
        )  # fmt: skip
    if readings.judged >= limits.min_ratings and readings.liked < limits.min_satisfaction * readings.judged:
        share = readings.liked / readings.judged
        yield LiveAlarm(
            kind="satisfaction", reason=f"{share:.0%} of {readings.judged} judged answers were liked.",
            numbers={"share": share, "judged": readings.judged, "limit": limits.min_satisfaction},
        )  # fmt: skip
    if counts.answers < limits.min_answers:
        return
    if counts.failed > limits.max_error_rate * counts.answers:
        rate = counts.failed / counts.answers
        yield LiveAlarm(
            kind="error_rate", reason=f"{rate:.0%} of {counts.answers} answers failed.",
            numbers={"rate": rate, "answers": counts.answers, "limit": limits.max_error_rate},
        )  # fmt: skip
    if 0 < limits.max_latency_s < min(counts.p95_s, counts.third_s):
        yield LiveAlarm(
            kind="latency", reason=f"95 % of {counts.answers} answers took up to {counts.p95_s:.1f} s.",
            numbers={"p95_s": counts.p95_s, "answers": counts.answers, "limit": limits.max_latency_s},
        )  # fmt: skip


@dataclass
class LiveProbe:
    """Asks the live version a few canaries each time, in turn, on one server after the other."""

    fleet: Fleet
    _next: int = 0
    _turn: int = 0
    _died: set[tuple[str, str]] = field(default_factory=set)  # a server, and the version that it was asked for

    def ask(self, served_name: str, answers: LiveAnswers | None = None) -> tuple[CanaryVerdict, ...]:
        """The verdicts that did not pass, twice in a row; empty where no server can be asked."""
        fleet, limits = self.fleet, self.fleet.store.settings.deploy
        servers = [server for server in fleet.servers if (state := observe(server)).is_up and state.find(served_name)]
        if not servers:
            return ()
        server = servers[self._turn % len(servers)]
        self._turn += 1
        failed = list[CanaryVerdict]()
        try:
            for canary in self._some(limits.probe_questions):
                verdicts = list(ask_canaries(server, served_name, [canary], fleet.judge, seconds=limits.answer_s))
                if not verdicts[0].passed:
                    verdicts += ask_canaries(server, served_name, [canary], fleet.judge, seconds=limits.answer_s)
                if answers is not None:
                    answers.add(served_name, ok=bool(verdicts[-1].seconds), seconds=verdicts[-1].seconds)
                failed += [] if verdicts[-1].passed else [verdicts[-1]]
        except ServerDownError:
            # A server that goes away once says nothing about the version; one that does so again while it is asked for it does.
            if answers is not None and (observe(server).is_up or (server.url, served_name) in self._died):
                answers.add(served_name, ok=False, seconds=limits.answer_s)
            else:
                self._died.add((server.url, served_name))
        return tuple(failed)

    def _some(self, count: int) -> Sequence[Canary]:
        canaries = self.fleet.canaries
        chosen = [canaries[(self._next + n) % len(canaries)] for n in range(min(count, len(canaries)))]
        self._next = (self._next + len(chosen)) % len(canaries)
        return chosen
