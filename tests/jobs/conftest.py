"""A workspace with a small random model and ten questions; workers forked from a process with the heavy imports behind it."""

import multiprocessing
from pathlib import Path

import pytest
from job_runs import STARTED, make_workspace

from medloop.settings import Settings
from medloop.testing.models import tiny_model


@pytest.fixture(scope="session")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture
def settings(workspace: Path, small_base: Path) -> Settings:
    return make_workspace(workspace, small_base)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory, small_base: Path) -> Settings:
    """A workspace that the tests of a file share."""
    return make_workspace(tmp_path_factory.mktemp("untouched") / "clinic", small_base)


@pytest.fixture(scope="session")
def children():
    context = multiprocessing.get_context("forkserver")
    stages = ["medloop.jobs.stages", "medloop.train.irs", "medloop.train.ppo", "medloop.train.grpo"]
    books = ["medloop.store.db", "medloop.store.catalog", "sqlalchemy.dialects.sqlite", "matplotlib.figure"]
    context.set_forkserver_preload([*stages, *books])
    return context


@pytest.fixture(autouse=True)
def no_child_stays():
    """A test that fails may leave a worker, even a stopped one, which would keep pytest from ending."""
    yield
    while STARTED:
        child = STARTED.pop()
        child.kill()
        child.join()
