"""The settings of DPO and KTO; each field says what it does."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medloop.knobs import RUN_NAME
from medloop.train.configs.limits import SMALL_MODEL

DPOLoss = Literal["sigmoid", "robust", "ipo", "hinge", "exo_pair", "sigmoid_norm", "apo_zero", "apo_down", "bco_pair", "nca_pair"]


class PreferenceConfig(BaseModel):
    """How to train. Everything here decides the result, so all of it goes into the card."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    small_rate: ClassVar[float] = 3e-4  # for small models; DPO at 1e-3 made chosen answers less likely as well

    name: str = Field("dpo", pattern=RUN_NAME, description="Name of the result, under models/lora.")
    model: str = Field("embedded:tiny", min_length=1, description="Base model: embedded:NAME, a folder, or a hub id.")
    adapter: str | None = Field(
        None, description="Adapter to start from, which is the reference too; empty: a fresh one, and the base is the reference."
    )
    data: str | None = Field(None, description="File to learn from; empty means data/preferences/preferences.jsonl.")
    test_share: float = Field(0.2, gt=0, lt=0.9, description="Share of the rows that is held out, by prompt.")
    beta: float = Field(0.1, gt=0, le=100, description="Pull to the reference: the higher, the less the policy moves away.")
    epochs: float = Field(1.0, gt=0, le=1000, description="Passes over the training rows.")
    max_steps: int = Field(0, ge=0, description="Stop after so many steps, whatever the epochs say; 0 means no limit.")
    batch_size: int = Field(16, ge=1, description="Rows per step.")
    micro_batch_size: int = Field(0, ge=0, description="Rows in memory at once; divides batch_size; 0 means the whole batch.")
    learning_rate: float | None = Field(None, gt=0, le=1, description="Peak rate; empty: 3e-4 below 20 M parameters, else 2e-5.")
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps over which the rate rises; then it falls to 0 along a cosine."
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    lora_r: int = Field(16, ge=1, le=1024, description="Rank of a fresh adapter; one to start from keeps its own.")
    lora_alpha: int = Field(32, ge=1, description="A fresh adapter's output is scaled by lora_alpha / lora_r.")
    max_length: int = Field(
        512,
        ge=8,
        description="Tokens of prompt and answer; longer prompts lose old turns, too long rows are left out and counted.",
    )
    save_every: int = Field(50, ge=1, description="Steps between checkpoints.")
    gradient_checkpointing: bool = Field(False, description="Less memory for more time; worth it for large models on a GPU.")
    load_in_4bit: bool = Field(False, description="Hold the base model in 4 bits (needs bitsandbytes).")
    seed: int = Field(42, ge=0, lt=2**31, description="Seed of adapter, order and split.")

    @model_validator(mode="after")
    def _fits_together(self) -> PreferenceConfig:
        if problems := self.problems():
            raise ValueError("; ".join(problems))
        return self

    def problems(self) -> list[str]:
        """What does not go together, in words."""
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            return [f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}"]
        return []

    def rate_for(self, parameters: int) -> float:
        """The peak learning rate for a base model of this size."""
        return self.learning_rate or (self.small_rate if parameters < SMALL_MODEL else 2e-5)

    @property
    def method(self) -> Literal["dpo", "kto"]:
        return "kto" if isinstance(self, KTOConfig) else "dpo"

    @property
    def smallest_batch(self) -> int:
        """Rows in memory, at the least."""
        return 1


class DPOConfig(PreferenceConfig):
    loss: DPOLoss = Field("sigmoid", description="Loss of a pair; docs/stages/preference.md says when to take which.")
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="Share of choices taken to be wrong; for the losses robust (0.1) and exo_pair (0.001)."
    )

    def problems(self) -> list[str]:
        found = super().problems()
        if self.label_smoothing and self.loss not in ("robust", "exo_pair"):
            found.append(
                f"label_smoothing {self.label_smoothing} has no effect on the loss {self.loss}, only on robust and exo_pair"
            )
        if self.loss == "exo_pair" and not self.label_smoothing:
            found.append("the loss exo_pair needs a label_smoothing above 0, for example 0.001")
        return found


class KTOConfig(PreferenceConfig):
    small_rate: ClassVar[float] = 1e-3

    name: str = Field("kto", pattern=RUN_NAME, description="Name of the result, under models/lora.")
    data: str | None = Field(
        None,
        description="File of thumbs or pairs; empty: thumbs.jsonl in data/preferences, or else preferences.jsonl there.",
    )
    loss: Literal["kto", "apo_zero_unpaired"] = Field(
        "kto", description="kto weighs answers by the move in general; apo_zero_unpaired does not, and needs no other answer."
    )
    learning_rate: float | None = Field(None, gt=0, le=1, description="Peak rate; empty: 1e-3 below 20 M parameters, else 2e-5.")
    desirable_weight: float = Field(1.0, gt=0, le=1000, description="Weight of the loss of liked answers.")
    undesirable_weight: float = Field(1.0, gt=0, le=1000, description="Weight of the loss of answers that were not liked.")

    def problems(self) -> list[str]:
        found = super().problems()
        if self.smallest_batch > (self.micro_batch_size or self.batch_size):
            found.append("the loss kto needs at least 2 rows in memory at once (batch_size, micro_batch_size)")
        return found

    @property
    def smallest_batch(self) -> int:
        return 2 if self.loss == "kto" else 1
