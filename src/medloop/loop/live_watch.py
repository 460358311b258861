"""What watches the live version: the servers have it, probes and people are content with it, or it is rolled back.

watch = LiveWatch(fleet)
watch.check()                    # reconcile, probe, alarms, rollback; call it every few seconds
watch.answers.add("med-assistant-v3-1f2e3d4c", ok=True, seconds=1.2)      # each answer that a user got
"""

import time
from dataclasses import dataclass, field
from datetime import timedelta

from medloop.contracts import utc_now
from medloop.contracts.assistant import Route
from medloop.contracts.deploy import CanaryVerdict, DeployEvent, LiveAlarm
from medloop.deploy.alarms import LiveAnswers, LiveProbe, LiveReadings, alarms
from medloop.deploy.protocol import Fleet
from medloop.deploy.reconcile import Reconciler, ReconcileReport
from medloop.errors import MedloopError
from medloop.loop.deploy import DeployOutcome
from medloop.loop.rollback import roll_back
from medloop.store.records import deploy_events as log
from medloop.store.records.live_signals import live_signals
from medloop.store.records.routes import live_route


@dataclass(frozen=True)
class WatchReport:
    """One look: the servers, the alarms that stand, and where a rollback went."""

    servers: ReconcileReport
    alarms: tuple[LiveAlarm, ...] = ()
    rollback: DeployOutcome | None = None
    problem: str = ""


@dataclass
class LiveWatch:
    """Looks again and again; remembers when the last probe was and which loads rest."""

    fleet: Fleet
    answers: LiveAnswers = field(default_factory=LiveAnswers)
    _reconciler: Reconciler = field(init=False)
    _probe: LiveProbe = field(init=False)
    _probed: float = float("-inf")
    _failed: tuple[str, tuple[CanaryVerdict, ...]] = ("", ())

    def __post_init__(self) -> None:
        self._reconciler, self._probe = Reconciler(self.fleet), LiveProbe(self.fleet)

    def check(self) -> WatchReport:
        store = self.fleet.store
        report, live = self._reconciler.check(), live_route(store)
        if live is None:
            return WatchReport(report)
        standing = alarms(self._readings(live), store.settings.deploy)
        for alarm in standing:
            self._record(live, alarm)
        if not standing or not store.settings.deploy.rollback_automatically or live.artifact is None:
            return WatchReport(report, standing)
        if not any(replica.is_up for replica in report.replicas):
            return WatchReport(report, standing, problem="No model server answers, so there is nothing to roll back to.")
        reason = f"{standing[0].kind}: {standing[0].reason}"
        try:
            outcome = roll_back(self.fleet, actor="medloop", reason=reason, automatic=True, expected=live)
        except MedloopError as error:
            return WatchReport(report, standing, problem=str(error))
        self._failed = ("", ())
        return WatchReport(report, standing, outcome)

    def _readings(self, live: Route) -> LiveReadings:
        store, limits = self.fleet.store, self.fleet.store.settings.deploy
        since = max(live.timestamp, utc_now() - timedelta(minutes=limits.window_minutes))
        signals = live_signals(store, live_names_of(live), since)
        window_s = (utc_now() - since).total_seconds()
        if limits.probe_every_s and time.monotonic() - self._probed >= limits.probe_every_s:
            self._failed = (live.served_name, self._probe.ask(live.served_name, self.answers))
            self._probed = time.monotonic()
        failed = self._failed[1] if self._failed[0] == live.served_name else ()
        counts = self.answers.counts(live.served_name, window_s)
        return LiveReadings(signals.flaggers, signals.judged, signals.liked, counts, failed)

    def _record(self, live: Route, alarm: LiveAlarm) -> None:
        """Once for each kind and each time that a version went live."""
        known = log.events(self.fleet.store, kinds=("alarm",), served_name=live.served_name)
        if any(event.reason.startswith(f"{alarm.kind}:") and event.timestamp >= live.timestamp for event in known):
            return
        event = DeployEvent(
            event_id=log.new_event_id(), kind="alarm", served_name=live.served_name, artifact=live.artifact,
            version=live.version, reason=f"{alarm.kind}: {alarm.reason}", numbers=alarm.numbers,
        )  # fmt: skip
        log.add_event(self.fleet.store, event)


def live_names_of(route: Route) -> list[str]:
    """What traces and feedback may call the version that answers."""
    numbered = [] if route.version is None else [f"{route.model}@{route.version}", f"{route.model}/{route.version}"]
    names = [route.served_name, *numbered]
    return [*names, *([] if route.artifact is None else [route.artifact])]
