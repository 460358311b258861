"""The loop: feedback → data → train → evaluate → gate → sign-off → register → promote → deploy, as one durable workflow.

    progress = run_cycle(settings, CycleConfig(name="cycle1"))
    progress.state, progress.reason         # waiting: "1 more sign-off is needed …"

A cycle goes from what people said to a version that may serve. It can be killed at any moment and called again: what is done
stays done (workflow.py). It waits for people as long as they need, and ends with the reason where the gate refuses.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import ModelRef
from medloop.contracts.registry import Alias
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.prompts import make_prompts
from medloop.evaluate.gate.config import GateConfig
from medloop.evaluate.predictions import EvalConfig
from medloop.feedback.insight.metrics import MetricsConfig
from medloop.feedback.review.queue import QueueConfig
from medloop.knobs import load_config
from medloop.loop.evaluation import DEFAULT_RULES, check_judges, enter_report, evaluate_models
from medloop.loop.feedback import build_from_feedback, fill_queue, measure_feedback
from medloop.loop.gate import examine
from medloop.loop.train import STAGES, TrainingResult, run_stage
from medloop.loop.workflow import CycleProgress, Ends, Known, Outputs, Step, Waits, advance
from medloop.models.context_limits import trained_limits
from medloop.registry.promote import promote_in
from medloop.registry.register import register_in
from medloop.reward.rules import load_rules
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail, actor, open_audit_trail
from medloop.store.db import Store
from medloop.store.files.artifacts import folder_sha256
from medloop.store.records import gates
from medloop.store.records.registry import PromotionRefusedError


class TrainStep(BaseModel):
    """One training of a cycle: a stage of loop/train.py and its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Literal["SFT", "DPO", "KTO", "PPO", "GRPO", "IRS"]
    settings: dict[str, Any] = Field(default_factory=dict)


