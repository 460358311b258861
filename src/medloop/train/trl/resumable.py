"""What our TRL trainers share: our checkpoints in place of their pickles, our metrics in place of their printing.

    class ResumableSFT(Resumable, SFTTrainer): ...        # the mixin first, so that its methods win

Everything that a trainer would save or load (weights, optimizer, scheduler, random states, its own counters) goes
through `train/runs/checkpoint.py`. All of it is a pure function of the checkpoint, so a killed run that is started again
ends with the same bytes as one that was never killed (on a CPU).
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.data import Sampler
from transformers import TrainerCallback

from medloop.contracts import MetricLine, utc_now
from medloop.errors import ResultError
from medloop.store.files import jsonl
from medloop.train.runs.checkpoint import Checkpoint, save_checkpoint
from medloop.train.runs.progress import OnProgress, Progress

TRAINER_STATE = "trainer_state.json"  # the name under which transformers looks for its own counters
WINDOW = 50  # batches; examples are sorted by length only within a window, so order stays nearly random
TOKENS = {"mean_token_accuracy": "token_accuracy", "eval_loss": "dev_loss"}  # what SFT reports, and its name in metrics.jsonl


class ByLength(Sampler[int]):
    """A shuffled order in which neighbours have like lengths, so that batches carry little padding.

    The order is a function of seed and epoch alone: after a restart it is simply made again.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = lengths, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        size = self.batch_size * WINDOW
        windows = [sorted(order[at : at + size], key=lambda i: self.lengths[i]) for at in range(0, len(order), size)]
        order = [i for window in windows for i in window]
        batches = [order[at : at + self.batch_size] for at in range(0, len(order), self.batch_size)]
        last = batches.pop() if len(batches[-1]) < self.batch_size else []  # an incomplete batch must stay the last
        for at in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[at]
        yield from last


