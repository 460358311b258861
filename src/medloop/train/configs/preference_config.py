"""The settings of DPO and KTO; each field says what it does."""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from medloop.knobs import RUN_NAME
from medloop.train.configs.run_config import ContextConfig

DPOLoss = Literal["sigmoid", "robust", "ipo", "hinge", "exo_pair", "sigmoid_norm", "apo_zero", "apo_down", "bco_pair", "nca_pair"]
REPAIR_BETA = 1.0  # with replay_data: at 0.1 the policy moved so far that it wrote nonsense (docs/log.md#repair)


class PreferenceConfig(ContextConfig):
    small_rate: ClassVar[float] = 3e-4  # DPO at 1e-3 made chosen answers less likely as well
    large_rate: ClassVar[float] = 2e-5

    name: str = Field("dpo", pattern=RUN_NAME, description="Name of the result, under models/lora.")
    data: str | None = Field(None, description="Training file; empty means data/preferences/preferences.jsonl.")
    adapter: str | None = Field(
        None, description="Adapter to start from, which is the reference too; empty: a fresh one, and the base is the reference."
    )
    test_share: float = Field(0.2, gt=0, lt=0.9, description="Share of the rows that is held out, by prompt.")
    beta: float = Field(0.1, gt=0, le=100, description="Pull to the reference: the higher, the less the policy moves away.")
    learning_rate: float | None = Field(None, gt=0, le=1, description="Peak rate; empty: 3e-4 below 20 M parameters, else 2e-5.")
    load_in_4bit: bool = Field(False, description="Hold the base model in 4 bits (needs bitsandbytes).")

    @property
    def method(self) -> Literal["dpo", "kto"]:
        return "kto" if isinstance(self, KTOConfig) else "dpo"

    @property
    def smallest_batch(self) -> int:
        """The least number of rows in memory."""
        return 1


class DPOConfig(PreferenceConfig):
    replay_data: str | None = Field(
        None,
        description="Rows learnt before, when the pairs are a few corrections: those are repeated to 256 pairs, and as many rows "
        "join, half of them the most like the corrected questions, as pairs in which the corrected sentence is out of place. "
        "Then beta is 1, unless it is given.",
    )
    replay_check: bool = Field(
        True,
        description="Leave out rows of the replay whose answer the rules find faulty (risk, false reassurance, under-triage).",
    )
    loss: DPOLoss = Field("sigmoid", description="Loss of a pair; docs/stages/preference.md says when to take which.")
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="Share of choices assumed to be wrong; for the losses robust (0.1) and exo_pair (0.001)."
    )

    @model_validator(mode="before")
    @classmethod
    def _stronger_pull(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("replay_data") and "beta" not in values:
            return {**values, "beta": REPAIR_BETA}
        return values

    def problems(self) -> list[str]:
        problems = super().problems()
        if self.label_smoothing and self.loss not in ("robust", "exo_pair"):
            problems.append(
                f"label_smoothing {self.label_smoothing} has no effect on the loss {self.loss}, only on robust and exo_pair"
            )
        if self.loss == "exo_pair" and not self.label_smoothing:
            problems.append("the loss exo_pair needs a label_smoothing above 0, for example 0.001")
        return problems


class KTOConfig(PreferenceConfig):
    small_rate: ClassVar[float] = 1e-3

    name: str = Field("kto", pattern=RUN_NAME, description="Name of the result, under models/lora.")
    data: str | None = Field(
        None,
        description="File of thumbs or pairs; empty: thumbs.jsonl in data/preferences, or else preferences.jsonl there.",
    )
    loss: Literal["kto", "apo_zero_unpaired"] = Field(
        "kto",
        description="kto measures how far the policy has moved in general on mismatched answers; apo_zero_unpaired does not.",
    )
    learning_rate: float | None = Field(None, gt=0, le=1, description="Peak rate; empty: 1e-3 below 20 M parameters, else 2e-5.")
    desirable_weight: float = Field(1.0, gt=0, le=1000, description="Weight of the loss of liked answers.")
    undesirable_weight: float = Field(1.0, gt=0, le=1000, description="Weight of the loss of answers that were not liked.")

    def problems(self) -> list[str]:
        problems = super().problems()
        if self.smallest_batch > (self.micro_batch_size or self.batch_size):
            problems.append("the loss kto needs at least 2 rows in memory at once (batch_size, micro_batch_size)")
        return problems

    @property
    def smallest_batch(self) -> int:
        return 2 if self.loss == "kto" else 1
