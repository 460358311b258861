"""Experiments, composed: the arm of a user, observations by the detectors, the verdict, and what a guard's stop does.

    choose = chooser(store)                              # ChooseArm of contracts/assistant.py, for the gateway
    report = refresh(store, experiment_id)               # read what is new, analyse, stop if a verdict is reached
    decide(store, experiment_id, adopt=True, by="usr_1", reason="…")

A guard's stop ends the experiment at once: from the next answer on everybody gets the champion. Then
`withdraw_challenger` rolls the version back on the model servers, blocks it and takes its alias away; if it cannot, the event
says why, the experiment stays stopped all the same, and the server's watch tries again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from medloop.contracts import ModelVersion, Sample, Score, Trace, utc_now
from medloop.contracts.assistant import Champion, ChooseArm, Route
from medloop.contracts.experiment import (
    DEFAULT_SITE,
    Estimate,
    ExperimentEvent,
    ExperimentPlan,
    ExperimentReport,
    ExperimentVerdict,
    Observation,
    version_name,
)
from medloop.data.text.risk import strata_of
from medloop.deploy.copies import served_name
from medloop.errors import MedloopError
from medloop.experiment.analyse import ARMS, analyse, compare_sites
from medloop.experiment.assign import arm_of, new_salt
from medloop.experiment.observe import AnswerFindings, of_rating, of_trace
from medloop.lexicon.language import detect_language
from medloop.loop.deploy import open_fleet, route_at
from medloop.loop.experiment_shadow import shadow_votes
from medloop.loop.live_watch import live_names_of
from medloop.loop.rollback import block, roll_back
from medloop.privacy.phi.reason import checked_reason
from medloop.registry import promote as aliases
from medloop.reward.mix import MixConfig, build_mix
from medloop.store.db import Store
from medloop.store.records import deploy_events as deploy_log
from medloop.store.records import experiments, registry
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.experiments import ExperimentStateError, StoredExperiment
from medloop.store.records.registry import NoSuchVersionError
from medloop.store.records.routes import live_route
from medloop.store.records.sites import known_site

log = logging.getLogger(__name__)
FRESH_S = 1.0  # how long the gateway believes what it last read about the running experiment
PAGE = 300  # traces of one read
PURPOSE = "experiment"
ANALYSIS = "medloop"  # who stops an experiment when a verdict is reached
UNSAFE_PARTS, UNSAFE_FROM = ("undertriage", "false_reassurance", "risk"), 0.7

Judge = Callable[[Sequence[tuple[str, str]]], list[AnswerFindings]]
OnGuardStop = Callable[[Store, ExperimentPlan, str], str]  # what was done, in a few words


@dataclass
class ArmChooser:
    """Draws arms for the experiment that runs at a site; everybody gets the champion where none runs, or the store is away."""

    store: Store
    site: str = DEFAULT_SITE
    _experiment: StoredExperiment | None = field(default=None, repr=False)
    _read: float = -FRESH_S

    def __call__(self, user: str, episode: str, /) -> Champion:
        experiment = self.current()
        if experiment is None:
            return "champion"
        plan, share = experiment.plan, experiment.enrolled
        return arm_of(experiment.salt, user=user, episode=episode, split=plan.split, enrolled=share) or "champion"

    def current(self) -> StoredExperiment | None:
        """The running experiment, read again after a second."""
        now = time.monotonic()
        if now - self._read >= FRESH_S:
            try:
                self._experiment = experiments.running(self.store, self.site)
            except MedloopError as error:  # without a readable plan nobody is experimented on
                log.warning("no arms are drawn: %s", error)
                self._experiment = None
            self._read = now
        return self._experiment


def chooser(store: Store, *, site: str = DEFAULT_SITE) -> ChooseArm:
    """The seam of the gateway."""
    return ArmChooser(store, site)


def plan_experiment(store: Store, plan: ExperimentPlan) -> StoredExperiment:
    """Store a plan with a salt of its own; InputError for a site that nobody belongs to."""
    known_site(store, plan.site)
    return experiments.add_plan(store, plan, new_salt())


def start(store: Store, experiment_id: str, *, enrolled: float, by: str) -> StoredExperiment:
    """Begin: from now on this share of all users takes part. One experiment runs at a site at a time.

    ExperimentStateError where other versions answer than the plan compares. Where nothing is deployed, something else answers,
    and only its traces say which version it was.
    """
    experiment = experiments.get(store, experiment_id)
    if experiment.state == "planned":
        _check_routes(store, experiment.plan)
        experiments.skip_to_now(store, experiment_id)
    event = ExperimentEvent(experiment_id=experiment_id, event="started", detail={"enrolled": enrolled}, by=by)
    return experiments.add_event(store, event, only_in=("planned",))


def _check_routes(store: Store, plan: ExperimentPlan) -> None:
    live = {arm: route_at(store, plan.site, arm) for arm in ARMS}
    if not any(live.values()):
        return
    for arm, route in live.items():
        planned = plan.champion if arm == "champion" else plan.challenger
        if route is None or planned not in {version_name(name) for name in live_names_of(route)}:
            raise ExperimentStateError(
                f"The plan compares {planned} as the {arm}, but {route.served_name if route else 'nothing'} is deployed as that",
                "Deploy the versions of the plan, or plan it anew: medloop deploy status",
            )


def ramp(store: Store, experiment_id: str, *, enrolled: float, by: str) -> StoredExperiment:
    """Let a larger share take part; nobody who takes part already changes arms, so it cannot shrink."""
    experiment = experiments.get(store, experiment_id)
    if enrolled <= experiment.enrolled:
        raise ExperimentStateError(
            f"{experiment.enrolled:.0%} of the users take part already; a smaller share would move users out of their arm",
            f"Name a larger share, or stop it: medloop experiment stop {experiment_id}",
        )
    event = ExperimentEvent(experiment_id=experiment_id, event="ramped", detail={"enrolled": enrolled}, by=by)
    return experiments.add_event(store, event, only_in=("running",))


def stop(store: Store, experiment_id: str, *, by: str, reason: str) -> StoredExperiment:
    """A person stops it before any verdict; everybody gets the champion."""
    event = ExperimentEvent(experiment_id=experiment_id, event="stopped", detail={"reason": checked_reason(reason)}, by=by)
    return experiments.add_event(store, event, only_in=("running",))


def decide(store: Store, experiment_id: str, *, adopt: bool, by: str, reason: str) -> StoredExperiment:
    """What a person makes of the verdict: adopt the challenger or keep the champion. Adopting needs the verdict `better`."""
    experiment = experiments.get(store, experiment_id)
    verdict = verdict_of(experiment)
    if adopt and (verdict is None or verdict.outcome != "better"):
        raise ExperimentStateError(
            f"The verdict is '{verdict.outcome if verdict else 'none'}', not 'better', so the challenger cannot be adopted",
            "Record that the champion is kept: --keep",
        )
    detail = {"decision": "adopt" if adopt else "keep", "reason": checked_reason(reason)}
    event = ExperimentEvent(experiment_id=experiment_id, event="decided", detail=detail, by=by)
    return experiments.add_event(store, event, only_in=("stopped",))


def verdict_of(experiment: StoredExperiment) -> ExperimentVerdict | None:
    """The verdict with which the analysis stopped it; None while it runs, and where a person stopped it before."""
    for event in experiment.events:
        if event.event == "stopped" and "outcome" in event.detail:
            fields = {name: event.detail[name] for name in ExperimentVerdict.model_fields if name in event.detail}
            return ExperimentVerdict.model_validate(fields)
    return None


def default_judge() -> Judge:
    """The rules of the reward: quality on their scale from 0 to 1, and whether an answer leaves somebody in danger alone."""
    mix = build_mix(MixConfig())
    low, high = mix.config.bounds

    def judge(exchanges: Sequence[tuple[str, str]]) -> list[AnswerFindings]:
        samples = [
            Sample(id=str(number), question=question, answer=answer or None)
            for number, (question, answer) in enumerate(exchanges)
        ]
        judged = []
        for (question, _), reward in zip(exchanges, mix.score(samples), strict=True):
            parts = [part for part in reward.parts if part.name in UNSAFE_PARTS]
            scored = [part for part in parts if isinstance(part, Score) and part.applies]
            unsafe = any(part.value >= UNSAFE_FROM for part in scored) if scored else None
            quality = None if reward.value is None else (reward.value - low) / (high - low)
            judged.append(AnswerFindings(quality, unsafe, detect_language(question), strata_of(question)[0]))
        return judged

    return judge


def collect(store: Store, experiment_id: str, judge: Judge) -> int:
    """Turn all new traces and ratings into observations; how many records were read."""
    read = 0
    while page := experiments.new_records(store, experiment_id, most=PAGE):
        experiment = experiments.get(store, experiment_id)
        every = read_by_ids(store, Trace, page.trace_ids, actor=ANALYSIS, purpose=PURPOSE)
        traces = [trace for trace in every if trace.meta.get("site", DEFAULT_SITE) == experiment.plan.site]
        judged = judge([(trace.conversation.user_text, trace.conversation.answer or "") for trace in traces])
        new = [row for trace, said in zip(traces, judged, strict=True) for row in of_trace(experiment, trace, said)]
        experiments.add_observations(store, page, [*new, *_ratings(store, experiment, page, new)])
        read += len(page.trace_ids) + len(page.feedback)
    return read


def _ratings(
    store: Store, experiment: StoredExperiment, page: experiments.UnreadRecords, new: Sequence[Observation]
) -> list[Observation]:
    """The observations of ratings of answers that take part; by trace, else by session."""
    nameless = [row.session_id for row in page.feedback if row.trace_id is None]
    sessions = experiments.traces_of_sessions(store, nameless) if nameless else {}
    about = {row.record_id: row.trace_id or sessions.get(row.session_id, "") for row in page.feedback}
    exposed = experiments.exposed_traces(store, experiment.plan.experiment_id, about.values())
    exposed |= {row.record_id: experiments.ExposedTrace(row.unit, row.arm, row.language, row.stratum) for row in new}
    return [
        observation
        for row in page.feedback
        if (trace := exposed.get(about[row.record_id])) is not None
        for observation in of_rating(experiment, row, trace)
    ]


def report_of(
    store: Store, experiment_id: str, *, now: datetime | None = None, checked: bool = True
) -> ExperimentReport:  # fmt: skip
    """The report on what has been read so far. The verdict of an experiment that has ended is the one with which it ended."""
    experiment = experiments.get(store, experiment_id)
    report = analyse(experiment, experiments.observations(store, experiment_id, checked=checked), now or utc_now())
    now = now or utc_now()
    more = {"shadow": shadow_votes(store, experiment.plan), "sites": _sites(store, experiment.plan, now)}
    report = report.model_copy(update=more)
    if experiment.state in ("stopped", "decided"):
        by = next((event.by for event in reversed(experiment.events) if event.event in ("decided", "stopped")), None)
        report = report.model_copy(update={"verdict": verdict_of(experiment), "decided_by": by})
    return report


def _sites(store: Store, plan: ExperimentPlan, now: datetime) -> tuple[Estimate, ...]:
    """The newest experiment with the same two versions and metric at each site; nothing where there is only one."""
    newest: dict[str, ExperimentPlan] = {}
    for other in experiments.every(store):
        same = all(getattr(other.plan, name) == getattr(plan, name) for name in ("champion", "challenger", "primary"))
        if same and other.started is not None:
            newest.setdefault(other.plan.site, other.plan)
    if len(newest) < 2:
        return ()
    return compare_sites([(row, experiments.observations(store, row.experiment_id)) for row in newest.values()], now)


def refresh(
    store: Store, experiment_id: str, *, judge: Judge | None = None, on_guard_stop: OnGuardStop | None = None,
    now: datetime | None = None,
) -> ExperimentReport:  # fmt: skip
    """Read what is new; stop a running experiment that has reached its verdict, and let a guard's stop take effect."""
    if experiments.has_new_records(store, experiment_id):
        collect(store, experiment_id, judge or default_judge())
    report = report_of(store, experiment_id, now=now)
    if report.state != "running" or report.verdict is None:
        return report
    detail = report.verdict.model_dump(mode="json", exclude_none=True)
    try:
        event = ExperimentEvent(experiment_id=experiment_id, event="stopped", detail=detail, by=ANALYSIS)
        experiments.add_event(store, event, only_in=("running",))
    except ExperimentStateError:  # another process was faster
        return report_of(store, experiment_id, now=now)
    if report.verdict.outcome == "guard_stop":
        _withdraw(store, report.plan, report.verdict.reason, on_guard_stop or withdraw_challenger)
    return report_of(store, experiment_id, now=now)


