"""The SFT loss and its gradients as CUDA graphs, one for each size of batch: a small model's step is mostly starting kernels.

    captured = CapturedLoss(forward, trained)
    loss = captured(packed, num_items)          # gradients are in the parameters' `grad`; None: this batch has no graph

Batches are padded to the next size with tokens of a row of their own that nothing is learnt from. A graph reads the adapter's
matrices, runs forward and backward, and adds to the gradients. Large batches have none: there the GPU is the limit.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from medloop.models.packing import PackedRows
from medloop.train.rl.logprobs import token_logprobs

STEP = 512  # sizes are multiples of it
MAX_TOKENS = 8192  # of a batch with a graph
MAX_GRAPHS = 12
MAX_DIFFERENCE = 0.01  # of the loss from that without a graph, at the first batch of each size
log = logging.getLogger(__name__)


@dataclass
class _Graph:
    """The tensors that a graph reads (`rows`, `predictors`, `targets`, `weights`) and its loss."""

    rows: PackedRows
    predictors: Tensor
    targets: Tensor
    weights: Tensor  # of each predicted token in the loss; 0 for padding
    graph: Any = None
    loss: Tensor | None = None


class CapturedLoss:
    """The loss of packed examples with its gradients, for the trained parameters of a fast forward."""

    def __init__(self, forward: Any, trained: list[nn.Parameter]) -> None:
        self.forward, self.trained = forward, trained
        self.gradients = [torch.zeros_like(parameter) for parameter in trained]
        self.graphs: dict[tuple[int, ...], _Graph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.failed = False

    def __call__(self, packed: Any, num_items: Any) -> Tensor | None:
        """The loss; None, and nothing done, where the batch has no graph."""
        key = self._key(packed)
        if key is None:
            return None
        self._own_gradients()
        if key not in self.graphs and not self._capture(key, packed, num_items):
            return None
        entry = self.graphs[key]
        _fill(entry, packed, num_items)
        entry.graph.replay()
        assert entry.loss is not None
        return entry.loss.clone()

    def _own_gradients(self) -> None:
        """Let the parameters' gradients lie where the graphs add to them, with what earlier micro-batches have left in them."""
        if self.trained[0].grad is self.gradients[0]:
            return
        for parameter, gradient in zip(self.trained, self.gradients, strict=True):
            if parameter.grad is not None:
                gradient.copy_(parameter.grad)
        if self.trained[0].grad is None:
            torch._foreach_zero_(self.gradients)
        for parameter, gradient in zip(self.trained, self.gradients, strict=True):
            parameter.grad = gradient

    def _key(self, packed: Any) -> tuple[int, ...] | None:
        rows = packed.rows
        tokens, predicted, longest = (
            _round_up(size) for size in (len(rows.tokens) + 1, len(packed.targets), rows.longest_query)
        )  # at least one token of padding, so that its row is never empty
        key = tokens, predicted, max(longest, STEP), len(rows.query_starts)
        full = len(self.graphs) >= MAX_GRAPHS and key not in self.graphs
        return None if self.failed or full or tokens > MAX_TOKENS else key

    def _capture(self, key: tuple[int, ...], packed: Any, num_items: Any) -> bool:
        tokens, predicted, longest, starts = key
        device = self.trained[0].device

        def zeros(size: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        both = zeros(starts + 1, torch.int32)
        rows = PackedRows(
            tokens=zeros(tokens), positions=zeros(tokens), key_index=torch.arange(tokens, device=device), query_starts=both,
            key_starts=both, longest_query=longest, longest_key=longest,
        )  # fmt: skip
        entry = _Graph(rows, zeros(predicted), zeros(predicted), zeros(predicted, torch.float32))
        _fill(entry, packed, num_items)
        before = [gradient.clone() for gradient in self.gradients]
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(2):
                    expected = self._add_gradients(entry).clone()
            torch.cuda.current_stream().wait_stream(aside)
            entry.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(entry.graph, pool=self.pool):
                entry.loss = self._add_gradients(entry)
            entry.graph.replay()
            difference = float((entry.loss - expected).abs() / expected.abs().clamp(min=1e-6))
            if not difference <= MAX_DIFFERENCE:
                raise RuntimeError(f"its loss is {difference:.2g} of the loss away")
        except Exception as error:  # whatever a driver or a kernel raises while a graph is captured
            torch.cuda.synchronize()
            self.failed = True
            log.warning("SFT starts every kernel by itself, up to 3 times slower: no CUDA graph (%s).", type(error).__name__)
        torch._foreach_copy_(self.gradients, before)
        if not self.failed:
            self.graphs[key] = entry
        return not self.failed

    def _add_gradients(self, entry: _Graph) -> Tensor:
        decoder = self.forward.decoder
        decoder.refresh_values()
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            hidden = self.forward(entry.rows)[entry.predictors]
            logprobs = token_logprobs(
                hidden, decoder.lm_head, entry.targets, temperature=1.0, bias=decoder.lm_head_bias,
                softcap=decoder.logit_softcap,
            ).logprobs  # fmt: skip
            loss = -(logprobs * entry.weights).sum()
        torch._foreach_add_(self.gradients, torch.autograd.grad(loss, self.trained))
        return loss.detach()


def _fill(entry: _Graph, packed: Any, num_items: Any) -> None:
    """A batch into the tensors of its graph; the padding is a row of its own after the others."""
    rows, count, predicted = packed.rows, len(packed.rows.tokens), len(packed.targets)
    padding = len(entry.rows.tokens) - count
    positions = torch.arange(padding)
    for target, source, rest in (
        (entry.rows.tokens, rows.tokens, 0), (entry.rows.positions, rows.positions, positions.to(rows.positions.device)),
        (entry.predictors, packed.predictors, 0), (entry.targets, packed.targets, 0),
    ):  # fmt: skip
        target[: len(source)].copy_(source, non_blocking=True)
        target[len(source) :] = rest
    entry.rows.query_starts[:-1].copy_(rows.query_starts, non_blocking=True)
    entry.rows.query_starts[-1] = len(entry.rows.tokens)
    entry.weights[:predicted] = 1.0
    entry.weights[predicted:] = 0.0
    entry.weights /= predicted if num_items is None else num_items


def _round_up(size: int) -> int:
    return -(-size // STEP) * STEP
