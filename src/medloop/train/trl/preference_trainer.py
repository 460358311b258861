"""TRL's DPOTrainer and KTOTrainer, resumable (train/trl/resumable.py), with our token ids and a reference that is read once.

Log-probabilities are computed by our own forward pass, as in RL (fast_path.py): no padding, and prompts once for all answers.
Where it does not fit, on a CPU by the library with the output layer on answer tokens only (`direct`), else as TRL does it.

The reference is the adapter that training starts from, or the base for a fresh one. Its log-probabilities are taken before the
first step, from the policy's own base, and put beside the rows; then it is let go. So there is never a second model in memory, no
gradient can reach the reference, and a step costs one pass through the model less.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from trl import DPOTrainer, KTOTrainer

from medloop.models.fast_forward import open_fast_forward
from medloop.models.packing import pack
from medloop.train.examples.sft_examples import IGNORED
from medloop.train.reports.pair_metrics import accuracy
from medloop.train.reports.preference_report import DIGITS
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl.fast_path import FastPath, open_fast_path
from medloop.train.trl.resumable import MetricsCallback, ResumableTrainer

EVAL_ROWS = 256  # at most so many held-out rows are scored during training; all of them at the end
REFERENCE = "ref"  # the name under which TRL keeps a frozen copy of the adapter it was given
# The trainers' metrics, and their names in metrics.jsonl.
PREFERENCE_METRICS = {
    "rewards/chosen": "rewards/chosen", "rewards/rejected": "rewards/rejected", "rewards/margins": "margin",
    "rewards/accuracies": "accuracy", "kl": "kl", "eval_loss": "test_loss", "eval_rewards/chosen": "test_rewards/chosen",
    "eval_rewards/rejected": "test_rewards/rejected", "eval_rewards/margins": "test_margin",
    "eval_rewards/accuracies": "test_accuracy",
}  # fmt: skip


class PreferenceTrainer(ResumableTrainer):
    """What DPO and KTO share. `columns` maps columns of answers to those of their log-probabilities under the reference."""

    columns: ClassVar[dict[str, str]]
    stage: ClassVar[str]
    model: Any
    train_dataset: Dataset
    beta: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.direct: bool | None = None  # known after the first batch of the library
        self.path: FastPath | None = None  # opened before the reference is read
        self.last_logprobs = torch.empty(0)  # (B,): of the answers in the last forward pass
        super().__init__(*args, **kwargs)
        if REFERENCE in self.model.peft_config:
            self.model.delete_adapter(REFERENCE)

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        """Nothing to do: the rows are token ids already."""
        return dataset

    @property
    def backend(self) -> str | None:
        """What computed log-probabilities that were learnt from: fast, mixed, direct or library; None: nothing was counted."""
        assert self.path is not None
        return "direct" if self.path.backend == "library" and self.direct else self.path.backend

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        if self.path is None:
            self.path = open_fast_path(self.model, self.args, self.stage, open_fast_forward, self.updates)
        with self._as_reference():
            for answers, column in self.columns.items():
                if answers in dataset.column_names:
                    dataset = dataset.add_column(column, self.logprobs(dataset, answers))
        return dataset

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """Inside, the model is the reference; TRL calls this while it makes the trainer, before any step."""
        assert self.path is not None
        if REFERENCE not in self.model.peft_config:
            with self.model.disable_adapter():
                yield
        else:
            self.model.set_adapter(REFERENCE, inference_mode=True)
            try:
                yield
            finally:
                self.model.set_adapter("default")
        self.path.read_adapter()

    @torch.no_grad()
    def logprobs(self, rows: Dataset, answers: str) -> list[float]:
        """Of each whole answer in that column, in nats, under the model as it is now; like lengths are batched together."""
        pairs = list(zip(rows["prompt_ids"], rows[answers], strict=True))
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        size, logprobs = self.args.per_device_eval_batch_size, [0.0] * len(pairs)
        assert self.path is not None
        self.path.read_adapter()
        self.model.eval()
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            inputs = self._prepare_inputs(_batch([pairs[i] for i in batch]))  # type: ignore[attr-defined]
            with self.compute_loss_context_manager():  # type: ignore[attr-defined]
                self._forward(**inputs)
            for i, value in zip(batch, self.last_logprobs.tolist(), strict=True):
                logprobs[i] = value
        return logprobs

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """TRL's loss; where it would call the model for log-probabilities it calls `_forward`."""
        assert self.path is not None
        self.path.read_values()
        return super().compute_loss(self._forward, inputs)  # type: ignore[misc, no-any-return]

    def _forward(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **_: Any) -> Any:
        """Log-probabilities of labelled tokens (B, T - 1), 0 elsewhere, in the form that TRL expects."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
        assert self.path is not None
        rows = [ids[mask].tolist() for ids, mask in zip(input_ids.cpu(), attention_mask.cpu().bool(), strict=True)]
        if self.path.takes([len(row) for row in rows]):
            output = self._fast(rows, labels)
        else:
            output = self._by_library(inputs)
        self.last_logprobs = output.log_probs.detach().float().sum(1)
        return output

    def _fast(self, rows: list[list[int]], labels: torch.Tensor) -> Any:
        """Rows without padding; those with the same prompt, as chosen and rejected, compute it once."""
        assert self.path is not None
        forward, targets = self.path.forward, labels[:, 1:]  # (B, T - 1): the token at t is predicted at t - 1
        mask = targets != IGNORED
        counts = mask.sum(1).tolist()
        prompts = [row[: len(row) - count] for row, count in zip(rows, counts, strict=True)]
        answers = [row[len(row) - count :] for row, count in zip(rows, counts, strict=True)]
        packed, predictors = pack(prompts, answers, labels.device)
        used = torch.arange(predictors.shape[1], device=labels.device) < mask.sum(1)[:, None]
        decoder = forward.decoder
        scored = token_logprobs(
            forward(packed)[predictors[used]], decoder.lm_head, targets[mask], temperature=1.0, bias=decoder.lm_head_bias,
            softcap=decoder.logit_softcap,
        )  # fmt: skip
        return _output(mask, scored.logprobs)

    def _by_library(self, inputs: dict[str, torch.Tensor]) -> Any:
        if self.direct is None:
            # On a CPU, TRL's output layer over all tokens took half of a small model's step (docs/stages/preference.md). Some
            # architectures do more behind that layer (scaling, soft caps): the first batch tells.
            self.direct = self.args.use_cpu and self._direct_agrees(inputs)
        return self._direct(**inputs) if self.direct else self._fused(**inputs)

    @torch.no_grad()
    def _direct_agrees(self, inputs: dict[str, torch.Tensor]) -> bool:
        return torch.allclose(self._direct(**inputs).log_probs, self._fused(**inputs).log_probs, atol=1e-4)

    def _fused(self, **inputs: torch.Tensor) -> Any:
        return self.model(**inputs, use_cache=False, fused_lm_head=True)

    def _direct(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Any:
        """The same for less: the output layer runs on answer tokens only."""
        model = self.model.get_base_model()
        states = model.get_decoder()(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        targets = labels[:, 1:]  # (B, T - 1): the token at t is predicted at t - 1
        mask = targets != IGNORED
        head = model.get_output_embeddings()
        answers = token_logprobs(states[:, :-1][mask][None], head.weight, targets[mask][None], temperature=1.0, bias=head.bias)
        return _output(mask, answers.logprobs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Loss, rewards and accuracy per row over some held-out rows; the trainer's own are means over batches."""
        some = self.eval_dataset.select(range(min(EVAL_ROWS, len(self.eval_dataset))))
        loss, rewards = 0.0, []
        self.model.eval()
        for batch in self.get_eval_dataloader(some):  # type: ignore[attr-defined]
            inputs = self._prepare_inputs(batch)  # type: ignore[attr-defined]
            with torch.no_grad(), self.compute_loss_context_manager():  # type: ignore[attr-defined]
                rows = len(inputs["input_ids"]) if "label" in inputs else len(inputs["input_ids"]) / 2
                loss += float(self.compute_loss(self.model, inputs)) * rows
            rewards.append(self.rewards(inputs))
        self._metrics["eval"].clear()  # type: ignore[attr-defined]
        up, down, right = (np.round(torch.cat(part).cpu().numpy(), DIGITS) for part in zip(*rewards, strict=True))
        means = {
            "loss": loss / len(some), "rewards/chosen": float(up.mean()), "rewards/rejected": float(down.mean()),
            "rewards/margins": float(up.mean() - down.mean()), "rewards/accuracies": accuracy(right)["value"],
        }  # fmt: skip
        return self.log_evaluation({f"eval_{name}": value for name, value in means.items() if np.isfinite(value)})

    def rewards(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of the last batch: implicit rewards of chosen and of rejected answers, and margins, positive where they are right."""
        raise AssertionError("each trainer knows its batches")


class ResumableDPO(PreferenceTrainer, DPOTrainer):  # type: ignore[misc]
    """DPOTrainer with `checkpoints`, `checkpoint` and `order`."""

    stage: ClassVar = "DPO"
    columns: ClassVar = {"chosen_ids": "ref_chosen_logps", "rejected_ids": "ref_rejected_logps"}

    def rewards(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        up, down = self.last_logprobs.chunk(2)
        up, down = self.beta * (up - inputs["ref_chosen_logps"]), self.beta * (down - inputs["ref_rejected_logps"])
        return up, down, up - down


class ResumableKTO(PreferenceTrainer, KTOTrainer):  # type: ignore[misc]
    """KTOTrainer with `checkpoints`, `checkpoint` and `order`."""

    stage: ClassVar = "KTO"
    columns: ClassVar = {"completion_ids": "ref_logps", "KL_completion_ids": "ref_KL_logps"}

    def rewards(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rewards, liked = self.beta * (self.last_logprobs - inputs["ref_logps"]), inputs["label"].bool()
        return rewards[liked], rewards[~liked], torch.where(liked, rewards, -rewards)


def _output(mask: torch.Tensor, logprobs: torch.Tensor) -> Any:
    """Log-probabilities of the marked tokens as TRL expects them, (B, T - 1). What it only prints about tokens is 0."""
    log_probs = torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, logprobs)
    blank = torch.zeros_like(log_probs)
    return SimpleNamespace(log_probs=log_probs, entropy=blank, mean_logits=blank, is_top1=blank.bool())


def _batch(pairs: Sequence[tuple[list[int], list[int]]]) -> dict[str, torch.Tensor]:
    """Prompts with their answers, padded on the right: each (B, T)."""
    ids = [torch.tensor([*prompt, *answer]) for prompt, answer in pairs]
    labels = [torch.tensor([IGNORED] * len(prompt) + list(answer)) for prompt, answer in pairs]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
    }


class PreferenceCallback(MetricsCallback):
    """A batch of KTO may have no liked answers, and then no reward of them: a metric that is missing is not written."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        self.names = {key: name for key, name in PREFERENCE_METRICS.items() if key in (logs or {})}
        super().on_log(args, state, control, logs=logs, **kwargs)
