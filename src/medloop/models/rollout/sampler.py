"""Rollouts: many samples from a policy, with the log-probability of every token under the temperature that drew it.

    sampler = Sampler(model, tokenizer, device)
    rows = sampler(prompts, streams, max_new_tokens=128, temperature=1.0)     # prompts: token ids; one Sampled each, in order
    sampler.refresh()                                                         # after the policy has learnt

Nothing is cut off the distribution (no top-k, no top-p, no penalty), or the log-probabilities would be of another policy. Every
row draws from a random stream of its own, named by the caller: the same name gives the same answer, whatever it is batched with.

There are three backends for the next token: the fast decode step (decode.py), where rows that have ended leave the batch; the
same step on CUDA as one captured graph; and the library's own forward pass for any other architecture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from medloop.errors import ModelError, ResultError
from medloop.models.rollout import decode as lean_forward
from medloop.models.rollout.decode import Lean, draw
from medloop.models.template import end_ids

Progress = Callable[[int, int], None]  # rows done, rows in all
COMPACT = 0.9  # rows leave the batch when at most this share is still alive


@dataclass(frozen=True)
class Rollout:
    """One answer as tokens; `ended` says that its last token is a stop token, else it was cut at the limit."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    stream: str


@dataclass(frozen=True)
class RolloutRequest:
    at: int
    prompt: Sequence[int]
    stream: str


class RolloutSampler(Protocol):
    """A policy as a function from prompts (token ids) to samples: `Sampler` here, `ServedSampler` by a server."""

    @property
    def way(self) -> str: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def __call__(
        self, prompts: Sequence[Sequence[int]], streams: Sequence[str], *, max_new_tokens: int, temperature: float = 1.0,
        batch_size: int = 64, progress: Progress | None = None,
    ) -> list[Rollout]: ...  # fmt: skip


