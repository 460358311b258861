"""kill -9 at 30 moments of registering and of promoting: the next command finds one truth, here and in MLflow."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from killed_registry import work_until
from registry_world import copy_workspace

from medloop.registry.mirror import open_mirror
from medloop.registry.promote import promote_in
from medloop.registry.reconcile import reconcile
from medloop.registry.register import register_in
from medloop.registry.verify import verify
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.integrity import verify_store
from medloop.store.records import registry
from medloop.testing.registry import examine, make_adapter

moments = pytest.mark.parametrize("moments", [2, pytest.param(30, marks=pytest.mark.slow)])


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    """The first version is champion; the second has passed the gate."""
    home = tmp_path / "clinic"
    copy_workspace(template, home)
    with open_store(Settings(home=home)) as store:
        first = make_adapter(store, "first")
        examine(store, first)
        examine(store, make_adapter(store, "second"), baseline=first)
        register_in(store, "first", actor="test")
        promote_in(store, 1, actor="test")
    return home


def assert_one_truth(home: Path) -> tuple[int, int | None]:
    """After the next command: the same versions and aliases on both sides, all rows genuine; (versions, champion)."""
    settings = Settings(home=home)
    with open_store(settings) as store:
        assert reconcile(store) is None
        report = verify(store)
        assert report.problems == () and verify_store(store).ok
        stored, held = registry.versions(store, settings.registry.model), registry.current(store, settings.registry.model)
        with open_mirror(settings) as mirror:
            assert (
                [version.number for version in mirror.versions()] == [s.mlflow_version for s in stored] == [1, 2][: len(stored)]
            )
            assert mirror.aliases() == {"champion": held["champion"].version}
        again = register_in(store, "second", actor="test").stored.record.version
        assert again == 2 and promote_in(store, 2, actor="test").lag is None and verify(store).problems == ()
        return len(stored), held["champion"].version


@moments
@pytest.mark.parametrize("work", ["register", "promote"])
def test_a_kill_leaves_one_truth(home: Path, tmp_path: Path, work: str, moments: int) -> None:
    if work == "promote":
        with open_store(Settings(home=home)) as store:
            register_in(store, "second", actor="test")
    shutil.copytree(home, tmp_path / "before")
    code, steps = work_until(home, work, 0)
    assert code == 0 and steps > 40
    outcomes = set()
    for number in range(moments):
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "before", home)
        code, _ = work_until(home, work, 1 + (number * (steps - 1)) // (moments - 1))
        assert code == -signal.SIGKILL
        outcomes.add(assert_one_truth(home))
    assert outcomes == ({(1, 1), (2, 1)} if work == "register" else {(2, 1), (2, 2)})
