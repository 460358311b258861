"""A workspace with a small random model and ten questions; workers forked from a process with the heavy imports behind it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from job_runs import STARTED, finish, is_warm, make_workspace, outcome, submit, work

from medloop.settings import Settings
from medloop.testing.models import tiny_model
from medloop.testing.processes import fork_server


@pytest.fixture(scope="session")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory, small_base: Path) -> Settings:
    return make_workspace(tmp_path_factory.mktemp("made") / "clinic", small_base)


@pytest.fixture
def settings(workspace: Path, made_once: Settings) -> Settings:
    """A workspace of its own for each test: a copy, for it takes a quarter of a second to make one."""
    shutil.copytree(made_once.home, workspace, dirs_exist_ok=True)
    return made_once.model_copy(update={"home": workspace})


@pytest.fixture(scope="session")
def children():
    """A fork server whose children have the heavy imports behind them."""
    context = fork_server()
    assert finish(context, is_warm) == 0, "an import in medloop.testing.warm fails, and every child would make up for it"
    return context


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory, small_base: Path, children):
    """What runs that nobody disturbed leave, by stage; each is made once, when it is first asked for."""
    untouched = make_workspace(tmp_path_factory.mktemp("untouched") / "clinic", small_base)
    outcomes: dict[str, dict[str, Any]] = {}

    def of(stage: str) -> dict[str, Any]:
        if stage not in outcomes:
            job_id = submit(untouched, stage)
            assert finish(children, work, untouched, job_id) == 0
            outcomes[stage] = outcome(untouched, job_id)
        return outcomes[stage]

    return of


@pytest.fixture(autouse=True)
def no_child_stays():
    """A test that fails may leave a worker, even a stopped one, which would keep pytest from ending."""
    yield
    while STARTED:
        child = STARTED.pop()
        child.kill()
        child.join()