class Sampler:
    """A policy as a function from prompts (token ids) to samples."""

    def __init__(self, model: Any, *, stop_ids: Sequence[int], pad_id: int, plain: bool = False) -> None:
        """`plain` takes the library's own forward in any case (the benchmark's other side)."""
        self.model = model
        self.device = next(model.parameters()).device
        self.stops = torch.tensor(sorted(set(stop_ids)), device=self.device)
        self.pad_id = pad_id
        self.lean = None if plain else lean_forward.build(model)
        self._graphs: Any = None

    @property
    def way(self) -> str:
        """How tokens are made: lean, graph (CUDA) or library."""
        return "library" if self.lean is None else "graph" if self.device.type == "cuda" else "lean"

    def refresh(self) -> None:
        """The adapter has changed."""
        if self.lean is not None:
            self.lean.refresh()

    def close(self) -> None:
        """Nothing is held that the model does not hold."""

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[str],
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 64,
        progress: Progress | None = None,
    ) -> list[Rollout]:
        """One sample per prompt, in order. Prompts of like length are batched, longest first; equal ones are read once."""
        assert temperature > 0 and len(prompts) == len(streams), "rollouts are drawn, one stream per prompt"
        rows = [RolloutRequest(at, *both) for at, both in enumerate(zip(prompts, streams, strict=True))]
        rows.sort(key=lambda row: (-len(row.prompt), tuple(row.prompt), row.at))
        found: dict[int, Rollout] = {}
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            found.update(self._batch(batch, max_new_tokens, temperature))
            if progress is not None:
                progress(len(found), len(rows))
        if not all(all(-1e30 < value <= 1e-3 for value in row.logprobs) for row in found.values()):
            raise ModelError(
                "The policy's output is not finite (NaN or infinity)", "Its weights are damaged or training diverged; use another"
            )
        return [found[at] for at in range(len(rows))]

    def _batch(self, batch: list[RolloutRequest], max_new_tokens: int, temperature: float) -> dict[int, Rollout]:
        """Draw one batch; when memory runs out, its halves."""
        try:
            return self._draw(batch, max_new_tokens, temperature)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ResultError("There is not enough memory for a single sample", "Ask for fewer tokens, or use a smaller model")
        half = len(batch) // 2
        first, second = self._batch(batch[:half], max_new_tokens, temperature), batch[half:]
        return first | self._batch(second, max_new_tokens, temperature)

    @torch.inference_mode()
    def _draw(self, batch: list[RolloutRequest], max_new_tokens: int, temperature: float) -> dict[int, Rollout]:
        distinct = list(dict.fromkeys(tuple(row.prompt) for row in batch))
        owner = {prompt: at for at, prompt in enumerate(distinct)}
        of = torch.tensor([owner[tuple(row.prompt)] for row in batch], device=self.device)  # (B,): which prompt a row answers
        width = len(distinct[0])
        ids = torch.tensor([[self.pad_id] * (width - len(prompt)) + list(prompt) for prompt in distinct], device=self.device)
        keep = torch.zeros(len(distinct), width + max_new_tokens, dtype=torch.bool, device=self.device)  # (U, T)
        for at, prompt in enumerate(distinct):
            keep[at, width - len(prompt) : width] = True
        noise = torch.stack([uniforms(row.stream, max_new_tokens) for row in batch]).to(self.device)  # (B, N)
        if self.lean is not None and self.device.type == "cuda":
            from medloop.models.rollout.cuda_graph import Graphs

            self._graphs = self._graphs or Graphs(self.lean, self.stops)
            tokens, logprobs = self._graphs.draw(ids, keep, of, noise, temperature)
        else:
            tokens, logprobs = self._loop(ids, keep, of, noise, temperature)
        return dict(_samples(batch, tokens.cpu(), logprobs.cpu(), set(self.stops.tolist())))

    def _loop(self, ids: Tensor, keep: Tensor, of: Tensor, noise: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """(B, N) tokens and log-probabilities; behind the end of a row stand -1 and 0."""
        rows, steps = noise.shape
        tokens = torch.full((rows, steps), -1, device=ids.device)
        logprobs = torch.zeros(rows, steps, device=ids.device)
        alive, going = torch.arange(rows, device=ids.device), torch.ones(rows, dtype=torch.bool, device=ids.device)
        ahead: Ahead = _Library(self.model, ids, keep) if self.lean is None else _LeanRun(self.lean, ids, keep)
        logits = ahead.first()
        if len(ids) < rows:
            ahead.select(of)
            logits = logits[of]
        for step in range(steps):
            chosen, logprob = draw(logits, temperature, noise[alive, step])
            tokens[alive[going], step], logprobs[alive[going], step] = chosen[going], logprob[going]
            going = going & ~torch.isin(chosen, self.stops)
            left = int(going.sum())
            if not left or step == steps - 1:
                break
            if left <= COMPACT * len(going):
                kept = going.nonzero().squeeze(1)
                ahead.select(kept)
                alive, chosen, going = alive[kept], chosen[kept], going[kept]
            logits = ahead.next(chosen)
        return tokens, logprobs


class Ahead(Protocol):
    """A batch on its way: logits (B, V) of the next token, one after the other."""

    def first(self) -> Tensor: ...

    def next(self, tokens: Tensor) -> Tensor: ...

    def select(self, rows: Tensor) -> None: ...


class _LeanRun:
    def __init__(self, lean: Lean, ids: Tensor, keep: Tensor) -> None:
        self.lean, self.ids, self.keep, self.at = lean, ids, keep, ids.shape[1]
        self.positions = _positions(keep[:, : self.at])  # (B, T)
        self.cache = lean.new_cache(len(ids), keep.shape[1])

    def first(self) -> Tensor:
        hidden = self.lean.prefill(self.ids, self.positions, self.keep[:, : self.at], self.cache)
        self.positions = self.positions[:, -1]
        return self.lean.logits(hidden)

    def next(self, tokens: Tensor) -> Tensor:
        self.positions = self.positions + 1
        self.keep[:, self.at] = True
        hidden = self.lean.step(tokens, self.positions, self.keep, self.cache, self.at)
        self.at += 1
        return self.lean.logits(hidden)

    def select(self, rows: Tensor) -> None:
        self.keep, self.positions = self.keep[rows], self.positions[rows]
        self.cache = self.cache[:, :, rows]


class _Library:
    def __init__(self, model: Any, ids: Tensor, keep: Tensor) -> None:
        config = model.get_base_model().config if hasattr(model, "peft_config") else model.config
        self.model, self.ids, self.mask, self.cache = model, ids, keep[:, : ids.shape[1]].long(), DynamicCache(config=config)
        self.positions = _positions(self.mask)

    def first(self) -> Tensor:
        return self._logits(self.ids, self.positions)

    def next(self, tokens: Tensor) -> Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)
        self.positions = self.positions[:, -1:] + 1
        return self._logits(tokens[:, None], self.positions)

    def select(self, rows: Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.mask, self.positions = self.mask[rows], self.positions[rows]

    def _logits(self, ids: Tensor, positions: Tensor) -> Tensor:
        found = self.model(
            input_ids=ids, attention_mask=self.mask, position_ids=positions, past_key_values=self.cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        logits: Tensor = found.logits[:, -1]
        return logits


def uniforms(stream: str, count: int) -> Tensor:
    """`count` numbers in [0, 1) from the stream of this name; the first ones do not depend on `count`."""
    seed = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "big") >> 1
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends an answer: of the generation settings, the tokenizer, and the chat template."""
    named = model.generation_config.eos_token_id
    several = named if isinstance(named, list) else [named]
    return sorted({i for i in (*several, tokenizer.eos_token_id, end_ids(tokenizer)[-1]) if i is not None})


def _positions(keep: Tensor) -> Tensor:
    return (keep.long().cumsum(-1) - 1).clamp(min=0)


def _samples(batch: list[RolloutRequest], tokens: Tensor, logprobs: Tensor, stops: set[int]) -> list[tuple[int, Rollout]]:
    found = []
    for row, line, values in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
        length = line.index(-1) if -1 in line else len(line)
        said = Rollout(tuple(row.prompt), tuple(line[:length]), tuple(values[:length]), line[length - 1] in stops, row.stream)
        found.append((row.at, said))
    return found