class Resumable:
    """`checkpoints` is the folder for checkpoints; `found` the one to continue from, if any."""

    args: Any
    state: Any
    model: Any
    optimizer: Any
    lr_scheduler: Any
    eval_dataset: Any
    _total_train_tokens: float
    evaluate: Callable[..., dict[str, float]]
    train: Callable[..., Any]
    remove_callback: Callable[[Any], None]
    processing_class: Any

    def __init__(self, *args: Any, checkpoints: Path, found: Checkpoint | None, order: ByLength, **kwargs: Any) -> None:
        self.checkpoints, self.found, self.order = checkpoints, found, order
        super().__init__(*args, **kwargs)
        if found is not None:
            self._total_train_tokens = found.extra["tokens"]

    @property
    def tokens(self) -> int:
        """Tokens trained on so far, prompts included."""
        return int(self._total_train_tokens)

    def run(self) -> None:
        """Train to the end, or on to the end. The loss before the first step is measured once."""
        if self.found is None and self.eval_dataset is not None:
            self.evaluate()
        self.train(resume_from_checkpoint=None if self.found is None else str(self.found.path))

    def _get_train_sampler(self, train_dataset: Any = None) -> ByLength:
        return self.order

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        state = json.dumps(dataclasses.asdict(self.state))
        extra = {"tokens": self.tokens}
        step = self.state.global_step
        save_checkpoint(self.checkpoints, step, weights, self.optimizer, self.lr_scheduler, extra, files={TRAINER_STATE: state})

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Nothing yet: the weights come back with the optimizer, when both are in place."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.found is not None:
            self.found.restore(self.model, self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if self.found is not None:
            self.found.restore_random()

    def _send_telemetry(self) -> None:
        """TRL reports each run to its makers. Ours are nobody's business."""


class Watch(TrainerCallback):  # type: ignore[misc]
    """Writes metrics.jsonl, tells the watcher, stops at a loss that is no number or when asked to.

    `names` says which of the trainer's numbers enter the lines, and under which name: those of a step by their own name,
    those of a dev evaluation with `eval_` before it.
    """

    def __init__(
        self, metrics: Path, on_progress: OnProgress, should_stop: Callable[[], bool], names: Mapping[str, str] = TOKENS
    ) -> None:
        self.metrics, self.on_progress, self.should_stop, self.names = metrics, on_progress, should_stop, names
        self.trainer: Resumable | None = None
        self.since: tuple[float, int] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.trainer is not None, "the trainer is set before training"
        self.since = (time.monotonic(), self.trainer.tokens)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        state.log_history.clear()  # metrics.jsonl has it all; the trainer would copy it into every checkpoint
        if "loss" in logs:
            self._train_line(state, logs)
        elif "eval_loss" in logs:
            extra = {name: logs[key] for key, name in self.names.items() if key.startswith("eval_")}
            jsonl.append(self.metrics, MetricLine(ts=utc_now(), iter=state.global_step, phase="METRICS", extra=extra))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.should_stop():
            control.should_save = control.should_training_stop = True
        return control

    def _train_line(self, state: Any, logs: dict[str, float]) -> None:
        assert self.trainer is not None and self.since is not None, "training has begun"
        if not math.isfinite(logs["loss"]):
            raise ResultError(
                f"The loss is no longer a number at step {state.global_step}, so training stopped; that step is not kept",
                "Lower the learning rate and start again with --replace",
            )
        seconds = max(time.monotonic() - self.since[0], 1e-9)
        speed = (self.trainer.tokens - self.since[1]) / seconds
        extra = {
            "learning_rate": logs["learning_rate"],
            "grad_norm": logs["grad_norm"],
            **{name: logs[key] for key, name in self.names.items() if not key.startswith("eval_")},
            "tokens": self.trainer.tokens,
            "tokens_per_second": round(speed, 1),
        }
        progress = 100 * state.global_step / state.max_steps
        line = MetricLine(
            ts=utc_now(),
            iter=state.global_step,
            phase="TRAINING",
            progress=progress,
            epoch=state.epoch,
            loss=logs["loss"],
            extra=extra,
        )
        jsonl.append(self.metrics, line)
        numbers = {"loss": logs["loss"], "learning_rate": logs["learning_rate"], "tokens_per_second": speed}
        step, steps = state.global_step, state.max_steps
        self.on_progress(Progress(step, steps, "TRAINING", done=step, total=steps, finished=step, numbers=numbers))


class Knobs(Protocol):
    """What every run of a TRL trainer says about itself."""

    @property
    def batch_size(self) -> int: ...
    @property
    def epochs(self) -> float: ...
    @property
    def warmup(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def save_every(self) -> int: ...
    @property
    def gradient_checkpointing(self) -> bool: ...
    @property
    def seed(self) -> int: ...


def arguments(config: Knobs, folder: Path, *, steps: int, micro: int, rate: float, eval_every: int, cuda: bool) -> dict[str, Any]:
    """Settings for any TRL trainer; `eval_every` 0 means never. TRL's defaults (bfloat16 and gradient checkpointing on)
    made training on a CPU 17 times slower."""
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": micro,
        "per_device_eval_batch_size": micro,
        "gradient_accumulation_steps": config.batch_size // micro,
        "num_train_epochs": config.epochs,
        "max_steps": steps,
        "learning_rate": rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": round(config.warmup * steps),
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "eval_strategy": "steps" if eval_every else "no",
        "eval_steps": eval_every or None,  # by steps, so that it comes before the checkpoint of the same step
        "save_strategy": "steps",
        "save_steps": config.save_every,
        "prediction_loss_only": True,
        "bf16": cuda,
        "use_cpu": not cuda,
        "gradient_checkpointing": config.gradient_checkpointing,
        "dataloader_pin_memory": cuda,
        "max_length": None,
        "seed": config.seed,
        "data_seed": config.seed,
        "report_to": "none",
        "disable_tqdm": True,
    }
