"""kill -9 of a backup and of a restore at many moments: the next run finishes, and nothing half-made counts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.integrity import verify_store
from medloop.store.records import crud

pytestmark = pytest.mark.slow
KILLS = 6


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*")) if folder.exists() else 0


def killed_at(words: list[str | Path], is_time: Callable[[], bool]) -> bool:
    """Start a command and kill it as soon as it is time; False if it ended before."""
    command = [sys.executable, "-m", "medloop", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if is_time():
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return True
            time.sleep(0.0005)
    return False


def test_killed_backups_and_restores_are_finished_by_the_next_run(sqlite_settings: Settings, tmp_path: Path) -> None:
    home, repo, target, rng = sqlite_settings.home, tmp_path / "repo", tmp_path / "new", random.Random(5)
    given = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "rating": 3}
    with open_store(sqlite_settings) as store:
        crud.add(store, [Feedback(feedback_id=f"fb_{n}", **given) for n in range(50)], actor="test")
    for n in range(60):
        (sqlite_settings.workspace.models / f"weights_{n}").write_bytes(os.urandom(300_000))
    make, kills = ["--home", home, "backup", "create", repo], 0
    for _ in range(KILLS):
        wanted = count_files(repo) + rng.randint(1, 15)
        kills += killed_at(make, lambda wanted=wanted: count_files(repo) >= wanted)
    subprocess.run([sys.executable, "-m", "medloop", *map(str, make)], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "medloop", "--home", home, "backup", "verify", repo], check=True, capture_output=True)
    assert not list(home.glob(".database*")), "a copy of the database was left"
    back = ["restore", repo, target, "--key-file", home / "keys/backup.key"]
    for _ in range(KILLS):
        wanted = count_files(target) + rng.randint(1, 15)
        kills += killed_at(back, lambda wanted=wanted: count_files(target) >= wanted)
    assert kills >= KILLS
    if (target / ".restoring").exists():
        subprocess.run([sys.executable, "-m", "medloop", *map(str, back)], check=True, capture_output=True)
    with open_store(Settings(home=target)) as store:
        assert crud.count(store, Feedback) == 50 and verify_store(store).ok
    for n in range(60):
        assert (target / f"models/weights_{n}").read_bytes() == (home / f"models/weights_{n}").read_bytes()
