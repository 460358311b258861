"""A restore in place of another workspace: who owns the backups, what cannot be moved, and what was revoked since."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backup_helpers import Run, rating, restored
from sqlalchemy import create_engine, text

from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store.backup import claim, databases
from medloop.store.backup.repository import Repository, open_repository, read_key_file
from medloop.store.db import ensure_master_key, open_store, upgrade
from medloop.store.integrity import verify_store
from medloop.store.records import crud, users

OLD, NEW = "ottercello violetmarsh 92kT", "harborlemon quietforge 71xQ"


@pytest.fixture
def backed_up(run: Run, clinic: Settings, tmp_path: Path) -> Path:
    """A folder with a backup and its key."""
    assert run("--home", clinic.home, "backup", "create", tmp_path / "repo").code == 0
    shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    return tmp_path / "repo"


def second_workspace(home: Path) -> Settings:
    other = Settings(home=home)
    for folder in other.workspace.folders():
        folder.mkdir(parents=True)
    other.workspace.config.touch()
    ensure_master_key(other)
    upgrade(other)
    with open_store(other) as store:
        crud.add(store, [rating("fb_other")], actor="test")
    return other


def test_another_workspace_cannot_put_its_keys_over_those_of_the_backups(
    run: Run, backed_up: Path, empty_database, tmp_path: Path, monkeypatch
) -> None:
    """Seen: the second backup replaced the key tree, and no text of the first workspace opened after a restore."""
    with monkeypatch.context() as patch:
        patch.delenv("MEDLOOP_DATABASE__URL", raising=False)
        other = second_workspace(tmp_path / "other")
        shutil.copy(tmp_path / "key", other.home / "keys/backup.key")
        refused = run("--home", other.home, "backup", "create", backed_up)
    assert refused.code == 2 and "are of another workspace" in refused.err and "Name another folder" in refused.err
    empty_database()
    assert run("restore", backed_up, tmp_path / "new", "--key-file", tmp_path / "key").code == 0
    with open_store(restored(tmp_path / "new")) as store:
        assert crud.get(store, Feedback, "fb_1").user_query == "canary of fb_1"


def test_a_drill_does_not_touch_the_keys_beside_the_backups(
    run: Run, clinic: Settings, backed_up: Path, empty_database, tmp_path: Path
) -> None:
    clinic.workspace.config.write_text(f"backup:\n  folder: {backed_up}\n")
    assert run("--home", clinic.home, "backup", "create").code == 0
    sealed = (backed_up / "keys.sealed").read_bytes()
    empty_database()
    drill = tmp_path / "drill"
    assert run("restore", backed_up, drill, "--key-file", tmp_path / "key").code == 0
    assert (backed_up / "keys.sealed").read_bytes() == sealed
    assert run("--home", drill, "erase", "--record", "fb_3", "--reason", "a try").code == 0
    assert (backed_up / "keys.sealed").read_bytes() == sealed, "an erasure in a drill is not one of the clinic"
    refused = run("--home", drill, "backup", "create")
    assert refused.code == 2 and f"are of the workspace in {clinic.home}" in refused.err and "--take-over" in refused.err
    assert run("--home", drill, "backup", "create", "--take-over").code == 0
    assert run("--home", drill, "backup", "create").code == 0, "once is enough"


def test_the_next_steps_of_a_restore_in_another_place_run(
    run: Run, clinic: Settings, backed_up: Path, empty_database, tmp_path: Path
) -> None:
    """Seen: the printed command named neither the folder of the backups nor the workspace, and failed."""
    empty_database()
    restored_ = run("restore", backed_up, tmp_path / "a place", "--key-file", tmp_path / "key")
    printed = re.findall(r"medloop (.+ backup create .+)", restored_.out)
    assert len(printed) == 1
    assert run(*shlex.split(printed[0])).code == 0
    assert run("--home", tmp_path / "a place", "backup", "create", backed_up).code == 0, "once is enough"


def test_the_command_that_a_refused_backup_names_runs(
    run: Run, clinic: Settings, backed_up: Path, empty_database, tmp_path: Path
):
    empty_database()
    moved = tmp_path / "moved"
    assert run("restore", backed_up, moved, "--key-file", tmp_path / "key").code == 0
    refused = run("--home", moved, "backup", "create", backed_up)
    (named,) = re.findall(r"run once: medloop (.+?); if not", refused.err)
    assert run("--home", moved, *shlex.split(named)).code == 0


def test_a_restore_without_the_key_tree_is_refused_before_anything_is_touched(
    run: Run, clinic: Settings, backed_up: Path, empty_database, tmp_path: Path
) -> None:
    repository = open_repository(backed_up, read_key_file(tmp_path / "key"))
    bundle = repository.read_keys()
    (tree,) = clinic.workspace.keys.glob("*.tree")
    assert bundle is not None and tree.name.encode() in bundle
    repository.write_keys(bundle.replace(tree.name.encode(), b"another.tree"))
    empty_database()
    refused = run("restore", backed_up, tmp_path / "new", "--key-file", tmp_path / "key")
    assert refused.code == 7 and f"lack {tree.name}" in refused.err and not (tmp_path / "new").exists()


def test_what_was_revoked_since_the_backup_stays_revoked(run: Run, clinic: Settings, tmp_path: Path) -> None:
    with open_store(clinic) as store:
        wu = users.add_user(store, "dr.wu", "clinician", password=OLD, actor="test")
        gone = users.add_user(store, "dr.gone", "admin", password=OLD, actor="test")
        keys = [users.new_key(store, users.get_user(store, "dr.li"), actor="test") for _ in range(2)]
        session = users.open_session(store, wu, actor="test")
    assert run("--home", clinic.home, "backup", "create", tmp_path / "repo").code == 0
    with open_store(clinic) as store:
        users.revoke_key(store, keys[0].split("_")[1], actor="test")
        users.set_password(store, wu, NEW, actor=wu.user_id)
        users.change_user(store, gone, disabled=True, actor="test")
    shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    back = run("restore", tmp_path / "repo", clinic.home, "--key-file", tmp_path / "key", "--replace")
    assert (
        back.code == 0 and "API keys that stay revoked: 1, users whose newer password, role or state was kept: 2" in back.out
    ), back.err
    with open_store(clinic) as store:
        assert users.find_key(store, keys[0]) is None and users.find_key(store, keys[1]) is not None
        assert users.find_session(store, session) is None
        assert users.check_password(store, "dr.wu", OLD) is None and users.check_password(store, "dr.wu", NEW) is not None
        assert users.check_password(store, "dr.gone", OLD) is None
        assert verify_store(store).ok


@pytest.mark.parametrize("content", [b"not a database" * 400, b""], ids=["damaged", "empty"])
def test_a_damaged_database_is_replaced(run: Run, sqlite_settings: Settings, tmp_path: Path, content: bytes) -> None:
    """Seen by a reviewer: reading who was revoked since ended the restore, each time anew."""
    home = sqlite_settings.home
    with open_store(sqlite_settings) as store:
        crud.add(store, [rating("fb_1")], actor="test")
    assert run("--home", home, "backup", "create", tmp_path / "repo").code == 0
    shutil.copy(home / "keys/backup.key", tmp_path / "key")
    for ending in ("-wal", "-shm"):
        Path(f"{home / 'medloop.db'}{ending}").unlink(missing_ok=True)
    (home / "medloop.db").write_bytes(content)
    back = run("restore", tmp_path / "repo", home, "--key-file", tmp_path / "key", "--replace")
    assert back.code == 0 and "what was revoked or changed since then works again" in back.out, back.err
    with open_store(sqlite_settings) as store:
        assert crud.get(store, Feedback, "fb_1") and verify_store(store).ok


@pytest.mark.parametrize("edit", ["UPDATE users SET role = 'admin'", "DELETE FROM users"], ids=["edited", "deleted"])
def test_an_edit_of_the_old_database_does_not_get_in_through_a_restore(
    run: Run, clinic: Settings, backed_up: Path, tmp_path: Path, edit: str
) -> None:
    """Who is gone or was edited may have been disabled since the backup, so that nobody is let in by it."""
    engine = create_engine(clinic.store_url)
    with engine.begin() as conn:
        conn.execute(text(f"{edit} WHERE name = 'dr.li'"))
    engine.dispose()
    back = run("restore", backed_up, clinic.home, "--key-file", tmp_path / "key", "--replace")
    assert back.code == 0 and "1 of its users and keys were changed without medloop" in back.out
    with open_store(clinic) as store:
        li = users.get_user(store, "dr.li")
        assert li.role == "clinician" and li.disabled and verify_store(store).ok


def test_on_an_empty_machine_old_access_is_told_and_can_be_revoked(
    run: Run, clinic: Settings, empty_database, tmp_path: Path
) -> None:
    with open_store(clinic) as store:
        users.add_user(store, "dr.wu", "clinician", password=OLD, actor="test")
        key = users.new_key(store, users.get_user(store, "dr.li"), actor="test")
    assert run("--home", clinic.home, "backup", "create", tmp_path / "repo").code == 0
    shutil.copy(clinic.home / "keys/backup.key", tmp_path / "key")
    empty_database()
    words = ("restore", tmp_path / "repo", tmp_path / "new", "--key-file", tmp_path / "key")
    plain = run(*words)
    assert plain.code == 0 and "what was revoked or changed since then works again" in plain.out
    shutil.rmtree(tmp_path / "new")
    empty_database()
    back = run(*words, "--revoke-access")
    assert back.code == 0 and "API keys revoked: 1." in back.out and "change their password at the next login: 1." in back.out
    with open_store(restored(tmp_path / "new")) as store:
        assert users.find_key(store, key) is None and users.get_user(store, "dr.wu").must_change and verify_store(store).ok


def test_a_mount_point_keeps_the_old_workspace_inside(run: Run, clinic: Settings, backed_up: Path, tmp_path: Path) -> None:
    """Seen: rename across devices failed half-way, after the first folders had been moved."""
    home, real = clinic.home, os.rename

    def across_devices(source: object, target: object) -> None:
        if Path(str(source)).is_relative_to(home) != Path(str(target)).is_relative_to(home):
            raise OSError(18, "Invalid cross-device link", str(source))
        real(source, target)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claim.os, "rename", across_devices)
        back = run("restore", backed_up, home, "--key-file", tmp_path / "key", "--replace")
    (aside,) = home.glob(".before-restore-*")
    assert back.code == 0 and str(aside.name) in back.out and (aside / "models/lora/weights").exists()
    assert not list(tmp_path.glob("*.before-restore-*"))
    files = run("--home", home, "backup", "create", backed_up, "--json").out
    assert '"left_out": []' in files and run("--home", home, "audit", "verify").code == 0
    manifest = open_repository(backed_up, read_key_file(tmp_path / "key")).newest()
    assert manifest is not None and not any(file.path.startswith(".before-restore") for file in manifest.files)


def test_what_cannot_be_moved_stays_where_it_was(run: Run, clinic: Settings, backed_up: Path, tmp_path: Path) -> None:
    home, real = clinic.home, os.rename

    def busy(source: object, target: object) -> None:
        if Path(str(source)) == home / "models":  # a mount point in the workspace
            raise OSError(16, "Device or resource busy", str(source))
        real(source, target)  # type: ignore[arg-type]

    before = sorted(path.name for path in home.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claim.os, "rename", busy)
        refused = run("restore", backed_up, home, "--key-file", tmp_path / "key", "--replace")
    assert refused.code == 2 and "models: Device or resource busy" in refused.err and "everything is where it was" in refused.err
    assert sorted(path.name for path in home.iterdir()) == before
    assert run("--home", home, "audit", "verify").code == 0


@pytest.mark.parametrize("step", ["extract", "_move_aside", "_load_postgres", "_restore_sqlite"])
def test_a_database_that_was_half_replaced_is_finished(
    run: Run, clinic: Settings, backed_up: Path, tmp_path: Path, monkeypatch, step: str
) -> None:
    with open_store(clinic) as store:
        users.add_user(store, "later", "auditor", actor="test")
    words = ("restore", backed_up, clinic.home, "--key-file", tmp_path / "key", "--replace")
    real = getattr(databases, step)

    def killed(*args: object, **more: object) -> None:
        real(*args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(databases, step, killed)
        first = run(*words).code
    assert first in (0, 130)
    assert first == 0 or run(*words).code == 0
    with open_store(clinic) as store:
        assert [user.name for user in users.list_users(store)] == ["dr.li"] and verify_store(store).ok


def test_the_first_backup_prints_nothing_but_json(run: Run, clinic: Settings, tmp_path: Path) -> None:
    import json

    made = json.loads(run("--home", clinic.home, "backup", "create", tmp_path / "repo", "--json").out)
    assert made["new_key_file"] == str(clinic.home / "keys/backup.key")
    again = json.loads(run("--home", clinic.home, "backup", "create", tmp_path / "repo", "--json").out)
    assert "new_key_file" not in again


def test_the_newest_of_the_installed_programs_is_used(tmp_path: Path, monkeypatch) -> None:
    for version in ("9.6", "15", "14"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin/pg_dump").touch()
    monkeypatch.setattr(databases, "INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert databases._find("pg_dump") == str(tmp_path / "15/bin/pg_dump")


def test_keys_are_replaced_and_wiped_also_without_hard_links(tmp_path: Path, monkeypatch) -> None:
    subprocess.run(f"openssl rand -base64 32 > {tmp_path / 'key'} && chmod 600 {tmp_path / 'key'}", shell=True, check=True)
    repository: Repository = open_repository(tmp_path / "repo", read_key_file(tmp_path / "key"), create=True)
    repository.write_keys(b"first")

    def no_links(*args: object, **more: object) -> None:
        raise OSError(95, "Operation not supported")

    with (tmp_path / "repo/keys.sealed").open("rb") as before:
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", no_links)
            repository.write_keys(b"second")
        assert not any(before.read()), "the old bytes on the disk are overwritten"
    assert repository.read_keys() == b"second" and not list((tmp_path / "repo").glob("*.old"))


@pytest.mark.parametrize("moment", ["while the old one moves", "after the new one is written"])
def test_a_database_outside_the_workspace_stays_with_its_log_after_a_kill(
    run: Run, sqlite_settings: Settings, tmp_path: Path, monkeypatch, moment: str
) -> None:
    """Seen: the second try moved the file under another name than its write-ahead log, which holds acknowledged records.

    Without the mark beside the database, the second try would take what the first one wrote for the old database.
    """
    path = tmp_path / "disk/clinic.db"
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", f"sqlite:///{path}")
    outside = Settings(home=sqlite_settings.home, database={"url": f"sqlite:///{path}"})
    upgrade(outside)
    with open_store(outside) as store:
        crud.add(store, [rating("fb_1")], actor="test")
        assert run("--home", outside.home, "backup", "create", tmp_path / "repo").code == 0
        shutil.copy(outside.home / "keys/backup.key", tmp_path / "key")
        crud.add(store, [rating("fb_2")], actor="test")
        words = ("restore", tmp_path / "repo", outside.home, "--key-file", tmp_path / "key", "--replace")
        rename, extract = os.rename, databases.extract

        def killed(source: object, target: object) -> None:
            if str(source) == str(path):
                raise KeyboardInterrupt
            rename(source, target)  # type: ignore[arg-type]

        def killed_behind(*args: Any, **more: Any) -> None:
            extract(*args, **more)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            if moment.startswith("while"):
                patch.setattr(databases.os, "rename", killed)
            else:
                store.checkpoint()  # the file itself has both records, so that its log cannot make up for a lost file
                patch.setattr(databases, "extract", killed_behind)
            assert run(*words).code == 130
        later = datetime(2031, 1, 1, tzinfo=UTC)
        monkeypatch.setattr(claim, "utc_now", lambda: later)
        assert run(*words).code == 0
    (aside,) = (name for name in path.parent.glob("*.before-restore-*") if not name.name.endswith(("-wal", "-shm")))
    with closing(sqlite3.connect(aside)) as old:
        assert old.execute("SELECT count(*) FROM rlhf_feedback").fetchone() == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("mounted", ["", "models"], ids=["the workspace", "a folder in it"])
def test_a_real_mount_point(sqlite_settings: Settings, tmp_path: Path, mounted: str) -> None:
    """In a name space of its own, which is gone with the process."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow mounts in a name space of one's own")
    home, medloop = sqlite_settings.home, f"{sys.executable} -m medloop"
    with open_store(sqlite_settings) as store:
        crud.add(store, [rating("fb_1")], actor="test")
    point = home / mounted
    script = f"""
        cp -a {home} {tmp_path}/copy && mount -t tmpfs none {point} && cp -a {tmp_path}/copy/{mounted}/. {point}
        {medloop} --home {home} backup create {tmp_path}/repo && cp {home}/keys/backup.key {tmp_path}/key
        {medloop} restore {tmp_path}/repo {home} --key-file {tmp_path}/key --replace; echo "code $?"
        {medloop} --home {home} audit verify && ls -A {home}"""
    done = subprocess.run(["unshare", "-rm", "bash", "-c", script], capture_output=True, text=True)
    if mounted:
        assert "code 2" in done.stdout and "everything is where it was" in done.stderr and ".before-restore" not in done.stdout
    else:
        assert "code 0" in done.stdout and "\n.before-restore-" in done.stdout
    assert "The audit log is intact" in done.stdout.split("code")[1]
