"""A consistent snapshot of a database that others write to, and the way back: SQLite's online backup, or pg_dump and pg_restore.

Both snapshots contain every transaction that was committed before they began and none in part. A copy of SQLite's file alone
would lack what is still in its write-ahead log.
"""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import URL, Connection, create_engine, inspect, make_url, select, text

from medloop.errors import ConfigError, IntegrityError, MissingExtraError, StoreError, explain_os_errors
from medloop.settings import RESTORING, Settings
from medloop.store.audit import GENESIS
from medloop.store.backup.contracts import BackupDatabase
from medloop.store.backup.extract import extract
from medloop.store.backup.repository import Repository
from medloop.store.db import Store, open_store, schema_version, shown_url
from medloop.store.files.artifacts import sweep
from medloop.store.files.atomic import atomic_write, claim_temp
from medloop.store.records.knowledge_vectors import PREFIX, forget
from medloop.store.tables import audit_log

DUMP_NAME = "database"
INSTALLED = Path("/usr/lib/postgresql")  # folders by version; the newest one is used if none is on the PATH
PG_MARK = f".database{RESTORING}"  # in the workspace: a PostgreSQL database that an interrupted restore of it has filled
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_NEWEST = select(audit_log.c.seq, audit_log.c.hash).order_by(audit_log.c.seq.desc()).limit(1)


@dataclass(frozen=True)
class Snapshot:
    """What a dump contains: the schema, and the end of the audit log."""

    kind: str
    pg_schema: str
    schema_version: str
    audit_rows: int
    audit_hash: str


def dump(store: Store, target: Path) -> Snapshot:
    """Write a snapshot of the database to a file."""
    return _dump_sqlite(store, target) if store.is_sqlite else _dump_postgres(store, target)


