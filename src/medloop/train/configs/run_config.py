"""The settings that training runs share. No torch, so that a request is checked where torch is not installed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medloop.knobs import RUN_NAME
from medloop.models.context_limits import ContextLimits

SMALL_MODEL = 20_000_000  # parameters; so small a model learns best at ten to a hundred times the usual rate


class RunConfig(BaseModel):
    """Settings of every training run. All of them decide the result, so all of them go into the card."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    small_rate: ClassVar[float]  # learning rates below and above SMALL_MODEL parameters
    large_rate: ClassVar[float]

    name: str = Field(pattern=RUN_NAME, description="Name of the result.")
    model: str = Field("embedded:tiny", min_length=1, description="Base model: embedded:NAME, a folder, a GGUF file, a hub id.")
    learning_rate: float | None = Field(None, gt=0, le=1, description="Learning rate; empty: by the model's size.")
    max_trainable_share: float = Field(
        0.05, gt=0, le=1, description="A run that trains this share of the parameters or more is refused; `full` is exempt."
    )

    def rate_for(self, parameters: int) -> float:
        """The learning rate for a base model of this size."""
        return self.learning_rate or (self.small_rate if parameters < SMALL_MODEL else self.large_rate) * self.rate_scale

    @property
    def rate_scale(self) -> float:
        """What the default learning rate is multiplied by."""
        return 1.0


class EpochConfig(RunConfig):
    """Settings of SFT, reward models, DPO and KTO, which go through a file in epochs."""

    data: str | None = Field(None, description="Training file.")
    epochs: float = Field(1.0, gt=0, le=1000, description="Passes over the training data.")
    max_steps: int = Field(0, ge=0, description="Stop after this many steps, whatever the epochs say; 0 means no limit.")
    least_steps: int = Field(0, ge=0, description="At least this many steps, in more passes where the file is small.")
    batch_size: int = Field(16, ge=1, description="Examples per step.")
    micro_batch_size: int = Field(0, ge=0, description="Examples in memory at once; divides batch_size; 0 means the whole batch.")
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps over which the rate rises; then it falls to 0 along a cosine."
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    lora_r: int = Field(8, ge=1, le=1024, description="Rank of the adapter; an adapter to start from keeps its own.")
    lora_alpha: int = Field(16, ge=1, description="The output of a new adapter is scaled by lora_alpha / lora_r.")
    max_length: int = Field(
        512, ge=8, description="Tokens of prompt and answer; longer prompts lose old messages, or are left out and counted."
    )
    save_every: int = Field(50, ge=1, description="Steps between checkpoints.")
    gradient_checkpointing: bool = Field(False, description="Less memory for more time; worth it for large models on a GPU.")
    seed: int = Field(42, ge=0, lt=2**31, description="Seed of everything random: new weights, order, split and dropout.")

    @model_validator(mode="after")
    def _check(self) -> EpochConfig:
        if problems := self.problems():
            raise ValueError("; ".join(problems))
        return self

    def problems(self) -> list[str]:
        """Settings that contradict each other, in words."""
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            return [f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}"]
        return []


class ContextConfig(EpochConfig):
    """Settings of SFT, DPO and KTO, whose prompts show the context passages of a record as RL and prediction do."""

    top_k: int = Field(
        3, ge=0, description="Maximum number of context passages of a record in its prompt, the first ones; 0: none."
    )
    max_prompt: int = Field(
        256, ge=8, description="Passages fill a prompt up to this many tokens; the question is never shortened."
    )

    @property
    def context_limits(self) -> ContextLimits:
        return ContextLimits(top_k=self.top_k, max_prompt=self.max_prompt)
