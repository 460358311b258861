"""TRL's SFTTrainer with our checkpoints in place of its pickles, and our metrics in place of its printing.

Everything that the trainer would save or load (weights, optimizer, scheduler, random states, its own counters) goes
through `train/checkpoint.py`. All of it is a pure function of the checkpoint, so a killed run that is started again
ends with the same bytes as one that was never killed (on a CPU).
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch.utils.data import Sampler
from transformers import TrainerCallback
from trl import SFTTrainer

from medloop.contracts import MetricLine, utc_now
from medloop.errors import ResultError
from medloop.store import jsonl
from medloop.train.checkpoint import Checkpoint, save_checkpoint
from medloop.train.examples import IGNORED

TRAINER_STATE = "trainer_state.json"  # the name under which transformers looks for its own counters
WINDOW = 50  # batches; examples are sorted by length only within a window, so order stays nearly random


@dataclasses.dataclass(frozen=True)
class Tick:
    """One step, for whoever watches."""

    step: int
    total: int
    loss: float
    learning_rate: float
    tokens_per_second: float


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


class ResumableSFT(SFTTrainer):  # type: ignore[misc]
    """`checkpoints` is the folder for checkpoints; `found` the one to continue from, if any."""

    def __init__(self, *args: Any, checkpoints: Path, found: Checkpoint | None, order: ByLength, **kwargs: Any) -> None:
        self.checkpoints, self.found, self.order = checkpoints, found, order
        super().__init__(*args, **kwargs)
        # On a CPU, TRL's loss over all tokens took half of a small model's step (docs/stages/train.md).
        self.direct = self.args.use_cpu and self._direct_agrees()
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

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The dev loss per learnt token, whatever the batches; the trainer's own is a mean over batches."""
        total, count = 0.0, 0
        self.model.eval()
        for batch in self.get_eval_dataloader():
            inputs = self._prepare_inputs(batch)
            tokens = int((inputs["labels"] != IGNORED).sum())
            with torch.no_grad():
                total += float(self.compute_loss(self.model, inputs)) * tokens
            count += tokens
        found = {"eval_loss": total / count}
        self.log(dict(found))
        self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not self.direct:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return self._direct_loss(inputs, num_items_in_batch)

    def _direct_loss(self, inputs: dict[str, Any], num_items: Any) -> torch.Tensor:
        """The same loss for less: the output layer runs on answer tokens only, and its frozen weights get no gradient."""
        whole = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        hidden = whole.get_decoder()(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
        learnt = inputs["labels"][:, 1:] != IGNORED  # (B, T-1): the token at t is predicted at t-1
        wanted = inputs["labels"][:, 1:][learnt]  # (N,)
        logits = whole.get_output_embeddings()(hidden.last_hidden_state[:, :-1][learnt])  # (N, V)
        loss = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum")
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["mean_token_accuracy"].append((logits.argmax(-1) == wanted).float().mean().item())
        if mode == "train":
            self._total_train_tokens += int(inputs["attention_mask"].sum())
        return loss / (len(wanted) if num_items is None else num_items)

    def _direct_agrees(self) -> bool:
        """Some architectures do more behind the output layer (scaling, soft caps): one row tells, and draws no random number."""
        row = self.data_collator([self.train_dataset[0]])
        self.model.eval()
        with torch.no_grad():
            ours, theirs = self._direct_loss(row, None), super().compute_loss(self.model, dict(row))
        self._metrics["eval"].clear()
        return bool(torch.isclose(ours, theirs, rtol=1e-4))

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
    """Writes metrics.jsonl, tells the watcher, stops at a loss that is no number or when asked to."""

    def __init__(self, metrics: Path, tick: Callable[[Tick], None], should_stop: Callable[[], bool]) -> None:
        self.metrics, self.tick, self.should_stop = metrics, tick, should_stop
        self.trainer: ResumableSFT | None = None
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
            extra = {"dev_loss": logs["eval_loss"]}
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
            "token_accuracy": logs["mean_token_accuracy"],
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
        self.tick(Tick(state.global_step, state.max_steps, logs["loss"], logs["learning_rate"], speed))