def _dump_sqlite(store: Store, target: Path) -> Snapshot:
    with closing(store.engine.raw_connection()) as raw, closing(sqlite3.connect(target)) as copy:
        cast(sqlite3.Connection, raw.driver_connection).backup(copy)  # all pages in one step, from one snapshot
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
        if (result := copy.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
            raise IntegrityError(f"{store.name} is damaged ({result}), so it was not backed up", "Run: medloop db check")
        row = copy.execute("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1").fetchone() or (0, GENESIS)
        version = copy.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    return Snapshot("sqlite", "", version, *row)


def _dump_postgres(store: Store, target: Path) -> Snapshot:
    with store.read() as conn:
        schema = current_schema(conn)
        row = conn.execute(_NEWEST).first()
        snapshot = Snapshot("postgresql", schema, schema_version(conn) or "", *((0, GENESIS) if row is None else row))
        exported = conn.execute(text("SELECT pg_export_snapshot()")).scalar_one()  # valid as long as this transaction is open
        options = ["--format=custom", "--no-owner", "--no-privileges", f"--schema={_quoted(schema)}", f"--snapshot={exported}"]
        options.append(f"--exclude-table={_quoted(schema)}.{PREFIX}*")  # made again from the documents, with or without pgvector
        _run("pg_dump", [*options, f"--file={target}"], store.engine.url)
    return snapshot


def restore_database(settings: Settings, repository: Repository, database: BackupDatabase, name: str, *, replace: bool) -> None:
    """Put the database of a backup where the settings say. An old one is kept under `name`, which is the same after a kill."""
    url = make_url(settings.store_url)
    kind = "sqlite" if url.get_backend_name() == "sqlite" else "postgresql"
    if kind != database.kind:
        raise ConfigError(
            f"The backup holds a {NAMES[database.kind]} database, but database.url names a {NAMES[kind]} one",
            "Set database.url (MEDLOOP_DATABASE__URL) to an empty database of the same kind and run the restore again",
        )
    if kind == "sqlite":
        return _restore_sqlite(repository, database, Path(str(url.database)), name, replace)
    with temporary(settings.home / DUMP_NAME) as dumped, open_store(settings, any_schema=True) as store:
        mark, target = settings.home / PG_MARK, f"{name} {database.dump.sha256} {store.name}"
        begun = mark.exists() and mark.read_text(encoding="utf-8") == target
        if begun and _is_restored(store, database):
            return
        if has_tables(store):
            if not replace:
                raise StoreError(
                    f"{store.name} is not empty", "Name an empty database in database.url, or keep the old tables with --replace"
                )
            _move_aside(store, name)
        if not begun:
            _require_free(store, database.pg_schema)
        atomic_write(mark, target, mode=0o600)  # from here on, the backup's schema and tables come from this restore
        extract(repository, database.dump, dumped)
        _load_postgres(store, dumped, database.pg_schema)


def _restore_sqlite(repository: Repository, database: BackupDatabase, path: Path, name: str, replace: bool) -> None:
    marked = path.with_name(path.name + RESTORING)  # a database that this restore wrote before a kill may be written again
    begun = marked.exists() and marked.read_text(encoding="utf-8") == name
    if path.exists() and not begun:
        if not replace:
            raise StoreError(f"{path} exists", "Move it away, or keep it under another name with --replace")
        for ending in ("-wal", "-shm", "-journal", ""):  # they hold acknowledged records, too
            with suppress(FileNotFoundError):
                os.rename(f"{path}{ending}", f"{path}.{name}{ending}")
    atomic_write(marked, name, mode=0o600)
    for ending in ("-wal", "-shm", "-journal"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    extract(repository, database.dump, path)
    path.chmod(0o600)


@contextmanager
def old_database(settings: Settings, name: str, aside: Path | None, store: Store) -> Iterator[Connection | None]:
    """The database that a restore set aside under `name`, to read; None if there was none."""
    if not store.is_sqlite:
        with store.engine.connect() as conn:
            old = _aside_schema(current_schema(conn), name)
            there = old in inspect(conn).get_schema_names()
            yield conn.execution_options(schema_translate_map={None: old}) if there else None
        return
    path = Path(str(store.engine.url.database))
    paths = [path.with_name(f"{path.name}.{name}")]
    if aside is not None and path.is_relative_to(settings.home):
        paths.append(aside / path.relative_to(settings.home))
    kept = next((candidate for candidate in paths if candidate.is_file()), None)
    if kept is None:
        yield None
        return
    engine = create_engine(URL.create("sqlite", database=str(kept)))
    try:
        with engine.connect() as conn:
            yield conn
    finally:
        engine.dispose()


def finish_database(settings: Settings) -> None:
    """Remove the mark that allows an interrupted restore to write the database again."""
    url = make_url(settings.store_url)
    if url.get_backend_name() == "sqlite":
        Path(f"{url.database}{RESTORING}").unlink(missing_ok=True)
    else:
        (settings.home / PG_MARK).unlink(missing_ok=True)


def _is_restored(store: Store, database: BackupDatabase) -> bool:
    """Whether an interrupted restore has loaded the dump already, which happens completely or not at all."""
    with store.engine.connect() as conn:
        if not inspect(conn).has_table("audit_log"):
            return False
        query = select(audit_log.c.hash).where(audit_log.c.seq == database.audit_rows)
        return bool(conn.execute(query).scalar() == database.audit_hash)


def _load_postgres(store: Store, dumped: Path, schema: str) -> None:
    """Fill an empty database from a dump, in one transaction. The tables end up where this store looks for them."""
    with store.engine.begin() as conn:
        mine = current_schema(conn)
        if mine != schema:
            conn.exec_driver_sql(f"DROP SCHEMA IF EXISTS {_quoted(schema)} CASCADE")  # of this restore, before a kill
            conn.exec_driver_sql(f"CREATE SCHEMA {_quoted(schema)}")
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", f"--schema={schema}"]
    _run("pg_restore", [*options, str(dumped)], store.engine.url)
    if mine != schema:
        with store.engine.begin() as conn:
            conn.exec_driver_sql(f"DROP SCHEMA {_quoted(mine)}")
            conn.exec_driver_sql(f"ALTER SCHEMA {_quoted(schema)} RENAME TO {_quoted(mine)}")


def _move_aside(store: Store, name: str) -> None:
    """Rename the schema that holds the tables now, and put an empty one in its place."""
    forget(store)  # vectors are not encrypted, and the documents they came from are set aside too
    with store.engine.begin() as conn:
        schema = current_schema(conn)
        conn.exec_driver_sql(f"ALTER SCHEMA {_quoted(schema)} RENAME TO {_quoted(_aside_schema(schema, name))}")
        conn.exec_driver_sql(f"CREATE SCHEMA {_quoted(schema)}")


def _aside_schema(schema: str, name: str) -> str:
    """PostgreSQL cuts names after 63 bytes, which would cut off the time."""
    room = 62 - len(name)
    return f"{schema.encode()[:room].decode(errors='ignore')}_{name}"


def has_tables(store: Store) -> bool:
    with store.engine.connect() as conn:
        return bool(inspect(conn).get_table_names())


def current_schema(conn: Connection) -> str:
    schema = conn.execute(text("SELECT current_schema()")).scalar()
    if schema is None:
        raise ConfigError("The database has no schema on its search_path", "Create it, or change the options in database.url")
    return str(schema)


def _require_free(store: Store, schema: str) -> None:
    """The backup needs its schema for a moment; one that somebody else uses must not be touched."""
    query = text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
    with store.engine.connect() as conn:
        if current_schema(conn) != schema and conn.execute(query, {"name": schema}).first() is not None:
            raise StoreError(
                f"{store.name} already has a schema '{schema}', which the backup needs for a moment",
                "Name another database in database.url",
            )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _run(program: str, options: list[str], url: URL) -> None:
    """One of PostgreSQL's programs. Its password travels in the environment, not on the command line."""
    command = [_find(program), "--no-password", f"--dbname={_conninfo(url)}", *options]
    password = {"PGPASSWORD": url.password} if url.password else {}
    done = subprocess.run(command, env={**os.environ, **password}, capture_output=True, text=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise StoreError(f"{program} failed for {shown_url(url)}: {reason}", "Check the server, its version and its rights")


def _find(program: str) -> str:
    folders = (folder for folder in INSTALLED.glob("*") if (folder / "bin" / program).is_file())
    newest = max(folders, key=lambda folder: [int(part) for part in re.findall(r"\d+", folder.name)], default=None)
    path = shutil.which(program) or (None if newest is None else str(newest / "bin" / program))
    if path is None:
        raise ConfigError(
            f"{program} is not installed, and a PostgreSQL store is backed up and restored with it",
            "Install PostgreSQL's client programs (postgresql-client), in the server's version or a newer one",
        )
    return path


def _conninfo(url: URL) -> str:
    try:
        from psycopg.conninfo import make_conninfo  # of the extra "ops"
    except ModuleNotFoundError:
        raise MissingExtraError.of("A PostgreSQL store", "ops") from None
    options: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username, "dbname": url.database}
    query = {name: value for name, value in make_url(url).query.items() if name not in ("password", "options")}
    return make_conninfo(**{name: value for name, value in options.items() if value is not None} | query)


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A hidden file that only its owner reads; one that a killed backup left is removed first."""
    sweep(path.parent)
    with explain_os_errors(path, writing=True):
        temp, fd = claim_temp(path, lambda new: os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield temp
    finally:
        os.close(fd)
        with suppress(OSError):
            temp.unlink()
