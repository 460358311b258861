"""Which cycle `medloop loop` goes on with: rounds of online learning stay rounds, and an erasure reaches older cycles too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))
from deploy_world import add_versions, promote

from medloop.cli import loop as loop_cli
from medloop.contracts.assistant import Route
from medloop.loop.standing import loop_standing
from medloop.loop.workflow import Ends, Outputs, Step, Waits, advance
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import lineage, registry
from medloop.store.records.routes import add_route
from medloop.web import loop_strip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    home = tmp_path / "clinic"
    init_workspace(home)
    with open_store(Settings(home=home)) as opened:
        yield opened


def run(store: Store, cycle: str, redo: int = 0, **results: Outputs | Waits | Ends) -> None:
    steps = [Step(name, lambda _: {"redo": redo}, lambda _, result=result: result) for name, result in results.items()]
    advance(store, cycle, steps, actor="test")


def words(key: str, **values: object) -> str:
    return key


def test_a_round_of_online_learning_stays_one(store: Store, command_line) -> None:
    run(store, "cycle1", data={"sha256": "sha256:1"})
    run(store, "online1", data=Waits("Somebody has to act.", "deploy status"))
    command = loop_strip._cycle(loop_standing(store), words)[1]
    assert command == "loop run --online"
    out = command_line("--home", store.settings.home, *command.split(), "--dry-run").out
    assert "online1: what a run would do" in out and "clinic loop run --online" in out
    by_name = loop_cli._config(store.settings, "online1", None, None)
    assert by_name == loop_cli._config(store.settings, None, None, None, online=True) and by_name.online is not None
    assert loop_cli._config(store.settings, "cycle1", None, None).online is None


def test_an_erasure_reaches_the_older_cycle_whose_model_is_in_use(store: Store, command_line) -> None:
    add_versions(store)
    run(store, "cycle1", data={"sha256": "sha256:1"}, register={"version": 1}, deploy=Ends("Over."))
    run(store, "cycle2", data={"sha256": "sha256:1b"}, register={"version": 2})
    run(store, "cycle3", data={"sha256": "sha256:1c"}, register=Waits("It waits."))

    def current() -> str:
        return loop_cli._current(store.settings, False)

    with store.write() as conn:
        for sha256 in ("sha256:1", "sha256:1b"):
            lineage.flag_artifact(conn, sha256, "erased", "asked", actor="test")
    assert current() == "cycle1"  # version 1 is the champion, version 2 has no alias
    status = command_line("--home", store.settings.home, "loop", "status").out
    assert "what cycle1 learnt from" in status and "clinic loop run --name cycle1" in status
    plan = command_line("--home", store.settings.home, "loop", "run", "--name", "cycle1", "--dry-run")
    assert plan.code == 0 and "cycle1: what a run would do" in plan.out
    promote(store, 2, "challenger")
    run(store, "cycle1", redo=1, data={"sha256": "sha256:1d", "redo": 1}, register=Waits("It waits."))
    assert current() == "cycle2"
    run(store, "cycle2", redo=1, data=Ends("Nothing is left to learn from.", {"redo": 1}))
    assert current() == "cycle3"
    run(store, "cycle3", data={"sha256": "sha256:1c"}, register=Ends("Over."))
    assert current() == "cycle1"  # it was begun again and waits
    run(store, "cycle1", redo=1, data={}, register={"version": 3})
    assert current() == "cycle4"


def test_a_version_that_answers_only_at_a_site_does_not_begin_its_cycle_again(store: Store) -> None:
    """What a cycle makes anew goes to main; the site gets main's champion, because an erasure takes its own away."""
    add_versions(store)
    run(store, "cycle1", data={"sha256": "sha256:1b"}, register={"version": 2}, deploy=Ends("Over."))
    artifact = registry.get_version(store, store.settings.registry.model, 2).record.artifact
    add_route(store, Route(served_name="v2", model="med", version=2, artifact=artifact), site="ward-7")
    with store.write() as conn:
        lineage.flag_artifact(conn, "sha256:1b", "erased", "asked", actor="test")
    assert loop_cli._is_touched(store, "cycle1") and loop_cli._to_redo(store, ["cycle1"]) == []
    add_route(store, Route(served_name="v2", model="med", version=2, artifact=artifact))  # it answers at main, too
    assert loop_cli._to_redo(store, ["cycle1"]) == ["cycle1"]