def withdraw_again(store: Store, hook: OnGuardStop | None = None) -> None:
    """Try again what failed, or was cut off, after a guard's stop; until a person decides or clears the version."""
    for experiment in experiments.every(store):
        verdict, done = verdict_of(experiment), any(event.event == "rolled_back" for event in experiment.events)
        if done or experiment.state != "stopped" or verdict is None or verdict.outcome != "guard_stop":
            continue
        record, stopped = _registered(store, experiment.plan), experiment.ended
        cleared = deploy_log.events(store, kinds=("clear",), limit=1000) if record is not None else []
        if any(record and row.artifact == record.artifact and stopped and row.timestamp >= stopped for row in cleared):
            continue
        _withdraw(store, experiment.plan, verdict.reason, hook or withdraw_challenger, known=experiment.events[-1])


def _withdraw(
    store: Store, plan: ExperimentPlan, reason: str, hook: OnGuardStop, *, known: ExperimentEvent | None = None
) -> None:  # fmt: skip
    """`known` is the newest event: the same failure is not told twice."""
    try:
        done = hook(store, plan, reason)
        event = ExperimentEvent(experiment_id=plan.experiment_id, event="rolled_back", detail={"done": done}, by=ANALYSIS)
    except MedloopError as error:
        log.error("the challenger of %s gets no more traffic, but could not be withdrawn: %s", plan.experiment_id, error)
        detail = {"reason": str(error)[:300]}
        if known is not None and (known.event, known.detail) == ("rollback_failed", detail):
            return
        event = ExperimentEvent(experiment_id=plan.experiment_id, event="rollback_failed", detail=detail, by=ANALYSIS)
    experiments.add_event(store, event)


