"""TRL's RewardTrainer, resumable (train/trl/resumable.py), with a held-out loss and accuracy over pairs, whatever the batches.

The loss of a pair is -log sigmoid(logit of chosen - logit of rejected). TRL switches dropout off.
A LoRA on a causal base is computed by our own forward pass (fast_path.py): no padding, and what both answers of a pair begin with
once. Encoders, full training and other architectures are computed by the library.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from trl import RewardTrainer

from medloop.models.fast_forward import open_fast_classifier
from medloop.models.packing import PackedRows, pack
from medloop.train.trl.fast_path import open_fast_path
from medloop.train.trl.resumable import ResumableTrainer

# The trainer's metrics, and their names in metrics.jsonl.
REWARD_METRICS = {"accuracy": "accuracy", "margin": "margin", "eval_loss": "test_loss", "eval_accuracy": "test_accuracy"}


class ResumableReward(ResumableTrainer, RewardTrainer):  # type: ignore[misc]
    """RewardTrainer with `checkpoints`, `checkpoint` and `order`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.path = open_fast_path(self.model, self.args, "The reward model", open_fast_classifier, self.updates)

    @property
    def backend(self) -> str | None:
        """What computed logits that were learnt from: fast, mixed or library; None where nothing was counted."""
        return self.path.backend

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        self.path.read_values()
        return super().compute_loss(self._forward, inputs, return_outputs, num_items_in_batch)

    def _forward(self, *, input_ids: Tensor, attention_mask: Tensor, **more: Any) -> Any:
        """Logits (B, 1) of chosen answers, then of rejected ones."""
        rows = self._rows(input_ids)
        if not self.path.takes([len(row) for row in rows]):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, **more)
        packed, last = pack_pairs(rows, input_ids.device)
        return SimpleNamespace(logits=self.model.get_base_model().score(self.path.forward(packed)[last]))

    def _rows(self, input_ids: Tensor) -> list[list[int]]:
        """Up to the token whose state is scored, the last that is not padding: what comes after it is not seen by it."""
        pad = self.model.config.get_text_config().pad_token_id
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        last = ((input_ids != pad) * places).argmax(1).tolist()
        return [row[: end + 1] for row, end in zip(input_ids.tolist(), last, strict=True)]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Loss and accuracy per pair; the trainer's own are means over batches."""
        loss = right = 0.0
        self.model.eval()
        self.path.read_values()
        for batch in self.get_eval_dataloader():
            inputs = self._prepare_inputs(batch)
            with torch.no_grad(), self.compute_loss_context_manager():
                chosen, rejected = self._forward(**inputs).logits.squeeze(-1).float().chunk(2)  # (B,), (B,)
            loss += float(-torch.nn.functional.logsigmoid(chosen - rejected).sum())
            right += float((chosen > rejected).sum() + 0.5 * (chosen == rejected).sum())
        count = len(self.eval_dataset)
        return self.log_evaluation({"eval_loss": loss / count, "eval_accuracy": right / count})


def pack_pairs(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[PackedRows, Tensor]:
    """Chosen rows, then their rejected ones; what a pair has in common at its beginning once. And each row's last token."""
    half = len(rows) // 2
    shared = [_common(chosen, rejected) for chosen, rejected in zip(rows[:half], rows[half:], strict=True)] * 2
    # The state of a row's last token is what would predict the token after it: any token stands for that one.
    answers = [[*row[start:], 0] for row, start in zip(rows, shared, strict=True)]
    packed, predictors = pack([row[:start] for row, start in zip(rows, shared, strict=True)], answers, device)
    last = torch.tensor([len(answer) - 1 for answer in answers], device=device)
    return packed, predictors[torch.arange(len(rows), device=device), last]


def _common(chosen: Sequence[int], rejected: Sequence[int]) -> int:
    """How many tokens two rows begin with alike, at least 1: rows that begin otherwise do not share it."""
    pairs = enumerate(zip(chosen, rejected, strict=False))
    return max(1, next((place for place, (a, b) in pairs if a != b), min(len(chosen), len(rejected))))
