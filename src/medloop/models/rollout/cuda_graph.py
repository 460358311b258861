"""Sampling on CUDA without waiting for the processor: one step captured as a CUDA graph, then replayed, with continuous batching.

    for answers in graphs.sample(requests, places=64, max_new_tokens=256, temperature=1.0): ...   # that ended

Everything a step needs lies in tensors that never move: the tokens, the cache, the column to write, the random numbers, the
output. A replay samples one token for every place. Only every few steps does the processor look which rows have ended. Their
places go to the next requests, whose prompts are read into the cache, so that a long answer does not hold the batch; where none
wait and half of the places are empty, the rest continue in a graph of half the size, over the same memory.

All rows write the same column of the cache, so a prompt enters just before it: a row is the columns from its `first` one on. The
random numbers and the output of a row lie at the columns of its tokens. Where the columns run out, all rows move to the left.

In bfloat16 and float16 the step is the few kernels of kernels.py; without Triton, and in float32, it is that of decode.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from medloop.models.rollout.decode import FastDecoder, position_ids, sample_tokens
from medloop.models.rollout.rollouts import Rollout, RolloutRequest, uniforms

if TYPE_CHECKING:
    from medloop.models.rollout.kernels import FusedDraw, FusedStep

log = logging.getLogger(__name__)
CHECK_EVERY = 16  # steps at most between two looks at what has ended
COLUMN_MULTIPLE = 64  # cache lengths are multiples of this, so that few graphs serve many prompt lengths
MIN_ROWS = 8  # a smaller graph would not be faster
MAX_GRAPHS = 16  # captured at most
ENTER = 8  # rows enter when at least one place in so many is free: reading prompts takes some steps' time
SPARE = 32  # columns beyond the longest row where rows enter: all rows move at most every so many steps


@dataclass
class GraphBuffers:
    """The tensors of all graphs; a graph of n rows is over the first n places."""

    tokens: Tensor  # (B,)
    first: Tensor  # (B,): the column of a row's first token
    cache: Tensor  # (L, 2, B, K, T, D)
    noise: Tensor  # (B, 2T), by the column of the token that it draws
    done: Tensor  # (B,)
    output: Tensor  # (B, 2T), by the column that a token is written to
    logprobs: Tensor  # (B, 2T)
    column: Tensor  # (1,): the next one to write
    temperature: Tensor  # (1,)
    captured: dict[tuple[int, bool], RolloutGraph] = field(default_factory=dict)  # by rows, and whether it is greedy

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.cache.shape[2], self.cache.shape[4]


@dataclass
class RolloutGraph:
    fused: FusedKernels | None
    graph: torch.cuda.CUDAGraph | None = None


@dataclass
class FusedKernels:
    """A step and a draw for one number of rows."""

    step: FusedStep
    draw: FusedDraw


@dataclass
class Row:
    """A request in its place. `start` is the column of its first token, `first` that of its prompt's."""

    request: RolloutRequest
    first: int
    start: int


