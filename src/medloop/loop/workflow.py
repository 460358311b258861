"""A durable workflow: steps in order, each done once for the same inputs, whatever dies in between.

    progress = advance(store, "cycle1", steps, actor="user:sam")
    progress.state                      # done, waiting (for whom, and how it goes on), ended (why)

Before a step runs, a row says so, and after it another one with its outputs. A process that dies leaves a step that was started
and not done: the next call runs it again, and every step finishes its own earlier work instead of doing it twice (a training goes
on from its checkpoint, a sealed folder is taken as it is). A step whose inputs have changed runs again, and with it all that
depend on its outputs. A step that waits for people costs nothing: it asks again when the workflow is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from medloop.contracts import canonical_json, sha256_id
from medloop.contracts.cycle import CycleEvent, Fact
from medloop.errors import MedloopError
from medloop.store.db import Store
from medloop.store.files.lock import locked_file
from medloop.store.records.cycles import add_cycle_event, cycle_events

Outputs = dict[str, Fact]
LOCK_NAME = ".loop.lock"
ROUND = "online"  # how names of rounds of online learning begin
PLAN = "plan"  # the event that names the steps of a cycle, in order
CycleState = Literal["running", "waiting", "ended", "done", "failed"]


@dataclass(frozen=True)
class Waits:
    """The step cannot go on before somebody acts: `reason` says what is missing, `command` how to give it."""

    reason: str
    command: str = ""


@dataclass(frozen=True)
class Ends:
    """The cycle is over here, and that is a result: the gate refused the model, or there is nothing to learn from."""

    reason: str
    outputs: Outputs = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """What the steps before have put out, by their names."""

    outputs: Mapping[str, Outputs]

    def get(self, step: str, name: str) -> Fact:
        return self.outputs.get(step, {}).get(name)

    def text(self, step: str, name: str) -> str:
        return str(self.outputs[step][name])


@dataclass(frozen=True)
class Step:
    """One step. `inputs` is everything that its result depends on; `cost` says beforehand what it would do."""

    name: str
    inputs: Callable[[Known], Mapping[str, Any]]
    run: Callable[[Known], Outputs | Waits | Ends]
    cost: str = ""


@dataclass(frozen=True)
class StepRow:
    """A step as people see it."""

    name: str
    state: Literal["open", "started", "done", "waiting", "failed", "ended"]
    reason: str = ""
    command: str = ""
    outputs: Outputs = field(default_factory=dict)
    event: CycleEvent | None = None


@dataclass(frozen=True)
class CycleProgress:
    """Where a cycle stands: `reason` and `command` are those of the step that it stands at."""

    cycle: str
    state: CycleState
    steps: tuple[StepRow, ...]

    @property
    def at(self) -> StepRow | None:
        """The first step that is not done."""
        return next((row for row in self.steps if row.state != "done"), None)

    @property
    def reason(self) -> str:
        return self.at.reason if self.at else ""

    @property
    def command(self) -> str:
        return self.at.command if self.at else ""


def run_command(cycle: str, *, named: bool = False) -> str:
    """The command that goes on with a cycle: the newest of its kind, or the one of this name."""
    return "loop run" + (f" --name {cycle}" if named else "") + (" --online" if cycle.startswith(ROUND) else "")


def after(own: Mapping[str, Any], *steps: str) -> Callable[[Known], Mapping[str, Any]]:
    """The inputs of a step: its own settings, and what the steps before it have put out."""
    return lambda known: {**own, "after": {name: known.outputs.get(name, {}) for name in steps}}


def inputs_hash(step: Step, known: Known) -> str:
    return sha256_id(canonical_json({"step": step.name, **step.inputs(known)}))


def advance(
    store: Store, cycle: str, steps: Sequence[Step], *, actor: str, on_step: Callable[[str], None] = lambda name: None
) -> CycleProgress:
    """Go on with a cycle as far as it goes. One process at a time: another one gets a BusyError."""
    lock = store.settings.home / LOCK_NAME
    with locked_file(lock, wait_s=0.0, what="The loop of this workspace", mode=0o600):
        last = _last(cycle_events(store, cycle))
        names = ",".join(step.name for step in steps)
        if PLAN not in last or last[PLAN].outputs.get("steps") != names:
            facts: Outputs = {"steps": names}
            plan = CycleEvent(cycle=cycle, step=PLAN, event="done", inputs=sha256_id(names), outputs=facts, decided_by=actor)
            last[PLAN] = add_cycle_event(store, plan)
        outputs: dict[str, Outputs] = {}
        for step in steps:
            known = Known(outputs)
            inputs, before = inputs_hash(step, known), last.get(step.name)
            if before is not None and before.inputs == inputs and before.event in ("done", "ended"):
                outputs[step.name] = dict(before.outputs)
                if before.event == "ended":
                    break
                continue

            def note(
                event: Any, outputs: Outputs | None = None, reason: str = "", name: str = step.name, inputs: str = inputs
            ) -> None:
                found = CycleEvent(
                    cycle=cycle, step=name, event=event, inputs=inputs, outputs=outputs or {}, reason=reason, decided_by=actor
                )
                old = last.get(name)
                if old is None or event != "waiting" or (old.event, old.inputs, old.reason) != (event, inputs, reason):
                    last[name] = add_cycle_event(store, found)

            on_step(step.name)
            if before is None or before.event != "waiting" or before.inputs != inputs:
                note("started")
            try:
                result = step.run(known)
            except MedloopError as error:
                note("failed", reason=type(error).__name__)
                raise
            if isinstance(result, Waits):
                note("waiting", {"command": result.command}, result.reason)
                break
            if isinstance(result, Ends):
                note("ended", result.outputs, result.reason)
                break
            note("done", result)
            outputs[step.name] = result
        return progress_of(cycle, list(last.values()))


def progress_of(cycle: str, events: Sequence[CycleEvent]) -> CycleProgress:
    """Where a cycle stands, from its events alone."""
    last, rows = _last(events), []
    stopped = False
    for name in str(last[PLAN].outputs["steps"]).split(","):
        event = last.get(name)
        if event is None or stopped:
            rows.append(StepRow(name, "open"))
            continue
        command = str(event.outputs.get("command", "")) if event.event == "waiting" else ""
        rows.append(StepRow(name, event.event, event.reason, command, dict(event.outputs), event))
        stopped = event.event != "done"
    at = next((row for row in rows if row.state != "done"), None)
    states: dict[str, CycleState] = {"waiting": "waiting", "ended": "ended", "failed": "failed"}
    return CycleProgress(cycle, "done" if at is None else states.get(at.state, "running"), tuple(rows))


def _last(events: Sequence[CycleEvent]) -> dict[str, CycleEvent]:
    """The newest event of each step."""
    return {event.step: event for event in events}
