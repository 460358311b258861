"""Fixtures for databases: a workspace on SQLite, and the same on a throw-away PostgreSQL."""

from __future__ import annotations

import gc
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

import medloop.models

hypothesis.settings.register_profile("medloop", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("medloop")

for _name in [name for name in os.environ if name.startswith("MEDLOOP_")]:
    del os.environ[_name]  # a developer's own workspace has no part in the tests, nor in the processes they start

# A command leaves bitsandbytes out of its process. Here many commands share one with the tests that need it.
medloop.models.leave_out_bitsandbytes = lambda: None


def use_memory_for_temporary_files() -> None:
    """Tests kill processes, not the machine: where a RAM disk has room, nothing has to wait for a disk to sync."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 4 * 2**30:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


use_memory_for_temporary_files()


gc.set_threshold(50_000, 20, 100)  # imports and tests make millions of objects, and hardly any of them in circles
_frozen_modules = 0


def pytest_collection_finish() -> None:
    """Thousands of tests and a dozen libraries stay until the end: the garbage collector need not walk them every time."""
    global _frozen_modules
    gc.freeze()
    _frozen_modules = len(sys.modules)


@pytest.fixture(scope="module", autouse=True)
def freeze_libraries() -> None:
    """The same for the libraries that tests have loaded since: torch and its kin are a million objects, a second to walk."""
    global _frozen_modules
    if len(sys.modules) > _frozen_modules + 200:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


_umask = os.umask(0o077)
os.umask(_umask)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Iterator[Any]:
    """The command line sets the umask of its process; a fixture that runs it here, of whatever scope, must not set that of the others."""
    try:
        return (yield)
    finally:
        os.umask(_umask)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """The same for a test that runs the command line."""
    try:
        return (yield)
    finally:
        os.umask(_umask)


class Ended(NamedTuple):
    """How a command of medloop ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def command_line(capsys, monkeypatch) -> Callable[..., Ended]:
    """`medloop ARGS` in this process, as its entry point runs it."""
    from medloop.cli import main

    def call(*args: str | Path) -> Ended:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["medloop", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ended(code, *capsys.readouterr())

    return call


@dataclass(frozen=True)
class Postgres:
    """A server of our own: data folder and unix socket in one folder, no TCP port."""

    folder: Path
    bin: Path
    as_user: dict[str, Any]  # root may not run PostgreSQL, so the server belongs to somebody else

    def control(self, *args: str) -> None:
        command = [str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-w", "-t", "60", *args]
        with (self.folder / "pg_ctl.log").open("ab") as log:  # a pipe would stay open in the server
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd=self.folder, **self.as_user)

    def start(self) -> None:
        # Tests kill processes, not the machine: without fsync the server is quick and keeps the same promises.
        options = (
            f"-k {self.folder} -c listen_addresses='' -c fsync=off -c full_page_writes=off -c dynamic_shared_memory_type=mmap"
        )
        self.control("-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str) -> None:
        self.control("-m", mode, "stop")

    def new_database(self) -> str:
        """The URL of an empty place: a schema of its own, since a real database costs 300 files and a second."""
        import psycopg

        name = f"t_{uuid.uuid4().hex}"
        with psycopg.connect(f"host={self.folder} user=postgres dbname=postgres", autocommit=True) as conn:
            conn.execute(f'CREATE SCHEMA "{name}"')
        return f"postgresql+psycopg://postgres@/postgres?host={self.folder}&options=-csearch_path%3D{name}"


def find_postgres_binaries() -> Path | None:
    on_path = [Path(binary).resolve().parent for name in ("initdb", "pg_ctl") if (binary := shutil.which(name))]
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((path for path in (*on_path, *installed) if (path / "initdb").exists() and (path / "postgres").exists()), None)


def unprivileged() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    binaries = find_postgres_binaries()
    if binaries is None:
        reason = "PostgreSQL is not installed (no initdb in PATH or /usr/lib/postgresql)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="medloop-pg-"))  # short: a socket's path has at most 107 characters
    server = Postgres(folder, binaries, unprivileged())
    try:
        if "user" in server.as_user:
            os.chown(folder, server.as_user["user"], server.as_user["group"])
        initdb = [
            str(binaries / "initdb"),
            "-D",
            str(folder / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **server.as_user)
        server.start()
        yield server
        server.stop("immediate")  # its data is thrown away
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def quick_schema() -> Iterator[Any]:
    """The first empty store of a session gets its tables from the migration, and all others by the statements that it sent.

    Two thirds of the time for a new store is SQLAlchemy and Alembic, which put these statements together. Yields the real migration.
    """
    from alembic import command
    from sqlalchemy import event, inspect

    from medloop.store.db import MIGRATIONS

    statements: dict[str, list[str]] = {}
    migrate = command.upgrade

    def upgrade(config: Any, revision: str) -> None:
        conn = config.attributes["connection"]
        if config.get_main_option("script_location") != str(MIGRATIONS) or inspect(conn).get_table_names():
            return migrate(config, revision)
        dialect = conn.dialect.name
        if dialect in statements:
            together = dialect == "postgresql"  # which takes many statements at once: one trip to the server instead of dozens
            for statement in [";\n".join(statements[dialect])] if together else statements[dialect]:
                conn.exec_driver_sql(statement)
            return None
        sent: list[str] = []

        def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
            if statement.lstrip().startswith(("CREATE", "INSERT")):
                assert not parameters, statement  # all of it is in the text
                sent.append(statement)

        event.listen(conn, "before_cursor_execute", note)
        try:
            migrate(config, revision)
        finally:
            event.remove(conn, "before_cursor_execute", note)
        statements[dialect] = sent
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "upgrade", upgrade)
        yield migrate


class Compiled(dict[tuple[Any, ...], Any]):
    """Compiled statements of all engines that speak one dialect; SQLAlchemy's keys begin with the engine's own dialect object."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], statement: Any) -> None:
        if len(self) > 4000:
            self.clear()
        super().__setitem__(key[1:], statement)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Every store has an engine of its own, which would compile the same statements again: a fifth of the time for a new store."""
    from medloop.store import db

    compiled: dict[str, Compiled] = {}
    real = db.create_engine

    def create_engine(*args: Any, **options: Any) -> Any:
        engine = real(*args, **options)
        engine.update_execution_options(compiled_cache=compiled.setdefault(engine.dialect.name, Compiled()))
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "create_engine", create_engine)
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[int]:
    """Hashing a password is slow on purpose, so it is not that slow here. Yields the real cost."""
    from medloop.store import passwords

    with pytest.MonkeyPatch.context() as patch:
        cost = passwords.COST
        patch.setattr(passwords, "COST", 2**4)
        yield cost


@pytest.fixture
def real_migration(quick_schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the migration itself."""
    monkeypatch.setattr("alembic.command.upgrade", quick_schema)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The folders of a workspace, without a store or a key."""
    from medloop.settings import Workspace

    home = Workspace(tmp_path / "clinic")
    for folder in home.folders():
        folder.mkdir(parents=True)
    home.config.touch()
    return home.home


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a key and an empty store on SQLite, made once and copied."""
    return closed_copy_of(prepared(tmp_path_factory.mktemp("store") / "clinic", ""))


@pytest.fixture(scope="session")
def new_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace as `medloop init` leaves it, made once and copied."""
    from medloop.loop.workspace import init_workspace
    from medloop.settings import Settings

    home = tmp_path_factory.mktemp("new") / "clinic"
    init_workspace(home)
    return closed_copy_of(Settings(home=home))


def closed_copy_of(settings: Any) -> Path:
    from medloop.store.db import open_store

    with open_store(settings) as store:
        store.checkpoint()
    return Path(settings.home)


@pytest.fixture
def sqlite_settings(workspace: Path, empty_store: Path) -> Any:
    from medloop.settings import Settings

    shutil.copytree(empty_store, workspace, dirs_exist_ok=True)
    return Settings(home=workspace, database={"url": ""})


@pytest.fixture
def postgres_settings(workspace: Path, postgres: Postgres) -> Any:
    return prepared(workspace, postgres.new_database())


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest) -> Any:
    """Settings of a workspace with an empty store, on both databases."""
    return request.getfixturevalue({"sqlite": "sqlite_settings", "postgresql": "postgres_settings"}[request.param])


def prepared(home: Path, url: str) -> Any:
    from medloop.settings import Settings
    from medloop.store.db import ensure_master_key, upgrade

    settings = Settings(home=home, database={"url": url})
    ensure_master_key(settings)
    upgrade(settings)
    return settings


@pytest.fixture
def store(settings: Any) -> Iterator[Any]:
    from medloop.store.db import open_store

    with open_store(settings, wait_s=5.0) as opened:
        yield opened
