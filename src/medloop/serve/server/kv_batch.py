"""Keys and values of the rows of a running batch, which enter and leave at every step.

The decoder of the rollouts writes one column for all rows. So every row ends at the same column: its first token stands where its
prompt fits before it. A row that leaves gives its place to the last one; when the columns run out, or a longer prompt needs more
of them, the rows are moved together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from medloop.models.rollout.decode import FastDecoder

COLUMN_MULTIPLE = 128
SPARE = 64  # columns beyond the longest row, so that rows are moved at most every 64 steps


class KvBatch:
    def __init__(self, decoder: FastDecoder, *, max_rows: int, max_length: int) -> None:
        self.decoder, self.max_rows, self.max_columns = decoder, max_rows, max_length + SPARE
        self.first: list[int] = []  # the column of each row's first token
        self.column = 0  # the next one to write
        self.device = decoder.embedding.device
        self.cache = decoder.new_cache(0, 0)  # (L, 2, B, K, T, D)
        self.attention_mask = torch.zeros(0, 0, dtype=torch.bool, device=self.device)
        self._first = torch.zeros(0, dtype=torch.long, device=self.device)

    def __len__(self) -> int:
        return len(self.first)

    def enter(self, keys_and_values: Tensor) -> None:
        """A row with the keys and values (L, 2, K, P, D) of its prompt; it is the last one."""
        length, place = keys_and_values.shape[3], len(self)
        assert place < self.max_rows, "the engine counts the rows"
        if not self.first:
            self.column = length
        elif self.column < length:
            self._move(length)
        self._reserve(place + 1, self.column + 1)
        start = self.column - length
        self.cache[:, :, place, :, start : self.column] = keys_and_values
        self.attention_mask[place] = False
        self.attention_mask[place, start : self.column] = True
        self.first.append(start)
        self._first = torch.tensor(self.first, device=self.device)

    def leave(self, place: int) -> None:
        """The last row takes the place of this one."""
        last, low = len(self) - 1, min(self.first)
        if place != last:
            self.cache[:, :, place] = 0
            self.cache[:, :, place, :, low : self.column] = self.cache[:, :, last, :, low : self.column]
            self.attention_mask[place] = self.attention_mask[last]
            self.first[place] = self.first[last]
        self.cache[:, :, last] = 0  # a number that is not finite would reach the next row here through its masked columns
        self.first.pop()
        self._first = torch.tensor(self.first, device=self.device)

    def step(self, tokens: Sequence[int]) -> Tensor:
        """The hidden state (B, H) after one more token of every row."""
        rows = len(self)
        column, low = self.take_column(rows), min(self.first)
        return self.decoder.step(
            torch.tensor(tokens, device=self.device), column - self._first, self.attention_mask[:rows, low:],
            self.cache[:, :, :rows, :, low:], column - low,
        )  # fmt: skip

    def take_column(self, rows: int) -> int:
        """The column that the next step writes, in memory for at least so many rows."""
        if self.column >= self.cache.shape[4]:
            self._make_room()
        self._reserve(rows, self.column + 1)
        self.attention_mask[: len(self), self.column] = True
        self.column += 1
        return self.column - 1

    def _make_room(self) -> None:
        """Move the rows to the left where that frees enough columns, else take more memory."""
        width = self.column - min(self.first)
        if width + SPARE <= self.cache.shape[4]:
            self._move(width)
        else:
            self._move(width)
            self._reserve(len(self), min(self.max_columns, max(width + SPARE, 2 * self.cache.shape[4])))

    def _move(self, column: int) -> None:
        """All rows so that the next column is `column`."""
        low, rows = min(self.first), len(self)
        width, shift = self.column - low, column - self.column
        assert column >= width, "a row would lose its beginning"
        if shift == 0:
            return
        self._reserve(rows, column + 1)
        for block in self.cache:  # a layer at a time: the copy is small
            block[:, :rows, :, column - width : column] = block[:, :rows, :, low : self.column].clone()
        self.attention_mask[:rows, column - width : column] = self.attention_mask[:rows, low : self.column].clone()
        self.attention_mask[:rows, : column - width] = False
        self.attention_mask[:rows, column:] = False
        self.first = [first + shift for first in self.first]
        self._first = torch.tensor(self.first, device=self.device)
        self.column = column

    def _reserve(self, rows: int, columns: int) -> None:
        """Memory for so many rows and columns; what is there stays."""
        have_rows, have_columns = self.attention_mask.shape
        if rows <= have_rows and columns <= have_columns:
            return
        new_rows = have_rows if rows <= have_rows else min(self.max_rows, max(rows, 2 * have_rows, 4))
        rounded = min(self.max_columns, -(-columns // COLUMN_MULTIPLE) * COLUMN_MULTIPLE)
        new_columns = max(have_columns, columns, rounded)
        cache = self.decoder.new_cache(new_rows, new_columns)
        mask = torch.zeros(new_rows, new_columns, dtype=torch.bool, device=self.device)
        live = len(self)
        if live:
            cache[:, :, :live, :, : self.column] = self.cache[:, :, :live, :, : self.column]
            mask[:live, : self.column] = self.attention_mask[:live, : self.column]
        self.cache, self.attention_mask = cache, mask
