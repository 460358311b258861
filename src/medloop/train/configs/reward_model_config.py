"""The settings of reward models; each field says what it does."""

from typing import ClassVar

from pydantic import Field

from medloop.knobs import RUN_NAME
from medloop.train.configs.run_config import EpochConfig


class RewardModelConfig(EpochConfig):
    small_rate: ClassVar[float] = 1e-3
    large_rate: ClassVar[float] = 2e-4

    name: str = Field("reward", pattern=RUN_NAME, description="Name of the result, under models/reward.")
    model: str = Field(
        "embedded:tiny", min_length=1, description="Base model: embedded:NAME, a folder, or a hub id; encoders too."
    )
    data: str | None = Field(None, description="File of pairs; empty means data/preferences/preferences.jsonl.")
    test_share: float = Field(0.2, gt=0, lt=0.9, description="Share of the pairs that is held out, by prompt.")
    full: bool = Field(False, description="Train all weights instead of a LoRA adapter and the head.")
    learning_rate: float | None = Field(
        None, gt=0, le=1, description="Peak rate; empty: 1e-3 below 20 M parameters, else 2e-4; with full a quarter of that."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay.")
    centre: float = Field(0.01, ge=0, description="Weight of the pull of logits towards 0 (arXiv 2312.09244); 0 means none.")
    max_length: int = Field(
        512,
        ge=32,
        description="Tokens of prompt and answer; longer prompts lose old messages, longer answers are left out and counted.",
    )
    reference: str | None = Field(
        None,
        description="Model (BASE or BASE+ADAPTER) whose answers to held-out prompts centre the score; empty: training answers.",
    )
    reference_samples: int = Field(256, ge=2, description="At most this many answers centre the score.")
    reference_tokens: int = Field(256, ge=1, description="Answers of the reference are truncated after this many tokens.")

    @property
    def rate_scale(self) -> float:
        return 0.25 if self.full else 1.0
