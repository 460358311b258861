"""The settings of a cycle of the loop: `loop.yaml` of the workspace, or `--set` of `medloop loop run`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts.gate_config import GateConfig
from medloop.contracts.registry import Alias
from medloop.data.feedback.build import FeedbackConfig
from medloop.evaluate.predictions import EvalConfig
from medloop.experiment.plan import PlanConfig
from medloop.feedback.review.queue import QueueConfig


class TrainStep(BaseModel):
    """One training of a cycle: a stage of loop/train.py and its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Literal["SFT", "DPO", "KTO", "PPO", "GRPO", "IRS"]
    settings: dict[str, Any] = Field(default_factory=dict)


class OnlineConfig(BaseModel):
    """Online learning: small, frequent rounds from what serves, under the same gate, with a replay mix against forgetting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(20, ge=1, description="New usable records that begin a round.")
    minutes: float = Field(15, ge=0, description="Shortest time between the beginnings of two rounds.")
    rows: int = Field(256, ge=2, description="Most rows of the mix that a round learns from.")
    replay: float = Field(0.7, ge=0, lt=1, description="Share of the mix that was learnt before.")
    train: tuple[TrainStep, ...] = Field(
        (TrainStep(stage="SFT", settings={"epochs": 2, "least_steps": 120, "dev_rows": 0}),),
        min_length=1,
        description="Trainings of a round.",
    )


class ExperimentStep(BaseModel):
    """The experiment at the end of a cycle: the new version as the challenger, on a share of the users."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: PlanConfig = PlanConfig()
    share: float = Field(0.1, gt=0, le=1, description="Share of all users who take part, in both arms together.")
    adopt: Literal["person", "verdict"] = Field("person", description="Who makes a better challenger the champion.")


class CycleConfig(BaseModel):
    """What one cycle does. A training step starts from the adapter of the step before it, where the method allows that."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("cycle1", pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$", description="Name of the cycle, its dataset and models.")
    serving: str | None = Field(
        None, description="Adapter folder that serves today; empty: the registry's champion when the cycle begins, or the base."
    )
    queue: QueueConfig = QueueConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    prompts: int = Field(200, ge=1, description="Prompts for RL.")
    high_risk: float = Field(0.4, ge=0, le=1, description="Share of high-risk prompts.")
    train: tuple[TrainStep, ...] = Field(
        (TrainStep(stage="SFT"), TrainStep(stage="DPO"), TrainStep(stage="GRPO")),
        min_length=1,
        description="Trainings, in order.",
    )
    online: OnlineConfig | None = Field(None, description="A small round from what serves, with its own trainings; empty: no.")
    evaluate: EvalConfig = EvalConfig()
    gate: GateConfig = GateConfig()
    alias: Alias = Field("champion", description="What a version that passed becomes: champion, or challenger.")
    deploy: bool = Field(True, description="Bring the version live on the model servers of deploy.replicas, if there are any.")
    experiment: ExperimentStep | None = Field(
        None, description="Compare it with the champion on live traffic before it becomes the champion; empty: no."
    )

    @property
    def trainings(self) -> tuple[TrainStep, ...]:
        return self.train if self.online is None else self.online.train
