"""The SFT loss and its gradients as CUDA graphs, one for each size of batch: a small model's step is mostly starting kernels.

    captured = CapturedLoss(forward, trained)
    loss = captured(packed, num_items)          # gradients are in the parameters' `grad`; None: this batch has no graph

Batches are padded to the size of a graph with tokens in rows of their own that nothing is learnt from. A graph reads the
adapter's matrices, runs forward and backward, and adds to the gradients. Large batches have none: there the GPU is the limit.

A batch takes the smallest graph that holds it and is not much larger; else one of its own size is captured, and where there are
MAX_GRAPHS the one that was not used for the longest time goes. Each graph is compared at its first batch with the loss and the
gradients of that batch as it is, without padding and without a graph.
"""

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from medloop.models.packing import PackedRows
from medloop.train.rl.logprobs import token_logprobs

STEP = 512  # tokens of a graph are a multiple of it
MAX_TOKENS = 8192  # of a batch with a graph
MAX_GRAPHS = 24
WASTE, MAX_WASTE = 1.25, 2.0  # tokens of a graph over those of its batch: before another is captured, and when there is no room
MAX_DIFFERENCE = 0.01  # of the loss from that of the batch as it is, at the first batch of each graph
MAX_GRADIENT_DIFFERENCE = 0.05  # norm of the difference of all gradients over theirs: bfloat16 in other tiles is some 0.01
log = logging.getLogger(__name__)


