"""Rows of prompt and answer one after the other, without padding; rows with the same prompt share it.

rows, predictors = pack(prompts, answers, device)       # (B, C): which packed token predicts each token of an answer
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedRows:
    """Prompts, each once, then answers, one after the other. `key_index` names the tokens that each segment attends to."""

    tokens: Tensor  # (N,)
    positions: Tensor  # (N,)
    key_index: Tensor  # (M,): into the tokens
    query_starts: Tensor  # (S + 1,) int32
    key_starts: Tensor  # (S + 1,) int32
    longest_query: int
    longest_key: int
    grids: dict[int | None, Any] = field(default_factory=dict, init=False, compare=False)  # by window: see forward_plain.py

    def to(self, device: torch.device) -> "PackedRows":
        """On another device, without waiting for it."""
        tensors = ("tokens", "positions", "key_index", "query_starts", "key_starts")
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in tensors})


def pack(prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], device: torch.device) -> tuple[PackedRows, Tensor]:
    """Rows of prompt and answer, equal prompts once; and where the state stands that predicts each token of each answer, (B, C).

    The last token of an answer predicts nothing and is left out. Beyond an answer's end stands 0.
    """
    shared = dict.fromkeys(map(tuple, prompts), 0)
    tokens, positions, keys = list[int](), list[int](), list[int]()
    query_lengths, key_lengths = list[int](), list[int]()

    def add(segment: Sequence[int], first_position: int, before: range) -> None:
        start = len(tokens)
        tokens.extend(segment)
        positions.extend(range(first_position, first_position + len(segment)))
        keys.extend([*before, *range(start, len(tokens))])
        query_lengths.append(len(segment))
        key_lengths.append(len(before) + len(segment))

    for prompt in shared:
        shared[prompt] = len(tokens)
        add(prompt, 0, range(0))
    predictors = torch.zeros(len(answers), max(map(len, answers)), dtype=torch.long)
    for row, (prompt, answer) in enumerate(zip(map(tuple, prompts), answers, strict=True)):
        end = shared[prompt] + len(prompt)
        predictors[row, 0] = end - 1
        if len(answer) > 1:
            predictors[row, 1 : len(answer)] = torch.arange(len(tokens), len(tokens) + len(answer) - 1)
            add(answer[:-1], len(prompt), range(shared[prompt], end))

    def on_device(values: list[int], dtype: torch.dtype = torch.long) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

    rows = PackedRows(
        tokens=on_device(tokens), positions=on_device(positions), key_index=on_device(keys),
        query_starts=on_device([0, *accumulate(query_lengths)], torch.int32),
        key_starts=on_device([0, *accumulate(key_lengths)], torch.int32),
        longest_query=max(query_lengths), longest_key=max(key_lengths),
    )  # fmt: skip
    return rows, predictors.to(device)


def pack_whole(rows: Sequence[Sequence[int]]) -> PackedRows:
    """Rows that share nothing, on the CPU, as a data loader makes them."""
    lengths = [len(row) for row in rows]
    starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return PackedRows(
        tokens=torch.tensor([token for row in rows for token in row]),
        positions=torch.tensor([position for length in lengths for position in range(length)]),
        key_index=torch.arange(sum(lengths)), query_starts=starts, key_starts=starts, longest_query=max(lengths),
        longest_key=max(lengths),
    )  # fmt: skip
