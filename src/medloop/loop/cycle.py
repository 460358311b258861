"""The loop: serve → feedback → data → adapt → reward → train → evaluate → gate → register → deploy → serve …

    result = run_cycle(settings, CycleConfig(name="round1", serving="models/lora/sft"))

One cycle goes from feedback to a candidate that is measured against the model that received the feedback. Serving, the gate, the
registration in MLflow and the deployment do not exist yet: a cycle ends before them, and a person decides with the report.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import ModelRef
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.prompts import make_prompts
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.side_by_side import Evaluation
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig
from medloop.feedback.review.queue import QueueConfig
from medloop.knobs import load_config
from medloop.loop.evaluation import DEFAULT_RULES, check_judges, enter_report, evaluate_models
from medloop.loop.feedback import build_from_feedback, fill_queue, measure_feedback
from medloop.loop.train import STAGES, TrainingResult, run_stage
from medloop.models.context_limits import trained_limits
from medloop.reward.rules import load_rules
from medloop.settings import Settings
from medloop.store.audit_trail import actor, open_audit_trail


class TrainStep(BaseModel):
    """One training of a cycle: a stage of loop/train.py and its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Literal["SFT", "DPO", "KTO", "PPO", "GRPO", "IRS"]
    settings: dict[str, Any] = Field(default_factory=dict)


class CycleConfig(BaseModel):
    """What one cycle does. A training step starts from the adapter of the step before it, where the method allows that."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("cycle", description="Name of the dataset, the models and the report of this cycle.")
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


@dataclass(frozen=True)
class CycleResult:
    """The product of each stage; `candidate` is the adapter to decide about."""

    feedback: FeedbackMetrics
    queued: int
    dataset: Path
    trained: tuple[TrainingResult, ...]
    evaluation: Evaluation
    candidate: Path


def run_cycle(settings: Settings, config: CycleConfig, *, on_stage: Callable[[str], None] = lambda name: None) -> CycleResult:
    """Run one cycle. Repeated after a crash, it continues: finished trainings and answers are recognised by their inputs.

    Rules that people disagree with are refused first, not after the training.
    """
    check_judges(settings, load_rules(DEFAULT_RULES), accept_untrusted=config.evaluate.accept_untrusted)
    with open_audit_trail(settings) as trail:
        on_stage("feedback")
        feedback = measure_feedback(settings, trail.store, MetricsConfig(seed=settings.seed))
        queued = fill_queue(settings, trail.store, config=config.queue).added
        on_stage("data")
        named = config.feedback.model_copy(update={"name": config.name})
        dataset = build_from_feedback(trail.store, named, seed=settings.seed, actor=actor()).folder
    make_prompts(settings.workspace, count=config.prompts, high_risk=config.high_risk, seed=settings.seed)
    trained: list[TrainingResult] = []
    for step in config.train:  # SFT learns from prepared records, DPO and KTO from feedback, RL from the reward
        on_stage(f"train {step.stage}")
        trained.append(_train(step, config.name, trained[-1].run.target if trained else None, settings))
    candidate = trained[-1].run.target
    on_stage("evaluate")
    adapters = (None, config.serving, str(candidate))
    models = [ModelRef(base=settings.model, adapter=adapter) for adapter in dict.fromkeys(adapters)]
    report = settings.workspace.reports / "eval" / config.name / "eval_report.md"
    as_trained = config.evaluate.model_copy(update={"limits": trained_limits(models[-1:], settings)})  # the candidate's prompts
    evaluation = evaluate_models(settings, models=models, config=as_trained, name=config.name, markdown=report)
    with open_audit_trail(settings) as trail:
        trail.record("loop.cycle", candidate, report=evaluation.report.content_id())
        enter_report(trail, evaluation)
    return CycleResult(feedback, queued, dataset, tuple(trained), evaluation, candidate)


def _train(step: TrainStep, name: str, start: Path | None, settings: Settings) -> TrainingResult:
    stage = STAGES[step.stage]
    usual: dict[str, Any] = {"name": f"{name}-{step.stage.lower()}", "model": settings.model, "seed": settings.seed}
    if start is not None and "adapter" in stage.config.model_fields:
        usual["adapter"] = str(start)
    return run_stage(stage, load_config(stage.config, flags=step.settings, defaults=usual), settings)
