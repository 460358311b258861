"""kill -9 inside `medloop restore --replace`: whatever point it dies at, the same command finishes it, and nobody erased comes back."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import RootTransaction

from medloop.cli import main
from medloop.contracts import Feedback
from medloop.privacy.consent import subject_of
from medloop.settings import Settings
from medloop.store.db import ensure_master_key, open_store, upgrade
from medloop.store.integrity import verify_store
from medloop.store.records import crud

POINTS = [(os, "replace"), (os, "rename"), (os, "mkdir"), (os, "unlink"), (RootTransaction, "commit")]
GIVEN = {"session_id": "s", "agent_name": "a", "agent_response": "r", "rating": 3}
SECRET = "the quick brown fox had a headache for three days and a fever of 39.4 since Tuesday night"


def medloop(*words: str | Path) -> int:
    before, sys.argv = sys.argv, ["medloop", *map(str, words)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, its backup, and a person who was erased since; the keys beside the backup still open her text."""
    folder = tmp_path_factory.mktemp("restore-kills")
    settings = Settings(home=folder / "clinic")
    for path in settings.workspace.folders():
        path.mkdir(parents=True)
    settings.workspace.config.touch()
    ensure_master_key(settings)
    upgrade(settings)
    with open_store(settings) as store:
        person = Feedback(feedback_id="fb_person", user_query=SECRET, subject=subject_of(store, "patient 7"), **GIVEN)
        crud.add(store, [person, *(Feedback(feedback_id=f"fb_{n}", user_query="q", **GIVEN) for n in range(3))], actor="test")
    assert medloop("--home", settings.home, "backup", "create", folder / "repo") == 0
    assert medloop("--home", settings.home, "erase", "--subject", "patient 7", "--reason", "asked") == 0
    with open_store(settings) as store:
        crud.add(store, [Feedback(feedback_id="fb_later", user_query="q", **GIVEN)], actor="test")
    shutil.copy(settings.home / "keys/backup.key", folder / "key")
    return folder


def restore(folder: Path) -> int:
    return medloop("restore", folder / "repo", folder / "clinic", "--key-file", folder / "key", "--replace")


def child(folder: Path, kill_step: int, *, after: bool) -> bool:
    """Restore in a process that kills itself at its n-th durable step; False if it ended before."""
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    steps = 0

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            number = steps  # a step may consist of others
            if number == kill_step and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*args, **more)
            finally:
                if number == kill_step:
                    os.kill(os.getpid(), signal.SIGKILL)

        return step

    try:
        for owner, name in POINTS:
            setattr(owner, name, deadly(getattr(owner, name)))
        restore(folder)
    finally:
        os._exit(7)


def survives(template: Path, folder: Path, kill_step: int, *, after: bool) -> bool:
    shutil.copytree(template, folder)
    home = folder / "clinic"
    killed = child(folder, kill_step, after=after)
    code = restore(folder) if not killed or (home / ".restoring").exists() or not (home / "medloop.yaml").exists() else 0
    assert code == 0, kill_step
    with open_store(Settings(home=home)) as store:
        stored = {feedback.feedback_id for feedback in crud.iterate(store, Feedback)}
        assert "fb_person" not in stored and {"fb_0", "fb_1", "fb_2"} <= stored and verify_store(store).ok, kill_step
    for path in home.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    for aside in folder.glob("clinic.before-restore-*"):
        if (aside / "medloop.db").exists():
            with open_store(Settings(home=aside)) as store:
                assert crud.get(store, Feedback, "fb_person") is None, kill_step
    assert sum((aside / "medloop.db").exists() for aside in folder.glob("clinic.before-restore-*")) >= ("fb_later" not in stored)
    shutil.rmtree(folder)
    return killed


@pytest.mark.parametrize("kill_step", [2, 4, 7, 12, 16, 18, 21, 40])
def test_a_kill_at_this_step_is_finished_by_the_same_command(template: Path, tmp_path: Path, kill_step: int) -> None:
    assert survives(template, tmp_path / "kill", kill_step, after=kill_step % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_every_step(template: Path, tmp_path: Path, after: bool) -> None:
    kill_step = 1
    while survives(template, tmp_path / "kill", kill_step, after=after):
        kill_step += 1
    assert kill_step > 40
