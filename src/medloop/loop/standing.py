"""Where the loop stands: nine stages, each with its count, its state, why, and what it is about; and what watches its safety.

    standing = loop_standing(store, runs=RunCounts(running=1))
    [(stage.name, stage.state, stage.why) for stage in standing.stages]     # ("sign_off", "waiting", "unsigned"), …

Facts of the store alone, by a fixed number of indexed queries; no model server is asked and no text is read. `why` is a word that
a page turns into a sentence. Training jobs are folders that a later layer knows, so the caller counts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from medloop.contracts.assistant import Route
from medloop.contracts.deploy import DeployEvent
from medloop.contracts.gate import GateResult
from medloop.feedback.insight.alerts import standing_alerts
from medloop.feedback.trigger import TriggerConfig, trigger_config, trigger_wait
from medloop.loop.workflow import CycleProgress, progress_of
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.records import deploy_events, experiments, gates, registry
from medloop.store.records.cycles import cycle_events, cycle_names
from medloop.store.records.incident_rows import IncidentCounts, count_incidents
from medloop.store.records.routes import live_route

StageName = Literal["feedback", "data", "train", "evaluate", "gate", "sign_off", "register", "deploy", "experiment"]
StageState = Literal["idle", "active", "waiting", "done", "stopped"]
DATASETS, MODELS, EVALUATIONS = ("feedback", "dataset"), ("adapter", "model"), ("evaluation",)
RECENT_GATES = 20  # verdicts that are looked through for missing sign-offs
UNDER_TRIAGE = ("under_triage", "undertriage", "emergency_missed")  # metrics, the first one that a verdict has
# The stage of a step of a cycle (cycle.py); a training's name begins with train-.
STEP_STAGES: dict[str, StageName] = {
    "data": "data", "evaluate": "evaluate", "gate": "gate", "sign-off": "sign_off", "register": "register",
    "promote": "register", "deploy": "deploy", "experiment": "experiment", "adopt": "deploy",
}  # fmt: skip


@dataclass(frozen=True)
class RunCounts:
    """Training jobs by state; `last` is the state of the newest one that ended."""

    running: int = 0
    waiting: int = 0
    last: str = ""
    newest: str = ""


@dataclass(frozen=True)
class StageStanding:
    """`subject` is the id of what the stage is about: a job, a verdict, an experiment; `when` the time of the newest."""

    name: StageName
    count: int
    state: StageState
    why: str
    values: Mapping[str, str | int] = field(default_factory=dict)
    subject: str = ""
    when: datetime | None = None


@dataclass(frozen=True)
class SafetyStanding:
    """`alarms` are those of the live version since it went live, `drifting` judges of the reward that changed."""

    incidents: IncidentCounts
    live: Route | None
    gate: GateResult | None
    alarms: tuple[DeployEvent, ...]
    drifting: int
    probing: bool
    under_triage: float | None  # the largest share that any set of the gate's cases has
    waived: int = 0  # checks that the gate refused and people let pass; 0 where one is still refused

    @property
    def failed_probes(self) -> tuple[DeployEvent, ...]:
        return tuple(event for event in self.alarms if event.reason.startswith("red_team:"))


@dataclass(frozen=True)
class LoopStanding:
    cycle: CycleProgress | None
    at: StageName | None  # where the cycle stands, if it is not over
    stages: tuple[StageStanding, ...]
    safety: SafetyStanding


def loop_standing(store: Store, *, runs: RunCounts = RunCounts(), pending: bool = False) -> LoopStanding:
    """`pending`: jobs of the last trigger have not ended."""
    safety = safety_standing(store)
    recent = gates.list_gates(store, limit=RECENT_GATES)
    unsigned = [result for result in _newest_of_each(recent) if _lacks_sign_offs(store, result)]
    cycle = newest_cycle(store)
    at = None if cycle is None or cycle.at is None or cycle.state in ("done", "ended") else stage_of_step(cycle.at.name)
    stages = (
        _feedback(store, trigger_config(store.settings), pending),
        _made(store, "data", DATASETS),
        _train(store, runs),
        _made(store, "evaluate", EVALUATIONS),
        _gate(store, recent),
        _sign_off(store, recent, unsigned),
        _register(store, recent, unsigned),
        _deploy(store, safety),
        _experiment(store),
    )
    return LoopStanding(cycle, at, tuple(_in_cycle(stage, cycle, at) for stage in stages), safety)


def newest_cycle(store: Store) -> CycleProgress | None:
    names = cycle_names(store)
    return progress_of(names[-1], cycle_events(store, names[-1])) if names else None


def stage_of_step(step: str) -> StageName | None:
    return "train" if step.startswith("train-") else STEP_STAGES.get(step)


def safety_standing(store: Store) -> SafetyStanding:
    live = live_route(store)
    gate = gates.latest_gate(store, live.artifact) if live is not None and live.artifact is not None else None
    raised = deploy_events.events(store, kinds=("alarm",), served_name=live.served_name) if live is not None else []
    return SafetyStanding(
        count_incidents(store), live, gate, tuple(event for event in raised if live and event.timestamp >= live.timestamp),
        len(standing_alerts(store.settings.workspace)), live is not None and store.settings.deploy.probe_every_s > 0,
        _missed(gate),
        0 if gate is None else gates.waived_checks(store, gate),
    )  # fmt: skip


def _missed(gate: GateResult | None) -> float | None:
    """The share of emergencies that the live version missed at the gate. A check's own value is the change."""
    shares: dict[str, list[float]] = {}
    for check in gate.checks if gate else ():
        for part in check.parts or ():
            if part.key == "loss_means" and check.stratum is None and check.metric is not None:
                shares.setdefault(check.metric, []).append(float(part.values["after"]))
    return next((max(shares[name]) for name in UNDER_TRIAGE if name in shares), None)


