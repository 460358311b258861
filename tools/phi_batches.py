"""Batches of rows of unequal length, for both trainers of networks that find names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Row = tuple[np.ndarray, np.ndarray]  # ids of each token (T, ...) and its tags (T,)


def batches(
    rows: Sequence[Row],
    rng: np.random.Generator,
    size: int,
    no_id: int,
    no_tag: int,
    change: Callable[[np.ndarray], Any] = lambda ids: None,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows of about the same length together, in random order; `no_id` and `no_tag` fill them up, `change` may alter the ids."""
    rows = sorted((rows[index] for index in rng.permutation(len(rows))), key=lambda row: len(row[0]))
    result = []
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        longest = max(len(ids) for ids, _ in batch)
        ids = np.full((len(batch), longest, *batch[0][0].shape[1:]), no_id, np.int64)
        tags = np.full((len(batch), longest), no_tag, batch[0][1].dtype)
        for i, (row_ids, row_tags) in enumerate(batch):
            ids[i, : len(row_ids)], tags[i, : len(row_tags)] = row_ids, row_tags
        change(ids)
        result.append((torch.from_numpy(ids), torch.from_numpy(tags)))
    return [result[index] for index in rng.permutation(len(result))]
