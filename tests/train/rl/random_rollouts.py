"""Random tensors of a batch of answers, for the tests of the mathematics."""

import math

import torch

KINDS = ("grpo", "bnpo", "dr_grpo", "dapo")


def rollouts(seed: int = 0, rows: int = 6, columns: int = 7, dtype: torch.dtype = torch.float64) -> dict:
    """Random answers of different lengths, right-padded."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, columns + 1, (rows,), generator=draw)
    names = ("logprobs", "old", "reference", "values", "old_values", "rewards", "advantages")
    tensors = {name: torch.randn(rows, columns, generator=draw, dtype=dtype) for name in names}
    return {**tensors, "mask": torch.arange(columns) < lengths[:, None], "scores": torch.randn(rows, generator=draw, dtype=dtype)}


def padded(batch: dict, left: int, right: int, filler: float = math.nan) -> dict:
    """The same rollouts with columns of rubbish around them."""

    def pad(x):
        return x if x.dim() == 1 else torch.nn.functional.pad(x, (left, right), value=False if x.dtype == torch.bool else filler)

    return {name: pad(x) for name, x in batch.items()}
