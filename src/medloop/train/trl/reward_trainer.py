"""TRL's RewardTrainer, resumable (train/trl/resumable.py), with a held-out loss and accuracy over pairs, whatever the batches.

The loss of a pair is -log sigmoid(logit of chosen - logit of rejected). TRL switches dropout off.
"""

from typing import Any

import torch
from trl import RewardTrainer

from medloop.train.trl.resumable import ResumableTrainer

# The trainer's metrics, and their names in metrics.jsonl.
REWARD_METRICS = {"accuracy": "accuracy", "margin": "margin", "eval_loss": "test_loss", "eval_accuracy": "test_accuracy"}


class ResumableReward(ResumableTrainer, RewardTrainer):  # type: ignore[misc]
    """RewardTrainer with `checkpoints`, `checkpoint` and `order`."""

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Loss and accuracy per pair; the trainer's own are means over batches."""
        loss = right = 0.0
        self.model.eval()
        for batch in self.get_eval_dataloader():
            inputs = self._prepare_inputs(batch)
            with torch.no_grad(), self.compute_loss_context_manager():
                chosen, rejected = self.model(**inputs).logits.squeeze(-1).float().chunk(2)  # (B,), (B,)
            loss += float(-torch.nn.functional.logsigmoid(chosen - rejected).sum())
            right += float((chosen > rejected).sum() + 0.5 * (chosen == rejected).sum())
        count = len(self.eval_dataset)
        return self.log_evaluation({"eval_loss": loss / count, "eval_accuracy": right / count})
