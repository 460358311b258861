"""Fixtures of the teacher tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from teacher_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def first() -> Callable[[str, int], Callable[[int], str]]:
    """A fault for the first so many requests, then good service."""
    return lambda fault, count: lambda n: fault if n < count else "ok"
