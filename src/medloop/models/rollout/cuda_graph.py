"""Sampling on CUDA without waiting for the processor: one step captured as a CUDA graph, then replayed.

Everything a step needs lies in tensors that never move: the tokens, the cache, the column to write, the random numbers, the
output. A replay samples one token for every row. Only every few steps does the processor check whether all rows have ended; when
half of them have, the rest continue in a graph of half the size.

In bfloat16 and float16 the step is the few kernels of kernels.py; without Triton, and in float32, it is that of decode.py.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from medloop.models.rollout.decode import FastDecoder, position_ids, sample_tokens

if TYPE_CHECKING:
    from medloop.models.rollout.kernels import FusedDraw, FusedStep

log = logging.getLogger(__name__)
CHECK_EVERY = 16  # steps between two checks of what has ended
COLUMN_MULTIPLE = 64  # cache lengths are multiples of this, so that few graphs serve many prompt lengths
MIN_ROWS = 8  # a smaller graph would not be faster
MAX_GRAPHS = 8  # captured at most; each holds a cache


@dataclass
class GraphBuffers:
    """The tensors of one graph."""

    tokens: Tensor  # (B,)
    first: Tensor  # (B,): the column of a row's first token
    cache: Tensor  # (L, 2, B, K, T, D)
    noise: Tensor  # (B, N)
    done: Tensor  # (B,)
    output: Tensor  # (B, N)
    logprobs: Tensor  # (B, N)
    column: Tensor  # (1,): the one to write
    step: Tensor  # (1,): the token to sample
    temperature: Tensor  # (1,)
    greedy: bool
    fused: FusedKernels | None = None
    graph: torch.cuda.CUDAGraph | None = None


@dataclass
class FusedKernels:
    """A step and a draw for one number of rows."""

    step: FusedStep
    draw: FusedDraw


@cache
def kernels_run() -> bool:
    """Whether Triton can compile and start a kernel here; if not, a warning says so once."""
    try:
        from medloop.models.forward_kernels import gated  # triton comes with torch for CUDA on Linux

        gated(torch.ones(1, 2, dtype=torch.bfloat16, device="cuda"), gelu=False)
    except Exception as error:  # no Triton, no C compiler, a card that is too old
        log.warning("Triton's kernels do not run here, so sampling takes about twice the time (%s).", type(error).__name__)
        return False
    return True


def fused_kernels(decoder: FastDecoder, rows: int, stop_ids: Tensor, vocabulary: int | None) -> FusedKernels | None:
    """None where the step of decode.py is taken."""
    if decoder.embedding.device.type != "cuda" or decoder.embedding.dtype == torch.float32:
        return None
    if not kernels_run():
        return None
    from medloop.models.rollout.kernels import FusedDraw, FusedStep  # triton

    return FusedKernels(FusedStep(decoder, rows), FusedDraw(rows, vocabulary or len(decoder.lm_head), stop_ids))


class CudaGraphs:
    """Captured steps by their shape."""

    def __init__(self, decoder: FastDecoder, stop_ids: Tensor, vocabulary: int | None = None) -> None:
        self.decoder, self.stop_ids, self.vocabulary = decoder, stop_ids, vocabulary
        self._by_shape: dict[tuple[int, int, int, bool], GraphBuffers] = {}

    def sample(
        self, input_ids: Tensor, attention_mask: Tensor, prompt_index: Tensor, noise: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Tokens and log-probabilities, (B, N).

        input_ids (U, P) and attention_mask (U, P + N) are of left-padded prompts; row b answers prompt `prompt_index[b]` with the
        random numbers noise[b].
        """
        (rows, steps), width = noise.shape, input_ids.shape[1]
        columns = -(-attention_mask.shape[1] // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
        buffers = self._buffers(rows, columns, steps, temperature == 0)
        _fill(buffers, noise, temperature, width)
        positions = position_ids(attention_mask[:, :width])
        buffers.first.copy_(width - 1 - positions[prompt_index, -1])
        cache = self.decoder.new_cache(len(input_ids), width)
        hidden = self.decoder.prefill(input_ids, positions, attention_mask[:, :width], cache)
        buffers.cache[..., :width, :] = cache[:, :, prompt_index]
        self._sample(buffers, hidden[prompt_index])
        tokens, logprobs = torch.full_like(buffers.output, -1), torch.zeros_like(buffers.logprobs)
        owners = torch.arange(rows, device=input_ids.device)
        for step in range(1, steps):
            if step % CHECK_EVERY == 0:
                left = int((~buffers.done).sum())
                if not left:
                    break
                if left <= len(buffers.done) // 2 >= MIN_ROWS:
                    tokens[owners], logprobs[owners] = buffers.output, buffers.logprobs
                    buffers, owners = self._halve(buffers, owners)
            self._replay(buffers)
        tokens[owners], logprobs[owners] = buffers.output, buffers.logprobs
        return tokens, logprobs

    def _buffers(self, rows: int, columns: int, steps: int, greedy: bool) -> GraphBuffers:
        shape = (rows, columns, steps, greedy)
        if shape not in self._by_shape:
            while len(self._by_shape) >= MAX_GRAPHS:
                del self._by_shape[next(iter(self._by_shape))]
            self._by_shape[shape] = buffers = _new_buffers(self.decoder, *shape)
            buffers.fused = fused_kernels(self.decoder, rows, self.stop_ids, self.vocabulary)
        return self._by_shape[shape]

    def _replay(self, buffers: GraphBuffers) -> None:
        if buffers.graph is None:
            buffers.graph = self._capture(buffers)
        buffers.graph.replay()

    def _capture(self, buffers: GraphBuffers) -> torch.cuda.CUDAGraph:
        """Capturing runs nothing, but the runs that warm it up do: they happen on a side stream and are undone."""
        changed = (buffers.tokens, buffers.done, buffers.output, buffers.logprobs, buffers.column, buffers.step)
        before = [tensor.clone() for tensor in changed]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step(buffers)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(buffers)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)  # the cache needs no undoing: its columns are written again before they are read
        return graph

    def _step(self, buffers: GraphBuffers) -> None:
        """The token of every row goes into the cache, and the next one is drawn."""
        if buffers.fused is not None:
            hidden = buffers.fused.step(buffers.tokens, buffers.first, buffers.column, buffers.cache)
        else:
            columns = torch.arange(buffers.cache.shape[4], device=buffers.first.device)
            attention_mask = (columns >= buffers.first[:, None]) & (columns <= buffers.column)
            positions = buffers.column - buffers.first
            hidden = self.decoder.step(buffers.tokens, positions, attention_mask, buffers.cache, buffers.column)
        buffers.column.add_(1)
        self._sample(buffers, hidden)

    def _sample(self, buffers: GraphBuffers, hidden: Tensor) -> None:
        """Sample a token for every row that continues, and store it."""
        logits = self.decoder.logits(hidden)[:, : self.vocabulary]
        if buffers.fused is not None:
            buffers.fused.draw(
                logits, buffers.noise, buffers.step, buffers.temperature, buffers.tokens, buffers.output, buffers.logprobs,
                buffers.done, greedy=buffers.greedy,
            )  # fmt: skip
        else:
            temperature = 0.0 if buffers.greedy else buffers.temperature
            tokens, logprobs = sample_tokens(logits, temperature, buffers.noise.index_select(1, buffers.step)[:, 0])
            buffers.output.index_copy_(1, buffers.step, torch.where(buffers.done, -1, tokens)[:, None])
            buffers.logprobs.index_copy_(1, buffers.step, torch.where(buffers.done, 0.0, logprobs)[:, None])
            buffers.done.logical_or_(torch.isin(tokens, self.stop_ids))
            buffers.tokens.copy_(tokens)
        buffers.step.add_(1)

    def _halve(self, buffers: GraphBuffers, owners: Tensor) -> tuple[GraphBuffers, Tensor]:
        """The rows that continue, in smaller buffers; spare places are filled with rows that have ended."""
        size = len(owners)
        left = int((~buffers.done).sum())
        while size // 2 >= max(left, MIN_ROWS):
            size //= 2
        chosen = torch.argsort(buffers.done.long(), stable=True)[:size]  # those that continue come first
        small = self._buffers(size, buffers.cache.shape[4], buffers.noise.shape[1], buffers.greedy)
        for name in ("tokens", "first", "noise", "done", "output", "logprobs"):
            getattr(small, name).copy_(getattr(buffers, name)[chosen])
        for name in ("column", "step", "temperature"):
            getattr(small, name).copy_(getattr(buffers, name))
        columns = int(buffers.column)
        small.cache[..., :columns, :] = buffers.cache[:, :, chosen, :, :columns]
        return small, owners[chosen]


def _new_buffers(decoder: FastDecoder, rows: int, columns: int, steps: int, greedy: bool) -> GraphBuffers:
    device = decoder.embedding.device

    def new(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    return GraphBuffers(
        tokens=new(rows), first=new(rows), cache=decoder.new_cache(rows, columns),
        noise=new(rows, steps, dtype=torch.float64), done=new(rows, dtype=torch.bool),
        output=new(rows, steps), logprobs=new(rows, steps, dtype=torch.float32), column=new(1), step=new(1),
        temperature=new(1, dtype=torch.float32), greedy=greedy,
    )  # fmt: skip


def _fill(buffers: GraphBuffers, noise: Tensor, temperature: float, width: int) -> None:
    buffers.noise.copy_(noise)
    buffers.done.zero_()
    buffers.output.fill_(-1)
    buffers.logprobs.zero_()
    buffers.column.fill_(width)
    buffers.step.zero_()
    buffers.temperature.fill_(temperature)
