"""What SFT, preference training and the reward model do alike: count steps, fit into memory, end whole, sum up.

    trainer, began = fitted(plan, trainer_of, unit="pair", advice="Lower max_length")

`trainer_of` makes a trainer from a checkpoint (or none) and a number of rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import torch
from transformers import PrinterCallback

from medloop.errors import ResultError
from medloop.store.files import jsonl
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.resumable import Resumable, Watch

T = TypeVar("T", bound=Resumable)


class Counted(Protocol):
    """The settings that say how long a run is and how much of it is in memory at once."""

    @property
    def batch_size(self) -> int: ...
    @property
    def micro_batch_size(self) -> int | None: ...
    @property
    def epochs(self) -> float: ...
    @property
    def max_steps(self) -> int | None: ...


class Planned(Protocol):
    """What the plans of the three have in common."""

    @property
    def config(self) -> Counted: ...
    @property
    def run(self) -> TrainingRun: ...
    @property
    def steps(self) -> int: ...
    @property
    def afresh(self) -> bool: ...


def count_steps(config: Counted, rows: int, run: TrainingRun, *, replace: bool) -> tuple[int, int, int]:
    """(steps of an epoch, steps of the run, step that an earlier start has reached)."""
    per_epoch = math.ceil(rows / config.batch_size)
    steps = math.ceil(config.epochs * per_epoch)
    found = None if replace else run.resumable()
    return per_epoch, min(steps, config.max_steps or steps), 0 if found is None else found.step


def fitted(
    plan: Planned, attempt: Callable[[Checkpoint | None, int], T], *, unit: str, advice: str, least: int = 1
) -> tuple[T, datetime]:
    """A trainer that came to its end, and when the run began. Out of memory halves what is in memory at once, down to `least`,
    and goes on from the last checkpoint. A run that was asked to stop has its checkpoint, and ends with KeyboardInterrupt."""
    size, micro = plan.config.batch_size, plan.config.micro_batch_size or plan.config.batch_size
    while True:
        began, found = plan.run.begin(afresh=plan.afresh)
        try:
            trainer = _run(attempt(found, micro))  # a failed one is not kept here, so its memory is free again
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
    return trainer, began


def _run(trainer: T) -> T:
    trainer.run()
    return trainer


def ready(trainer: T, watch: Watch, *, widen: bool = True) -> T:
    """A trainer that is watched. `widen`: what is trained gets 32 bits, since a bfloat16 weight does not move at small rates."""
    for weight in trainer.model.parameters() if widen else ():
        if weight.requires_grad:
            weight.data = weight.data.float()
    trainer.remove_callback(PrinterCallback)
    watch.trainer = trainer
    return trainer


def numbers(plan: Planned, trainer: Resumable, **more: float) -> dict[str, float]:
    """For the card: what every run has, then `more`."""
    shared = {"steps": plan.steps, "tokens": trainer.tokens, "learning_rate": trainer.args.learning_rate}
    return {name: float(value) for name, value in {**shared, **more}.items()}


def judged(plan: Planned, found: dict[str, Any]) -> dict[str, float]:
    """The accuracies of a report, and the loss on held-out rows before and after, out of metrics.jsonl."""
    losses = [row["extra"]["test_loss"] for row in jsonl.read(plan.run.metrics) if row["phase"] == "METRICS"]
    test = found["test"]
    accuracy = {"test_accuracy": test["value"], "test_accuracy_low": test["low"], "test_accuracy_high": test["high"]}
    losses_then = {"test_loss_before": losses[0], "test_loss_after": losses[-1]}
    return {"train_accuracy": found["train"]["value"], **accuracy, **losses_then}
