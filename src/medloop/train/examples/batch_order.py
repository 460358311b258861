"""The order in which a trainer sees its examples: like lengths together, so that batches carry little padding.

The order is a function of seed and epoch alone: a resumed run makes it again.
"""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

WINDOW = 50  # batches; examples are sorted by length only within a window, so the order stays nearly random


class LengthGroupedSampler(Sampler[int]):
    """A shuffled order in which neighbours have like lengths."""

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = lengths, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        windows = [sorted(window, key=lambda i: self.lengths[i]) for window in _pieces(order, self.batch_size * WINDOW)]
        batches = _pieces([i for window in windows for i in window], self.batch_size)
        last = batches.pop() if len(batches[-1]) < self.batch_size else []  # an incomplete batch must stay the last
        for number in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[number]
        yield from last


class LabelMixedSampler(LengthGroupedSampler):
    """Fixed batches in which both labels are in proportion; only the order of the batches changes with the epoch."""

    def __init__(self, lengths: list[int], labels: Sequence[bool], batch_size: int, seed: int) -> None:
        super().__init__(lengths, batch_size, seed)
        order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).tolist()
        mixed = [i for window in _pieces(order, batch_size * WINDOW) for i in self._mix(window, labels)]
        self.batches = _pieces(mixed, batch_size)

    def _mix(self, window: list[int], labels: Sequence[bool]) -> list[int]:
        """By length within each label, the labels in proportion: the nth of 100 liked beside the nth of 100 not liked."""
        places: dict[int, float] = {}
        for label in (True, False):
            alike = sorted((i for i in window if labels[i] == label), key=lambda i: self.lengths[i])
            places |= {i: (rank + 0.5) / len(alike) for rank, i in enumerate(alike)}
        return sorted(window, key=lambda i: places[i])

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        full = [batch for batch in self.batches if len(batch) == self.batch_size]
        for number in torch.randperm(len(full), generator=generator).tolist():
            yield from full[number]
        yield from (i for batch in self.batches[len(full) :] for i in batch)


def _pieces(order: list[int], size: int) -> list[list[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]
