"""Border 10, the drill: a server under load is backed up by another process and killed; the empty machine has all that was answered."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from pathlib import Path

import psycopg
import pytest
from test_api_feedback_kill import SAID, Killer

from medloop.client import Client
from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.integrity import verify_store
from medloop.store.records import crud, users
from medloop.testing.processes import run_medloop


@pytest.fixture(params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> tuple[Settings, str]:
    """A workspace, and the URL of an empty database of the same kind."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_settings"), ""
    server, name = request.getfixturevalue("postgres"), f"d_{uuid.uuid4().hex}"
    with psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    return request.getfixturevalue("postgres_settings"), f"postgresql+psycopg://postgres@/{name}?host={server.folder}"


def committed_before_the_backup(settings: Settings) -> set[str]:
    """The records that the live log has before its line about the backup, which is written just before the snapshot."""
    with open_store(settings) as store:
        (line,) = audit.page(store, audit.AuditFilter(action="workspace.backup"))
        rows = audit.page(store, audit.AuditFilter(action="rlhf_feedback.add"), before=line["seq"], limit=10**6)
    return {row["subject"] for row in rows}


@pytest.mark.slow
def test_a_server_under_load_is_backed_up_killed_and_restored_elsewhere(databases, tmp_path: Path) -> None:
    settings, empty = databases
    url = settings.database.url.get_secret_value()
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, "agent", "engineer", actor="test"), actor="test")
    server, acked, stop = Killer(settings), [], threading.Event()

    def send(worker: int) -> None:
        with Client(f"http://127.0.0.1:{server.port}", key, deadline=10, timeout=5) as client:
            while not stop.is_set():
                acked.append(client.feedback(session_id=f"s{worker}", **SAID).id)

    threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        while len(acked) < 40:
            time.sleep(0.01)
        before = set(acked)
        made = run_medloop("backup", "create", str(tmp_path / "repo"), cwd=settings.home, MEDLOOP_DATABASE__URL=url)
        assert made.returncode == 0, made.stderr
        during = len(acked) - len(before)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
        server.kill()
    shutil.copy(settings.home / "keys/backup.key", tmp_path / "key")
    words = ("restore", str(tmp_path / "repo"), str(tmp_path / "new"), "--key-file", str(tmp_path / "key"))
    back = run_medloop(*words, cwd=tmp_path, MEDLOOP_DATABASE__URL=empty)
    assert back.returncode == 0, back.stderr
    with open_store(Settings(home=tmp_path / "new", database={"url": empty})) as store:
        stored = {feedback.feedback_id for feedback in crud.iterate(store, Feedback)}
        assert before <= stored and during > 0  # nobody had to wait for the backup
        assert committed_before_the_backup(settings) <= stored, "also what was still in the write-ahead log"
        assert verify_store(store).ok
