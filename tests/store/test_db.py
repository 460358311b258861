"""The store as a whole: transactions, the one writer, schema versions, and errors as sentences."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from medloop.contracts import AuditEvent
from medloop.errors import BusyError, ConfigError, IntegrityError, KeyUnavailableError, NoSpaceError, StoreError
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import MIGRATIONS, Store, ensure_master_key, known_versions, open_store, upgrade
from medloop.store.tables import audit_log, metadata

EVENT = AuditEvent(actor="a", action="b", subject="c")
pytestmark = pytest.mark.usefixtures("real_migration")


def rows(store: Store) -> int:
    with store.read() as conn:
        return conn.execute(text("SELECT count(*) FROM audit_log")).scalar_one()


def test_write_is_seen_after_it_and_gone_after_an_error(store: Store) -> None:
    with store.write() as conn:
        audit.append(conn, EVENT)
    with pytest.raises(ZeroDivisionError), store.write() as conn:
        audit.append(conn, EVENT)
        raise ZeroDivisionError
    assert rows(store) == 1
    with store.write() as conn:
        audit.append(conn, EVENT)
    assert audit.verify(store).ok and rows(store) == 2


def test_read_refuses_to_write(store: Store) -> None:
    with pytest.raises(StoreError), store.read() as conn:
        conn.execute(text("DELETE FROM audit_log"))


def test_read_is_a_snapshot(store: Store) -> None:
    with store.read() as conn:
        before = conn.execute(text("SELECT count(*) FROM audit_log")).scalar_one()
        with store.write() as writer:
            audit.append(writer, EVENT)
        assert conn.execute(text("SELECT count(*) FROM audit_log")).scalar_one() == before
    assert rows(store) == before + 1


def test_second_writer_waits_a_bounded_time_then_is_told_busy(settings: Settings) -> None:
    with open_store(settings) as first, open_store(settings, wait_s=0.3) as second, first.write():
        started = time.monotonic()
        with pytest.raises(BusyError, match="in use by another process"), second.write():
            pass
        assert 0.25 < time.monotonic() - started < 3
    with open_store(settings) as third, third.write() as conn:
        audit.append(conn, EVENT)


def test_sqlite_writers_queue_at_the_lock_file_before_they_touch_the_database(sqlite_settings: Settings) -> None:
    """SQLite's own lock is not enough: checkpoints run outside of it (docs/decisions/0003-one-writer.md)."""
    with open_store(sqlite_settings, wait_s=0.3) as store, open(f"{sqlite_settings.workspace.database}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempt in (store.write, store.transaction, lambda: nullcontext(store.checkpoint())):
            with pytest.raises(BusyError), attempt():
                pass
        fcntl.flock(lock, fcntl.LOCK_UN)
        with store.write():
            assert held(lock)
        assert not held(lock)


def held(lock) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def test_many_writers_take_turns_and_none_is_lost(settings: Settings) -> None:
    def work() -> None:
        with open_store(settings) as store:
            for _ in range(10):
                with store.write() as conn:
                    audit.append(conn, EVENT)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with open_store(settings) as store:
        assert audit.verify(store).rows == 40 and audit.verify(store).ok


def test_forked_child_does_not_speak_on_the_connections_of_its_parent(postgres_settings: Settings) -> None:
    def session(store: Store) -> int:
        with store.write() as conn:
            audit.append(conn, EVENT)
            return conn.execute(text("SELECT pg_backend_pid()")).scalar_one()

    with open_store(postgres_settings) as store:
        mine = session(store)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                os._exit(0 if session(store) != mine else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session(store) == mine
        assert audit.verify(store).ok and rows(store) == 3


def test_migrations_and_tables_agree(store: Store) -> None:
    with store.read() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_migrations_make_the_same_checks_and_keys_as_the_tables_say(store: Store) -> None:
    """Autogenerate does not look at CHECK constraints, so compare with what `create_all` would make."""
    migrated = described(store)
    with store.write() as conn:
        metadata.drop_all(conn)
        metadata.create_all(conn)
    assert described(store) == migrated
    assert len(migrated) == len(metadata.tables)


def described(store: Store) -> dict:
    with store.read() as conn:
        look = inspect(conn)
        what = (
            "get_columns",
            "get_check_constraints",
            "get_unique_constraints",
            "get_indexes",
            "get_foreign_keys",
            "get_pk_constraint",
        )
        order = lambda value: sorted(map(str, value)) if isinstance(value, list) else str(value)  # noqa: E731
        return {name: [order(getattr(look, get)(name)) for get in what] for name in metadata.tables}


def test_file_names_of_migrations_are_their_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    assert [revision.revision for revision in script.walk_revisions()][::-1] == known_versions()


def test_the_first_schema_follows_the_tables_only_while_it_is_the_only_one() -> None:
    follows = "create_all" in (MIGRATIONS / "versions/0001_schema.py").read_text(encoding="utf-8")
    assert follows == (len(known_versions()) == 1), "freeze 0001_schema.py: write its tables out (decision 18)"


def test_upgrade_is_idempotent(settings: Settings) -> None:
    assert upgrade(settings) == (known_versions()[-1], known_versions()[-1])


@pytest.mark.parametrize(("version", "says"), [("9999", "newer medloop.*Upgrade medloop")])
def test_unknown_schema_is_refused(settings: Settings, version: str, says: str) -> None:
    with open_store(settings) as store, store.write() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": version})
    with pytest.raises(StoreError, match=says), open_store(settings):
        pass
    with pytest.raises(StoreError, match=says):
        upgrade(settings)


def test_older_schema_asks_for_the_upgrade(settings: Settings, monkeypatch) -> None:
    known = known_versions()
    monkeypatch.setattr("medloop.store.db.known_versions", lambda: [*known, "9999"])
    with pytest.raises(StoreError, match=rf"older schema {known[-1]}.*Run: medloop db upgrade"), open_store(settings):
        pass


def test_missing_store_asks_for_the_upgrade(workspace: Path, postgres) -> None:
    for url in ("", postgres.new_database()):
        with pytest.raises(StoreError, match="medloop db upgrade"), open_store(Settings(home=workspace, database={"url": url})):
            pass


def test_upgrade_killed_midway_leaves_the_old_schema(settings: Settings, monkeypatch) -> None:
    with open_store(settings) as store, store.write() as conn:
        metadata.drop_all(conn)
        conn.execute(text("DROP TABLE alembic_version"))
    with monkeypatch.context() as patch:
        patch.setattr("sqlalchemy.sql.ddl.SchemaGenerator.visit_index", lambda *args, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            upgrade(settings)
    with pytest.raises(StoreError, match="no medloop store"), open_store(settings):
        pass
    upgrade(settings)
    with open_store(settings) as store:
        assert rows(store) == 0


def test_sqlite_runs_with_the_promised_settings(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store, store.read() as conn:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "query_only")
        assert [conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas] == ["wal", 2, 1, 1, 1]
        files = [path for path in sqlite_settings.home.iterdir() if path.name.startswith("medloop.db")]
        assert len(files) == 4
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_thread_that_still_reads_when_the_store_closes_leaves_no_connection_open(sqlite_settings: Settings) -> None:
    """Python 3.13 reports such a connection in whatever runs when it is collected."""
    reading, closed, used = threading.Event(), threading.Event(), []

    def read(store: Store) -> None:
        with store.read() as conn:
            used.append(conn.connection.dbapi_connection)
            reading.set()
            closed.wait(10)

    with open_store(sqlite_settings) as store:
        thread = threading.Thread(target=read, args=(store,))
        thread.start()
        reading.wait(10)
    closed.set()
    thread.join()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        used[0].execute("SELECT 1")


def test_foreign_program_holding_sqlite_is_busy_not_an_accident(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings, wait_s=0.2) as store:
        other = sqlite3.connect(sqlite_settings.workspace.database, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BusyError), store.write():
            pass
        other.execute("ROLLBACK")
        other.close()
        with store.write() as conn:
            audit.append(conn, EVENT)


def test_full_disk_is_named_and_what_was_acknowledged_stays(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        with store.write() as conn:
            audit.append(conn, EVENT)
        with pytest.raises(NoSpaceError, match=r"No space left.*medloop\.db"), store.write() as conn:
            conn.exec_driver_sql("PRAGMA max_page_count=1")  # the limit stays at the present size
            audit.append(conn, [EVENT.model_copy(update={"subject": "x" * 5000})] * 500)
        assert audit.verify(store).ok and rows(store) == 1


def test_damaged_file_is_named(sqlite_settings: Settings) -> None:
    sqlite_settings.workspace.database.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(IntegrityError, match="damaged or not a database"), open_store(sqlite_settings):
        pass


def test_password_never_shows(workspace: Path, capfd) -> None:
    url = "postgresql+psycopg://doc:hunter2@127.0.0.1:1/medloop?password=hunter2"
    with pytest.raises(StoreError, match=r"doc:\*\*\*@127\.0\.0\.1:1/medloop cannot be reached") as caught:
        with open_store(Settings(home=workspace, database={"url": url})):
            pass
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://u@h/x", "nonsense", "sqlite://", "sqlite:///:memory:"])
def test_url_of_another_kind_is_refused(workspace: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"database\.url"):
        upgrade(Settings(home=workspace, database={"url": url}))


def test_restarted_server_is_found_again(postgres_settings: Settings, postgres) -> None:
    with open_store(postgres_settings, wait_s=60) as store:
        with store.write() as conn:
            audit.append(conn, EVENT)
        restart = threading.Thread(target=lambda: (postgres.stop("immediate"), time.sleep(0.3), postgres.start()))
        with pytest.raises(StoreError), store.write() as conn:
            audit.append(conn, EVENT)
            restart.start()
            while True:  # the server dies under us
                conn.execute(audit_log.select())
                time.sleep(0.02)
        try:
            with store.write() as conn:  # waits for the server to come back
                audit.append(conn, EVENT)
        finally:
            restart.join()
        assert audit.verify(store).ok and rows(store) == 2


def test_server_that_restarted_between_two_writes_is_not_noticed(postgres_settings: Settings, postgres) -> None:
    with open_store(postgres_settings) as store:
        for _ in range(2):
            with store.write() as conn:
                audit.append(conn, EVENT)
            postgres.stop("fast")
            postgres.start()
        assert rows(store) == 2


def test_stopped_server_is_one_sentence_within_the_wait(postgres_settings: Settings, postgres) -> None:
    with open_store(postgres_settings, wait_s=0.5) as store:
        postgres.stop("fast")
        try:
            with pytest.raises(StoreError, match="cannot be reached"), store.write():
                pass
        finally:
            postgres.start()


def test_key_is_made_once_and_never_in_place_of_a_lost_one(settings: Settings) -> None:
    path = settings.master_key_file
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_master_key(settings) == ensure_master_key(settings)
    with open_store(settings) as store, store.write() as conn:
        audit.append(conn, EVENT)
    path.unlink()
    with pytest.raises(KeyUnavailableError, match=r"is missing, but the store holds data.*backup"):
        ensure_master_key(settings)
    assert not path.exists()
