"""The running batch on the fast decoder of the rollouts: prompts enter together, every step adds a token to every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from medloop.errors import ModelError
from medloop.models.load import Loaded
from medloop.models.rollout.agreement import check_agreement
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.serve.server.adapter_file import AdapterWeights
from medloop.serve.server.graph_steps import GraphSteps, graphs_run
from medloop.serve.server.kv_batch import KvBatch
from medloop.serve.server.lora_slots import AdapterSlot, LoraSlots
from medloop.serve.server.prefix_cache import PrefixCache


@dataclass(frozen=True)
class Entering:
    """A prompt that becomes a row; `slot` is None for the base model."""

    prompt: Sequence[int]
    slot: AdapterSlot | None


class FastBatch:
    def __init__(self, loaded: Loaded, *, max_rows: int, max_length: int, prefix_bytes: int) -> None:
        """UnsupportedModelError when the fast decoder cannot stand in for this model."""
        self.decoder = build_fast_decoder(loaded.model)
        if self.decoder.max_positions < min(max_length, loaded.max_length):
            raise UnsupportedModelError(f"it rotates texts of more than {self.decoder.max_positions} tokens in another way")
        self.slots = LoraSlots(self.decoder, loaded.model)
        check_agreement(self.decoder, loaded.model)
        self.base_sha256, self.vocabulary = loaded.sha256, len(loaded.tokenizer)
        self.rows = KvBatch(self.decoder, max_rows=max_rows, max_length=max_length)
        self.graphs = GraphSteps(self.decoder, self.rows, self.slots, self.vocabulary) if graphs_run(self.decoder) else None
        self.prefixes = PrefixCache(prefix_bytes)
        self._row_slots: list[AdapterSlot | None] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def backend(self) -> str:
        return "fast" if self.graphs is None else "cuda_graph"

    @property
    def prefix_hit_tokens(self) -> int:
        return self.prefixes.hit_tokens

    def payload(self, weights: AdapterWeights) -> Any:
        parts = self.slots.parts(weights)
        if parts is None:
            raise ModelError(
                f"{weights.folder} changes layers other than the linear ones of the blocks", "Merge it into its base model"
            )
        return parts

    @torch.inference_mode()
    def enter(self, group: Sequence[Entering]) -> Tensor:
        """The logits (U, V) of each prompt's next token. The prompts are rows now, after the ones before, in order."""
        known = [self.prefixes.find(self._sha256(entering), entering.prompt) for entering in group]
        by_past: dict[int, list[int]] = {}
        for index, prefix in enumerate(known):
            by_past.setdefault(0 if prefix is None else prefix.shape[3], []).append(index)
        logits: dict[int, Tensor] = {}
        caches: dict[int, Tensor] = {}
        for past, indices in by_past.items():
            self._prefill([group[index] for index in indices], [known[index] for index in indices], past, indices, logits, caches)
        for index, entering in enumerate(group):
            self.prefixes.store(self._sha256(entering), entering.prompt, caches[index])
            self.rows.enter(caches[index])
            self._row_slots.append(entering.slot)
        return torch.stack([logits[index] for index in range(len(group))])

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Tensor:
        """The logits (B, V) after one more token of each row."""
        if self.graphs is not None:
            return self.graphs.step(tokens, self._row_slots)
        self.slots.use(self._row_slots)
        return self.decoder.logits(self.rows.step(tokens))[:, : self.vocabulary]

    @torch.inference_mode()
    def leave(self, place: int) -> None:
        """Remove a row; the last one takes its place."""
        self.rows.leave(place)
        self._row_slots[place] = self._row_slots[-1]
        self._row_slots.pop()

    def free(self, slot: AdapterSlot, *, bytes_in_use: bool) -> None:
        """The slot is used no more; its keys stay if another slot has the same bytes."""
        self.slots.forget(slot)
        if self.graphs is not None:
            self.graphs.forget(self.slots.kept_stacks)
        slot.payload = None
        if not bytes_in_use:
            self.prefixes.forget(slot.sha256)

    def _sha256(self, entering: Entering) -> str:
        return self.base_sha256 if entering.slot is None else entering.slot.sha256

    def _prefill(
        self, group: list[Entering], known: list[Tensor | None], past: int, indices: list[int], logits: dict[int, Tensor],
        caches: dict[int, Tensor],
    ) -> None:  # fmt: skip
        """Prompts whose first `past` tokens are known, padded on the left of the rest."""
        device, width = self.rows.device, max(len(entering.prompt) for entering in group) - past
        lengths = [len(entering.prompt) - past for entering in group]
        ids = [[0] * (width - n) + list(entering.prompt[past:]) for n, entering in zip(lengths, group, strict=True)]
        places = [[0] * (width - n) + list(range(past, past + n)) for n in lengths]
        attention_mask = torch.ones(len(group), past + width, dtype=torch.bool, device=device)
        cache = self.decoder.new_cache(len(group), past + width)
        for row, (n, prefix) in enumerate(zip(lengths, known, strict=True)):
            attention_mask[row, past : past + width - n] = False
            if prefix is not None:
                cache[:, :, row, :, :past] = prefix
        self.slots.use([entering.slot for entering in group])
        hidden = self.decoder.prefill(
            torch.tensor(ids, device=device), torch.tensor(places, device=device), attention_mask, cache, past
        )
        computed = self.decoder.logits(hidden)[:, : self.vocabulary]
        for row, (index, n) in enumerate(zip(indices, lengths, strict=True)):
            logits[index] = computed[row]
            new = cache[:, :, row, :, past + width - n :]
            caches[index] = torch.cat([cache[:, :, row, :, :past], new], dim=3) if past else new
