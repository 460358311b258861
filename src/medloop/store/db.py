"""One store behind one URL: SQLite in the workspace, or PostgreSQL.

    with open_store(settings) as store:
        with store.write() as conn: ...     # one transaction, one writer at a time across processes; committed at the end
        with store.read() as conn: ...      # a consistent snapshot; the database itself refuses to write

When `write` returns, the data is on the disk. After an exception, none of it is. SQLite up to 3.51.2 can corrupt a database
when two connections write or checkpoint at the same moment, so a lock file beside the database allows one writer at a time
(docs/decisions/0003-one-writer.md). PostgreSQL uses an advisory lock, so both behave alike.
"""

import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select, table, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from medloop.errors import (
    BusyError,
    ConfigError,
    InputError,
    IntegrityError,
    KeyUnavailableError,
    MedloopError,
    MissingExtraError,
    NoSpaceError,
    StoreError,
    explain_os_errors,
)
from medloop.settings import Settings
from medloop.store import audit, row_macs
from medloop.store.crypto import NEWEST_KEYS, Keyring, MasterKey, create_key_file, load_master_key
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
from medloop.store.tables import data_keys

WAIT_S = 10.0  # how long a writer waits for another writer, and how long a lost connection is tried again
MIGRATIONS = Path(__file__).parent / "migrations"
CACHED_STATEMENTS = 256  # of an SQLite connection: insert_rows.py has one for each number of rows
_WRITES = "medloop.writes"  # of an SQLite connection: whether it may write just now
_PG_WRITER = int.from_bytes(hashlib.sha256(b"medloop writer").digest()[:8], "big", signed=True)
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON", "mmap_size=0", "trusted_schema=OFF")


