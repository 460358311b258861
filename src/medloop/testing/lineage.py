"""A small lineage for tests and benchmarks: sealed folders with cards as the trainers write them, in the catalog."""

import json
from pathlib import Path
from typing import Any

from medloop.store import catalog
from medloop.store.catalog import CatalogEntry
from medloop.store.db import Store
from medloop.store.files.artifacts import new_artifact

ZERO = "sha256:" + "0" * 64


def make_model(
    store: Store, path: str, *, inputs: dict[str, str], parent: str | None = None, method: str = "sft", kind: str = "adapter",
    files: dict[str, str] | None = None, **more: Any,
) -> CatalogEntry:  # fmt: skip
    """A model whose card names these inputs by hash; its weights are the bytes of its path."""
    card = {
        "name": Path(path).name, "method": method, "base": "embedded:tiny", "base_sha256": ZERO, "inputs": inputs, "config": {},
        "seed": 1, "trainable_parameters": 1, "total_parameters": 2, "versions": {}, "started": "2026-02-03T12:00:00Z",
        "finished": "2026-02-03T12:00:01Z", **({"parent": parent} if parent else {}), **more,
    }  # fmt: skip
    folder = store.settings.home / path
    with new_artifact(folder, replace=folder.exists()) as temp:
        (temp / "card.json").write_text(json.dumps(card), encoding="utf-8")
        (temp / "adapter_config.json").write_text("{}", encoding="utf-8")
        (temp / "adapter_model.safetensors").write_bytes(_safetensors(f"{path} {inputs} {parent}".encode()))
        for name, text in (files or {}).items():
            content = text.encode()
            (temp / name).write_bytes(_safetensors(content) if name.endswith(".safetensors") else content)
    return catalog.register(store, kind, folder, card, actor="test")


def _safetensors(data: bytes) -> bytes:
    header = json.dumps({"bytes": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return len(header).to_bytes(8, "little") + header + data
