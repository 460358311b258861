"""The settings of reward models; each field says what it does."""

from typing import ClassVar, Literal

from pydantic import Field

from medloop.knobs import RUN_NAME
from medloop.train.configs.run_config import EpochConfig


class RewardModelConfig(EpochConfig):
    small_rate: ClassVar[float] = 1e-3
    large_rate: ClassVar[float] = 2e-4

    name: str = Field("reward", pattern=RUN_NAME, description="Name of the result, under models/reward.")
    model: str = Field(
        "embedded:tiny", min_length=1, description="Base model: embedded:NAME, a folder, a GGUF file, or a hub id; encoders too."
    )
    data: str | None = Field(None, description="File of pairs; empty means data/preferences/preferences.jsonl.")
    extra_data: list[str] = Field(
        [], description="More files of pairs, for example from the teacher or from IRS; their questions are split likewise."
    )
    test_share: float = Field(0.2, gt=0, lt=0.9, description="Share of the pairs that is held out, by prompt.")
    ensemble: int = Field(
        8, ge=0, le=64, description="Heads over words and shape, each from its own resample of the questions; 0 means none."
    )
    encoder: Literal["fine-tuned", "frozen", "none"] = Field(
        "fine-tuned",
        description="What the base does: it is trained; its frozen vectors are features of the heads; or nothing (seconds).",
    )
    caution: float = Field(1.0, ge=0, le=10, description="How much uncertainty lowers the reward; 0 means not at all.")
    length_free: bool = Field(False, description="Subtract from the heads what the length of the answer explains of them.")
    hard_negatives: float = Field(
        0.25, ge=0, le=4, description="Synthetic broken answers (another question's, truncated, shuffled, repeated), as a share "
        "of the training pairs; they teach what is far from an answer.",
    )  # fmt: skip
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

    @property
    def encoder_sentence(self) -> str:
        return f"on frozen vectors of {self.model}" if self.encoder == "frozen" else "without a base model"

    def problems(self) -> list[str]:
        problems = super().problems()
        if self.ensemble == 1:
            problems.append("ensemble is 1: a spread needs at least 2 heads, or 0 for none")
        if self.ensemble == 0 and self.encoder != "fine-tuned":
            problems.append(f"ensemble is 0 and encoder is {self.encoder}: nothing would be trained")
        if self.full and self.encoder != "fine-tuned":
            problems.append(f"full trains all weights of the base, but encoder is {self.encoder}")
        return problems
