"""The settings of PPO, GRPO and IRS; each field says what it does."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from medloop.contracts import ModelRef
from medloop.contracts.model import Method
from medloop.knobs import RUN_NAME
from medloop.train.configs.run_config import RunConfig

Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
Scale = Literal["group", "batch", "none"]
REFERENCE_MODEL = 135_000_000  # parameters of the model for which the rates of large models were measured (docs/log.md)


class RLConfig(RunConfig):
    """Settings that every RL method has."""

    method: ClassVar[Method]
    small_rate: ClassVar[float] = 2e-3
    large_rate: ClassVar[float] = 1e-5  # of a model of 135 million parameters; larger ones get less

    name: str = Field("round1", pattern=RUN_NAME, description="Name of the result, under models/rl.")
    adapter: str | None = Field(None, description="Adapter to start from, which is also the reference; empty: the base model.")
    prompts: str | None = Field(None, description="Questions to train on; empty means data/rl/training_prompts.jsonl.")
    held_out: str | None = Field(
        None, description="Questions that are only measured, never trained on; empty means data/processed/dev.jsonl."
    )
    held_out_n: int = Field(128, ge=0, description="Maximum number of held-out questions; 0 means none.")
    held_out_samples: int = Field(2, ge=1, description="Answers to each held-out question at a check.")
    on_alarm: Literal["stop", "undo", "warn"] = Field(
        "stop", description="What an alarm of the audit does: end the run, undo what it was about and train on, or only be told."
    )
    second_judge: dict[str, str] = Field(
        default_factory=dict,
        description="Judge of the audit (model, teacher) and its source; empty: the default mix, unless that is the reward.",
    )
    reward: str | None = Field(None, description="YAML file of the reward, as configs/reward.yaml; empty: the default mix.")
    given: dict[str, str] = Field(
        default_factory=dict, description="Given parts of the reward (teacher, model, ...) and their sources."
    )
    max_prompt: int = Field(
        256, ge=8, description="Maximum tokens of a prompt; longer ones lose passages, then old messages, or are left out."
    )
    top_k: int = Field(3, ge=1, description="Maximum number of context passages of a question in its prompt, the first ones.")
    max_new_tokens: int = Field(160, ge=1, description="Maximum tokens of an answer.")
    temperature: float = Field(1.0, gt=0, le=5, description="Temperature of sampling and of every log-probability.")
    learning_rate: float | None = Field(
        None, gt=0, le=1, description="Initial rate, which falls linearly to 0; empty: by the model's size."
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    micro_batch_size: int = Field(
        0, ge=0, description="Answers in memory at once; 0: 64 on a CPU, by memory on a GPU. Halved when memory runs out."
    )
    rollout_batch_size: int = Field(64, ge=1, description="Answers sampled at once; by memory on a GPU where nobody sets it.")
    rollout_url: str | None = Field(
        None, pattern="^https?://", description="Address of a vLLM server that samples, with the same base; empty: sample here."
    )
    rollout_dtype: Literal["auto", "bfloat16"] = Field(
        "auto",
        description="bfloat16: on a CPU, multiply in it while sampling, corrected by importance weights; auto: as trained.",
    )
    rollout_cap: float = Field(
        3.0, ge=1, description="Upper bound of the importance weight of samples: server, GPU, overlap or rollout_dtype."
    )
    lora_r: int = Field(8, ge=1, le=1024, description="Rank of a fresh adapter; an adapter to start from keeps its own.")
    lora_alpha: int = Field(16, ge=1, description="A fresh adapter's output is scaled by lora_alpha / lora_r.")
    accept_untrusted: bool = Field(
        False, description="Train although people's labels do not support the reward (medloop reward validate)."
    )
    max_missing: float = Field(0.5, ge=0, le=1, description="A larger share of answers without a reward stops the run.")
    save_every: int = Field(5, ge=1, description="Steps between checkpoints.")
    eval_every: int = Field(
        10, ge=1, description="Steps between held-out checks; there is also one before and one after training."
    )
    gradient_checkpointing: bool = Field(False, description="Less memory for more time; for large models on a GPU.")
    load_in_4bit: bool = Field(False, description="Hold the base model in 4 bits (needs bitsandbytes).")
    optimizer: Literal["adamw", "paged_adamw_8bit"] = Field(
        "adamw", description="paged_adamw_8bit: AdamW with its moments in 8 bits, in pages (needs bitsandbytes and a GPU)."
    )
    memory_gb: float | None = Field(
        None,
        gt=0,
        description="Memory that the run may take, in GB; chooses what nobody set of micro_batch_size, "
        "rollout_batch_size, gradient_checkpointing, load_in_4bit and optimizer. Empty: what the GPU has free, never 4 bits.",
    )
    seed: int = Field(42, ge=0, lt=2**31, description="Seed of order and sampling.")

    @model_validator(mode="after")
    def _samples_in_one_way(self) -> Self:
        if self.rollout_dtype == "bfloat16" and (self.load_in_4bit or self.rollout_url):
            other = "load_in_4bit=true" if self.load_in_4bit else "rollout_url"
            raise ValueError(f"rollout_dtype=bfloat16 cannot be combined with {other}; leave one of them out")
        return self

    def rate_for(self, parameters: int) -> float:
        """Above REFERENCE_MODEL parameters it falls with their cube root: half of it at eight times the size."""
        return self.learning_rate or super().rate_for(parameters) * min(1.0, REFERENCE_MODEL / parameters) ** (1 / 3)

    @property
    def ref(self) -> ModelRef:
        return ModelRef(base=self.model, adapter=self.adapter)


class StepConfig(RLConfig):
    """Settings of the methods that learn batch by batch: PPO and GRPO."""

    steps: int = Field(40, ge=1, description="Batches of experience.")
    prompts_per_step: int = Field(16, ge=1, description="Questions in a batch.")
    overlap: bool = Field(
        False, description="Draw the next step's answers while this step's are scored: one step off-policy, corrected."
    )


class PPOConfig(StepConfig):
    method: ClassVar[Method] = "ppo"
    small_rate: ClassVar[float] = 7e-4  # several updates on each batch: at 2e-3 the embedded model forgot what it knew
    large_rate: ClassVar[float] = 3e-6

    samples: int = Field(8, ge=1, description="Answers to each question in a batch.")
    epochs: int = Field(2, ge=1, description="Passes over a batch of answers.")
    minibatches: int = Field(2, ge=1, description="Optimizer steps per pass.")
    clip: float = Field(0.2, gt=0, lt=1, description="Clip range of the probability ratio.")
    dual_clip: float = Field(
        3.0, gt=1, description="Bound of the loss of a bad token whose ratio ran away, as a multiple of its advantage."
    )
    gamma: float = Field(1.0, gt=0, le=1, description="Discount per token.")
    lam: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Lambda of GAE; below 1 the score reaches early tokens only through the critic, which starts at 0.",
    )
    entropy_weight: float = Field(0.0, ge=0, description="Weight of the entropy bonus.")
    beta: float = Field(0.02, ge=0, description="Initial weight of the KL to the reference, per nat.")
    target_kl: float | None = Field(
        6.0, gt=0, description="The KL to the reference that beta steers to, in nats per answer; empty: beta stays as it is."
    )
    horizon: float | None = Field(
        None, gt=0, description="Answers over which beta may change by the factor e; empty: 1.5 times the answers of a step."
    )
    abort_kl: float | None = Field(
        4.0, ge=2, description="The run ends when the KL is more than this many times target_kl; empty: never."
    )
    step_kl: float = Field(
        0.05, gt=0, description="An epoch ends early when the policy moved 1.5 times this far, in nats per token."
    )
    missing_eos_penalty: float = Field(
        0.0, ge=0, description="Subtracted from the score of an answer that was truncated at the limit."
    )

    @model_validator(mode="after")
    def _can_hold_its_target(self) -> Self:
        answers = self.prompts_per_step * self.samples
        if self.target_kl is not None and self.beta == 0:
            raise ValueError(
                f"beta=0 cannot steer to target_kl={self.target_kl:g}, because 0 times any factor is 0; set beta above 0, or "
                "target_kl=null for a run without a target"
            )
        if self.horizon is not None and self.horizon < answers:
            raise ValueError(
                f"horizon={self.horizon:g} is below the {answers} answers of a step, so that beta would jump; set horizon to at "
                f"least {answers}, or leave it empty"
            )
        return self


class GRPOConfig(StepConfig):
    method: ClassVar[Method] = "grpo"

    samples: int = Field(8, ge=2, description="Answers to each question: the group.")
    loss: Aggregation = Field("dapo", description="How tokens are averaged: dapo, grpo, dr_grpo or bnpo.")
    scale: Scale = Field(
        "group", description="What advantages are divided by: the standard deviation of the group, of the batch, or none."
    )
    rewards: Literal["sum", "each"] = Field(
        "sum", description="sum: the mix is normalised; each: every part on its own, then summed by weight (GDPO)."
    )
    beta: float = Field(0.02, ge=0, description="Weight of the KL to the reference in the loss; 0 needs no reference.")
    clip: float = Field(0.2, gt=0, lt=1, description="Lower clip range: ratios are clipped at 1 - clip.")
    clip_high: float = Field(0.28, gt=0, description="Upper clip range: ratios are clipped at 1 + clip_high.")
    epochs: int = Field(1, ge=1, description="Passes over a batch of answers.")
    minibatches: int = Field(1, ge=1, description="Optimizer steps per pass.")
    mask_truncated_completions: bool = Field(False, description="Answers truncated at the limit are not trained on.")


class IRSRunConfig(RLConfig):
    """The settings of an IRS request (contracts/job.py) under their own names, and more."""

    method: ClassVar[Method] = "irs"
    large_rate: ClassVar[float] = 2e-5

    n_iterations: int = Field(3, ge=1, description="Rounds of generate, score, fine-tune.")
    n_questions: int = Field(100, ge=1, description="Questions in a round.")
    n_candidates: int = Field(4, ge=1, description="Answers to each question.")
    threshold: float | None = Field(None, description="Minimum reward of a selected answer; empty: the mean of the round.")
    must_pass: list[str] = Field(
        ["risk", "false_reassurance"], description="Penalties that a selected answer must not have (0.5 or more)."
    )
    all_pass_share: float = Field(
        0.5, ge=0, le=1, description="Maximum share of selected answers to questions whose answers all passed."
    )
    replay: float = Field(0.2, ge=0, lt=1, description="Share of old records among the training examples.")
    replay_data: str | None = Field(None, description="Old records; empty: data/processed/train.jsonl, if it exists.")
    batch_size: int = Field(16, ge=1, description="Answers per optimizer step.")
    epochs: int = Field(1, ge=1, description="Passes over the selected answers in a round.")
    tolerance: float = Field(0.02, ge=0, description="How far the held-out reward may fall before the run ends.")
    dw: str | None = Field(None, description="YAML of the DW-GRPO scorer, as configs/dw.yaml, instead of `reward`.")
    dw_config: dict[str, Any] | None = Field(
        None, description="Dynamic weights of the DW-GRPO scorer, as in an IRS request; also selects that scorer."
    )

    @property
    def steps(self) -> int:
        return self.n_iterations

    @property
    def samples(self) -> int:
        return self.n_candidates