class Store:
    """An open store; made by `open_store`."""

    def __init__(self, settings: Settings, engine: Engine, wait_s: float) -> None:
        self.settings = settings
        self.engine = engine
        # SQLite forgets its prepared statements when a connection changes between reading and writing, so each has its own.
        self._reading = _engine(settings, wait_s=wait_s) if engine.dialect.name == "sqlite" else engine
        self.keys = Keyring(settings)
        self.wait_s = wait_s
        self.head_alarm = False
        self.row_alarm = 0  # rows that do not fit, as far as the server has looked (row_watch.py)
        self.row_key: bytes | None = None
        self.writes = 0  # transactions of this process; what was read before another one may be out of date
        self._pid = os.getpid()
        row_macs.listen(self)

    @property
    def name(self) -> str:
        """The URL without its password and options, for messages."""
        return shown_url(self.engine.url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with _speaking(self.engine.url):
            conn = self._connect(self._reading)
            try:
                options: dict[str, Any] = (
                    {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
                )
                with conn.execution_options(**options).begin():
                    yield conn
            finally:
                conn.close()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        audit.prepare(self)
        with self.transaction() as conn:
            audit.begin(conn)
            yield conn
            head = audit.sign_head(self, conn)
        if head is not None:
            audit.keep_head(self.settings, head)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A write without the audit log; for the schema and the log itself. Everything else uses `write`."""
        with self._writer_lock(), _speaking(self.engine.url):
            conn = self._connect(self.engine)
            try:
                with conn.execution_options(medloop_write=True, **{NEWEST_KEYS: {}}).begin():
                    if not self.is_sqlite:
                        conn.exec_driver_sql(f"SET LOCAL lock_timeout = {int(self.wait_s * 1000)}")
                        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_PG_WRITER})")
                    row_macs.begin(conn)
                    yield conn
                    row_macs.sign_updates(self, conn)
            finally:
                self.writes += 1
                conn.close()

    @contextmanager
    def derived(self) -> Iterator[Connection]:
        """A write of what can be made again from files, on PostgreSQL: not audited, and nobody's feedback waits for it."""
        with _speaking(self.engine.url):
            conn = self._connect(self.engine)
            try:
                with conn.begin():
                    yield conn
            finally:
                conn.close()

    def checkpoint(self) -> None:
        """Move SQLite's write-ahead log into the database and empty it, so that no old page stays readable there."""
        if self.is_sqlite:
            with self._writer_lock(), _speaking(self.engine.url), closing(self.engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def vacuum(self, names: Iterable[str] = ()) -> None:
        """Rewrite SQLite's file, or vacuum the named tables on PostgreSQL; VACUUM must run outside a transaction."""
        if self.is_sqlite:
            with self._writer_lock(), _speaking(self.engine.url), closing(self.engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA query_only=OFF")
                raw.info[_WRITES] = True
                raw.cursor().execute("VACUUM")
            return
        with _speaking(self.engine.url), self._connect(self.engine).execution_options(isolation_level="AUTOCOMMIT") as conn:
            for name in names:
                conn.exec_driver_sql(f'VACUUM "{name}"')

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        for engine in {self.engine, self._reading}:
            event.listen(engine.pool, "checkin", _close_returned)
            engine.dispose()

    def _connect(self, engine: Engine) -> Connection:
        """A connection. While the server restarts, it tries again for a limited time, which is safe before anything is sent."""
        if os.getpid() != self._pid:  # a forked child must not use its parent's connections
            self.engine.dispose(close=False)
            self._reading.dispose(close=False)
            self._pid = os.getpid()
        deadline = time.monotonic() + self.wait_s
        pause = 0.05
        while True:
            try:
                return engine.connect()
            except OperationalError:
                if self.is_sqlite or time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    @contextmanager
    def _writer_lock(self) -> Iterator[None]:
        if not self.is_sqlite:  # on PostgreSQL the transaction itself takes the lock
            yield
            return
        with locked_file(Path(f"{self.engine.url.database}.lock"), wait_s=self.wait_s, what=self.name, mode=0o600):
            yield


@contextmanager
def open_store(settings: Settings, *, wait_s: float = WAIT_S, any_schema: bool = False) -> Iterator[Store]:
    """Open the store of a workspace; StoreError if its schema is not the one that this medloop uses, unless any will do."""
    store = Store(settings, _engine(settings, wait_s=wait_s), wait_s)
    try:
        with _speaking(store.engine.url), store.engine.connect() as conn:
            if not any_schema:
                _check_schema(schema_version(conn), store.name)
        yield store
    finally:
        store.close()


def _close_returned(_: Any, record: ConnectionPoolEntry) -> None:
    """A thread that still reads when the store closes gives its connection back to a pool that nobody empties any more."""
    record.invalidate()


def upgrade(settings: Settings) -> tuple[str | None, str]:
    """Bring the schema to the newest version in one transaction; returns the version before and after."""
    store = Store(settings, _engine(settings, create=True), WAIT_S)
    try:
        with store.transaction() as conn:
            before = schema_version(conn)
            if before not in (None, *known_versions()):
                _check_schema(before, store.name)
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = conn
            command.upgrade(config, "head")
            return before, known_versions()[-1]
    finally:
        store.close()


def ensure_master_key(settings: Settings) -> MasterKey:
    """The master key; a new key file is made only if the store has no encrypted data yet."""
    if settings.database.encryption_key.get_secret_value() or settings.master_key_file.exists():
        return load_master_key(settings)
    if _has_encrypted_data(settings):
        raise KeyUnavailableError(
            f"{settings.master_key_file} is missing, but the store holds data encrypted with it",
            "Restore the key file from your backup; a new key cannot read that data",
        )
    return create_key_file(settings.master_key_file)


def known_versions() -> list[str]:
    """The versions of the schema that this medloop knows, oldest first, from the file names of the migrations."""
    return sorted(path.name.split("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def schema_version(conn: Connection) -> str | None:
    if not inspect(conn).has_table("alembic_version"):
        return None
    version = conn.execute(select(text("version_num")).select_from(table("alembic_version"))).scalar()
    return None if version is None else str(version)


def shown_url(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(query={}).render_as_string(hide_password=True)


def _check_schema(version: str | None, name: str) -> None:
    known = known_versions()
    if version is None:
        raise StoreError(f"There is no medloop store in {name} yet", "Make it with: medloop db upgrade")
    if version not in known:
        raise StoreError(f"{name} was made by a newer medloop (schema {version}, this one knows {known[-1]})", "Upgrade medloop")
    if version != known[-1]:
        raise StoreError(f"{name} has the older schema {version} (this medloop needs {known[-1]})", "Run: medloop db upgrade")


def _has_encrypted_data(settings: Settings) -> bool:
    url = _parse(settings.store_url)
    if url.drivername == "sqlite" and not os.path.exists(str(url.database)):
        return False
    engine = _engine(settings)
    try:
        with _speaking(engine.url), engine.connect() as conn:
            return inspect(conn).has_table("data_keys") and conn.execute(select(data_keys.c.id).limit(1)).first() is not None
    finally:
        engine.dispose()


def _engine(settings: Settings, *, create: bool = False, wait_s: float = WAIT_S) -> Engine:
    url = _parse(settings.store_url)
    options: dict[str, Any] = {"hide_parameters": True}  # parameters may be patient text
    if url.get_backend_name() == "sqlite":
        _prepare_file(Path(str(url.database)), create)
        engine = create_engine(url, connect_args={"timeout": wait_s, "cached_statements": CACHED_STATEMENTS}, **options)
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # An acknowledged commit must be on the server's disk, whatever its default is. The user's own options come first.
    session = f"{url.query.get('options', '')} -c synchronous_commit=on".strip()
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"options": session, "connect_timeout": 5}, **options)
    except ModuleNotFoundError:
        raise MissingExtraError.of("A PostgreSQL store", "ops") from None


def _parse(text_url: str) -> URL:
    try:
        url = make_url(text_url)
    except ArgumentError:
        raise ConfigError("database.url is not a database URL", "Example: postgresql+psycopg://user@host/medloop") from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise ConfigError(
            f"'{url.drivername}' is not a supported database (database.url)",
            "Use sqlite:///FILE or postgresql+psycopg://user@host/name",
        )
    if url.drivername == "sqlite" and (not url.database or url.database.startswith((":memory:", "file:"))):
        raise ConfigError("database.url does not name a file", "Example: sqlite:////srv/medloop/medloop.db")
    return url


def _prepare_file(path: Path, create: bool) -> None:
    """Make the file with access for its owner only, because SQLite would let all read it; its log files get the same mode."""
    if path.exists():
        return
    if not create:
        raise StoreError(f"There is no medloop store in {path} yet", "Make it with: medloop db upgrade")
    with explain_os_errors(path, writing=True):
        make_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _set_pragmas(dbapi_connection: Any, _record: object) -> None:
    dbapi_connection.isolation_level = None  # `_begin_sqlite` starts transactions
    cursor = dbapi_connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(conn: Connection) -> None:
    writing = bool(conn.get_execution_options().get("medloop_write"))
    raw = conn.connection.driver_connection
    assert raw is not None
    try:  # straight to the driver: every transaction has this, and nothing of SQLAlchemy is needed for it
        if conn.info.get(_WRITES) is not writing:
            raw.execute(f"PRAGMA query_only={'OFF' if writing else 'ON'}")
            conn.info[_WRITES] = writing
        raw.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    except sqlite3.Error as error:
        raise OperationalError("BEGIN", None, error) from error


@contextmanager
def _speaking(url: URL) -> Iterator[None]:
    """Turn the database's errors into sentences."""
    try:
        yield
    except MedloopError:
        raise
    except DBAPIError as error:
        raise _explain(error, shown_url(url)) from error
    except PoolTimeout as error:
        raise BusyError(f"All connections to {shown_url(url)} are in use", "Try again later") from error


def _explain(error: DBAPIError, name: str) -> MedloopError:
    message = str(error.orig).lower()
    if "nul (0x00)" in message:  # PostgreSQL refuses NUL in a text, also in a query
        return InputError("A name or an id contains a NUL character", "Remove it")
    state = getattr(error.orig, "sqlstate", None)
    if state in ("55P03", "40P01", "40001") or "is locked" in message or "is busy" in message:
        return BusyError(f"{name} is in use by another process", "Try again when it has finished")
    if state == "42501":
        return StoreError(
            f"The user of {name} may not do this",
            "Let the database's administrator grant it CREATE on the schema of medloop's tables",
        )
    if state == "53100" or "disk is full" in message:
        return _no_space(name)
    if "malformed" in message or "not a database" in message:
        return IntegrityError(f"{name} is damaged or not a database", "Restore it from a backup")
    if name.startswith("postgresql") and (error.connection_invalidated or isinstance(error, OperationalError)):
        return BusyError(f"{name} cannot be reached", "Check that it runs, and the host, user and password in database.url")
    if "i/o error" in message and _is_full(name):  # SQLite reports "full" only for its main file
        return _no_space(name)
    if isinstance(error, OperationalError):  # SQLite's own message never quotes a value
        return StoreError(f"{name} cannot be used: {error.orig}", "Check the disk and the permissions of the file")
    return StoreError(f"{name} refused the operation ({type(error.orig).__name__})", "Run: medloop db check")


def _no_space(name: str) -> NoSpaceError:
    return NoSpaceError(f"No space left on the disk that holds {name}", "Free some space and run the same command again")


def _is_full(path: str) -> bool:
    try:
        return shutil.disk_usage(os.path.dirname(path) or ".").free < 64 * 1024  # SQLite's shared index grows by 32 kB
    except OSError:
        return False
