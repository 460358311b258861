"""Jobs as the API and the files of a job write them: the request, the status, a line of metrics."""

from typing import Any, Literal

from pydantic import Field, field_validator

from medloop.contracts.base import Contract, Json, Text, Timestamp
from medloop.contracts.score import Objective

StageName = Literal["SFT", "REWARD", "DPO", "KTO", "PPO", "GRPO", "IRS"]
JobState = Literal["queued", "running", "paused", "succeeded", "failed", "cancelled"]
Phase = Literal["GENERATING", "SCORING", "METRICS", "TRAINING", "HELD_OUT"]


class DynamicWeights(Contract):
    """`dw_config`: how reward weights follow the slope of each reward."""

    history_window: int = Field(5, ge=2)
    temperature: float = Field(2.0, gt=0)
    initial_weights: dict[str, float] = Field(default_factory=lambda: {"rel": 1.0, "faith": 1.0, "conc": 0.5})
    normalize_slopes: bool = True


class IRSConfig(Contract):
    n_iterations: int = Field(3, ge=1)
    n_candidates: int = Field(4, ge=1)
    batch_size: int = Field(2, ge=1)
    learning_rate: float = Field(2e-5, gt=0)
    max_new_tokens: int = Field(256, ge=1)
    load_in_4bit: bool = True
    dw_config: DynamicWeights | None = None  # with one: rel, faith and conc with dynamic weights, else the default mix


class TrainRequest(Contract):
    """Body of `POST /api/train`. A stage is accepted in either case."""

    stage: StageName
    model_id: Text | None = None  # without one: the workspace's model
    irs_config: IRSConfig | None = None
    config: Json = Field(default_factory=dict)
    n_iterations: int | None = Field(None, ge=1)  # wins over irs_config.n_iterations: clients send it in either place
    n_questions: int | None = Field(None, ge=1)
    top_k: int | None = Field(None, ge=1)

    @field_validator("stage", mode="before")
    @classmethod
    def _upper_case(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value


class TaskRequest(Contract):
    """A job that does not train, as it waits in the queue. A person is named by a keyed hash, never by another system's id."""

    stage: Text
    actor: Text
    config: Json = Field(default_factory=dict)


class JobMetrics(Contract):
    avg_reward: float | None = None
    reward_breakdown: dict[str, float] = Field(default_factory=dict)
    current_weights: dict[str, float] = Field(default_factory=dict)


class JobRuntime(Contract):
    device: Text
    unsloth_available: bool = False
    gpu_mem_used: int = Field(0, ge=0)


class JobDetail(Contract):
    current_iteration: int = Field(0, ge=0)
    total_iterations: int = Field(0, ge=0)
    current_phase: Phase | None = None
    phase_progress: float = Field(0.0, ge=0, le=100)
    metrics: JobMetrics = JobMetrics()
    runtime: JobRuntime | None = None
    message: str | None = None


class JobStatus(Contract):
    """Answer of `GET /api/train/status/{job_id}`. `stage` is the job's kind (jobs/kinds.py)."""

    job_id: Text
    stage: Text
    state: JobState
    detail: JobDetail
    objective: Objective | None = None  # what an RL job is rewarded for


class MetricLine(Contract):
    """A line of `metrics.jsonl`; each phase fills its own fields."""

    ts: Timestamp
    iter: int = Field(ge=0)
    phase: Phase
    progress: float | None = Field(None, ge=0, le=100)
    avg_reward: float | None = None
    weights: dict[str, float] | None = None
    epoch: float | None = Field(None, ge=0)
    loss: float | None = None
    extra: Json | None = None
