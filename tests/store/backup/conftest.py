"""A clinic to back up, on both databases, and an empty machine."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

import pytest
from backup_helpers import Run, rating

from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users


@pytest.fixture
def run(command_line: Run) -> Run:
    return command_line


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
