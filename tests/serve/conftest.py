"""One server with a random model and two adapters for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from medloop.testing.model_server import model_server
from medloop.testing.models import random_adapter, tiny_model


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("serve") / "base")


@pytest.fixture(scope="session")
def adapters(base: Path) -> dict[str, Path]:
    return {
        "one": random_adapter(base.parent / "one", base, 1),
        "two": random_adapter(base.parent / "two", base, 2, r=2, target_modules=["q_proj", "down_proj"]),
    }


@pytest.fixture(scope="session")
def server(base: Path, adapters: dict[str, Path]) -> Iterator[Any]:
    with model_server(str(base), adapters=adapters, max_rows=8, queue_places=64) as running:
        yield running
