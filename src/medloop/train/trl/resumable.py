"""What our TRL trainers share: our checkpoints in place of their pickles, our metrics in place of their printing.

    class ResumableSFT(ResumableTrainer, SFTTrainer): ...        # the mixin first, so that its methods win

Everything that a trainer would save or load (weights, optimizer, scheduler, random states, its own counters) goes
through `train/runs/checkpoint.py`. All of it is a pure function of the checkpoint, so a killed run that is started again
ends with the same bytes as one that was never killed (on a CPU).
"""

import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from medloop.contracts import MetricLine, utc_now
from medloop.errors import ResultError
from medloop.store.files import jsonl
from medloop.train.configs.run_config import EpochConfig
from medloop.train.examples.batch_order import LengthGroupedSampler
from medloop.train.runs.checkpoint import Checkpoint, save_checkpoint
from medloop.train.runs.progress import OnProgress, Progress

TRAINER_STATE = "trainer_state.json"  # the name under which transformers looks for its own counters
# The metrics of SFT, and their names in metrics.jsonl.
SFT_METRICS = {"mean_token_accuracy": "token_accuracy", "eval_loss": "dev_loss"}


class ResumableTrainer:
    """`checkpoints` is their folder, `checkpoint` the one to continue from, if any, and `order` that of the examples."""

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
    log: Callable[[dict[str, float]], None]
    callback_handler: Any
    control: Any
    processing_class: Any

    def __init__(
        self, *args: Any, checkpoints: Path, checkpoint: Checkpoint | None, order: LengthGroupedSampler, **kwargs: Any
    ) -> None:
        self.checkpoints, self.checkpoint, self.order = checkpoints, checkpoint, order
        # Batches of the whole run that were learnt from, by what computed them; a checkpoint has the count.
        self.updates = Counter[str]({} if checkpoint is None else checkpoint.extra.get("updates", {}))
        self._parameters: int | None = None
        self._trained: list[Any] | None = None
        super().__init__(*args, **kwargs)
        if checkpoint is not None:
            self._total_train_tokens = checkpoint.extra["tokens"]

    @property
    def tokens(self) -> int:
        """Tokens trained on so far, prompts included."""
        return int(self._total_train_tokens)

    def run(self) -> None:
        """Train to the end, from the checkpoint if there is one. The loss before the first step is measured once."""
        if self.checkpoint is None and self.eval_dataset is not None:
            self.evaluate()
        self.train(resume_from_checkpoint=None if self.checkpoint is None else str(self.checkpoint.path))

    def log_evaluation(self, metrics: dict[str, float]) -> dict[str, float]:
        """Hand the metrics of an evaluation to the callbacks, as `Trainer.evaluate` does."""
        self.log(dict(metrics))
        self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        return self.order

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """As the trainer counts them, with the parameters counted once: that took a tenth of a small model's step."""
        if self._parameters is None:
            self._parameters = int(self.model.num_parameters(exclude_embeddings=True))
        return 6 * inputs["input_ids"].numel() * self._parameters if "input_ids" in inputs else 0

    def _clip_grad_norm(self, model: Any) -> Any:
        """Over the trained parameters alone; the trainer looks through all of them, twice."""
        if self._trained is None:
            self._trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return torch.nn.utils.clip_grad_norm_(self._trained, self.args.max_grad_norm)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        state = json.dumps(dataclasses.asdict(self.state))
        extra = {"tokens": self.tokens, "updates": dict(self.updates)}
        step = self.state.global_step
        save_checkpoint(self.checkpoints, step, weights, self.optimizer, self.lr_scheduler, extra, files={TRAINER_STATE: state})

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Nothing: `_load_optimizer_and_scheduler` restores the weights too, when both are in place."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.checkpoint is not None:
            self.checkpoint.restore(self.model, self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if self.checkpoint is not None:
            self.checkpoint.restore_random()

    def _send_telemetry(self) -> None:
        """TRL reports each run to its makers; medloop does not."""


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes metrics.jsonl, reports progress, and stops at a loss that is not finite or when `should_stop` says so.

    `names` maps the trainer's metrics to their names in the lines; those of an evaluation start with `eval_`.
    """

    def __init__(
        self, metrics: Path, on_progress: OnProgress, should_stop: Callable[[], bool], names: Mapping[str, str] = SFT_METRICS
    ) -> None:
        self.metrics, self.on_progress, self.should_stop, self.names = metrics, on_progress, should_stop, names
        self.trainer: ResumableTrainer | None = None
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
                f"The loss is not finite at step {state.global_step}, so training stopped; that step is not saved",
                "Lower the learning rate and start again with --replace",
            )
        seconds = max(time.monotonic() - self.since[0], 1e-9)
        speed = (self.trainer.tokens - self.since[1]) / seconds
        extra = {
            "learning_rate": logs["learning_rate"],
            "grad_norm": logs["grad_norm"],
            **{name: logs[key] for key, name in self.names.items() if not key.startswith("eval_") and key in logs},
            **({} if (backend := getattr(self.trainer, "backend", None)) is None else {"backend": backend}),
            **({} if (share := getattr(self.trainer, "graph_share", None)) is None else {"graph_share": round(share, 3)}),
            "tokens": self.trainer.tokens,
            "tokens_per_second": round(speed, 1),
        }
        progress = 100 * state.global_step / state.max_steps
        line = MetricLine(
            ts=utc_now(), iter=state.global_step, phase="TRAINING", progress=progress, epoch=state.epoch, loss=logs["loss"],
            extra=extra,
        )  # fmt: skip
        jsonl.append(self.metrics, line)
        numbers = {"loss": logs["loss"], "learning_rate": logs["learning_rate"], "tokens_per_second": speed}
        step, steps = state.global_step, state.max_steps
        self.on_progress(Progress(step, steps, "TRAINING", done=step, total=steps, finished=step, numbers=numbers))


def training_arguments(
    config: EpochConfig, folder: Path, *, steps: int, micro: int, rate: float, eval_every: int, cuda: bool
) -> dict[str, Any]:
    """Settings for any TRL trainer; `eval_every` 0 means never.

    TRL's defaults (bfloat16 and gradient checkpointing on) made training on a CPU 17 times slower.
    """
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
