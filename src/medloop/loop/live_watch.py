"""What watches the live version: the servers have it, probes and people are content with it, or it is rolled back.

watch = LiveWatch(fleet)
watch.check()                    # reconcile, probe, alarms, rollback; call it every few seconds
watch.answers.add("med-assistant-v3-1f2e3d4c", ok=True, seconds=1.2)      # each answer that a user got
"""

import time
from collections.abc import Iterator
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
from medloop.loop.rollback import block, roll_back
from medloop.store.records import deploy_events as log
from medloop.store.records.live_signals import live_signals
from medloop.store.records.routes import live_route, site_champions


@dataclass(frozen=True)
class WatchReport:
    """One look: the servers, the alarms that stand, and where a rollback went."""

    servers: ReconcileReport
    alarms: tuple[LiveAlarm, ...] = ()
    rollback: DeployOutcome | None = None
    problem: str = ""
    sites: tuple[str, ...] = ()  # what stands about champions of sites, and what was done, in words


@dataclass
class LiveWatch:
    """Looks again and again; remembers when the last probe was and which loads rest."""

    fleet: Fleet
    answers: LiveAnswers = field(default_factory=LiveAnswers)
    _reconciler: Reconciler = field(init=False)
    _probe: LiveProbe = field(init=False)
    _probed: dict[str, float] = field(default_factory=dict)  # by served name
    _failed: dict[str, tuple[CanaryVerdict, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reconciler, self._probe = Reconciler(self.fleet), LiveProbe(self.fleet)

    def check(self) -> WatchReport:
        store = self.fleet.store
        report, live = self._reconciler.check(), live_route(store)
        sites = tuple(self._check_sites(live, any(replica.is_up for replica in report.replicas)))
        if live is None:
            return WatchReport(report, sites=sites)
        standing = alarms(self._readings(live), store.settings.deploy)
        for alarm in standing:
            self._record(live, alarm)
        if not standing or not store.settings.deploy.rollback_automatically or live.artifact is None:
            return WatchReport(report, standing, sites=sites)
        if not any(replica.is_up for replica in report.replicas):
            problem = "No model server answers, so there is nothing to roll back to."
            return WatchReport(report, standing, problem=problem, sites=sites)
        reason = f"{standing[0].kind}: {standing[0].reason}"
        try:
            outcome = roll_back(self.fleet, actor="medloop", reason=reason, automatic=True, expected=live)
        except MedloopError as error:
            return WatchReport(report, standing, problem=str(error), sites=sites)
        self._failed.pop(live.served_name, None)
        return WatchReport(report, standing, outcome, sites=sites)

    def _check_sites(self, main: Route | None, any_up: bool) -> Iterator[str]:
        """The champions of sites, by the same limits; one with an alarm is blocked, and main's champion answers there."""
        store = self.fleet.store
        own = {route.served_name: route for route in site_champions(store).values()}
        for name, route in own.items():
            if main is not None and name == main.served_name:
                continue  # what stands against it stands against the champion of main
            standing = alarms(self._readings(route), store.settings.deploy)
            for alarm in standing:
                self._record(route, alarm)
                yield f"{name}: {alarm.kind}: {alarm.reason}"
            if standing and any_up and store.settings.deploy.rollback_automatically and route.artifact is not None:
                reason = f"{standing[0].kind}: {standing[0].reason}"
                left = block(store, name, route.artifact, route.version, actor="medloop", reason=reason)
                self._failed.pop(name, None)
                yield f"{name} is blocked, and the champion of main answers at {', '.join(left)}."

    def _readings(self, live: Route) -> LiveReadings:
        store, limits = self.fleet.store, self.fleet.store.settings.deploy
        since = max(live.timestamp, utc_now() - timedelta(minutes=limits.window_minutes))
        signals = live_signals(store, live_names_of(live), since)
        window_s = (utc_now() - since).total_seconds()
        due = self._probed.get(live.served_name, float("-inf")) + limits.probe_every_s
        if limits.probe_every_s and time.monotonic() >= due:
            self._failed[live.served_name] = self._probe.ask(live.served_name, self.answers)
            self._probed[live.served_name] = time.monotonic()
        failed = self._failed.get(live.served_name, ())
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
