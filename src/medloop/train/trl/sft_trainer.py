"""TRL's SFTTrainer, resumable (train/trl/resumable.py), with a cheaper loss and a dev loss per trained token.

The loss is computed in one of four ways, named in `backend`: `fast` on a GPU, by the forward pass of RL (fast_forward.py),
rows one after the other without padding; `graph`, the same as a CUDA graph (captured_loss.py); `direct` on a CPU, by the
library with the output layer on answer tokens only; and `library`, as TRL does it, where none of them agrees with it (8-bit
weights, dropout, full training on a GPU, other architectures), and for batches with a row that is longer than the rotary tables
of `fast`. With `openings`, tokens that open a sentence count more (train/examples/openings.py); the dev loss is as ever.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn import functional as F
from trl import SFTTrainer

from medloop.models.packing import PackedRows, pack_whole
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.train.examples.openings import OpeningWeights
from medloop.train.examples.sft_examples import IGNORED
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl.captured_loss import CapturedLoss
from medloop.train.trl.fast_path import has_dropout
from medloop.train.trl.resumable import ResumableTrainer

PACKED = "packed"
ACCURACY_EVERY = 10  # steps between two measurements of `token_accuracy` on the fast path
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackedExamples:
    """A batch without padding: its rows, and which of their tokens predict what."""

    rows: PackedRows
    predictors: Tensor  # (n,)
    targets: Tensor  # (n,)
    weights: Tensor | None = None  # (n,) of each target in the loss; None: all alike

    def to(self, device: Any, **_: Any) -> "PackedExamples":
        predictors, targets = (part.to(device, non_blocking=True) for part in (self.predictors, self.targets))
        weights = None if self.weights is None else self.weights.to(device, non_blocking=True)
        return PackedExamples(self.rows.to(device), predictors, targets, weights)


def pack_examples(features: list[dict[str, Any]], openings: OpeningWeights | None = None) -> PackedExamples:
    """The last token of a row predicts nothing and is left out."""
    rows = pack_whole([feature["input_ids"][:-1] for feature in features])
    labels = torch.tensor([label for feature in features for label in feature["labels"][1:]])  # (N,): what each token predicts
    predictors = (labels != IGNORED).nonzero().squeeze(1)
    if openings is None:
        return PackedExamples(rows, predictors, labels[predictors])
    weights = [openings(torch.tensor(feature["input_ids"]), torch.tensor(feature["labels"])) for feature in features]
    return PackedExamples(rows, predictors, labels[predictors], torch.cat(weights)[predictors])


class ResumableSFT(ResumableTrainer, SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with `checkpoints`, `checkpoint`, `order` and, if tokens do not count alike, `openings`."""

    data_collator: Any

    def __init__(self, *args: Any, openings: OpeningWeights | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.openings = openings
        self.fast = self._open_fast() if self._wants_fast() else None
        self.captured: CapturedLoss | None = None
        self.beyond = self.warned = False  # whether the last batch was too long for `fast`
        self.by_graph, self.batches = False, 0  # whether the last batch was a graph's; how many were trained by `fast` or a graph
        if self.fast is not None:
            collate = self.data_collator
            self.data_collator = lambda features: {**collate(features), PACKED: pack_examples(features, openings)}
        # On a CPU, TRL's loss over all tokens took half of a small model's step (docs/stages/train.md).
        self.direct = self.args.use_cpu and self._direct_agrees()

    @property
    def backend(self) -> str:
        """How the last loss was computed: graph, fast, direct or library."""
        if self.fast is not None:
            return "library" if self.beyond else "graph" if self.by_graph else "fast"
        return "direct" if self.direct else "library"

    @property
    def update_backend(self) -> str:
        """Of the whole run: graph where any batch was one, mixed where some rows were too long for `fast`."""
        if self.fast is None and not (self.updates["fast"] or self.updates["graph"]):  # nor had an earlier process of the run
            return self.backend
        return "mixed" if self.updates["library"] else "graph" if self.updates["graph"] else "fast"

    @property
    def graph_share(self) -> float | None:
        """Of the batches of this process that were trained by our own forward pass, those by a CUDA graph; None without a GPU."""
        return None if self.captured is None else self.captured.replayed / self.batches

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
        packed = inputs.pop(PACKED, None)
        if packed is not None and not self._is_beyond(packed.rows):
            return self._fast_loss(packed, num_items_in_batch)
        if self.direct and packed is None:
            return self._direct_loss(inputs, num_items_in_batch)
        if self.openings is not None and self.model.training:
            return self._weighted_loss(model, inputs, num_items_in_batch)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """As the trainer's, for `fast` without what one GPU does not need: modes of all modules, a padded copy of the batch."""
        packed = inputs.get(PACKED)
        beyond = packed is not None and self._is_beyond(packed.rows)
        if packed is None or num_items_in_batch is None or beyond:
            self.updates["library" if packed is None or beyond else "fast"] += 1
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[no-any-return]
        if not self.model.training:
            self.model.train()
        self.batches, self.by_graph = self.batches + 1, False
        if self.state.global_step % ACCURACY_EVERY and (loss := self._captured_loss(packed, num_items_in_batch)) is not None:
            self.by_graph = True
            self.updates["graph"] += 1
            self._total_train_tokens += len(packed.rows.tokens) + len(packed.rows.query_starts) - 1
            return loss
        self.updates["fast"] += 1
        with self.compute_loss_context_manager():
            loss = self._fast_loss(packed, num_items_in_batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _captured_loss(self, packed: PackedExamples, num_items: Any) -> Tensor | None:
        """The loss by a CUDA graph, gradients included; None where there is no graph for the batch."""
        if self.args.device.type != "cuda":
            return None
        if self.captured is None:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self.captured = CapturedLoss(self.fast, trained)
        return self.captured(packed, num_items)

    def _is_beyond(self, rows: PackedRows) -> bool:
        """Whether a row is longer than the rotary tables: the library knows what comes then."""
        assert self.fast is not None
        limit = self.fast.decoder.max_positions
        self.beyond = rows.longest_key > limit
        if self.beyond and not self.warned:
            self.warned = True
            log.warning("Batches with rows of more than %d tokens use the library's forward pass, about 2 times slower.", limit)
        return self.beyond

    def _fast_loss(self, packed: PackedExamples, num_items: Any) -> Tensor:
        """The loss over answer tokens by our own forward pass."""
        assert self.fast is not None
        packed, decoder = packed.to(self.args.device), self.fast.decoder
        decoder.refresh_values()  # the optimizer has written since
        hidden = self.fast(packed.rows)[packed.predictors]
        if self.model.training and self.state.global_step % ACCURACY_EVERY == 0:
            self._log_accuracy(hidden.detach(), packed.targets)
        logprobs = token_logprobs(
            hidden, decoder.lm_head, packed.targets, temperature=1.0, bias=decoder.lm_head_bias, softcap=decoder.logit_softcap
        ).logprobs
        if self.model.training:
            self._total_train_tokens += len(packed.rows.tokens) + len(packed.rows.query_starts) - 1
            logprobs = logprobs if packed.weights is None else logprobs * packed.weights
        return -logprobs.sum() / (len(packed.targets) if num_items is None else num_items)

    @torch.no_grad()
    def _log_accuracy(self, hidden: Tensor, targets: Tensor) -> None:
        """The share of answer tokens that are the most likely ones. It takes the logits once more, so not at every step."""
        assert self.fast is not None
        logits, parts = self.fast.decoder.logits, (torch.split(tensor, 4096) for tensor in (hidden, targets))
        right = sum((logits(states).argmax(-1) == tokens).sum() for states, tokens in zip(*parts, strict=True))
        self._metrics["train"]["mean_token_accuracy"].append(float(right) / len(targets))

    def _direct_loss(self, inputs: dict[str, Any], num_items: Any) -> Tensor:
        """The same loss for less: the output layer runs on answer tokens only, and its frozen weights get no gradient."""
        model = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        hidden = model.get_decoder()(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
        mask = inputs["labels"][:, 1:] != IGNORED  # (B, T-1): the token at t is predicted at t-1
        targets = inputs["labels"][:, 1:][mask]  # (N,)
        logits = model.get_output_embeddings()(hidden.last_hidden_state[:, :-1][mask])  # (N, V)
        return self._loss_of(logits, targets, mask, inputs, num_items)

    def _weighted_loss(self, model: Any, inputs: dict[str, Any], num_items: Any) -> Tensor:
        """By the library's forward pass, whose own loss counts all tokens alike."""
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False).logits
        mask = inputs["labels"][:, 1:] != IGNORED
        return self._loss_of(logits[:, :-1][mask], inputs["labels"][:, 1:][mask], mask, inputs, num_items)

    def _loss_of(self, logits: Tensor, targets: Tensor, mask: Tensor, inputs: dict[str, Any], num_items: Any) -> Tensor:
        """(N, V) logits and their (N,) targets, which are the True ones of `mask` (B, T-1)."""
        mode = "train" if self.model.training else "eval"
        if self.openings is None or mode == "eval":
            loss = F.cross_entropy(logits.float(), targets, reduction="sum")
        else:
            weights = self.openings(inputs["input_ids"], inputs["labels"])[mask]
            loss = (F.cross_entropy(logits.float(), targets, reduction="none") * weights).sum()
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

    def _wants_fast(self) -> bool:
        """On a GPU, for a LoRA without dropout whose activations may be kept."""
        dropout = any(has_dropout(module) for module in self.model.modules())
        return not self.args.use_cpu and isinstance(self.model, PeftModel) and not (dropout or self.args.gradient_checkpointing)

    def _open_fast(self) -> Any:
        """The fast forward pass; None, with a warning, where it does not fit."""
        try:
            from medloop.models.fast_forward import open_fast_forward  # triton

            return open_fast_forward(self.model)
        except (ImportError, UnsupportedModelError) as error:
            log.warning(
                "SFT uses the library's forward pass, about 2 times slower, because the fast one does not fit: %s.", error
            )
            return None
