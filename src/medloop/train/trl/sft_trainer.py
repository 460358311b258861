"""TRL's SFTTrainer, resumable (train/trl/resumable.py), with a cheaper loss on a CPU and a dev loss per trained token."""

from typing import Any

import torch
from peft import PeftModel
from trl import SFTTrainer

from medloop.train.examples.sft_examples import IGNORED
from medloop.train.trl.resumable import ResumableTrainer


class ResumableSFT(ResumableTrainer, SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with `checkpoints`, `checkpoint` and `order`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # On a CPU, TRL's loss over all tokens took half of a small model's step (docs/stages/train.md).
        self.direct = self.args.use_cpu and self._direct_agrees()

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The dev loss per trained token, whatever the batches; the trainer's own is a mean over batches."""
        total, count = 0.0, 0
        self.model.eval()
        for batch in self.get_eval_dataloader():
            inputs = self._prepare_inputs(batch)
            tokens = int((inputs["labels"] != IGNORED).sum())
            with torch.no_grad():
                total += float(self.compute_loss(self.model, inputs)) * tokens
            count += tokens
        return self.log_evaluation({"eval_loss": total / count})

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not self.direct:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return self._direct_loss(inputs, num_items_in_batch)

    def _direct_loss(self, inputs: dict[str, Any], num_items: Any) -> torch.Tensor:
        """The same loss for less: the output layer runs on answer tokens only, and its frozen weights get no gradient."""
        model = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        hidden = model.get_decoder()(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
        mask = inputs["labels"][:, 1:] != IGNORED  # (B, T-1): the token at t is predicted at t-1
        targets = inputs["labels"][:, 1:][mask]  # (N,)
        logits = model.get_output_embeddings()(hidden.last_hidden_state[:, :-1][mask])  # (N, V)
        loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["mean_token_accuracy"].append((logits.argmax(-1) == targets).float().mean().item())
        if mode == "train":
            self._total_train_tokens += int(inputs["attention_mask"].sum())
        return loss / (len(targets) if num_items is None else num_items)

    def _direct_agrees(self) -> bool:
        """Some architectures do more behind the output layer (scaling, soft caps): one row tells, and draws no random number."""
        row = self.data_collator([self.train_dataset[0]])
        self.model.eval()
        with torch.no_grad():
            ours, theirs = self._direct_loss(row, None), super().compute_loss(self.model, dict(row))
        self._metrics["eval"].clear()
        return bool(torch.isclose(ours, theirs, rtol=1e-4))
