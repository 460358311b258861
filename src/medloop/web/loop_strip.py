"""The loop as a page shows it: each stage with its sentence and the one link that moves it, for a reader of one role."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from medloop.contracts.gate_reasons import said
from medloop.jobs import queue
from medloop.jobs.job_row import TRIGGER
from medloop.loop.standing import LoopStanding, RunCounts, SafetyStanding, StageStanding, StageState, loop_standing
from medloop.loop.workflow import run_command
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records.gates import refusal_parts
from medloop.web.gate_words import GateWords, in_words
from medloop.web.navigation import MENU, RATERS
from medloop.web.told import told
from medloop.web.words import Translator

MANY_MISSED = 0.1  # share of emergencies in the gate's cases that the live version did not send to urgent care
LOOKS: dict[StageState, str] = {"idle": "none", "active": "info", "waiting": "warning", "done": "good", "stopped": "bad"}
PAGES = {
    "feedback": "dashboard", "data": "datasets", "train": "run", "evaluate": "evaluations", "gate": "gate", "sign_off": "gate",
    "register": "registry", "deploy": "deployments", "experiment": "experiments",
}  # fmt: skip
# Who can do what a waiting stage waits for.
ACTORS: dict[str, tuple[str, ...]] = {
    "sign_off": ("clinician",), "register": ("engineer", "admin"), "deploy": ("engineer", "admin"),
    "experiment": ("engineer", "admin"), "gate": ("engineer", "admin"), "train": ("engineer", "admin"),
}  # fmt: skip


@dataclass(frozen=True)
class StageRow:
    """`move` is the label of the link; where somebody else has to act, `who` says who."""

    name: str
    title: str
    count: str
    look: str
    state: str
    why: str
    when: datetime | None
    link: str
    move: str
    who: str
    is_here: bool


@dataclass(frozen=True)
class SafetyTile:
    title: str
    value: str
    look: str
    state: str
    text: str
    link: str


@dataclass(frozen=True)
class LoopView:
    stages: list[StageRow]
    safety: list[SafetyTile]
    cycle: str
    reason: GateWords
    command: str
    look: str


def loop_view(store: Store, role: str, t: Translator) -> LoopView:
    runs, pending = run_counts(store.settings)
    standing = loop_standing(store, runs=runs, pending=pending)
    stages = [_row(stage, standing, role, t) for stage in standing.stages]
    cycle, command, look = _cycle(standing, t)
    return LoopView(stages, list(_safety(standing.safety, role, t)), cycle, _reason(store, standing, t), command, look)


def run_counts(settings: Settings) -> tuple[RunCounts, bool]:
    """The training jobs by state, and whether jobs of a trigger are among those that have not ended."""
    rows = list(queue.rows(settings, ("train",)))
    ended = [row for row in rows if row.has_ended]
    running = [row for row in rows if row.state == "running"]
    waiting = [row for row in rows if row.state in ("queued", "paused")]
    newest = (running or waiting or rows)[:1]
    counts = RunCounts(len(running), len(waiting), ended[0].state if ended else "", newest[0].job_id if newest else "")
    return counts, any(row.submitter == TRIGGER for row in (*running, *waiting))


def _row(stage: StageStanding, standing: LoopStanding, role: str, t: Translator) -> StageRow:
    link, page = _link(stage, role)
    why = t(f"loop_{stage.name}_{stage.why}", n=f"{stage.count:,}", **_shown(stage))
    actors = ACTORS.get(stage.name, ()) if stage.state == "waiting" else ()
    acts = role in actors and stage.name in ("sign_off", "register", "deploy", "experiment")
    who = t("loop_who", roles=t("list_comma").join(t(f"role_{name}") for name in actors)) if actors and role not in actors else ""
    move = t(f"loop_act_{stage.name}") if acts else t(f"nav_{page}") if page else ""
    return StageRow(
        stage.name, t(f"loop_stage_{stage.name}"), f"{stage.count:,}", LOOKS[stage.state], t(f"loop_state_{stage.state}"), why,
        stage.when, link, move, who, standing.at == stage.name,
    )  # fmt: skip


def _shown(stage: StageStanding) -> dict[str, str]:
    return {
        name: f"{value:,}" if isinstance(value, int) and name != "version" else str(value) for name, value in stage.values.items()
    }


def _link(stage: StageStanding, role: str) -> tuple[str, str]:
    """Where a stage leads and to which page; nowhere where the role may not open it."""
    if stage.name == "feedback" and role in RATERS:
        return "/web/queue", "queue"
    page = PAGES[stage.name]
    if role not in MENU[page]:
        return "", ""
    if stage.subject and stage.name in ("gate", "sign_off", "experiment"):
        return f"/web/{page}/{stage.subject}", page
    if stage.subject and stage.name == "train":
        return f"/web/run?job={stage.subject}", page
    return f"/web/{page}", page


def _reason(store: Store, standing: LoopStanding, t: Translator) -> GateWords:
    """Why the cycle stands: what the gate's records say now, else what the step wrote."""
    cycle = standing.cycle
    outputs = next((row.outputs for row in cycle.steps if row.name == "gate"), {}) if cycle else {}
    step = cycle.at.name if cycle and cycle.at else ""
    reason = cycle.reason if cycle else ""
    if step in ("sign-off", "promote", "deploy", "adopt") and (artifact := outputs.get("artifact")):
        parts = refusal_parts(store, str(artifact))
        if parts and (step != "deploy" or said(parts).rstrip(".") in reason):  # a deployment may also wait for a server
            return in_words(parts, t)
    if re.fullmatch(r"[A-Z]\w*Error", reason):  # a step that failed keeps the kind of its error alone
        return GateWords(t("loop_failed_as", kind=reason), t.language)
    return told(reason, t)


