"""The settings of SFT; each field says what it does. No torch, so that a request is checked where there is none."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medloop.knobs import RUN_NAME
from medloop.train.configs.limits import SMALL_MODEL


class SFTConfig(BaseModel):
    """How to train. Everything here decides the result, so all of it goes into the card."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("sft", pattern=RUN_NAME, description="Name of the result, under models/lora or models/full.")
    model: str = Field("embedded:tiny", min_length=1, description="Base model: embedded:NAME, a folder, or a hub id.")
    data: str | None = Field(None, description="Training file; empty means data/processed/train.jsonl.")
    dev_data: str | None = Field(
        None, description="File for the dev loss; empty means data/processed/dev.jsonl, if data is empty too."
    )
    dev_rows: int = Field(256, ge=0, description="At most so many examples of the dev file are scored; 0 means none.")
    full: bool = Field(False, description="Train all weights instead of a LoRA adapter.")
    epochs: float = Field(1.0, gt=0, le=1000, description="Passes over the training file.")
    max_steps: int = Field(0, ge=0, description="Stop after so many steps, whatever the epochs say; 0 means no limit.")
    batch_size: int = Field(16, ge=1, description="Examples per step.")
    micro_batch_size: int = Field(0, ge=0, description="Examples in memory at once; divides batch_size; 0 means the whole batch.")
    learning_rate: float | None = Field(
        None, gt=0, le=1, description="Peak rate; empty: 2e-3 below 20 M parameters, else 2e-4; with full a tenth of that."
    )
    warmup: float = Field(
        0.05, ge=0, lt=1, description="Share of the steps over which the rate rises; then it falls to 0 along a cosine."
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    lora_r: int = Field(16, ge=1, le=1024, description="Rank of the adapter matrices.")
    lora_alpha: int = Field(32, ge=1, description="The adapter's output is scaled by lora_alpha / lora_r.")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    max_length: int = Field(512, ge=8, description="Tokens per example; longer ones lose old turns, or are left out and counted.")
    save_every: int = Field(50, ge=1, description="Steps between checkpoints.")
    gradient_checkpointing: bool = Field(False, description="Less memory for more time; worth it for large models on a GPU.")
    load_in_4bit: bool = Field(False, description="Hold the base model in 4 bits (needs bitsandbytes); LoRA only.")
    seed: int = Field(42, ge=0, lt=2**31, description="Seed of adapter weights, order and dropout.")

    @model_validator(mode="after")
    def _fits_together(self) -> SFTConfig:
        problems = []
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            problems.append(f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}")
        if self.full and self.load_in_4bit:
            problems.append("load_in_4bit works with LoRA only, not with full")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def rate_for(self, parameters: int) -> float:
        """The peak learning rate for a base model of this size."""
        return self.learning_rate or (2e-3 if parameters < SMALL_MODEL else 2e-4) * (0.1 if self.full else 1.0)
