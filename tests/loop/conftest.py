"""A workspace of one's own as the current folder, and its store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from medloop.settings import Settings
from medloop.store.db import Store, open_store


@pytest.fixture
def workspace(tmp_path: Path, new_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(new_workspace, tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    return tmp_path / "ws"


@pytest.fixture
def store(workspace: Path) -> Iterator[Store]:
    with open_store(Settings(home=workspace)) as store:
        yield store