class CycleConfig(BaseModel):
    """What one cycle does. A training step starts from the adapter of the step before it, where the method allows that."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("cycle1", pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$", description="Name of the cycle, its dataset and models.")
    serving: str | None = Field(None, description="Adapter folder that serves today; empty: the base model.")
    queue: QueueConfig = QueueConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    prompts: int = Field(200, ge=1, description="Prompts for RL.")
    high_risk: float = Field(0.4, ge=0, le=1, description="Share of high-risk prompts.")
    train: tuple[TrainStep, ...] = Field(
        (TrainStep(stage="SFT"), TrainStep(stage="DPO"), TrainStep(stage="GRPO")),
        min_length=1,
        description="Trainings, in order.",
    )
    evaluate: EvalConfig = EvalConfig()
    gate: GateConfig = GateConfig()
    alias: Alias = Field("champion", description="What a version that passed becomes: champion, or challenger of an experiment.")


def run_cycle(settings: Settings, config: CycleConfig, *, on_stage: Callable[[str], None] = lambda name: None) -> CycleProgress:
    """Begin a cycle or go on with it, as far as it goes. Rules that people disagree with are refused before anything is done."""
    check_judges(settings, load_rules(DEFAULT_RULES), accept_untrusted=config.evaluate.accept_untrusted)
    with open_audit_trail(settings) as trail:
        return advance(trail.store, config.name, cycle_steps(settings, trail, config), actor=actor(), on_step=on_stage)


def cycle_steps(settings: Settings, trail: AuditTrail, config: CycleConfig) -> list[Step]:
    """The steps of a cycle, in the order of the loop."""
    store, trainings, as_json = trail.store, train_names(config), config.model_dump(mode="json")
    made = _fixed(as_json, "feedback", "prompts", "high_risk", "queue")
    about = f"a dataset of the feedback so far, {config.prompts} prompts for RL"
    steps = [Step("data", made, lambda _: _make_data(settings, store, config), about)]
    for number, (name, step) in enumerate(zip(trainings, config.train, strict=True)):
        before = trainings[number - 1 : number]
        inputs = _after(step.model_dump(mode="json"), "data", *before)
        steps.append(Step(name, inputs, partial(_train, settings, config.name, step, before), f"training: {step.stage}"))

    def adapter(known: Known) -> str:
        return known.text(last, "adapter")

    last, measured = trainings[-1], {"evaluate": as_json["evaluate"], "serving": config.serving}
    decided = {"gate": as_json["gate"], "serving": config.serving}
    return [
        *steps,
        Step("evaluate", _after(measured, last), lambda known: _evaluate(settings, trail, config, adapter(known)),
             f"{config.evaluate.n} questions of each split"),
        Step("gate", _after(decided, last, "evaluate"), lambda known: _decide(settings, store, config, adapter(known)),
             f"{config.gate.n} questions of each suite"),
        Step("sign-off", _after({}, "gate"), partial(_signed, store), "people read the report and sign"),
        Step("register", _after({}, last, "gate"), lambda known: _register(store, adapter(known)), "a version of the registry"),
        Step("promote", _after({"alias": config.alias}, "register", "sign-off"), partial(_promote, store, config.alias),
             f"it becomes the {config.alias}"),
    ]  # fmt: skip


def train_names(config: CycleConfig) -> list[str]:
    """The names of the training steps: train-sft, train-dpo; a method that stands twice gets a number."""
    stages = [step.stage.lower() for step in config.train]
    return [
        f"train-{stage}" + (f"-{stages[:at].count(stage) + 1}" if stages.count(stage) > 1 else "")
        for at, stage in enumerate(stages)
    ]


def _fixed(config: Mapping[str, Any], *names: str) -> Callable[[Known], Mapping[str, Any]]:
    return lambda _: {name: config[name] for name in names}


def _after(own: Mapping[str, Any], *steps: str) -> Callable[[Known], Mapping[str, Any]]:
    """The inputs of a step: its own settings, and what the steps before it have put out."""
    return lambda known: {**own, "after": {name: known.outputs.get(name, {}) for name in steps}}


def _make_data(settings: Settings, store: Store, config: CycleConfig) -> Outputs:
    feedback = measure_feedback(settings, store, MetricsConfig(seed=settings.seed))
    queued = fill_queue(settings, store, config=config.queue).added
    named = config.feedback.model_copy(update={"name": config.name})
    folder = build_from_feedback(store, named, seed=settings.seed, actor=actor()).folder
    make_prompts(settings.workspace, count=config.prompts, high_risk=config.high_risk, seed=settings.seed)
    counts: Outputs = {"feedback": feedback.feedback, "preferences": feedback.preferences, "corrections": feedback.corrections}
    return {"dataset": _shown(settings, folder), "sha256": folder_sha256(folder), "queued": queued, **counts}


def _train(settings: Settings, cycle: str, step: TrainStep, before: list[str], known: Known) -> Outputs:
    """One training; a finished one of the same inputs is taken as it is, a killed one goes on from its checkpoint."""
    stage = STAGES[step.stage]
    usual: dict[str, Any] = {"name": f"{cycle}-{step.stage.lower()}", "model": settings.model, "seed": settings.seed}
    if before and "adapter" in stage.config.model_fields:
        usual["adapter"] = known.text(before[0], "adapter")
    result: TrainingResult = run_stage(stage, load_config(stage.config, flags=step.settings, defaults=usual), settings)
    return {"adapter": _shown(settings, result.run.target), "sha256": folder_sha256(result.run.target)}


def _evaluate(settings: Settings, trail: AuditTrail, config: CycleConfig, adapter: str) -> Outputs:
    models = [ModelRef(base=settings.model, adapter=name) for name in dict.fromkeys((None, config.serving, adapter))]
    markdown = settings.workspace.reports / "eval" / config.name / "eval_report.md"
    as_trained = config.evaluate.model_copy(update={"limits": trained_limits(models[-1:], settings)})  # the candidate's prompts
    evaluation = evaluate_models(settings, models=models, config=as_trained, name=config.name, markdown=markdown)
    enter_report(trail, evaluation)
    return {"report": _shown(settings, markdown), "sha256": evaluation.report.content_id()}


def _decide(settings: Settings, store: Store, config: CycleConfig, adapter: str) -> Outputs | Ends:
    candidate = ModelRef(base=settings.model, adapter=adapter)
    baseline = ModelRef(base=settings.model, adapter=config.serving)
    examined = examine(settings, store, candidate=candidate, baseline=baseline, config=config.gate)
    result = examined.result
    gates.save_gate(store, result, actor=actor())
    outputs: Outputs = {"gate": result.content_id(), "artifact": result.artifact, "outcome": result.outcome}
    if result.outcome == "fail":
        failed = [check.name for check in result.checks if check.outcome == "fail"]
        return Ends(f"The gate refused the model: {', '.join(failed[:5])}. What serves today stays.", outputs)
    return outputs


def _signed(store: Store, known: Known) -> Outputs | Waits:
    gate, artifact = known.text("gate", "gate"), known.text("gate", "artifact")
    if refusal := gates.promotion_refusal(store, artifact):
        return Waits(refusal, f"gate show {gate[7:19]}")
    return {"signed_by": len(gates.approvals(store, gates.get_gate(store, gate)))}


def _register(store: Store, adapter: str) -> Outputs:
    return {"version": register_in(store, adapter, actor=actor()).stored.record.version}


def _promote(store: Store, alias: Alias, known: Known) -> Outputs | Waits:
    version = int(known.text("register", "version"))
    try:
        promote_in(store, version, actor=actor(), alias=alias)
    except PromotionRefusedError as refused:  # an incident was opened since, or an erasure touched the data
        return Waits(str(refused), f"registry show {version}")
    return {"version": version, "alias": alias}


def _shown(settings: Settings, path: Path) -> str:
    return path.relative_to(settings.home).as_posix() if path.is_relative_to(settings.home) else str(path)