def _in_cycle(stage: StageStanding, cycle: CycleProgress | None, at: StageName | None) -> StageStanding:
    """A cycle that stands at a stage and says more than the stage's own facts."""
    if cycle is None or stage.name != at or cycle.at is None:
        return stage
    states: dict[str, StageState] = {"running": "active", "waiting": "waiting", "failed": "stopped"}
    return replace(stage, state=states.get(cycle.state, stage.state))


def _feedback(store: Store, config: TriggerConfig, pending: bool) -> StageStanding:
    new, waits = trigger_wait(store, config, pending=pending)
    values: dict[str, str | int] = {"every": config.every, "critical": new.critical}
    if waits is not None:
        return StageStanding("feedback", new.rows, "active", waits.because, values, when=waits.until)
    if new.rows == 0:
        return StageStanding("feedback", 0, "idle", "none", values)
    return StageStanding("feedback", new.rows, "active", "enough" if new.rows >= config.every else "collecting", values)


def _made(store: Store, name: StageName, kinds: tuple[str, ...]) -> StageStanding:
    count, newest = catalog.count(store, kinds), catalog.newest_of(store, kinds)
    if newest is None:
        return StageStanding(name, 0, "idle", "none")
    return StageStanding(
        name, count, "done", "made", {"name": newest.card.get("name") or newest.path.name}, newest.sha256, newest.created
    )


def _train(store: Store, runs: RunCounts) -> StageStanding:
    models = catalog.count(store, MODELS)
    counts: dict[str, str | int] = {"running": runs.running, "waiting": runs.waiting}
    if runs.running:
        return StageStanding("train", models, "active", "running", counts, runs.newest)
    if runs.waiting:
        return StageStanding("train", models, "waiting", "queued", counts, runs.newest)
    if runs.last == "failed":
        return StageStanding("train", models, "stopped", "failed", counts, runs.newest)
    newest = catalog.newest_of(store, MODELS)
    if newest is None:
        return StageStanding("train", 0, "idle", "none")
    return StageStanding(
        "train", models, "done", "made", {"name": newest.card.get("name") or newest.path.name}, runs.newest, newest.created
    )


def _gate(store: Store, recent: list[GateResult]) -> StageStanding:
    if not recent:
        return StageStanding("gate", 0, "idle", "none")
    newest = recent[0]
    states: dict[str, StageState] = {"pass": "done", "fail": "stopped", "not_enough_evidence": "waiting"}
    values = {"name": newest.label}
    if newest.outcome != "pass" and gates.waived_checks(store, newest):
        return StageStanding("gate", gates.count(store), "done", "waived", values, newest.content_id(), newest.timestamp)
    return StageStanding(
        "gate", gates.count(store), states[newest.outcome], newest.outcome, values, newest.content_id(), newest.timestamp
    )


