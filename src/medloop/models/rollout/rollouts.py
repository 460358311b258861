"""What sampling takes and gives: a request with its own random stream, and its answer as tokens."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """One answer as tokens; `ended` says that its last token is a stop token, else it was truncated at the limit."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    stream: str


@dataclass(frozen=True)
class RolloutRequest:
    """A prompt to answer; `index` is its place in the list of answers."""

    index: int
    prompt: Sequence[int]
    stream: str


def requests_for(prompts: Sequence[Sequence[int]], streams: Sequence[str]) -> list[RolloutRequest]:
    """One request per prompt, with its own stream."""
    return [RolloutRequest(index, *row) for index, row in enumerate(zip(prompts, streams, strict=True))]


def stream_seed(stream: str) -> int:
    """The seed of the random stream of this name."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "big") >> 1


def uniforms(stream: str, count: int) -> Tensor:
    """`count` numbers in [0, 1) from the stream of this name; the first ones do not depend on `count`."""
    return torch.rand(count, generator=torch.Generator().manual_seed(stream_seed(stream)), dtype=torch.float64)
