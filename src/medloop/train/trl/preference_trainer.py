"""TRL's DPOTrainer and KTOTrainer, resumable (train/trl/resumable.py), with our token ids and a reference that is read once.

The reference is the adapter that training starts from, or the base for a fresh one. Its log-probabilities are taken before the
first step, from the policy's own base, and put beside the rows; then it is let go. So there is never a second model in memory, no
gradient can reach the reference, and a step costs one pass through the model less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from trl import DPOTrainer, KTOTrainer

from medloop.train.examples.sft_examples import IGNORED
from medloop.train.reports.pair_numbers import accuracy
from medloop.train.reports.preference_report import DIGITS
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl.resumable import Resumable, Watch

WATCHED = 256  # at most so many held-out rows are scored while it trains; all of them at the end
REFERENCE = "ref"  # the name under which TRL keeps a frozen copy of the adapter it was given
# What the trainers report, and its name in metrics.jsonl.
NAMES = {
    "rewards/chosen": "rewards/chosen",
    "rewards/rejected": "rewards/rejected",
    "rewards/margins": "margin",
    "rewards/accuracies": "accuracy",
    "kl": "kl",
    "eval_loss": "test_loss",
    "eval_rewards/chosen": "test_rewards/chosen",
    "eval_rewards/rejected": "test_rewards/rejected",
    "eval_rewards/margins": "test_margin",
    "eval_rewards/accuracies": "test_accuracy",
}


class Preference(Resumable):
    """What both share. `columns` says which answers the reference reads, and the column for what it finds."""

    columns: ClassVar[dict[str, str]]
    model: Any
    train_dataset: Dataset
    beta: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.direct: bool | None = None  # known after the first batch
        self.last = torch.empty(0)  # (B,): log-probabilities of the answers that were read last
        super().__init__(*args, **kwargs)
        if REFERENCE in self.model.peft_config:
            self.model.delete_adapter(REFERENCE)

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        """Nothing to do: the rows are token ids already."""
        return dataset

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        with self._as_reference():
            for answers, column in self.columns.items():
                if answers in dataset.column_names:
                    dataset = dataset.add_column(column, self.logprobs(dataset, answers))
        return dataset

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """Inside, the model is what it was before training; called while TRL makes the trainer, when nothing has moved."""
        if REFERENCE not in self.model.peft_config:
            with self.model.disable_adapter():
                yield
            return
        self.model.set_adapter(REFERENCE, inference_mode=True)
        try:
            yield
        finally:
            self.model.set_adapter("default")

    @torch.no_grad()
    def logprobs(self, rows: Dataset, answers: str) -> list[float]:
        """Of each whole answer in that column, in nats, under the model as it is now; like lengths are read together."""
        pairs = list(zip(rows["prompt_ids"], rows[answers], strict=True))
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        size, found = self.args.per_device_eval_batch_size, [0.0] * len(pairs)
        self.model.eval()
        for at in range(0, len(order), size):
            batch = order[at : at + size]
            inputs = self._prepare_inputs(_batch([pairs[i] for i in batch]))  # type: ignore[attr-defined]
            with self.compute_loss_context_manager():  # type: ignore[attr-defined]
                self._read(**inputs)
            for i, value in zip(batch, self.last.tolist(), strict=True):
                found[i] = value
        return found

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """TRL's loss; where it would call the model for log-probabilities it calls `_read`."""
        return super().compute_loss(self._read, inputs)  # type: ignore[misc, no-any-return]

    def _read(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **_: Any) -> Any:
        """Log-probabilities of labelled tokens (B, T - 1), 0 elsewhere, in the form that TRL expects."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
        if self.direct is None:
            # On a CPU, TRL's output layer over all tokens took half of a small model's step (docs/stages/preference.md). Some
            # architectures do more behind that layer (scaling, soft caps): the first batch tells.
            self.direct = self.args.use_cpu and self._direct_agrees(inputs)
        found = self._direct(**inputs) if self.direct else self._fused(**inputs)
        self.last = found.log_probs.detach().float().sum(1)
        return found

    @torch.no_grad()
    def _direct_agrees(self, inputs: dict[str, torch.Tensor]) -> bool:
        return torch.allclose(self._direct(**inputs).log_probs, self._fused(**inputs).log_probs, atol=1e-4)

    def _fused(self, **inputs: torch.Tensor) -> Any:
        return self.model(**inputs, use_cache=False, fused_lm_head=True)

    def _direct(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Any:
        """The same for less: the output layer runs on answer tokens only. What TRL only prints about tokens is 0."""
        whole = self.model.get_base_model()
        states = whole.get_decoder()(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        wanted = labels[:, 1:]  # (B, T - 1): the token at t is predicted at t - 1
        learnt = wanted != IGNORED
        head = whole.get_output_embeddings()
        found = token_logprobs(states[:, :-1][learnt][None], head.weight, wanted[learnt][None], temperature=1.0, bias=head.bias)
        placed = torch.zeros(wanted.shape, device=states.device).masked_scatter(learnt, found.logprobs)
        blank = torch.zeros_like(placed)
        return SimpleNamespace(log_probs=placed, entropy=blank, mean_logits=blank, is_top1=blank.bool())

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Loss, rewards and accuracy per row over some held-out rows; the trainer's own are means over batches."""
        some = self.eval_dataset.select(range(min(WATCHED, len(self.eval_dataset))))
        loss, found = 0.0, []
        self.model.eval()
        for batch in self.get_eval_dataloader(some):  # type: ignore[attr-defined]
            inputs = self._prepare_inputs(batch)  # type: ignore[attr-defined]
            with torch.no_grad(), self.compute_loss_context_manager():  # type: ignore[attr-defined]
                rows = len(inputs["input_ids"]) if "label" in inputs else len(inputs["input_ids"]) / 2
                loss += float(self.compute_loss(self.model, inputs)) * rows
            found.append(self.rewards(inputs))
        self._metrics["eval"].clear()  # type: ignore[attr-defined]
        up, down, right = (np.round(torch.cat(part).cpu().numpy(), DIGITS) for part in zip(*found, strict=True))
        means = {
            "loss": loss / len(some),
            "rewards/chosen": float(up.mean()),
            "rewards/rejected": float(down.mean()),
            "rewards/margins": float(up.mean() - down.mean()),
            "rewards/accuracies": accuracy(right)["value"],
        }
        logs = {f"eval_{name}": value for name, value in means.items() if np.isfinite(value)}
        self.log(dict(logs))  # type: ignore[attr-defined]
        self.callback_handler.on_evaluate(self.args, self.state, self.control, logs)  # type: ignore[attr-defined]
        return logs

    def rewards(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of the batch read last: implicit rewards of chosen and of rejected answers, and numbers above 0 where it is right."""
        raise AssertionError("each trainer knows its batches")


class ResumableDPO(Preference, DPOTrainer):  # type: ignore[misc]
    """Takes what DPOTrainer takes, and `checkpoints`, `found`, `order`."""

    columns: ClassVar = {"chosen_ids": "ref_chosen_logps", "rejected_ids": "ref_rejected_logps"}

    def rewards(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        up, down = self.last.chunk(2)
        up, down = self.beta * (up - inputs["ref_chosen_logps"]), self.beta * (down - inputs["ref_rejected_logps"])
        return up, down, up - down


class ResumableKTO(Preference, KTOTrainer):  # type: ignore[misc]
    """Takes what KTOTrainer takes, and `checkpoints`, `found`, `order`."""

    columns: ClassVar = {"completion_ids": "ref_logps", "KL_completion_ids": "ref_KL_logps"}

    def rewards(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rewards, liked = self.beta * (self.last - inputs["ref_logps"]), inputs["label"].bool()
        return rewards[liked], rewards[~liked], torch.where(liked, rewards, -rewards)


def _batch(pairs: Sequence[tuple[list[int], list[int]]]) -> dict[str, torch.Tensor]:
    """Prompts with their answers, padded on the right: each (B, T)."""
    ids = [torch.tensor([*prompt, *answer]) for prompt, answer in pairs]
    labels = [torch.tensor([IGNORED] * len(prompt) + list(answer)) for prompt, answer in pairs]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
    }


class PreferenceWatch(Watch):
    """A batch may lack a kind: KTO has no reward of liked answers where there are none. What is not there is not written."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        self.names = {key: name for key, name in NAMES.items() if key in (logs or {})}
        super().on_log(args, state, control, logs=logs, **kwargs)
