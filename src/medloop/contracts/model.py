"""Models by reference, and the card beside trained weights."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Json, Text, Timestamp

HeldOutVerdict = Literal["gained", "no_gain_shown", "fell"]
AlarmAction = Literal["stopped", "undone", "warned"]
Method = Literal["sft", "reward", "dpo", "kto", "ppo", "grpo", "irs", "pretrain"]


class ModelRef(Contract):
    """A base model (`embedded:tiny`, a folder, a hub id; in an evaluation also `URL#NAME`) and an adapter folder on it, if any.

    `codebook` is a file of rules that stand before every prompt.
    """

    base: Text
    adapter: Text | None = None
    codebook: Text | None = None

    @property
    def label(self) -> str:
        """The parts by their last names: `embedded:tiny+sft,rules.md`."""
        adapter = f"+{_last_name(self.adapter)}" if self.adapter else ""
        return f"{self.base}{adapter}" + (f",{_last_name(self.codebook)}" if self.codebook else "")

    @property
    def spec(self) -> str:
        """The parts as given, which tell any two models apart."""
        return f"{self.base}{f'+{self.adapter}' if self.adapter else ''}{f',codebook={self.codebook}' if self.codebook else ''}"


def _last_name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


class TrainingCard(Contract):
    """`card.json`: inputs by hash, settings and results of a training run."""

    name: Text
    method: Method
    base: Text
    base_sha256: Hash
    parent: Hash | None = None
    inputs: dict[str, Hash]
    config: Json
    seed: int
    metrics: dict[str, float] = Field(default_factory=dict)
    trainable_parameters: int = Field(ge=0)
    total_parameters: int = Field(ge=0)
    versions: dict[str, str]
    commit: str | None = None
    backend: Text | None = Field(
        None, description="How RL sampled its answers: fast, fast_bfloat16, cuda_graph, library, mixed, vllm."
    )
    update_backend: Text | None = Field(
        None,
        description="What computed the updates: fast, library or mixed; of SFT also graph and direct, of DPO and KTO direct.",
    )
    update_note: Text | None = Field(
        None, description="Why the library computed updates of DPO, KTO or a reward model, and its cost."
    )
    held_out_verdict: HeldOutVerdict | None = Field(
        None, description="Of RL: the 95 % interval of the held-out gain lies above 0, contains it, or lies below it."
    )
    alarms: tuple[Text, ...] = Field((), description="Of RL: what the audit found in the held-out answers, with the step.")
    alarm_action: AlarmAction | None = Field(
        None, description="Of RL: the alarm ended the run (the last good weights are published), was undone, or was only told."
    )
    stopped: Text | None = Field(None, description="Of RL: why the run ended before its last step, such as a KL beyond abort_kl.")
    warnings: tuple[Text, ...] = Field((), description="What to know before the result is used.")
    memory: Json | None = Field(
        None,
        description="Of RL: the memory that was given, estimated and reached, and the pieces that the run worked in; "
        "`asked`: where the settings said otherwise.",
    )
    degraded: Text | None = Field(
        None, description="Of RL: the parts of the reward that were missing, for how many answers and why; empty when none was."
    )
    started: Timestamp
    finished: Timestamp
