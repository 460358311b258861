"""The settings of SFT; each field says what it does."""

from typing import Any, ClassVar

from pydantic import Field, model_validator

from medloop.knobs import RUN_NAME
from medloop.train.configs.run_config import ContextConfig

OPENING_WEIGHT = 9.0  # with replay_data, of a token that opens a sentence (train/examples/openings.py); 1 for the others
REPAIR_STEPS = 300  # with 40, a small model did not even learn the corrections themselves (docs/log.md#repair)


class SFTConfig(ContextConfig):
    small_rate: ClassVar[float] = 2e-3
    large_rate: ClassVar[float] = 2e-4

    name: str = Field("sft", pattern=RUN_NAME, description="Name of the result, under models/lora or models/full.")
    data: str | None = Field(None, description="Training file; empty means data/processed/train.jsonl.")
    replay_data: str | None = Field(
        None,
        description="Rows learnt before, when data is a few corrections: those are repeated to 256 rows, and three times as "
        "many of these join, half of them the most like the corrected questions. Then least_steps is 300, unless it or epochs "
        "is given, and the default rate half.",
    )
    replay_check: bool = Field(
        True,
        description="Leave out rows of the replay whose answer the rules find faulty (risk, false reassurance, under-triage).",
    )
    adapter: str | None = Field(None, description="Adapter to continue from, as online learning does; empty: a fresh one.")
    dev_data: str | None = Field(
        None, description="File for the dev loss; empty means data/processed/dev.jsonl, if data is empty too."
    )
    dev_rows: int = Field(256, ge=0, description="At most this many examples of the dev file are scored; 0 means none.")
    full: bool = Field(False, description="Train all weights instead of a LoRA adapter.")
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Peak rate; empty: 2e-3 below 20 M parameters, else 2e-4; with full a tenth, with replay_data half.",
    )
    warmup: float = Field(
        0.05, ge=0, lt=1, description="Share of the steps over which the rate rises; then it falls to 0 along a cosine."
    )
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    load_in_4bit: bool = Field(False, description="Hold the base model in 4 bits (needs bitsandbytes); LoRA only.")

    @model_validator(mode="before")
    @classmethod
    def _steps_for_few_rows(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("replay_data") and not {"least_steps", "epochs"} & values.keys():
            return {**values, "least_steps": REPAIR_STEPS}
        return values

    def problems(self) -> list[str]:
        problems = super().problems()
        if self.full and self.load_in_4bit:
            problems.append("load_in_4bit works with LoRA only, not with full")
        if self.full and self.adapter:
            problems.append("adapter is continued with LoRA only, not with full")
        return problems

    @property
    def rate_scale(self) -> float:
        return (0.1 if self.full else 1.0) * (0.5 if self.replay_data else 1.0)
