"""The servers that the contract is held against.

`served` is one of them: its address, the base's name, a folder of the base model and two adapter folders. The embedded server is
always tried; real vLLM where its environment is (marker `vllm`, `make test-vllm`): MEDLOOP_VLLM_URL is the address of a server
that was started with the model folder MEDLOOP_VLLM_MODEL under the name `base`, with runtime LoRA updating on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from medloop.testing.models import random_adapter


@dataclass(frozen=True)
class Served:
    """`server_url` is without /v1."""

    server_url: str
    base: Path
    one: Path
    two: Path
    kind: str


@pytest.fixture(scope="session", params=["embedded", pytest.param("vllm", marks=pytest.mark.vllm)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if request.param == "embedded":
        base, folders = request.getfixturevalue("base"), request.getfixturevalue("adapters")
        url = request.getfixturevalue("server").url
    else:
        url, base = os.environ["MEDLOOP_VLLM_URL"].rstrip("/"), Path(os.environ["MEDLOOP_VLLM_MODEL"])
        folder = tmp_path_factory.mktemp("vllm")
        folders = {"one": random_adapter(folder / "one", base, 1), "two": random_adapter(folder / "two", base, 2, r=2)}
    yield Served(url, base, folders["one"], folders["two"], request.param)


@pytest.fixture
def server_url(served: Served) -> str:
    return served.server_url