class GraphSize(NamedTuple):
    """What a graph has room for. Rows and the longest row cost nothing, so they are powers of 2."""

    tokens: int
    predicted: int
    longest: int
    rows: int  # with at least one of padding

    @classmethod
    def for_batch(cls, packed: Any) -> "GraphSize":
        rows = _power_of_2(_rows(packed) + 1)
        tokens = _round_up(len(packed.rows.tokens) + rows - _rows(packed), STEP)
        return cls(tokens, _round_up(len(packed.targets), tokens // 4), _power_of_2(max(packed.rows.longest_query, STEP)), rows)

    def holds(self, packed: Any) -> bool:
        """Every row of padding has a token, and none is longer than the longest."""
        spare, padding = self.rows - _rows(packed), self.tokens - len(packed.rows.tokens)
        fits = len(packed.targets) <= self.predicted and packed.rows.longest_query <= self.longest
        return fits and spare >= 1 and spare <= padding and padding - spare + 1 <= self.longest


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
        self.graphs: dict[GraphSize, GraphInputs] = {}  # the one that was used last stands last
        self.refused: set[GraphSize] = set()  # memory ran out
        self.pool: Any = None
        self.replayed = self.without = self.captures = 0  # batches, and graphs
        self.difference = 0.0  # the largest of the gradients at a capture
        self.told = False
        self.failed = forward.decoder.softcap is not None  # such attention makes its masks outside of the graph

    def __call__(self, packed: Any, num_items: Any) -> Tensor | None:
        """The loss; None, and no gradient added, where the batch has no graph: counted, and said once."""
        entry = self._entry(packed, num_items)
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

    def _entry(self, packed: Any, num_items: Any) -> GraphInputs | None:
        size = self.size_of(packed)
        if size is None:
            return None
        no_room = len(self.graphs) >= MAX_GRAPHS or size in self.refused
        chosen = self._smallest(packed, size, MAX_WASTE if no_room else WASTE)
        self._own_gradients()
        if chosen is None:
            if size in self.refused or not self._capture(size, packed, num_items):
                return None
            chosen = size
        entry = self.graphs[chosen] = self.graphs.pop(chosen)
        return entry

    def size_of(self, packed: Any) -> GraphSize | None:
        """That of a graph made for this batch; None where there can be none."""
        size = GraphSize.for_batch(packed)
        return None if self.failed or size.tokens > MAX_TOKENS else size

    def _smallest(self, packed: Any, size: GraphSize, waste: float) -> GraphSize | None:
        """Of the graphs that hold the batch, unless all are much larger than its own would be."""
        fitting = [
            other
            for other in self.graphs
            if other.holds(packed) and other.tokens <= waste * size.tokens and other.predicted <= waste * size.predicted
        ]
        return min(fitting, default=None)

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

    def _capture(self, size: GraphSize, packed: Any, num_items: Any) -> bool:
        """Whether there is a graph of that size now. Out of memory refuses this size; anything else ends all graphs."""
        before = [gradient.clone() for gradient in self.gradients]
        try:
            if not self._has_memory(size):
                raise torch.OutOfMemoryError
            if len(self.graphs) >= MAX_GRAPHS:
                self._drop(next(iter(self.graphs)))
            entry = self.new_entry(size)
            fill(entry, packed, num_items)
            self._record(entry)
            self._compare(entry, packed, num_items)
            self.graphs[size] = entry
            self.captures += 1
        except Exception as error:  # whatever a driver or a kernel raises while a graph is captured
            if _ran_out_of_memory(error):
                self.refused.add(size)
                self._tell(f"there is not enough memory for a graph of {size.tokens:,} tokens")
            else:
                self.failed = self.told = True
                self.graphs.clear()
                self.pool = None
                log.warning("SFT starts every kernel by itself, up to 6 times slower: no CUDA graph (%s).", error)
        torch._foreach_copy_(self.gradients, before)
        return size in self.graphs

    def _has_memory(self, size: GraphSize) -> bool:
        """Free, or kept by torch and not in use, the pool of the other graphs included."""
        if self.trained[0].device.type != "cuda":
            return True
        kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return bool(size.tokens * self.forward.bytes_per_token <= (torch.cuda.mem_get_info()[0] + kept) // 3)

    def _drop(self, size: GraphSize) -> None:
        if self.trained[0].device.type == "cuda":
            torch.cuda.synchronize()  # it may still run
        del self.graphs[size]

    def _record(self, entry: GraphInputs) -> None:
        """Capture the graph of `entry`, after two runs without one: kernels are chosen and compiled there."""
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self.add_gradients(entry)
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.empty_cache()  # what these runs held is of no use to a graph, whose memory is in a pool of its own
        self.pool = self.pool or torch.cuda.graph_pool_handle()  # one for all graphs
        entry.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(entry.graph, pool=self.pool):
            entry.loss = self.add_gradients(entry)

    def _compare(self, entry: GraphInputs, packed: Any, num_items: Any) -> None:
        """A graph must give the loss and the gradients of the batch as it is, to the rounding of bfloat16; RuntimeError else."""
        packed = packed.to(self.trained[0].device)
        count = len(packed.targets)
        weights = torch.ones(count, device=self.trained[0].device) if packed.weights is None else packed.weights
        weights = weights / (count if num_items is None else num_items)
        self.forward.decoder.refresh_values()
        expected = self._loss(packed.rows, packed.predictors, packed.targets, weights)
        gradients = torch.autograd.grad(expected, self.trained)
        torch._foreach_zero_(self.gradients)
        entry.graph.replay()
        assert entry.loss is not None
        loss = float((entry.loss - expected.detach()).abs() / expected.detach().abs().clamp(min=1e-6))
        away = torch._foreach_norm(torch._foreach_sub(self.gradients, gradients))
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        gradient = float(torch.stack(away).norm() / norm.clamp(min=1e-12))
        self.difference = max(self.difference, gradient)
        if not (loss <= MAX_DIFFERENCE and gradient <= MAX_GRADIENT_DIFFERENCE):
            raise RuntimeError(f"its loss is {loss:.2g} of the loss away, its gradients {gradient:.2g} of theirs")

    def new_entry(self, size: GraphSize) -> GraphInputs:
        """Room for batches of this size."""
        device = self.trained[0].device

        def zeros(count: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(count, dtype=dtype, device=device)

        starts = zeros(size.rows + 1, torch.int32)
        rows = PackedRows(
            tokens=zeros(size.tokens), positions=zeros(size.tokens), key_index=torch.arange(size.tokens, device=device),
            query_starts=starts, key_starts=starts, longest_query=size.longest, longest_key=size.longest,
        )  # fmt: skip
        return GraphInputs(rows, zeros(size.predicted), zeros(size.predicted), zeros(size.predicted, torch.float32))

    def add_gradients(self, entry: GraphInputs) -> Tensor:
        """Forward and backward of the batch in `entry`; its gradients are added to `gradients`."""
        self.forward.decoder.refresh_values()
        loss = self._loss(entry.rows, entry.predictors, entry.targets, entry.weights)
        torch._foreach_add_(self.gradients, torch.autograd.grad(loss, self.trained))
        return loss.detach()

    def _loss(self, rows: PackedRows, predictors: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        decoder, device = self.forward.decoder, weights.device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            hidden = self.forward(rows)[predictors]
            logprobs = token_logprobs(
                hidden, decoder.lm_head, targets, temperature=1.0, bias=decoder.lm_head_bias, softcap=decoder.logit_softcap
            ).logprobs
            return -(logprobs * weights).sum()


def fill(entry: GraphInputs, packed: Any, num_items: Any) -> None:
    """A batch into the tensors of its graph; the padding is in rows of its own after the others, the last one the longest."""
    rows, predicted = packed.rows, len(packed.targets)
    for target, source in (
        (entry.rows.tokens, rows.tokens), (entry.rows.positions, rows.positions), (entry.predictors, packed.predictors),
        (entry.targets, packed.targets),
    ):  # fmt: skip
        target[: len(source)].copy_(source, non_blocking=True)
        target[len(source) :] = 0
    starts, filled = entry.rows.query_starts, len(rows.query_starts)
    starts[:filled].copy_(rows.query_starts, non_blocking=True)
    spare, tokens = len(starts) - filled, len(rows.tokens)
    starts[filled:-1] = torch.arange(tokens + 1, tokens + spare, dtype=torch.int32, device=starts.device)
    starts[-1] = len(entry.rows.tokens)
    entry.rows.grids.clear()  # of the batch before
    entry.weights[:predicted] = 1.0 if packed.weights is None else packed.weights
    entry.weights[predicted:] = 0.0
    entry.weights /= predicted if num_items is None else num_items


def _ran_out_of_memory(error: BaseException | None) -> bool:
    """Also where the end of a capture fails after it, with an error of its own."""
    return error is not None and (isinstance(error, torch.OutOfMemoryError) or _ran_out_of_memory(error.__context__))


def _rows(packed: Any) -> int:
    return len(packed.rows.query_starts) - 1


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def _power_of_2(size: int) -> int:
    return 1 << (size - 1).bit_length()
