"""Keys and values of prompts that were read before, so that a shared beginning is read once.

An entry belongs to the bytes of an adapter, not to its name: new weights under an old name never meet old keys. Entries are found
by blocks of tokens and compared token by token, and the least recently used ones are dropped at a limit of bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor

BLOCK = 16  # tokens: a shorter common beginning is computed again


class PrefixCache:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.bytes, self.hit_tokens = limit_bytes, 0, 0
        self._entries: OrderedDict[tuple[str, tuple[int, ...]], Tensor] = OrderedDict()
        self._blocks: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}  # a beginning -> the tokens of an entry with it

    def find(self, sha256: str, prompt: Sequence[int]) -> Tensor | None:
        """Keys and values (L, 2, K, n, D) of the longest known beginning, at most all but the last token of the prompt."""
        tokens = tuple(prompt)
        for length in range((len(tokens) - 1) // BLOCK * BLOCK, 0, -BLOCK):
            owner = self._blocks.get((sha256, tokens[:length]))
            if owner is not None:
                self._entries.move_to_end((sha256, owner))
                self.hit_tokens += length
                return self._entries[sha256, owner][:, :, :, :length]
        return None

    def store(self, sha256: str, prompt: Sequence[int], keys_and_values: Tensor) -> None:
        """(L, 2, K, P, D) of a prompt. Only whole blocks are kept, and nothing that is there already."""
        length = len(prompt) // BLOCK * BLOCK
        tokens = tuple(prompt[:length])
        size = keys_and_values[:, :, :, :length].numel() * keys_and_values.element_size()
        if not length or (sha256, tokens) in self._blocks or size > self.limit_bytes:
            return
        while self.bytes + size > self.limit_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[sha256, tokens] = keys_and_values[:, :, :, :length].clone()
        self.bytes += size
        for end in range(BLOCK, length + 1, BLOCK):
            self._blocks[sha256, tokens[:end]] = tokens

    def forget(self, sha256: str) -> None:
        for key in [key for key in self._entries if key[0] == sha256]:
            self._drop(key)

    def _drop(self, key: tuple[str, tuple[int, ...]]) -> None:
        entry = self._entries.pop(key)
        self.bytes -= entry.numel() * entry.element_size()
        sha256, tokens = key
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            if self._blocks.get((sha256, tokens[:end])) == tokens:
                del self._blocks[sha256, tokens[:end]]
