"""The next token of every row, each with its own temperature, top-p and random numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from medloop.models.rollout.decode import sample_tokens
from medloop.serve.server.wire import SamplingParams


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its log-probability before temperature and top-p, and the likeliest tokens at its place."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Drawn:
    """One row's token; None when the model's output is not finite."""

    token: int | None
    logprob: TokenLogprob | None = None


@torch.inference_mode()
def draw(logits: Tensor, params: Sequence[SamplingParams], streams: Sequence[random.Random]) -> list[Drawn]:
    """(B, V) -> a token for every row. The same seed gives the same tokens, whatever the row is batched with."""
    logits = logits.float()
    highest, greedy = logits.max(-1)
    best = torch.stack([highest.double(), greedy.double()]).tolist()  # one copy: a GPU waits for each
    tokens, finite = [int(token) for token in best[1]], [math.isfinite(value) for value in best[0]]
    sampled = [row for row, how in enumerate(params) if not how.greedy and finite[row]]
    if sampled:
        for row, token in zip(sampled, _sample(logits, sampled, params, streams), strict=True):
            tokens[row] = token
    reported = [row for row, how in enumerate(params) if how.logprobs is not None and finite[row]]
    logprobs = _logprobs(logits, reported, tokens, params) if reported else {}
    return [Drawn(token if finite[row] else None, logprobs.get(row)) for row, token in enumerate(tokens)]


def _sample(logits: Tensor, rows: list[int], params: Sequence[SamplingParams], streams: Sequence[random.Random]) -> list[int]:
    device = logits.device
    temperature = torch.tensor([params[row].temperature for row in rows], device=device)[:, None]
    scaled = logits[rows] / temperature
    if any(params[row].top_p < 1 for row in rows):
        scaled = _keep_top_p(scaled, torch.tensor([params[row].top_p for row in rows], device=device)[:, None])
    uniform = torch.tensor([streams[row].random() for row in rows], dtype=torch.float64, device=device)
    tokens: list[int] = sample_tokens(scaled, 1.0, uniform)[0].tolist()
    return tokens


def _keep_top_p(scaled: Tensor, top_p: Tensor) -> Tensor:
    """The likeliest tokens whose probabilities add up to top_p; the one that reaches it stays."""
    ordered, places = scaled.sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    beyond = probabilities.cumsum(-1) - probabilities >= top_p
    return torch.full_like(scaled, float("-inf")).scatter(1, places, ordered.masked_fill(beyond, float("-inf")))


def _logprobs(logits: Tensor, rows: list[int], tokens: list[int], params: Sequence[SamplingParams]) -> dict[int, TokenLogprob]:
    values = logits[rows].log_softmax(-1)
    chosen = values.gather(1, torch.tensor([[tokens[row]] for row in rows], device=logits.device))[:, 0].tolist()
    most = max(params[row].logprobs or 0 for row in rows)
    best = values.topk(min(most, values.shape[1]), dim=-1)
    best_values, best_tokens = best.values.tolist(), best.indices.tolist()
    return {
        row: TokenLogprob(
            tokens[row], chosen[place], tuple(zip(best_tokens[place], best_values[place], strict=True))[: params[row].logprobs]
        )
        for place, row in enumerate(rows)
    }
