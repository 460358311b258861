"""Sampling on CUDA without waiting for the processor: one step captured as a CUDA graph, then replayed.

Everything a step needs lies in tensors that never move: the tokens, the cache, the column to write, the random numbers, the
output. A replay draws one token for every row. The processor looks only every few steps whether all rows have ended; when half of
them have, the rest go on in a graph of half the size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from medloop.models.rollout.decode import Lean, draw

LOOK_EVERY = 16  # steps between two looks at what has ended
COLUMNS = 64  # cache lengths are multiples of this, so that few graphs serve many prompt lengths
SMALLEST = 8  # rows; a smaller graph would not be faster
GRAPHS = 8  # captured at most; each holds a cache


@dataclass
class Room:
    """The tensors of one graph."""

    tokens: Tensor  # (B,)
    positions: Tensor  # (B,)
    keep: Tensor  # (B, T)
    cache: Tensor  # (L, 2, B, K, T, D)
    noise: Tensor  # (B, N)
    done: Tensor  # (B,)
    out: Tensor  # (B, N)
    logprobs: Tensor  # (B, N)
    at: Tensor  # (1,): the column to write
    step: Tensor  # (1,): the token to draw
    temperature: Tensor  # (1,)
    graph: torch.cuda.CUDAGraph | None = None


class Graphs:
    """Captured steps by their shape."""

    def __init__(self, lean: Lean, stops: Tensor) -> None:
        self.lean, self.stops = lean, stops
        self._rooms: dict[tuple[int, int, int], Room] = {}

    def draw(self, ids: Tensor, keep: Tensor, of: Tensor, noise: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """ids (U, P) and keep (U, P + N) of left-padded prompts; row b answers prompt `of[b]` with noise[b] (B, N).

        Returns tokens and log-probabilities, (B, N).
        """
        (rows, steps), width = noise.shape, ids.shape[1]
        room = self._room(rows, -(-keep.shape[1] // COLUMNS) * COLUMNS, steps)
        _fill(room, keep[of], noise, temperature, width)
        positions = (keep[:, :width].long().cumsum(-1) - 1).clamp(min=0)
        cache = self.lean.new_cache(len(ids), width)
        hidden = self.lean.prefill(ids, positions, keep[:, :width], cache)
        room.cache[..., :width, :] = cache[:, :, of]
        room.positions.copy_(positions[of, -1])
        _take(room, self.lean.logits(hidden)[of], self.stops)
        tokens, logprobs = torch.full_like(room.out, -1), torch.zeros_like(room.logprobs)
        owners = torch.arange(rows, device=ids.device)
        for step in range(1, steps):
            if step % LOOK_EVERY == 0:
                left = int((~room.done).sum())
                if not left:
                    break
                if left <= len(room.done) // 2 >= SMALLEST:
                    tokens[owners], logprobs[owners] = room.out, room.logprobs
                    room, owners = self._halve(room, owners)
            self._replay(room)
        tokens[owners], logprobs[owners] = room.out, room.logprobs
        return tokens, logprobs

    def _room(self, rows: int, columns: int, steps: int) -> Room:
        key = (rows, columns, steps)
        if key not in self._rooms:
            while len(self._rooms) >= GRAPHS:
                del self._rooms[next(iter(self._rooms))]
            self._rooms[key] = _new_room(self.lean, *key)
        return self._rooms[key]

    def _replay(self, room: Room) -> None:
        if room.graph is None:
            room.graph = self._capture(room)
        room.graph.replay()

    def _capture(self, room: Room) -> torch.cuda.CUDAGraph:
        """Capturing runs nothing, but the runs that warm it up do: they work on the side and are undone."""
        changed = (room.tokens, room.positions, room.keep, room.done, room.out, room.logprobs, room.at, room.step)
        before = [tensor.clone() for tensor in changed]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step(room)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(room)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)  # the cache needs no undoing: its columns are written again before they are read
        return graph

    def _step(self, room: Room) -> None:
        room.keep.index_fill_(1, room.at, True)
        room.positions.add_(1)
        hidden = self.lean.step(room.tokens, room.positions, room.keep, room.cache, room.at)
        room.at.add_(1)
        _take(room, self.lean.logits(hidden), self.stops)

    def _halve(self, room: Room, owners: Tensor) -> tuple[Room, Tensor]:
        """The rows that go on, in a smaller room; places left over are filled with rows that have ended."""
        wanted = len(owners)
        left = int((~room.done).sum())
        while wanted // 2 >= max(left, SMALLEST):
            wanted //= 2
        chosen = torch.argsort(room.done.long(), stable=True)[:wanted]  # those that go on first
        small = self._room(wanted, room.keep.shape[1], room.noise.shape[1])
        for name in ("tokens", "positions", "keep", "noise", "done", "out", "logprobs"):
            getattr(small, name).copy_(getattr(room, name)[chosen])
        for name in ("at", "step", "temperature"):
            getattr(small, name).copy_(getattr(room, name))
        columns = int(room.at)
        small.cache[..., :columns, :] = room.cache[:, :, chosen, :, :columns]
        return small, owners[chosen]


def _new_room(lean: Lean, rows: int, columns: int, steps: int) -> Room:
    device = lean.embedding.device

    def new(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    return Room(
        tokens=new(rows), positions=new(rows), keep=new(rows, columns, dtype=torch.bool), cache=lean.new_cache(rows, columns),
        noise=new(rows, steps, dtype=torch.float64), done=new(rows, dtype=torch.bool), out=new(rows, steps),
        logprobs=new(rows, steps, dtype=torch.float32), at=new(1), step=new(1), temperature=new(1, dtype=torch.float32),
    )  # fmt: skip


def _fill(room: Room, keep: Tensor, noise: Tensor, temperature: float, width: int) -> None:
    room.keep.zero_()
    room.keep[:, : keep.shape[1]] = keep
    room.noise.copy_(noise)
    room.done.zero_()
    room.out.fill_(-1)
    room.logprobs.zero_()
    room.at.fill_(width)
    room.step.zero_()
    room.temperature.fill_(temperature)


def _take(room: Room, logits: Tensor, stops: Tensor) -> None:
    """Draw a token for every row that goes on and write it down."""
    chosen, logprob = draw(logits, room.temperature, room.noise.index_select(1, room.step)[:, 0])
    room.out.index_copy_(1, room.step, torch.where(room.done, -1, chosen)[:, None])
    room.logprobs.index_copy_(1, room.step, torch.where(room.done, 0.0, logprob)[:, None])
    room.done.logical_or_(torch.isin(chosen, stops))
    room.tokens.copy_(chosen)
    room.step.add_(1)
