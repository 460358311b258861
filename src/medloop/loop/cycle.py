"""The loop: feedback → data → train → evaluate → gate → sign-off → register → promote → deploy → experiment → adopt.

    progress = run_cycle(settings, CycleConfig(name="cycle1"))
    progress.state, progress.reason         # waiting: "1 more sign-off is needed …"

A cycle goes from what people said to a version that serves. It can be killed at any moment and called again: what is done
stays done (workflow.py). It waits for people and for the verdict of an experiment as long as they need, and ends with the reason
where the gate, the canaries or the users refuse. A cycle whose data an erasure has touched begins again without the erased rows.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from medloop.contracts import ModelRef
from medloop.contracts.dataset import SPLIT_FILES
from medloop.knobs import load_config
from medloop.loop.cycle_config import CycleConfig as CycleConfig
from medloop.loop.cycle_config import TrainStep as TrainStep
from medloop.loop.cycle_data import make_data, redo_number
from medloop.loop.cycle_live import live_steps
from medloop.loop.evaluation import DEFAULT_RULES, check_judges, enter_report, evaluate_models
from medloop.loop.gate import examine
from medloop.loop.gate_policy import own_settings
from medloop.loop.train import STAGES, TrainingResult, run_stage
from medloop.loop.workflow import CycleProgress, Ends, Known, Outputs, Step, Waits, advance, after
from medloop.models.context_limits import trained_limits
from medloop.registry.register import register_in
from medloop.reward.rules import load_rules
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail, actor, open_audit_trail
from medloop.store.db import Store
from medloop.store.files.artifacts import folder_sha256
from medloop.store.records import gates
from medloop.store.records.champion import champion_artifact
from medloop.train.configs.run_config import RunConfig
from medloop.train.runs.teacher_use import published_use


def run_cycle(settings: Settings, config: CycleConfig, *, on_stage: Callable[[str], None] = lambda name: None) -> CycleProgress:
    """Begin a cycle or go on with it, as far as it goes. Rules that people disagree with are refused before anything is done."""
    check_judges(settings, load_rules(DEFAULT_RULES), accept_untrusted=config.evaluate.accept_untrusted)
    with open_audit_trail(settings) as trail:
        return advance(trail.store, config.name, cycle_steps(settings, trail, config), actor=actor(), on_step=on_stage)


def cycle_steps(settings: Settings, trail: AuditTrail, config: CycleConfig) -> list[Step]:
    """The steps of a cycle, in the order of the loop."""
    store, trainings, as_json = trail.store, train_names(config), config.model_dump(mode="json")
    made = {name: as_json[name] for name in ("feedback", "prompts", "high_risk", "queue", "online")}
    about = (
        "a round of new answers and a replay" if config.online else f"a dataset of the feedback, {config.prompts} prompts for RL"
    )
    begin = Step(
        "data", lambda _: {**made, "redo": redo_number(store, config.name)}, lambda _: make_data(settings, store, config), about
    )
    steps = [begin]
    for number, (name, step) in enumerate(zip(trainings, config.trainings, strict=True)):
        before = trainings[number - 1 : number]
        inputs = after(step.model_dump(mode="json"), "data", *before)
        steps.append(Step(name, inputs, partial(_train, settings, config, step, before), f"training: {step.stage}"))

    def candidate(known: Known) -> str:
        return known.text(last, "adapter")

    last = trainings[-1]
    steps += [
        Step("evaluate", after({"evaluate": as_json["evaluate"]}, "data", last),
             lambda known: _evaluate(settings, trail, config, _serving(known), candidate(known)),
             f"{config.evaluate.n} questions of each split: {', '.join(config.evaluate.splits)}"),
        Step("gate", after({"gate": as_json["gate"]}, "data", last, "evaluate"),
             lambda known: _decide(settings, store, config, _serving(known), candidate(known)),
             f"{own_settings(store, config.gate).n} questions of each suite"),
        Step("sign-off", after({}, "gate"), partial(_signed, store), "people read the report and sign"),
        Step("register", after({}, last, "gate"), lambda known: _register(store, candidate(known)), "a version of the registry"),
    ]  # fmt: skip
    return [*steps, *live_steps(store, config)]


def train_names(config: CycleConfig) -> list[str]:
    """The names of the training steps: train-sft, train-dpo; a method that stands twice gets a number."""
    stages = [step.stage.lower() for step in config.trainings]
    return [
        f"train-{stage}" + (f"-{stages[:at].count(stage) + 1}" if stages.count(stage) > 1 else "")
        for at, stage in enumerate(stages)
    ]


def _serving(known: Known) -> str | None:
    """The adapter that served when the cycle began; None: the base model."""
    serving = known.get("data", "serving")
    return None if serving is None else str(serving)


def train_config(settings: Settings, config: CycleConfig, step: TrainStep, before: list[str], known: Known) -> RunConfig:
    """The settings of one training: its own, and else the name of the cycle, the mix, and the adapter before it."""
    stage, redo = STAGES[step.stage], known.get("data", "redo")
    name = f"{config.name}-{step.stage.lower()}" + (f"-redo{redo}" if redo else "")
    usual: dict[str, Any] = {"name": name, "model": settings.model, "seed": settings.seed}
    start = str(known.get(before[0], "adapter")) if before else _serving(known) if config.online else None
    if start is not None and "adapter" in stage.config.model_fields:
        usual["adapter"] = start
    if step.stage == "SFT" and (mix := known.get("data", "mix")):
        usual |= {"data": str(mix), **_dev_data(settings)}
    return load_config(stage.config, flags=step.settings, defaults=usual)


def _dev_data(settings: Settings) -> dict[str, str]:
    dev = settings.workspace.processed / SPLIT_FILES["dev"]
    return {"dev_data": str(dev)} if dev.is_file() and dev.stat().st_size else {}


def _train(settings: Settings, config: CycleConfig, step: TrainStep, before: list[str], known: Known) -> Outputs:
    """One training; a finished one of the same inputs is taken as it is, a killed one goes on from its checkpoint."""
    chosen = train_config(settings, config, step, before, known)
    result: TrainingResult = run_stage(STAGES[step.stage], chosen, settings)
    outputs: Outputs = {"adapter": _shown(settings, result.run.target), "sha256": folder_sha256(result.run.target)}
    used = published_use(result.run.target)
    return outputs if used is None else outputs | {f"teacher_{name}": value for name, value in used._asdict().items()}


def _evaluate(settings: Settings, trail: AuditTrail, config: CycleConfig, serving: str | None, adapter: str) -> Outputs:
    models = [ModelRef(base=settings.model, adapter=name) for name in dict.fromkeys((None, serving, adapter))]
    markdown = settings.workspace.reports / "eval" / config.name / "eval_report.md"
    as_trained = config.evaluate.model_copy(update={"limits": trained_limits(models[-1:], settings)})  # the candidate's prompts
    evaluation = evaluate_models(settings, models=models, config=as_trained, name=config.name, markdown=markdown)
    enter_report(trail, evaluation)
    return {"report": _shown(settings, markdown), "sha256": evaluation.report.content_id()}


def _decide(
    settings: Settings, store: Store, config: CycleConfig, serving: str | None, adapter: str
) -> Outputs | Ends:  # fmt: skip
    """Against the champion of now, which may be another one than when the cycle began; before the first, against what serves."""
    candidate = ModelRef(base=settings.model, adapter=adapter)
    baseline = ModelRef(base=settings.model, adapter=serving) if champion_artifact(store) is None else None
    config_now = own_settings(store, config.gate)
    examined = examine(settings, store, candidate=candidate, baseline=baseline, config=config_now)
    result = examined.result
    gates.save_gate(store, result, actor=actor())
    outputs: Outputs = {"gate": result.content_id(), "artifact": result.artifact, "outcome": result.outcome}
    if result.outcome == "fail":
        failed = [check.name for check in result.checks if check.outcome == "fail"]
        return Ends(f"The gate refused the model: {', '.join(failed[:5])}. What serves today stays.", outputs)
    return outputs


def _signed(store: Store, known: Known) -> Outputs | Waits:
    gate, artifact = known.text("gate", "gate"), known.text("gate", "artifact")
    result = gates.latest_gate(store, artifact)
    if refusal := gates.promotion_refusal(store, artifact):
        is_stale = result is not None and gates.stale_baseline(store, result)
        return Waits(refusal, result.command if result and is_stale else f"gate show {gate[7:19]}")
    return {"signed_by": len(gates.approvals(store, result or gates.get_gate(store, gate)))}


def _register(store: Store, adapter: str) -> Outputs:
    return {"version": register_in(store, adapter, actor=actor()).stored.record.version}


def _shown(settings: Settings, path: Path) -> str:
    return path.relative_to(settings.home).as_posix() if path.is_relative_to(settings.home) else str(path)
