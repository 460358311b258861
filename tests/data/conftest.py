"""Workspaces for the data stage; see data_desk.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
from data_desk import Desk, new_desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return new_desk(tmp_path / "desk")


@pytest.fixture
def desks(tmp_path: Path) -> Callable[[str], Desk]:
    return lambda name: new_desk(tmp_path / name)
