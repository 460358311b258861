"""A clinic to back up, on both databases, and an empty machine."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from backup_helpers import Result, Run, rating

from medloop.cli import main
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users


@pytest.fixture
def run(capsys, monkeypatch) -> Run:
    def call(*args: str | Path) -> Result:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["medloop", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def clinic(settings: Settings, monkeypatch) -> Settings:
    """A workspace with a user, records, a model and a data file."""
    if settings.database.url.get_secret_value():
        monkeypatch.setenv("MEDLOOP_DATABASE__URL", settings.store_url)
    with open_store(settings) as store:
        users.add_user(store, "dr.li", "clinician", actor="test")
        crud.add(store, [rating(f"fb_{n}") for n in range(20)], actor="test")
    (settings.workspace.raw / "rows.jsonl").write_text('{"id": 1}\n')
    (settings.workspace.models / "lora/weights").write_bytes(os.urandom(3 * 2**20))
    return settings


@pytest.fixture
def empty_database(clinic: Settings, request, monkeypatch) -> Callable[[], None]:
    """What an empty machine has: no SQLite file, or another PostgreSQL database."""

    def prepare() -> None:
        url = clinic.database.url.get_secret_value()
        if url:
            import psycopg

            server, name = request.getfixturevalue("postgres"), f"d_{uuid.uuid4().hex}"
            with psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True) as conn:
                conn.execute(f'CREATE DATABASE "{name}"')
            monkeypatch.setenv("MEDLOOP_DATABASE__URL", f"postgresql+psycopg://postgres@/{name}?host={server.folder}")

    return prepare
