"""A workspace with a small random model and made-up records, and children that can be killed."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.testing.models import tiny_model
from medloop.testing.processes import fork_server


def example(number: int, rng: random.Random) -> dict:
    question = f"Case {number}: " + "pain " * rng.randint(1, 6)
    answer = f"<think>kind {number % 5}</think>" + "Rest and drink. " * rng.randint(1, 4)
    return {"id": f"r{number}", "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


@pytest.fixture(scope="session")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "base")


def make_workspace(home: Path, model: Path) -> Settings:
    """53 training examples, so that the last batch of an epoch is not full."""
    processed, rng = home / "data/processed", random.Random(0)
    init_workspace(home)
    for name, count in (("train", 53), ("dev", 9)):
        (processed / f"{name}.jsonl").write_text("".join(json.dumps(example(n, rng)) + "\n" for n in range(count)))
    return Settings(home=home, model=str(model), device="cpu", threads=1, offline=True)


@pytest.fixture(scope="session")
def new_workspace(small_base: Path) -> Callable[[Path], Settings]:
    """Makes one in a folder, for modules that keep their own."""
    return lambda home: make_workspace(home, small_base)


@pytest.fixture
def settings(tmp_path: Path, small_base: Path) -> Settings:
    return make_workspace(tmp_path, small_base)


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory, small_base: Path) -> Settings:
    """A workspace that all tests of a session share."""
    return make_workspace(tmp_path_factory.mktemp("untouched"), small_base)


@pytest.fixture(scope="session")
def children():
    """Processes forked from one that has the heavy imports behind it: starting and killing them is cheap."""
    return fork_server()