def _newest_of_each(recent: list[GateResult]) -> list[GateResult]:
    """The newest verdict on each model, newest first."""
    newest: dict[str, GateResult] = {}
    for result in recent:
        newest.setdefault(result.artifact, result)
    return list(newest.values())


def _is_passed(store: Store, result: GateResult) -> bool:
    """By itself, or because two people have waived what did not pass."""
    return result.outcome == "pass" or gates.waived_checks(store, result) > 0


def _lacks_sign_offs(store: Store, result: GateResult) -> bool:
    return _is_passed(store, result) and gates.lacks_sign_offs(store, result)


def _sign_off(store: Store, recent: list[GateResult], unsigned: list[GateResult]) -> StageStanding:
    if unsigned:
        first = unsigned[0]
        values: dict[str, str | int] = {"name": first.label, "needed": gates.sign_offs_needed(store, first)}
        return StageStanding("sign_off", len(unsigned), "waiting", "unsigned", values, first.content_id(), first.timestamp)
    passed = any(_is_passed(store, result) for result in recent)
    return StageStanding("sign_off", 0, "done" if passed else "idle", "signed" if passed else "none")


def _register(store: Store, recent: list[GateResult], unsigned: list[GateResult]) -> StageStanding:
    """Versions, and whether a model that passed and is signed became one."""
    model = store.settings.registry.model
    numbers = {stored.record.artifact: stored.record.version for stored in registry.versions(store, model)}
    held = {change.version for change in registry.current(store, model).values()}
    waiting = {result.artifact for result in unsigned}
    free = [result for result in _newest_of_each(recent) if _is_passed(store, result) and result.artifact not in waiting]
    champion = registry.current(store, model).get("champion")
    if free and free[0].artifact not in numbers:
        return StageStanding("register", len(numbers), "waiting", "unregistered", {"name": free[0].label})
    if free and champion is None and numbers[free[0].artifact] not in held and _may_be_promoted(store, free[0].artifact):
        return StageStanding("register", len(numbers), "waiting", "unpromoted", {"version": numbers[free[0].artifact]})
    if champion is None or champion.version is None:
        return StageStanding("register", len(numbers), "idle", "no_champion" if numbers else "none")
    return StageStanding("register", len(numbers), "done", "champion", {"version": champion.version}, when=champion.timestamp)


def _may_be_promoted(store: Store, artifact: str) -> bool:
    return deploy_events.block_of(store, artifact) is None and gates.promotion_refusal(store, artifact) is None


def _deploy(store: Store, safety: SafetyStanding) -> StageStanding:
    champion = registry.current(store, store.settings.registry.model).get("champion")
    live, wanted = safety.live, champion.version if champion else None
    if safety.alarms:
        return StageStanding("deploy", len(safety.alarms), "stopped", "alarm", {"name": safety.alarms[0].served_name})
    if live is None:
        if wanted is None:
            return StageStanding("deploy", 0, "idle", "none")
        return StageStanding("deploy", 0, "waiting", "not_live", {"version": wanted})
    if wanted is not None and live.version != wanted:
        values: dict[str, str | int] = {"version": wanted, "name": live.served_name}
        return StageStanding("deploy", 1, "waiting", "other_live", values, when=live.timestamp)
    return StageStanding("deploy", 1, "done", "live", {"name": live.served_name}, when=live.timestamp)


def _experiment(store: Store) -> StageStanding:
    known = experiments.every(store)
    order = ("running", "stopped", "planned")
    open_ones = sorted((row for row in known if row.state in order), key=lambda row: order.index(row.state))
    if not open_ones:
        state: StageState = "done" if known else "idle"
        return StageStanding("experiment", len(known), state, "decided" if known else "none")
    first = open_ones[0]
    state = "active" if first.state == "running" else "waiting"
    return StageStanding("experiment", len(known), state, first.state, {"name": first.plan.name}, first.plan.experiment_id)