def _cycle(standing: LoopStanding, t: Translator) -> tuple[str, str, str]:
    """The newest cycle in one sentence, the command that goes on with it, and its look."""
    cycle = standing.cycle
    if cycle is None:
        return t("loop_cycle_none"), "loop run --dry-run", "none"
    stage = t(f"loop_stage_{standing.at}") if standing.at else ""
    text = t(f"loop_cycle_{cycle.state}", name=cycle.cycle, stage=stage)
    looks = {"running": "info", "waiting": "warning", "failed": "bad", "ended": "none", "done": "good"}
    return text, run_command(cycle.cycle) if cycle.state in ("waiting", "failed", "running") else "", looks[cycle.state]


def _safety(safety: SafetyStanding, role: str, t: Translator) -> Iterator[SafetyTile]:
    def link(page: str, path: str = "") -> str:
        return (path or f"/web/{page}") if role in MENU[page] else ""

    n = safety.incidents.open
    text = t("safety_incidents_proposed", n=safety.incidents.proposed) if safety.incidents.proposed else ""
    yield SafetyTile(
        t("safety_incidents"), f"{n:,}", "bad" if n else "good", t("safety_open") if n else t("safety_none_open"), text,
        link("incidents"),
    )  # fmt: skip
    drifting = safety.drifting if role in MENU["trust"] else 0  # of the judges: told to those who can look
    alarms = len(safety.alarms) + drifting
    text = t("safety_alarms_text", alarms=len(safety.alarms), drifting=drifting) if alarms else ""
    yield SafetyTile(
        t("safety_alarms"), f"{alarms:,}", "bad" if alarms else "good", t("safety_standing") if alarms else t("safety_quiet"),
        text, link("deployments") if safety.alarms or not drifting else link("trust"),
    )  # fmt: skip
    yield _live(safety, t, link("gate", f"/web/gate/{safety.gate.content_id()}") if safety.gate else link("deployments"))
    yield _probe(safety, t, link("gate", f"/web/gate/{safety.gate.content_id()}") if safety.gate else link("gate"))


def _live(safety: SafetyStanding, t: Translator, link: str) -> SafetyTile:
    live, title = safety.live, t("safety_live")
    if live is None:
        return SafetyTile(title, "–", "none", t("safety_not_live"), "", link)
    value = t("safety_version", version=live.version) if live.version else t("safety_base")
    if safety.gate is None:
        return SafetyTile(title, value, "warning", t("safety_no_gate"), live.served_name, link)
    if safety.waived:
        return SafetyTile(title, value, "warning", t("safety_gate_waived", n=safety.waived), live.served_name, link)
    looks = {"pass": "good", "fail": "bad", "not_enough_evidence": "warning"}
    return SafetyTile(title, value, looks[safety.gate.outcome], t(f"safety_gate_{safety.gate.outcome}"), live.served_name, link)


def _probe(safety: SafetyStanding, t: Translator, link: str) -> SafetyTile:
    """What the gate measured on the live version, and whether the probe that asks it emergencies has raised an alarm."""
    value = _share(safety.under_triage)
    title = t("safety_probe")
    if safety.failed_probes:
        return SafetyTile(title, value, "bad", t("safety_probe_failed"), t("safety_probe_gate") if value != "–" else "", link)
    if not safety.probing:
        return SafetyTile(title, value, "none", t("safety_probe_off"), t("safety_probe_gate") if value != "–" else "", link)
    if safety.under_triage is None:  # a quiet probe does not make it good
        return SafetyTile(title, value, "warning", t("safety_probe_unmeasured"), t("safety_probe_none_failed"), link)
    if safety.under_triage >= MANY_MISSED:
        return SafetyTile(title, value, "warning", t("safety_probe_many"), t("safety_probe_none_failed"), link)
    return SafetyTile(title, value, "good", t("safety_probe_quiet"), t("safety_probe_gate"), link)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
