"""A workspace with an open store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "clinic")
    return tmp_path / "clinic"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with open_store(Settings(home=home)) as opened:
        yield opened