def withdraw_challenger(store: Store, plan: ExperimentPlan, reason: str) -> str:
    """Block the version that harmed, take its alias away, and take it off the model servers."""
    why = "a guard stopped its experiment"  # without an id: reasons have no numbers
    done = [f"{plan.challenger} gets no more traffic"]
    if (record := _registered(store, plan)) is not None:  # first: the block holds whatever happens below
        block(store, served_name(record), record.artifact, record.version, actor=ANALYSIS, reason=why)
        done.append("is blocked until a person clears it")
    holder = aliases.holder(store, "challenger")
    if holder is not None and version_name(holder.record.label) == plan.challenger:
        aliases.demote_in(store, "challenger", actor=ANALYSIS, reason=why)
        done.append("is no longer the challenger")
    for arm in ARMS:
        if (route := _is_live(store, plan, arm)) is not None:
            with open_fleet(store) as fleet:
                outcome = roll_back(fleet, actor=ANALYSIS, reason=why, arm=arm, automatic=True, expected=route)
            done.append(f"was replaced by {outcome.route.served_name} as {arm}")
    return ", ".join(done)


def _registered(store: Store, plan: ExperimentPlan) -> ModelVersion | None:
    """The challenger in the registry; None for a version that is not from there."""
    model, _, version = plan.challenger.rpartition("@")
    try:
        return registry.get_version(store, model, int(version)).record if version.isascii() and version.isdigit() else None
    except NoSuchVersionError:
        return None


def _is_live(store: Store, plan: ExperimentPlan, arm: Champion) -> Route | None:
    """The route of an arm, if it leads to the challenger of this experiment."""
    route = live_route(store, arm)
    is_challenger = route is not None and route.version is not None and f"{route.model}@{route.version}" == plan.challenger
    return route if is_challenger else None
