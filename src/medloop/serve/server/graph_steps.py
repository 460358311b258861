"""The step of the running batch on CUDA as captured graphs: the processor starts one graph instead of hundreds of kernels.

A graph belongs to a number of rows (the next power of two; spare rows compute nothing that is read) and to a set of adapters.
What changes from step to step, tokens, first columns and the column to write, lies in one block of memory that one copy fills.
Graphs are captured when they are first needed, and again after the cache has grown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from medloop.models.rollout.cuda_graph import kernels_run
from medloop.models.rollout.decode import FastDecoder
from medloop.serve.server.kv_batch import KvBatch
from medloop.serve.server.lora_slots import AdapterSlot, LoraSlots

if TYPE_CHECKING:
    from medloop.models.rollout.kernels import FusedStep

MIN_ROWS = 8  # a smaller graph would not be faster
MAX_GRAPHS = 16


@dataclass
class CapturedStep:
    graph: torch.cuda.CUDAGraph
    logits: Tensor  # (rows, V), overwritten by each replay
    stacks: Any  # the adapters' matrices that it reads: they live as long as the graph


def graphs_run(decoder: FastDecoder) -> bool:
    """Whether steps can be captured here: bfloat16 or float16 on CUDA, with Triton."""
    return decoder.embedding.device.type == "cuda" and decoder.embedding.dtype != torch.float32 and kernels_run()


class GraphSteps:
    def __init__(self, decoder: FastDecoder, rows: KvBatch, slots: LoraSlots, vocabulary: int) -> None:
        self.decoder, self.rows, self.slots, self.vocabulary = decoder, rows, slots, vocabulary
        most = rows.max_rows
        self._inputs = torch.zeros(2 * most + 1, dtype=torch.long, device=rows.device)  # tokens, first columns, the column
        self._host = torch.zeros(2 * most + 1, dtype=torch.long).pin_memory()
        self._steps: dict[int, FusedStep] = {}  # by their number of rows
        self._captured: OrderedDict[tuple[int, int, bool], CapturedStep] = OrderedDict()
        self._cache: Tensor | None = None  # the one that the graphs write

    def step(self, tokens: Sequence[int], row_slots: Sequence[AdapterSlot | None]) -> Tensor:
        """The logits (B, V) after one more token of each row; they hold until the next step."""
        rows, live = self.rows, len(tokens)
        size = min(rows.max_rows, max(MIN_ROWS, 1 << (live - 1).bit_length()))
        column = rows.take_column(size)
        if rows.cache is not self._cache:
            self._captured.clear()
            self._cache = rows.cache
        self.slots.use([*row_slots, *[row_slots[-1]] * (size - live)])
        self._send(tokens, size, column)
        key = (size, id(self.slots.stacks), self.slots.alone)
        if key not in self._captured:
            self._captured[key] = self._capture(size)
            while len(self._captured) > MAX_GRAPHS:
                self._captured.popitem(last=False)
        self._captured.move_to_end(key)
        captured = self._captured[key]
        captured.graph.replay()
        return captured.logits[:live]

    def forget(self, stacks: Sequence[Any]) -> None:
        """Drop the graphs that read other matrices than these."""
        live = {id(stack) for stack in stacks}
        for key in [key for key in self._captured if key[1] not in live]:
            del self._captured[key]

    def _send(self, tokens: Sequence[int], size: int, column: int) -> None:
        most, live = self.rows.max_rows, len(tokens)
        host = self._host.numpy()
        host[:live], host[live:size] = tokens, 0
        host[most : most + live], host[most + live : most + size] = self.rows.first, column  # a spare row sees only itself
        host[2 * most] = column
        self._inputs.copy_(self._host, non_blocking=True)

    def _capture(self, size: int) -> CapturedStep:
        """The runs that warm it up write this step's column, which the replay writes again."""
        if size not in self._steps:
            from medloop.models.rollout.kernels import FusedStep  # triton

            self._steps[size] = FusedStep(self.decoder, size)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._logits(size)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        shared = next((captured.graph.pool() for captured in self._captured.values()), None)  # gone with its last graph
        # thread_local: another thread may be copying a new adapter to the card.
        with torch.cuda.graph(graph, pool=shared, capture_error_mode="thread_local"):
            logits = self._logits(size)
        return CapturedStep(graph, logits, self.slots.stacks)

    def _logits(self, size: int) -> Tensor:
        most = self.rows.max_rows
        tokens, first, column = self._inputs[:size], self._inputs[most : most + size], self._inputs[2 * most :]
        hidden = self._steps[size](tokens, first, column, self.rows.cache[:, :, :size])
        return self.decoder.logits(hidden)[:, : self.vocabulary]
