"""The table of artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from medloop.errors import IntegrityError
from medloop.store import audit, catalog
from medloop.store.db import Store
from medloop.store.files.artifacts import new_artifact, verify_artifact


def make(path: Path, text: str) -> Path:
    with new_artifact(path, replace=path.exists()) as folder:
        (folder / "card.json").write_text(text)
    return path


def test_entries_are_found_by_kind_and_hash(store: Store) -> None:
    path = make(store.settings.workspace.models / "lora/first", "1")
    entry = catalog.register(store, "adapter", path, {"loss": 0.5, "note": "胸痛"}, actor="test")
    assert catalog.register(store, "adapter", path, {"loss": 0.5}, actor="test") == entry
    assert entry.path == path and entry.sha256 == verify_artifact(path).sha256
    assert catalog.newest(store, "adapter") == catalog.find(store, entry.sha256) == entry
    assert catalog.newest(store, "reward") is None
    assert audit.verify(store).rows == 1


def test_replaced_folder_is_a_new_entry(store: Store) -> None:
    path = store.settings.workspace.models / "lora/first"
    first = catalog.register(store, "adapter", make(path, "1"), {}, actor="test")
    second = catalog.register(store, "adapter", make(path, "2"), {}, actor="test")
    assert catalog.newest(store, "adapter") == second != first


def test_damaged_folder_is_not_entered(store: Store) -> None:
    path = make(store.settings.workspace.models / "lora/first", "1")
    (path / "card.json").write_text("2")
    with pytest.raises(IntegrityError):
        catalog.register(store, "adapter", path, {}, actor="test")
    assert catalog.newest(store, "adapter") is None
