"""A workspace whose splits a test can fill, as `medloop data prepare` leaves them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.contracts import Record
from medloop.settings import Settings
from medloop.store.files import jsonl


@pytest.fixture
def workspace(tmp_path: Path, new_workspace: Path) -> Path:
    return Path(shutil.copytree(new_workspace, tmp_path / "clinic"))


@pytest.fixture
def settings(workspace: Path) -> Settings:
    return Settings(home=workspace)


@pytest.fixture
def put_split(workspace: Path) -> Callable[[str, list[Record]], Path]:
    def put(name: str, records: list[Record]) -> Path:
        path = workspace / "data/processed" / name
        jsonl.write(path, records)
        return path

    return put