@dataclass(frozen=True)
class ReadPrompt:
    """The last prompt that was read: the rest of its group may enter later."""

    prompt: tuple[int, ...]
    keys_and_values: Tensor  # (L, 2, 1, K, P, D)
    logits: Tensor  # (1, V)


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
    """One set of buffers, as large as was ever needed, and the captured steps over it."""

    def __init__(self, decoder: FastDecoder, stop_ids: Tensor, vocabulary: int | None = None) -> None:
        self.decoder, self.stop_ids, self.vocabulary = decoder, stop_ids, vocabulary
        self._buffers: GraphBuffers | None = None

    def clear(self) -> None:
        """Give the memory back."""
        self._buffers = None

    @torch.inference_mode()
    def sample(
        self, requests: Sequence[RolloutRequest], *, places: int, max_new_tokens: int, temperature: float
    ) -> Iterator[dict[int, Rollout]]:
        """The answers that have ended, by the index of their request. `requests` come with the longest prompts first."""
        places = min(places, len(requests))
        width = len(requests[0].prompt) + max_new_tokens
        buffers = self._reserve(places, width + (SPARE if places < len(requests) else 0))
        batch = GraphBatch(self, buffers, places, max_new_tokens, temperature)
        waiting = deque(requests)
        while waiting or batch.live:
            if waiting and batch.places_to_give:
                batch.enter([waiting.popleft() for _ in range(min(len(waiting), batch.free))])
            elif not waiting:
                batch.halve()
            batch.run()
            if ended := batch.leave():
                yield ended

    def _reserve(self, rows: int, columns: int) -> GraphBuffers:
        columns = -(-columns // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
        if self._buffers is not None:
            had_rows, had_columns = self._buffers.size
            if rows <= had_rows and columns <= had_columns:
                return self._buffers
            rows, columns = max(rows, had_rows), max(columns, had_columns)
        self._buffers = None  # its memory is free before the new one is taken
        self._buffers = _new_buffers(self.decoder, rows, columns)
        return self._buffers

    def captured(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> RolloutGraph:
        if (rows, greedy) not in buffers.captured:
            while len(buffers.captured) >= MAX_GRAPHS:
                del buffers.captured[next(iter(buffers.captured))]
            buffers.captured[rows, greedy] = RolloutGraph(fused_kernels(self.decoder, rows, self.stop_ids, self.vocabulary))
        return buffers.captured[rows, greedy]

    def replay(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> None:
        captured = self.captured(buffers, rows, greedy=greedy)
        if captured.graph is None:
            captured.graph = self._capture(buffers, rows, greedy=greedy)
        captured.graph.replay()

    def _capture(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> torch.cuda.CUDAGraph:
        """Capturing runs nothing, but the two runs that warm it up do: they happen on a side stream and are undone."""
        changed = (buffers.tokens, buffers.done, buffers.output, buffers.logprobs, buffers.column)
        before = [tensor.clone() for tensor in changed]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step(buffers, rows, greedy=greedy)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(buffers, rows, greedy=greedy)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)  # the cache needs no undoing: its columns are written again before they are read
        return graph

    def step(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> None:
        """The token of every row goes into the cache, and the next one is drawn; stored unless the row has ended."""
        fused, column = self.captured(buffers, rows, greedy=greedy).fused, buffers.column
        tokens, first, done, noise = buffers.tokens[:rows], buffers.first[:rows], buffers.done[:rows], buffers.noise[:rows]
        output, logprobs, cache = buffers.output[:rows], buffers.logprobs[:rows], buffers.cache[:, :, :rows]
        if fused is not None:
            hidden = fused.step(tokens, first, column, cache)
        else:
            columns = torch.arange(cache.shape[4], device=first.device)
            attention_mask = (columns >= first[:, None]) & (columns <= column)
            hidden = self.decoder.step(tokens, column - first, attention_mask, cache, column)
        column.add_(1)
        logits = self.decoder.logits(hidden)[:, : self.vocabulary]
        if fused is not None:
            fused.draw(logits, noise, column, buffers.temperature, tokens, output, logprobs, done, greedy=greedy)
            return
        drawn, values = sample_tokens(logits, 0.0 if greedy else buffers.temperature, noise.index_select(1, column)[:, 0])
        output.index_copy_(1, column, torch.where(done, -1, drawn)[:, None])
        logprobs.index_copy_(1, column, torch.where(done, 0.0, values)[:, None])
        done.logical_or_(torch.isin(drawn, self.stop_ids))
        tokens.copy_(drawn)


class GraphBatch:
    """The rows in the buffers during one call. What the processor knows of them needs no look at the GPU."""

    def __init__(self, graphs: CudaGraphs, buffers: GraphBuffers, places: int, new_tokens: int, temperature: float) -> None:
        self.graphs, self.buffers, self.new_tokens, self.temperature = graphs, buffers, new_tokens, temperature
        self.rows: list[Row | None] = [None] * places
        self.column = 0  # the next one to write, as in the buffers
        self._read: ReadPrompt | None = None
        buffers.temperature.fill_(temperature)

    @property
    def live(self) -> int:
        return len(self.rows) - self.free

    @property
    def free(self) -> int:
        return self.rows.count(None)

    @property
    def places_to_give(self) -> bool:
        return self.free * ENTER >= len(self.rows)

    def enter(self, group: Sequence[RolloutRequest]) -> None:
        """Read the prompts of these requests, each once, into free places, and draw their first tokens."""
        buffers, device = self.buffers, self.buffers.first.device
        prompts = list(dict.fromkeys(tuple(request.prompt) for request in group))
        keys_and_values, logits = self._prompts(prompts)
        width = keys_and_values.shape[4]
        if not self.live:
            self._at(width)
        free = [place for place, row in enumerate(self.rows) if row is None][: len(group)]
        for place, request in zip(free, group, strict=True):
            self.rows[place] = Row(request, self.column - len(request.prompt), self.column)
        index = torch.tensor([prompts.index(tuple(request.prompt)) for request in group], device=device)
        places, column, end = torch.tensor(free, device=device), self.column, self.column + self.new_tokens
        buffers.cache[:, :, places, :, column - width : column] = keys_and_values[:, :, index]
        noise = torch.stack([uniforms(request.stream, self.new_tokens) for request in group]).to(device)
        buffers.noise[places, column:end] = noise
        tokens, logprobs = sample_tokens(logits[index], self.temperature, noise[:, 0])
        buffers.tokens[places], buffers.output[places, column], buffers.logprobs[places, column] = tokens, tokens, logprobs
        buffers.done[places] = torch.isin(tokens, self.graphs.stop_ids)
        self._send_first()

    def _prompts(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Keys and values (L, 2, U, K, P, D), padded on the left, and the logits (U, V) of the next token."""
        known = self._read if self._read is not None and self._read.prompt == prompts[0] else None
        new, width = prompts[known is not None :], len(prompts[0])
        parts = [] if known is None else [(known.keys_and_values, known.logits)]
        if new:
            decoder, device = self.graphs.decoder, self.buffers.first.device
            input_ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in new], device=device)
            lengths = torch.tensor([len(prompt) for prompt in new], device=device)
            attention_mask = torch.arange(width, device=device) >= width - lengths[:, None]
            cache = decoder.new_cache(len(new), width)
            hidden = decoder.prefill(input_ids, position_ids(attention_mask), attention_mask, cache)
            parts.append((cache, decoder.logits(hidden)[:, : self.graphs.vocabulary]))
        keys_and_values, logits = parts[0]
        if len(parts) > 1:
            keys_and_values, logits = torch.cat([part[0] for part in parts], 2), torch.cat([part[1] for part in parts])
        last = keys_and_values[:, :, -1:, :, width - len(prompts[-1]) :]
        self._read = ReadPrompt(prompts[-1], last.clone(), logits[-1:].clone())
        return keys_and_values, logits

    def run(self) -> None:
        """Some steps: until a row must end, or the columns run out."""
        columns = self.buffers.size[1]
        if self.column >= columns - 1:
            self._move()
        left = [self.new_tokens - (self.column - row.start + 1) for row in self.rows if row is not None]
        steps = min(CHECK_EVERY, *left, columns - 1 - self.column) if left else 0
        for _ in range(steps):
            self.graphs.replay(self.buffers, len(self.rows), greedy=self.temperature == 0)
        self.column += steps

    def leave(self) -> dict[int, Rollout]:
        """Take the answers of the rows that have ended out of the buffers."""
        done = self.buffers.done[: len(self.rows)].tolist()
        ended: list[tuple[int, Row]] = [
            (place, row) for place, row in enumerate(self.rows)
            if row is not None and (done[place] or self.column - row.start + 1 >= self.new_tokens)
        ]  # fmt: skip
        if not ended:
            return {}
        places = torch.tensor([place for place, _ in ended], device=self.buffers.first.device)
        tokens, logprobs = self.buffers.output[places].tolist(), self.buffers.logprobs[places].tolist()
        answers = {}
        for (place, row), words, values in zip(ended, tokens, logprobs, strict=True):
            words = words[row.start : self.column + 1]
            length = words.index(-1) if -1 in words else len(words)
            part = slice(row.start, row.start + length)
            answers[row.request.index] = Rollout(
                tuple(row.request.prompt), tuple(words[:length]), tuple(values[part]), done[place], row.request.stream
            )
            self.rows[place] = None
        self._send_first()
        return answers

    def halve(self) -> None:
        """Where half of the places are free, the rows continue in a smaller graph: the last ones move into free places."""
        size = len(self.rows)
        while self.live <= size // 2 >= MIN_ROWS:
            size //= 2
        if size == len(self.rows):
            return
        beyond = [place for place in range(size, len(self.rows)) if self.rows[place] is not None]
        free = [place for place in range(size) if self.rows[place] is None][: len(beyond)]
        for source, target in zip(beyond, free, strict=True):
            self.rows[target] = self.rows[source]
        if beyond:
            buffers, device = self.buffers, self.buffers.first.device
            sources, targets = torch.tensor(beyond, device=device), torch.tensor(free, device=device)
            for tensor in (buffers.tokens, buffers.noise, buffers.done, buffers.output, buffers.logprobs):
                tensor[targets] = tensor[sources]
            buffers.cache[:, :, targets, :, : self.column] = buffers.cache[:, :, sources, :, : self.column]
        del self.rows[size:]
        self._send_first()

    def _move(self) -> None:
        """All rows to the left, as far as the longest one allows."""
        shift = min(row.first for row in self.rows if row is not None)
        assert shift > 0, "the columns hold the longest row and some spare ones"
        buffers, rows, column = self.buffers, len(self.rows), self.column
        for block in buffers.cache:  # a layer at a time: the copy is small
            block[:, :rows, :, : column - shift] = block[:, :rows, :, shift:column].clone()
        for tensor in (buffers.noise, buffers.output, buffers.logprobs):
            tensor[:rows, :-shift] = tensor[:rows, shift:].clone()
        for row in self.rows:
            if row is not None:
                row.first, row.start = row.first - shift, row.start - shift
        self._at(column - shift)
        self._send_first()

    def _at(self, column: int) -> None:
        self.column = column
        self.buffers.column.fill_(column)

    def _send_first(self) -> None:
        """A free place sees only the column that it writes."""
        first = torch.tensor([self.column if row is None else row.first for row in self.rows])
        self.buffers.first[: len(self.rows)].copy_(first)


def _new_buffers(decoder: FastDecoder, rows: int, columns: int) -> GraphBuffers:
    device = decoder.embedding.device

    def new(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    return GraphBuffers(
        tokens=new(rows), first=new(rows), cache=decoder.new_cache(rows, columns),
        noise=new(rows, 2 * columns, dtype=torch.float64), done=new(rows, dtype=torch.bool), output=new(rows, 2 * columns),
        logprobs=new(rows, 2 * columns, dtype=torch.float32), column=new(1), temperature=new(1, dtype=torch.float32),
    )  # fmt: skip
