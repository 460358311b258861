"""The settings of reward models; each field says what it does. No torch, so that a request is checked where there is none."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medloop.knobs import RUN_NAME
from medloop.train.configs.limits import SMALL_MODEL


class RewardModelConfig(BaseModel):
    """How to train. Everything here decides the result, so all of it goes into the card."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("reward", pattern=RUN_NAME, description="Name of the result, under models/reward.")
    model: str = Field(
        "embedded:tiny", min_length=1, description="Base model: embedded:NAME, a folder, or a hub id; encoders too."
    )
    data: str | None = Field(None, description="File of pairs; empty means data/preferences/preferences.jsonl.")
    test_share: float = Field(0.2, gt=0, lt=0.9, description="Share of the pairs that is held out, by prompt.")
    full: bool = Field(False, description="Train all weights instead of a LoRA adapter and the head.")
    epochs: float = Field(1.0, gt=0, le=1000, description="Passes over the training pairs.")
    max_steps: int = Field(0, ge=0, description="Stop after so many steps, whatever the epochs say; 0 means no limit.")
    batch_size: int = Field(16, ge=1, description="Pairs per step.")
    micro_batch_size: int = Field(0, ge=0, description="Pairs in memory at once; divides batch_size; 0 means the whole batch.")
    learning_rate: float | None = Field(
        None, gt=0, le=1, description="Peak rate; empty: 1e-3 below 20 M parameters, else 2e-4; with full a quarter of that."
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps over which the rate rises; then it falls to 0 along a cosine."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    centre: float = Field(0.01, ge=0, description="Weight of the pull of logits towards 0 (arXiv 2312.09244); 0 means none.")
    lora_r: int = Field(16, ge=1, le=1024, description="Rank of the adapter matrices.")
    lora_alpha: int = Field(32, ge=1, description="The adapter's output is scaled by lora_alpha / lora_r.")
    max_length: int = Field(
        512,
        ge=32,
        description="Tokens of prompt and answer; longer prompts lose old turns, too long answers are left out and counted.",
    )
    reference: str | None = Field(
        None,
        description="Model (BASE or BASE+ADAPTER) whose answers to held-out prompts centre the score; empty: training answers.",
    )
    reference_samples: int = Field(256, ge=2, description="At most so many answers centre the score.")
    reference_tokens: int = Field(256, ge=1, description="Answers of the reference are cut after so many tokens.")
    save_every: int = Field(50, ge=1, description="Steps between checkpoints.")
    gradient_checkpointing: bool = Field(False, description="Less memory for more time; worth it for large models on a GPU.")
    seed: int = Field(42, ge=0, lt=2**31, description="Seed of head, adapter, order, split and reference answers.")

    @model_validator(mode="after")
    def _fits_together(self) -> RewardModelConfig:
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise ValueError(f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}")
        return self

    def rate_for(self, parameters: int) -> float:
        """The peak learning rate for a base model of this size."""
        return self.learning_rate or (1e-3 if parameters < SMALL_MODEL else 2e-4) * (0.25 if self.full else 1.0)
