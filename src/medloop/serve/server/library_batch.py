"""The running batch on the library's own forward pass, for architectures that the fast decoder does not know.

Each row has its own cache and is computed by itself, so a step takes as long as all its rows one after another. There is no reuse
of prompts. Adapters are peft's, switched on for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from peft import PeftModel, get_peft_model, set_peft_model_state_dict
from torch import Tensor
from transformers import DynamicCache

from medloop.models.load import Loaded
from medloop.serve.server.adapter_file import AdapterWeights
from medloop.serve.server.fast_batch import Entering
from medloop.serve.server.lora_slots import AdapterSlot


@dataclass
class _LibraryRow:
    cache: Any
    slot: AdapterSlot | None


class LibraryBatch:
    backend = "library"
    prefix_hit_tokens = 0

    def __init__(self, loaded: Loaded) -> None:
        self.model, self.device, self.vocabulary = loaded.model, loaded.device, len(loaded.tokenizer)
        self.config = loaded.model.config
        self._rows: list[_LibraryRow] = []
        self._names: dict[int, str] = {}  # slots to the names that peft knows their weights by
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._rows)

    def payload(self, weights: AdapterWeights) -> Any:
        """The weights as they are: they are put on the model by the engine's thread, when the first request needs them."""
        return weights

    @torch.inference_mode()
    def enter(self, group: Sequence[Entering]) -> Tensor:
        rows = [_LibraryRow(DynamicCache(config=self.config), entering.slot) for entering in group]
        logits = [self._logits(row, entering.prompt) for row, entering in zip(rows, group, strict=True)]
        self._rows += rows
        return torch.stack(logits)

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Tensor:
        return torch.stack([self._logits(row, [token]) for row, token in zip(self._rows, tokens, strict=True)])

    def leave(self, place: int) -> None:
        self._rows[place] = self._rows[-1]
        self._rows.pop()

    def free(self, slot: AdapterSlot, *, bytes_in_use: bool) -> None:
        name = self._names.pop(id(slot), None)
        slot.payload = None
        if name is not None:
            if len(self.model.peft_config) == 1:
                self.model = self.model.unload()
            else:
                self.model.set_adapter(next(other for other in self.model.peft_config if other != name))
                self.model.delete_adapter(name)

    def _logits(self, row: _LibraryRow, tokens: Sequence[int]) -> Tensor:
        arguments = {
            "input_ids": torch.tensor([list(tokens)], device=self.device), "past_key_values": row.cache, "use_cache": True,
            "logits_to_keep": 1,
        }  # fmt: skip
        if row.slot is None and isinstance(self.model, PeftModel):
            with self.model.disable_adapter():
                output = self.model(**arguments)
        else:
            if row.slot is not None:
                self.model.set_adapter(self._name(row.slot)) if self._has(row.slot) else self._put(row.slot)
            output = self.model(**arguments)
        logits: Tensor = output.logits[0, -1, : self.vocabulary]
        return logits

    def _has(self, slot: AdapterSlot) -> bool:
        return id(slot) in self._names

    def _name(self, slot: AdapterSlot) -> str:
        return self._names[id(slot)]

    def _put(self, slot: AdapterSlot) -> None:
        name = f"slot{next(self._numbers)}"
        weights: AdapterWeights = slot.payload
        with torch.inference_mode(False):
            if isinstance(self.model, PeftModel):
                self.model.add_adapter(name, weights.config)
            else:
                self.model = get_peft_model(self.model, weights.config, adapter_name=name)
            set_peft_model_state_dict(self.model, weights.tensors, adapter_name=name)
        self.model.eval()
        self.model.set_adapter(name)
        self._names[id(slot)] = name
