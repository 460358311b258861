"""What SFT, preference training and the reward model share: count steps, train within memory, metrics for the card.

    trainer, started = train_within_memory(plan, make_trainer, unit="pair", advice="Lower max_length")

`make_trainer` makes a trainer from a checkpoint (or none) and a micro-batch size.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import torch
from transformers import PrinterCallback

from medloop.errors import ResultError
from medloop.store.files import jsonl
from medloop.train.configs.run_config import EpochConfig
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.resumable import MetricsCallback, ResumableTrainer

T = TypeVar("T", bound=ResumableTrainer)


class EpochPlan(Protocol):
    """What the plans of the three have in common."""

    @property
    def config(self) -> EpochConfig: ...
    @property
    def run(self) -> TrainingRun: ...
    @property
    def steps(self) -> int: ...
    @property
    def restart(self) -> bool: ...


def count_steps(config: EpochConfig, rows: int, run: TrainingRun, *, replace: bool) -> tuple[int, int, int | None]:
    """(steps per epoch, steps of the run, steps that an earlier start has done)."""
    per_epoch = math.ceil(rows / config.batch_size)
    steps = max(math.ceil(config.epochs * per_epoch), config.least_steps)
    checkpoint = None if replace else run.resumable()
    return per_epoch, min(steps, config.max_steps or steps), None if checkpoint is None else checkpoint.step


def train_within_memory(
    plan: EpochPlan, make_trainer: Callable[[Checkpoint | None, int], T], *, unit: str, advice: str, least: int = 1
) -> tuple[T, datetime]:
    """A trainer that has finished, and when the run started.

    Out of memory halves the micro-batches, down to `least`, and continues from the last checkpoint. A run that was stopped has
    its checkpoint, and ends with KeyboardInterrupt.
    """
    size, micro = plan.config.batch_size, plan.config.micro_batch_size or plan.config.batch_size
    while True:
        started, checkpoint = plan.run.start(restart=plan.restart)
        try:
            trainer = _run(make_trainer(checkpoint, micro))  # a failed one has no name here, so its memory is free again
            break
        except torch.OutOfMemoryError:
            pass
        smaller = [n for n in range(micro // 2, least - 1, -1) if size % n == 0]
        if not smaller:
            raise ResultError(f"There is not enough memory for {micro} {unit}{'s' * (micro > 1)}", advice)
        micro = smaller[0]
        torch.cuda.empty_cache()
    if trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt
    return trainer, started


def _run(trainer: T) -> T:
    trainer.run()
    return trainer


def attach_metrics(trainer: T, callback: MetricsCallback, *, widen: bool = True) -> T:
    """Connect a trainer and its callback. `widen` casts trained weights to float32: bfloat16 ones do not move at small rates."""
    for weight in trainer.model.parameters() if widen else ():
        if weight.requires_grad:
            weight.data = weight.data.float()
    trainer.remove_callback(PrinterCallback)
    callback.trainer = trainer
    return trainer


def card_metrics(plan: EpochPlan, trainer: ResumableTrainer, **more: float) -> dict[str, float]:
    """Metrics for the card: those of every run, then `more`."""
    shared = {"steps": plan.steps, "tokens": trainer.tokens, "learning_rate": trainer.args.learning_rate}
    return {name: float(value) for name, value in {**shared, **more}.items()}


def held_out_metrics(plan: EpochPlan, report: dict[str, Any]) -> dict[str, float]:
    """The accuracies of a report, and the loss on held-out rows before and after, from metrics.jsonl."""
    losses = [row["extra"]["test_loss"] for row in jsonl.read(plan.run.metrics) if row["phase"] == "METRICS"]
    return {**accuracies(report), "test_loss_before": losses[0], "test_loss_after": losses[-1]}


def accuracies(report: dict[str, Any]) -> dict[str, float]:
    """Those of a report's training and held-out pairs."""
    test = report["test"]
    held_out = {"test_accuracy": test["value"], "test_accuracy_low": test["low"], "test_accuracy_high": test["high"]}
    return {"train_accuracy": report["train"]["value"], **held_out}
