"""The state of an RL run that PPO, GRPO and IRS share: the policy with its tools, and everything that a checkpoint stores.

There is no base trainer: `ppo.py`, `grpo.py` and `irs.py` are read from top to bottom and call the functions of this folder.
Everything random is a function of seed, step and prompt (models/rollout/sampler.py names its streams), so a run resumed from a
checkpoint does what the uninterrupted one would have done, to the byte on a CPU.
"""

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import torch

from medloop.contracts import MetricLine, utc_now
from medloop.models import runtime
from medloop.models.rollout.sampler import RolloutSampler, stop_ids
from medloop.models.rollout.served import ServedSampler
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.rl import samples
from medloop.train.rl.memory import CHOOSABLE, CUDA_ITSELF
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.policy import Policy, open_policy
from medloop.train.runs.checkpoint import Checkpoint, save_checkpoint
from medloop.train.runs.progress import OnProgress, Progress, StepReward, ignore_progress

log = logging.getLogger(__name__)
PENDING = "pending"  # in `saved`: the answers that wait for the next step (overlap.py)
MICRO_BATCH_SIZE = 64  # answers in an update at once where neither the user nor the memory decided (memory.py)


@dataclass
class TrainState:
    """The policy and its tools; `saved` is what a checkpoint stores besides weights and optimizer."""

    plan: RLPlan
    policy: Policy
    sampler: RolloutSampler
    optimizer: torch.optim.Optimizer
    learning_rate: float
    micro_batch_size: int
    started: datetime
    on_progress: OnProgress
    saved: dict[str, Any] = field(default_factory=lambda: {"skipped_steps": 0, "held_out": {}})
    step: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    reward: StepReward | None = None

    def snapshot(self) -> dict[str, Any]:
        """A copy of weights, optimizer and `saved`, for `rollback`."""
        weights = {name: p.detach().clone() for name, p in self.policy.trained().items()}
        return {"weights": weights, "optimizer": copy.deepcopy(self.optimizer.state_dict()), "saved": copy.deepcopy(self.saved)}

    def rollback(self, snapshot: dict[str, Any]) -> None:
        self.set_weights(snapshot["weights"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.saved = snapshot["saved"]

    def set_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Put these values into the trained weights, and let the sampler know."""
        with torch.no_grad():
            for name, p in self.policy.trained().items():
                p.copy_(weights[name])
        self.sampler.refresh()

    def save(self, number: int | None = None) -> None:
        """Write a checkpoint, by default under the number of the step."""
        weights = {name: p.detach() for name, p in self.policy.trained().items()}
        number = self.step if number is None else number
        extra = {"saved": self.saved, "rate": self.learning_rate, "pieces": self.pieces, "forward": self.policy.update_backend}
        save_checkpoint(self.plan.run.checkpoints, number, weights, self.optimizer, extra=extra)

    @property
    def pieces(self) -> dict[str, Any]:
        """As they are now: batches of updates and of sampling may have been halved."""
        config = self.plan.config
        sampled = min(config.rollout_batch_size, getattr(self.sampler, "batch_limit", None) or config.rollout_batch_size)
        halved = {"micro_batch_size": self.micro_batch_size, "rollout_batch_size": sampled}
        return {name: getattr(config, name) for name in CHOOSABLE} | halved

    def restore(self, checkpoint: Checkpoint) -> None:
        self.set_weights(checkpoint.weights)
        self.optimizer.load_state_dict(checkpoint.optimizer)  # type: ignore[arg-type]
        self.saved, self.step = checkpoint.extra["saved"], checkpoint.step
        # The rate that the run began with: the default may be another one by now.
        if "rate" in checkpoint.extra:
            self.learning_rate = checkpoint.extra["rate"]
        elif self.plan.config.learning_rate is None:  # a checkpoint from before rates were stored
            self.saved["unknown_rate"] = (
                f"The checkpoint of step {self.step} does not say its learning rate. From there on the run used today's default, "
                f"{self.learning_rate:.2g}; name the old one with --learning-rate and --replace to train it again."
            )
            log.warning("%s", self.saved["unknown_rate"])
        before, now = checkpoint.extra.get("forward"), self.policy.update_backend
        if before != now and "mixed" not in (before, now):
            began = f"were computed by the {before} forward pass" if before else "do not say their forward pass and their pieces"
            self.saved["other_forward"] = (
                f"The steps up to {self.step} {began}; those after it were computed by the {now} one. The two differ by rounding."
            )
            log.warning("%s", self.saved["other_forward"])

    @property
    def teacher_usage(self) -> dict[str, float]:
        """Requests, tokens and US dollars of the teacher over all steps of this run; empty where nobody was asked."""
        steps = list(self.saved.get("usage", {}).values())
        return {name: round(sum(step.get(name, 0) for step in steps), 6) for name in ("calls", "tokens", "usd")} if steps else {}

    def phase(self, name: str, done: int, total: int) -> None:
        finished = max(self.step - 1, 0)
        self.on_progress(Progress(self.step, self.plan.steps, name, done, total, finished, self.numbers, self.reward))

    def log(self, phase: str, **values: Any) -> None:
        """Append a line to metrics.jsonl, with what the teacher cost so far. Two equal runs write equal lines but for `ts`."""
        if used := self.teacher_usage:
            values["extra"] = {**(values.get("extra") or {}), "teacher": used}
        jsonl.append(self.plan.run.metrics, MetricLine(ts=utc_now(), iter=self.step, phase=phase, **values))


def create_train_state(
    plan: RLPlan, settings: Settings, *, with_values: bool = False, on_progress: OnProgress = ignore_progress
) -> TrainState:
    """Load the policy and put it where the newest checkpoint left it."""
    config = plan.config
    started, checkpoint = plan.run.start(restart=plan.restart)
    samples.truncate(plan.run.folder, -1 if checkpoint is None else checkpoint.step)
    torch.manual_seed(config.seed)  # a fresh adapter's first weights
    policy = open_policy(
        config.ref, settings, lora_r=config.lora_r, lora_alpha=config.lora_alpha, with_values=with_values,
        load_in_4bit=config.load_in_4bit, gradient_checkpointing=config.gradient_checkpointing,
    )  # fmt: skip
    rate = config.rate_for(runtime.count_parameters(policy.model)[1])
    optimizer = _optimizer(policy, config, rate)
    micro_batch_size = config.micro_batch_size or MICRO_BATCH_SIZE
    state = TrainState(plan, policy, _sampler(policy, plan, settings), optimizer, rate, micro_batch_size, started, on_progress)
    if checkpoint is not None:
        state.restore(checkpoint)
    return state


@contextmanager
def capped_memory(memory_gb: float | None, settings: Settings) -> Iterator[None]:
    """Inside, a limit that was named holds: beyond it the GPU answers that it is out of memory, and pieces are halved.

    It is lifted at the end, however the run ends: the same process may evaluate or train next.
    """
    device = runtime.device_of(settings)
    if device.type != "cuda":
        yield
        return
    torch.cuda.reset_peak_memory_stats(device)
    total = torch.cuda.get_device_properties(device).total_memory
    share = 1.0 if memory_gb is None else min((memory_gb * 1e9 - CUDA_ITSELF) / total, 1.0)
    torch.cuda.set_per_process_memory_fraction(share, device.index)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device.index)


def _optimizer(policy: Policy, config: Any, rate: float) -> torch.optim.Optimizer:
    kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    if config.optimizer == "paged_adamw_8bit":
        from bitsandbytes.optim.adamw import PagedAdamW8bit  # an optional extra; tensors below 4,096 numbers keep float32 moments

        kind = PagedAdamW8bit
    # eps 1e-5 as in the PPO that others reproduced; weight decay would pull the adapter to the base, not to the reference.
    adapter = [p for name, p in policy.trained().items() if not name.startswith("value_head")]  # the critic fits its own head
    fused = {"fused": True} if kind is torch.optim.AdamW and policy.device.type == "cuda" else {}
    return kind(adapter, lr=rate, eps=1e-5, weight_decay=0.0, **fused)


def _sampler(policy: Policy, plan: RLPlan, settings: Settings) -> RolloutSampler:
    config = plan.config
    if not config.rollout_url:
        low = config.rollout_dtype == "bfloat16" and policy.device.type == "cpu"  # a GPU computes in it anyway
        return policy.sampler(torch.bfloat16 if low else None)
    return ServedSampler(
        config.rollout_url, policy.model, base=config.model, stop_ids=stop_ids(policy.model, policy.loaded.tokenizer),
        folder=plan.run.folder / "rollout", key=settings.rollout.key.get_secret_value(),
    )  # fmt: skip
