"""The base model, its adapters by name, and the engine that serves them.

    service = ModelService(loaded, name="embedded:tiny", config=ServeConfig())
    service.start(deliver)
    await service.load_adapter("champion-v12", Path("models/lora/champion-v12"))
    service.submit(...)

Names are looked up, switched and removed in the thread of the event loop alone, so a request and a switch never cross: a request
belongs to the slot that the name meant when it was accepted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.errors import MedloopError, ModelError
from medloop.models.load import Loaded
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.models.rollout.sampler import stop_ids
from medloop.serve.server.adapter_file import read_adapter
from medloop.serve.server.engine import Deliver, Engine, RunningBatch
from medloop.serve.server.fast_batch import FastBatch
from medloop.serve.server.generation import Generation
from medloop.serve.server.library_batch import LibraryBatch
from medloop.serve.server.lora_slots import AdapterSlot
from medloop.serve.server.refusal import Refusal
from medloop.serve.server.serve_metrics import ServeMetrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServeConfig:
    max_rows: int = 16
    """Requests computed together."""
    queue_places: int = 128
    """Requests that wait at most; one client may hold three quarters of the places."""
    max_length: int | None = None
    """Tokens of prompt and answer together (default: what the model can read)."""
    prefix_mb: int = 256
    """Megabytes of keys and values kept for prompts with a common beginning; 0 keeps none."""
    max_adapters: int = 32
    """Adapters loaded at once."""


class ModelService:
    def __init__(self, loaded: Loaded, *, name: str, config: ServeConfig | None = None, library: bool = False) -> None:
        """`library` takes the library's own forward pass in any case."""
        self.config = config or ServeConfig()
        self.loaded, self.tokenizer, self.name = loaded, loaded.tokenizer, name
        self.max_length = min(loaded.max_length, self.config.max_length or loaded.max_length)
        self.metrics = ServeMetrics()
        self.adapters: dict[str, AdapterSlot] = {}
        self.created = int(time.time())
        self.draining = False
        self.batch = self._batch(library)
        self.engine: Engine | None = None
        self._loading = asyncio.Lock()

    def _batch(self, library: bool) -> RunningBatch:
        if not library:
            try:
                return FastBatch(
                    self.loaded, max_rows=self.config.max_rows, max_length=self.max_length,
                    prefix_bytes=self.config.prefix_mb * 2**20,
                )  # fmt: skip
            except UnsupportedModelError as error:
                log.warning(
                    "Serving uses the library's forward pass, one request after another within each step, because the fast "
                    "decoder does not fit this model: %s. Eight clients take about eight times as long as one.", error,
                )  # fmt: skip
        return LibraryBatch(self.loaded)

    def start(self, deliver: Deliver) -> None:
        self.engine = Engine(
            self.batch, decode=self.decode, stop_ids=stop_ids(self.loaded.model, self.tokenizer), deliver=deliver,
            metrics=self.metrics, max_rows=self.config.max_rows, queue_places=self.config.queue_places,
        )  # fmt: skip
        for slot in self.adapters.values():
            self.engine.add_slot(slot)
        self.engine.start()

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()

    @property
    def running_engine(self) -> Engine:
        if self.engine is None:
            raise Refusal(503, "The server is starting", retry_after_s=1)
        return self.engine

    @property
    def ready(self) -> bool:
        return self.engine is not None and self.engine.alive and not self.draining

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool) -> str:
        if not self.tokenizer.clean_up_tokenization_spaces:
            text: str = self.tokenizer.backend_tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)
            return text
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def slot_for(self, model: str | None) -> AdapterSlot | None:
        """The slot that a name means now; None is the base model."""
        if model is None or model == self.name:
            return None
        if model not in self.adapters:
            raise Refusal(404, f"The model `{model[:200]}` does not exist.", param="model")
        return self.adapters[model]

    def submit(self, generation: Generation) -> None:
        if self.draining:
            raise Refusal(503, "The server is shutting down", retry_after_s=5)
        self.running_engine.submit(generation)

    def read(self, name: str, folder: Path) -> AdapterSlot:
        """A verified adapter as a slot; nothing is served by it yet."""
        weights = read_adapter(folder, self.loaded.model, base=self.loaded.name, base_sha256=self.loaded.sha256)
        payload = self.batch.payload(weights)
        return AdapterSlot(name, str(folder), weights.sha256, weights.rank, payload)

    async def load_adapter(self, name: str, folder: Path, *, in_place: bool = False) -> AdapterSlot:
        """vLLM's texts. With `in_place` the name is switched to the new slot at once; running requests keep the old one."""
        async with self._loading:
            if name == self.name:
                raise _invalid(f"The lora adapter '{name}' has the name of the base model.")
            if name in self.adapters and not in_place:
                raise _invalid(
                    f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to True."
                )
            if name not in self.adapters and len(self.adapters) >= self.config.max_adapters:
                raise _invalid(f"This server holds {self.config.max_adapters} adapters at most. Unload one first.")
            if not await asyncio.to_thread(_is_folder, folder):
                raise Refusal(404, f"Loading lora {name} failed: No adapter found for {folder}")
            try:
                slot = await asyncio.to_thread(self.read, name, folder)
            except (MedloopError, OSError) as error:
                why = error if isinstance(error, MedloopError) else type(error).__name__
                raise Refusal(400, f"Loading lora {name} failed: {why}") from None
            self.running_engine.add_slot(slot)
            old = self.adapters.get(name)
            self.adapters[name] = slot
            if old is not None:
                self.running_engine.retire(old)
        log.info("loaded adapter %s (%s)", name, slot.sha256)
        return slot

    def unload_adapter(self, name: str) -> None:
        slot = self.adapters.pop(name, None)
        if slot is None:
            raise Refusal(404, f"The lora adapter '{name}' cannot be found.")
        self.running_engine.retire(slot)
        log.info("unloaded adapter %s", name)

    def add_first_adapters(self, folders: dict[str, Path]) -> None:
        """Before the engine runs: those of the command line."""
        for name, folder in folders.items():
            if name == self.name or name in self.adapters:
                raise ModelError(f"The name '{name}' is given to two models", "Give each adapter a name of its own")
            self.adapters[name] = self.read(name, folder)

    def model_cards(self) -> list[dict[str, Any]]:
        base = self._card(self.name, self.loaded.name, None, self.created, self.loaded.sha256)
        return [base, *(self._card(n, s.root, self.name, s.created, s.sha256) for n, s in self.adapters.items())]

    def _card(self, name: str, root: str, parent: str | None, created: int, sha256: str) -> dict[str, Any]:
        slot = self.adapters.get(name)
        medloop = {"sha256": sha256, "base_sha256": self.loaded.sha256, "requests": 0 if slot is None else slot.references}
        return {
            "id": name, "object": "model", "created": created, "owned_by": "medloop", "root": root, "parent": parent,
            "max_model_len": self.max_length, "permission": [], "medloop": medloop,
        }  # fmt: skip


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False


def _invalid(message: str) -> Refusal:
    return Refusal(400, message, kind="InvalidUserInput")
