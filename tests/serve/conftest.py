"""One server with a random model and two adapters for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from medloop.serve.agent.database_vectors import DatabaseVectors
from medloop.serve.agent.search import KnowledgeIndex, TextEncoder, open_index
from medloop.store.db import Store, open_store
from medloop.store.records.knowledge_vectors import pgvector_state
from medloop.testing.model_server import model_server
from medloop.testing.models import random_adapter, tiny_model


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("serve") / "base")


@pytest.fixture(scope="session")
def adapters(base: Path) -> dict[str, Path]:
    return {
        "one": random_adapter(base.parent / "one", base, 1),
        "two": random_adapter(base.parent / "two", base, 2, r=2, target_modules=["q_proj", "down_proj"]),
    }


@pytest.fixture(scope="session")
def server(base: Path, adapters: dict[str, Path]) -> Iterator[Any]:
    with model_server(str(base), adapters=adapters, max_rows=8, queue_places=64) as running:
        yield running


# pgvector: 'make test-pgvector' puts the programs of a PostgreSQL that has it first on the PATH.


@pytest.fixture(scope="session")
def pgvector(postgres: Any) -> Any:
    """The server, with the extension in the schema `public`, which is on no store's search path."""
    import psycopg

    with psycopg.connect(f"host={postgres.folder} user=postgres dbname=postgres", autocommit=True) as conn:
        conn.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    return postgres


@pytest.fixture
def vector_store(pgvector: Any, postgres_settings: Any) -> Iterator[Store]:
    with open_store(postgres_settings) as store:
        yield store


OpenIndex = Callable[..., KnowledgeIndex]


@pytest.fixture(params=["files", pytest.param("database", marks=pytest.mark.pgvector)])
def opened(request: pytest.FixtureRequest) -> OpenIndex:
    """Opens the index of a workspace, with its vectors in files and in PostgreSQL: the same must be true of both."""
    store = request.getfixturevalue("vector_store") if request.param == "database" else None

    def open_(home: Path, encoder: TextEncoder | None, **options: Any) -> KnowledgeIndex:
        if store is not None and encoder is not None:
            options["vectors"] = DatabaseVectors(store, pgvector_state(store), encoder.sha256, encoder.width)
        index = open_index(home, encoder, **options)
        assert index is not None
        return index

    return open_
