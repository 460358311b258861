"""kill -9 inside an erasure: whatever point it dies at, the same command finishes it, with one tombstone a record and 0 hits."""

from __future__ import annotations

import os
import shutil
import signal
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import RootTransaction

from medloop.data.feedback.build import FeedbackConfig
from medloop.loop.erasure import erase_records
from medloop.loop.feedback import build_from_feedback
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import reports
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.check import check
from medloop.store.db import ensure_master_key, open_store, upgrade
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records import crud
from medloop.testing.canary import told, traces_of
from medloop.testing.feedback import make_preference, make_thumb

ASKED = ErasureRequest(reason="asked", subject="patient 4711")
POINTS = [(os, "replace"), (os, "rename"), (shutil, "rmtree"), (RootTransaction, "commit")]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the canary in the store, in a dataset, in a model's samples and in a plain file."""
    home = tmp_path_factory.mktemp("kills") / "clinic"
    settings = Settings(home=home)
    for folder in settings.workspace.folders():
        folder.mkdir(parents=True)
    settings.workspace.config.touch()
    ensure_master_key(settings)
    upgrade(settings)
    with open_store(settings) as store:
        who = subject_of(store, "patient 4711")
        mine = [
            make_thumb(n, f"sleep {n}", n % 2 == 0, query=told(f"back {n}"), subject=who, feedback_id=f"fb_{n}") for n in range(3)
        ]
        crud.add(store, [*mine, *(make_preference(n, f"rest {n}", f"run {n}", "a") for n in range(6))], actor="test")
        build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    with new_artifact(home / "models/rl/x") as folder:
        jsonl.write(folder / "samples.jsonl", [{"answer": told("back 1")}, {"answer": "fine"}])
    jsonl.write(home / "data/rl/teacher_judgements.jsonl", [{"critique": told("back 2")}, {"critique": "fine"}])
    return home


def child(settings: Settings, kill_step: int, *, after: bool) -> int:
    """Erase in a process of its own that kills itself at its n-th durable step; the wait status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    steps = 0

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == kill_step and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = real(*args, **more)
            if steps == kill_step:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return step

    try:
        for owner, name in POINTS:
            setattr(owner, name, deadly(getattr(owner, name)))
        with open_store(settings) as store:
            erase_records(store, ASKED, actor="user:li")
    finally:
        os._exit(7)


def survives(template: Path, home: Path, kill_step: int, *, after: bool) -> bool:
    """Kill at one step, run the same command again, and look at everything; False when it was over before that step."""
    shutil.copytree(template, home)
    settings = Settings(home=home)
    killed = os.WIFSIGNALED(child(settings, kill_step, after=after))
    with open_store(settings) as store:
        proof = erase_records(store, ASKED, actor="user:li")
        assert proof.complete and proof.rows == {"rlhf_feedback": 3} and len(proof.tombstones) == 3, kill_step
        assert {file["path"] for file in proof.files} >= {
            "models/rl/x",
            "data/feedback/feedback",
            "data/rl/teacher_judgements.jsonl",
        }
        assert not list(reports(store).glob("*.pending")) and not list(reports(store).glob("*.files.jsonl"))
        assert audit.verify(store).ok and not check(store).problems, kill_step
    assert traces_of(home) == [], kill_step
    assert verify_artifact(home / "data/feedback/feedback") and verify_artifact(home / "models/rl/x")
    assert [row["critique"] for row in jsonl.read(home / "data/rl/teacher_judgements.jsonl")] == ["fine"]
    shutil.rmtree(home)
    return killed


@pytest.mark.parametrize("kill_step", [1, 15, 22, 27, 31, 35, 39, 43, 47, 50])
def test_a_kill_at_this_step_is_finished_by_the_same_command(template: Path, tmp_path: Path, kill_step: int) -> None:
    assert survives(template, tmp_path / "clinic", kill_step, after=kill_step % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_every_step(template: Path, tmp_path: Path, after: bool) -> None:
    kill_step = 1
    while survives(template, tmp_path / "clinic", kill_step, after=after):
        kill_step += 1
    assert kill_step > 40


def test_no_word_of_it_is_readable_while_an_erasure_waits_to_be_finished(template: Path, tmp_path: Path) -> None:
    """At the first durable step that leaves a mark among the reports, which is found by halving."""

    def is_marked(kill_step: int) -> bool:
        home = tmp_path / str(kill_step)
        shutil.copytree(template, home)
        child(Settings(home=home), kill_step, after=True)
        return any(path.suffix in (".pending", ".json") for path in (home / "reports/erasure").glob("*"))

    first = bisect_left(range(80), True, lo=1, key=is_marked)
    reports = tmp_path / str(first) / "reports"
    assert list((reports / "erasure").glob("*.pending")) and not list((reports / "erasure").glob("*.json"))
    assert traces_of(reports) == []
