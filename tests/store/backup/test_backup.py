"""Backup and restore through the command line, while somebody writes, on both databases."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from backup_helpers import SECRET, Run, rating, restored

from medloop.contracts import Feedback
from medloop.privacy.consent import subject_of
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.backup.repository import Repository
from medloop.store.db import open_store
from medloop.store.integrity import verify_store
from medloop.store.records import crud, users


@pytest.fixture
def writing(clinic: Settings) -> Iterator[set[str]]:
    """Ids of records that a writer got acknowledged, while it goes on writing."""
    acknowledged, stop = set[str](), threading.Event()

    def write() -> None:
        with open_store(clinic) as store:
            number = 0
            while not stop.is_set():
                crud.add(store, [rating(f"load_{number}")], actor="load")
                acknowledged.add(f"load_{number}")
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    while len(acknowledged) < 20:
        time.sleep(0.01)
    yield acknowledged
    stop.set()
    thread.join()


def test_a_backup_under_load_loses_nothing_acknowledged(run: Run, clinic, writing, empty_database, tmp_path: Path) -> None:
    before = {*writing, *(f"fb_{n}" for n in range(20))}
    made = run("--home", clinic.home, "backup", "create", tmp_path / "repo")
    assert made.code == 0 and "Copy this file to a safe place now" in made.out
    key = shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    empty_database()
    back = run("restore", tmp_path / "repo", tmp_path / "new", "--key-file", key)
    assert back.code == 0 and "one of which says that it was restored" in back.out
    with open_store(restored(tmp_path / "new")) as store:
        assert before <= {feedback.feedback_id for feedback in crud.iterate(store, Feedback)}
        assert crud.get(store, Feedback, "fb_1").user_query == "canary of fb_1"
        report = verify_store(store)
    assert report.ok and report.restored is not None and report.restored.rows == report.audit.rows - 1
    weights = "models/lora/weights"
    assert (tmp_path / "new" / weights).read_bytes() == (clinic.home / weights).read_bytes()
    verified = run("--home", tmp_path / "new", "audit", "verify")
    assert verified.code == 0 and f"from backup {report.restored.backup}" in verified.out


def test_a_second_backup_copies_only_what_is_new_and_nothing_is_readable(run: Run, clinic, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    run("--home", clinic.home, "backup", "create", repo)
    chunks = set((repo / "chunks").rglob("*"))
    (clinic.workspace.reports / "new.txt").write_text("canary of a report")
    assert "New in" in run("--home", clinic.home, "backup", "create", repo).out
    assert (
        len({path for path in set((repo / "chunks").rglob("*")) - chunks if path.is_file()}) <= 3
    )  # the report and the database
    assert len(run("--home", clinic.home, "backup", "list", repo).out.splitlines()) == 3
    for path in repo.rglob("*"):
        assert path.is_dir() or b"canary" not in path.read_bytes()
        assert "report" not in path.name and "weights" not in path.name


def test_an_interrupted_backup_does_not_count_and_the_next_one_goes_on(run: Run, clinic, tmp_path: Path, monkeypatch) -> None:
    repo = tmp_path / "repo"

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "write_manifest", die)
        assert run("--home", clinic.home, "backup", "create", repo).code == 130
    assert len(run("--home", clinic.home, "backup", "list", repo).out.splitlines()) == 1  # only the heading
    made = json.loads(run("--home", clinic.home, "backup", "create", repo, "--json").out)
    assert made["new_bytes"] < made["bytes"] - 3 * 2**20  # the model was there already
    assert run("--home", clinic.home, "backup", "verify", repo).code == 0
    assert not list(clinic.home.glob(".database*"))


def test_old_backups_are_deleted_with_what_only_they_need(run: Run, clinic, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    for n in range(3):
        (clinic.workspace.reports / "changes.bin").write_bytes(os.urandom(2**20) + bytes([n]))
        assert run("--home", clinic.home, "backup", "create", repo).code == 0
    pruned = run("--home", clinic.home, "backup", "prune", "--keep", "1", repo)
    assert pruned.code == 0 and "Backups deleted: 2" in pruned.out and "Space freed: 0.0" not in pruned.out
    assert len(run("--home", clinic.home, "backup", "list", repo).out.splitlines()) == 2
    assert run("--home", clinic.home, "backup", "verify", repo).code == 0
    assert run("--home", clinic.home, "backup", "prune", "--keep", "0", repo).code == 2


def test_damage_and_a_wrong_key_are_told(run: Run, clinic, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    run("--home", clinic.home, "backup", "create", repo)
    assert run("--home", clinic.home, "backup", "verify", repo).code == 0
    chunk = max((path for path in (repo / "chunks").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    chunk.write_bytes(content)
    broken = run("--home", clinic.home, "backup", "verify", repo)
    assert broken.code == 6 and "damaged" in broken.out
    refused = run("restore", repo, tmp_path / "new", "--key-file", clinic.home / "keys/backup.key")
    assert refused.code == 6 and run("--home", tmp_path / "new", "db", "check").code == 2  # not restored completely
    other = tmp_path / "other"
    subprocess.run(f"openssl rand -base64 32 > {other} && chmod 600 {other}", shell=True, check=True)
    assert run("restore", repo, tmp_path / "third", "--key-file", other).code == 7


def test_a_restore_goes_on_after_a_kill_and_overwrites_nothing(
    run: Run, clinic, empty_database, tmp_path: Path, monkeypatch
) -> None:
    repo, target, key = tmp_path / "repo", tmp_path / "new", tmp_path / "key"
    run("--home", clinic.home, "backup", "create", repo)
    shutil.copy(clinic.home / "keys/backup.key", key)
    empty_database()

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(audit, "append_with_head", die)  # the database is there, the log does not know it yet
        assert run("restore", repo, target, "--key-file", key).code == 130
    assert "was not restored completely" in run("--home", target, "db", "check").err
    assert run("restore", repo, target, "--key-file", key).code == 0
    with open_store(restored(target)) as store:
        assert verify_store(store).ok and crud.count(store, Feedback) == 20
    again = run("restore", repo, target, "--key-file", key)
    assert again.code == 5 and "is not empty; nothing was changed" in again.err
    assert run("restore", repo, target, "--key-file", key, "--replace").code == 0
    assert list(tmp_path.glob("new.before-restore-*/models/lora/weights"))


@pytest.mark.parametrize("next_backup", [True, False], ids=["backed up since", "not backed up since"])
def test_erased_people_stay_erased_after_a_restore(run: Run, clinic, empty_database, tmp_path: Path, next_backup: bool) -> None:
    repo, home = tmp_path / "repo", ("--home", clinic.home, "--set", f"backup.folder={tmp_path / 'repo'}")
    with open_store(clinic) as store:
        crud.add(store, [rating("fb_person", subject=subject_of(store, "patient 7"), comments=SECRET)], actor="test")
    (clinic.workspace.processed / "train.jsonl").write_text(json.dumps({"id": "fb_person", "text": SECRET}) + "\n")
    assert run(*home, "backup", "create").code == 0
    assert run(*home, "erase", "--subject", "patient 7", "--reason", "asked").code == 0
    if next_backup:
        assert run(*home, "backup", "create").code == 0
    shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    first = sorted((repo / "manifests").glob("*.backup"))[0].stem
    empty_database()
    back = run("restore", repo, tmp_path / "new", "--backup", first, "--key-file", tmp_path / "key")
    assert back.code == 0 and "Erasures since that backup that were repeated: 1." in back.out
    with open_store(restored(tmp_path / "new")) as store:
        assert crud.get(store, Feedback, "fb_person") is None and crud.count(store, Feedback) == 20
        assert verify_store(store).ok
    for path in (tmp_path / "new").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


def test_where_erasures_do_not_reach_the_backups_each_command_says_so(run: Run, clinic, empty_database, tmp_path: Path) -> None:
    """Seen: a person was erased and came back with a restore, and neither command had a word about it."""
    repo, home = tmp_path / "repo", ("--home", clinic.home)
    with open_store(clinic) as store:
        crud.add(store, [rating("fb_person", subject=subject_of(store, "patient 7"), comments=SECRET)], actor="test")
    made = run(*home, "backup", "create", repo).out
    assert f"To let erasures reach these backups, add to medloop.yaml: backup: {{folder: {repo}}}" in made
    erased = run(*home, "erase", "--subject", "patient 7", "--reason", "asked").out
    assert "or a restore brings the person back: medloop backup create FOLDER" in erased
    shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    shutil.copy(clinic.home / "keys/erased.jsonl", tmp_path / "erased.jsonl")
    empty_database()
    back = run("restore", repo, tmp_path / "new", "--key-file", tmp_path / "key").out
    assert (
        "Whoever was erased since, without a later backup or the setting backup.folder, is back: copy keys/erased.jsonl" in back
    )
    with open_store(restored(tmp_path / "new")) as store:
        assert crud.get(store, Feedback, "fb_person") is not None
    shutil.copy(tmp_path / "erased.jsonl", tmp_path / "new/keys/erased.jsonl")
    assert run("--home", tmp_path / "new", "erase", "--replay").code == 0
    with open_store(restored(tmp_path / "new")) as store:
        assert crud.get(store, Feedback, "fb_person") is None


def test_a_backup_after_the_erasure_is_enough_without_the_setting(run: Run, clinic, empty_database, tmp_path: Path) -> None:
    repo, home = tmp_path / "repo", ("--home", clinic.home)
    with open_store(clinic) as store:
        crud.add(store, [rating("fb_person", subject=subject_of(store, "patient 7"), comments=SECRET)], actor="test")
    run(*home, "backup", "create", repo)
    first = sorted((repo / "manifests").glob("*.backup"))[0].stem
    run(*home, "erase", "--subject", "patient 7", "--reason", "asked")
    assert run(*home, "backup", "create", repo).code == 0
    shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    empty_database()
    back = run("restore", repo, tmp_path / "new", "--backup", first, "--key-file", tmp_path / "key")
    assert "Erasures since that backup that were repeated: 1." in back.out
    with open_store(restored(tmp_path / "new")) as store:
        assert crud.get(store, Feedback, "fb_person") is None


def test_a_restore_never_takes_a_database_in_use_for_its_own(run: Run, clinic, tmp_path: Path) -> None:
    """Seen: on PostgreSQL a drill was attached to the live database, because its log continues that of the backup."""
    repo, key = tmp_path / "repo", clinic.home / "keys/backup.key"
    assert run("--home", clinic.home, "backup", "create", repo).code == 0
    with open_store(clinic) as store:
        users.add_user(store, "later", "auditor", actor="test")
        rows = audit.verify(store).rows
    if clinic.database.url.get_secret_value():
        drill = run("restore", repo, tmp_path / "drill", "--key-file", key)
        with open_store(clinic) as store:
            assert drill.code != 0 and "is not empty" in drill.err and audit.verify(store).rows == rows
    shutil.copy(key, tmp_path / "key")
    assert run("restore", repo, clinic.home, "--key-file", tmp_path / "key", "--replace").code == 0
    with open_store(clinic) as store:
        assert [user.name for user in users.list_users(store)] == ["dr.li"] and verify_store(store).ok


def test_the_file_of_the_database_alone_lacks_what_was_acknowledged(sqlite_settings: Settings, tmp_path: Path) -> None:
    """Why there is `medloop backup`: the write-ahead log holds what was written last."""
    with open_store(sqlite_settings) as store:
        crud.add(store, [rating("fb_1")], actor="test")
        shutil.copy(sqlite_settings.workspace.database, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as conn:
        try:
            count = conn.execute("SELECT count(*) FROM rlhf_feedback").fetchone()[0]
        except sqlite3.DatabaseError:
            count = 0
    assert count == 0


def test_the_backups_do_not_lie_in_the_workspace(run: Run, clinic) -> None:
    refused = run("--home", clinic.home, "backup", "create", clinic.home / "backups")
    assert refused.code == 2 and "in the workspace" in refused.err
