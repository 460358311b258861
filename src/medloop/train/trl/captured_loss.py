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
class GraphInputs:
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
        self.graphs: dict[tuple[int, ...], GraphInputs] = {}
        self.pool: Any = None
        self.replayed = self.without = 0  # batches
        self.told = False
        self.failed = forward.decoder.softcap is not None  # such attention makes its masks outside of the graph

    def __call__(self, packed: Any, num_items: Any) -> Tensor | None:
        """The loss; None, and no gradient added, where the batch has no graph: counted, and said once."""
        key = self.size_key(packed)
        entry = None if key is None else self._entry(key, packed, num_items)
        if entry is None:
            self.without += 1
            if self.failed:
                self._tell("attention with a soft cap makes its masks outside of a graph")
            return None
        self.replayed += 1
        fill(entry, packed, num_items)
        entry.graph.replay()
        assert entry.loss is not None
        return entry.loss.clone()

    def _entry(self, key: tuple[int, ...], packed: Any, num_items: Any) -> GraphInputs | None:
        if key not in self.graphs and len(self.graphs) >= MAX_GRAPHS:
            self._tell(f"batches have more than {MAX_GRAPHS} sizes")
            return None
        self._own_gradients()
        return self.graphs[key] if key in self.graphs or self._capture(key, packed, num_items) else None

    def _tell(self, why: str) -> None:
        """Once in a run; `graph_share` in metrics.jsonl says how many batches it is."""
        if not self.told:
            self.told = True
            log.warning("SFT starts the kernels of some batches one by one, up to 6 times slower than a CUDA graph: %s.", why)

    def _own_gradients(self) -> None:
        """Let the parameters' gradients lie where the graphs add to them, with what earlier micro-batches have left in them."""
        if all(parameter.grad is gradient for parameter, gradient in zip(self.trained, self.gradients, strict=True)):
            return
        for parameter, gradient in zip(self.trained, self.gradients, strict=True):
            if parameter.grad is None:
                gradient.zero_()
            elif parameter.grad is not gradient:
                gradient.copy_(parameter.grad)
            parameter.grad = gradient

    def size_key(self, packed: Any) -> tuple[int, ...] | None:
        rows = packed.rows
        tokens, predicted, longest = (
            _round_up(size) for size in (len(rows.tokens) + 1, len(packed.targets), rows.longest_query)
        )  # at least one token of padding, so that its row is never empty
        key = tokens, predicted, max(longest, STEP), len(rows.query_starts)
        return None if self.failed or tokens > MAX_TOKENS else key

    def _capture(self, key: tuple[int, ...], packed: Any, num_items: Any) -> bool:
        free, _ = torch.cuda.mem_get_info()
        if key[0] * self.forward.bytes_per_token > free // 4:
            self._tell("there is not enough memory for another graph")
            return False
        entry = self.new_entry(key)
        fill(entry, packed, num_items)
        before = [gradient.clone() for gradient in self.gradients]
        try:
            aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(2):
                    expected = self.add_gradients(entry).clone()
            torch.cuda.current_stream().wait_stream(aside)
            self.pool = self.pool or torch.cuda.graph_pool_handle()  # one for all graphs
            entry.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(entry.graph, pool=self.pool):
                entry.loss = self.add_gradients(entry)
            entry.graph.replay()
            difference = float((entry.loss - expected).abs() / expected.abs().clamp(min=1e-6))
            if not difference <= MAX_DIFFERENCE:
                raise RuntimeError(f"its loss is {difference:.2g} of the loss away")
        except Exception as error:  # whatever a driver or a kernel raises while a graph is captured
            torch.cuda.synchronize()
            self.failed = self.told = True
            self.graphs.clear()
            self.pool = None
            log.warning("SFT starts every kernel by itself, up to 6 times slower: no CUDA graph (%s).", error)
        torch._foreach_copy_(self.gradients, before)
        if not self.failed:
            self.graphs[key] = entry
        return not self.failed

    def new_entry(self, key: tuple[int, ...]) -> GraphInputs:
        """Room for batches of these sizes."""
        tokens, predicted, longest, starts = key
        device = self.trained[0].device

        def zeros(size: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        both = zeros(starts + 1, torch.int32)
        rows = PackedRows(
            tokens=zeros(tokens), positions=zeros(tokens), key_index=torch.arange(tokens, device=device), query_starts=both,
            key_starts=both, longest_query=longest, longest_key=longest,
        )  # fmt: skip
        return GraphInputs(rows, zeros(predicted), zeros(predicted), zeros(predicted, torch.float32))

    def add_gradients(self, entry: GraphInputs) -> Tensor:
        """Forward and backward of the batch in `entry`; its gradients are added to `gradients`."""
        decoder, device = self.forward.decoder, entry.weights.device.type
        decoder.refresh_values()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            hidden = self.forward(entry.rows)[entry.predictors]
            logprobs = token_logprobs(
                hidden, decoder.lm_head, entry.targets, temperature=1.0, bias=decoder.lm_head_bias,
                softcap=decoder.logit_softcap,
            ).logprobs  # fmt: skip
            loss = -(logprobs * entry.weights).sum()
        torch._foreach_add_(self.gradients, torch.autograd.grad(loss, self.trained))
        return loss.detach()


def fill(entry: GraphInputs, packed: Any, num_items: Any) -> None:
    """A batch into the tensors of its graph; the padding is a row of its own after the others."""
    rows, predicted = packed.rows, len(packed.targets)
    for target, source in (
        (entry.rows.tokens, rows.tokens), (entry.rows.positions, rows.positions), (entry.predictors, packed.predictors),
        (entry.targets, packed.targets),
    ):  # fmt: skip
        target[: len(source)].copy_(source, non_blocking=True)
        target[len(source) :] = 0
    entry.rows.query_starts[:-1].copy_(rows.query_starts, non_blocking=True)
    entry.rows.query_starts[-1] = len(entry.rows.tokens)
    entry.weights[:predicted] = 1.0
    entry.weights[predicted:] = 0.0
    entry.weights /= predicted if num_items is None else num_items


def _round_up(size: int) -> int:
    return -(-size // STEP) * STEP
