"""The servers that the contract is held against.

`served` is one of them: its address, the folder of its base model (served as "base") and two adapter folders. The embedded server is
always tried; real vLLM where VLLM_PYTHON names the interpreter of its environment (marker `vllm`; `make test-vllm`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from medloop.contracts import ModelRef
from medloop.models.find import resolve
from medloop.settings import Settings
from medloop.testing.models import random_adapter
from medloop.testing.vllm_server import vllm_server


@dataclass(frozen=True)
class Served:
    """`server_url` is without /v1."""

    server_url: str
    base: Path
    one: Path
    two: Path


@pytest.fixture(scope="session", params=["embedded", pytest.param("vllm", marks=pytest.mark.vllm)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if request.param == "embedded":
        base, folders = request.getfixturevalue("base"), request.getfixturevalue("adapters")
        yield Served(request.getfixturevalue("server").url, base, folders["one"], folders["two"])
        return
    python = os.environ.get("VLLM_PYTHON")
    if not python:
        pytest.skip("VLLM_PYTHON does not name the Python of a vLLM installation")
    folder = tmp_path_factory.mktemp("vllm")
    base = resolve(ModelRef(base="embedded:tiny"), Settings(home=folder)).folder
    one, two = random_adapter(folder / "one", base, 1), random_adapter(folder / "two", base, 2, r=2)
    with vllm_server(python, base) as url:
        yield Served(url, base, one, two)


@pytest.fixture
def server_url(served: Served) -> str:
    return served.server_url
