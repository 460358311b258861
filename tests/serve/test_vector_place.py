"""Where the vectors of documents lie is said: files for SQLite, and for a PostgreSQL without pgvector how to enable it."""

import sys
import threading
from typing import Any

import numpy as np
import pytest
from knowledge_world import GUIDELINE, word_encoder
from test_knowledge_search import add_text

from medloop.loop.knowledge import KnowledgeSearch, postgres_store, prune_vectors, vector_note
from medloop.serve.agent import database_vectors
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import knowledge_vectors
from medloop.store.records.knowledge_vectors import VectorPart


def test_sqlite_needs_no_word_about_it(sqlite_settings: Settings) -> None:
    with postgres_store(sqlite_settings) as store:
        assert store is None and vector_note(store) == ""
    with open_store(sqlite_settings) as store:
        assert prune_vectors(store) == 0 and not knowledge_vectors.pgvector_state(store).is_usable


def test_a_postgresql_without_the_extension_searches_files_and_says_what_to_run(postgres_settings: Settings) -> None:
    add_text(postgres_settings.home, "guideline", GUIDELINE)
    with postgres_store(postgres_settings) as store:
        assert store is not None
        search = KnowledgeSearch(postgres_settings, store=store, encoder=word_encoder(), _loaded=True)
        result = search.examine("How is heat stroke treated by cooling?")
        assert result is not None and result.found.passages and "pgvector" not in search.index().backend  # type: ignore[union-attr]
        assert vector_note(store).startswith("Vectors: files of the workspace, because ")
        assert "CREATE EXTENSION vector" in vector_note(store) and knowledge_vectors.tables(store) == []
        assert prune_vectors(store) == 0


@pytest.mark.parametrize(
    ("row", "said"), [(("0.4.4", "public", True), "older than 0.5"), (("0.8.5", "ext", False), "GRANT USAGE ON SCHEMA ext")]
)
def test_an_extension_that_cannot_be_used_is_named(
    postgres_settings: Settings, monkeypatch: pytest.MonkeyPatch, row: Any, said: str
) -> None:
    real = knowledge_vectors.text
    monkeypatch.setattr(
        knowledge_vectors,
        "text",
        lambda sql: real(f"VALUES ('{row[0]}', '{row[1]}', {row[2]})" if "pg_extension e" in sql else sql),
    )
    with open_store(postgres_settings) as store:
        state = knowledge_vectors.pgvector_state(store)
    assert not state.is_usable and said in f"{state.reason} {state.hint}"


def test_rows_in_memory_are_right_for_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table:
        version, width = "0", 8

        def vectors(self, part_id: int) -> bytes:
            return np.full((3, 8), part_id, ">f4").tobytes()

    interval = sys.getswitchinterval()
    monkeypatch.setattr(database_vectors, "KEPT_ROWS", 1500)
    parts = [VectorPart(number, str(number), str(number), 3, "") for number in range(1000)]
    nearest, problems = database_vectors.DatabaseNearest(Table(), parts), []  # type: ignore[arg-type]

    def ask(seed: int) -> None:
        try:
            for number in np.random.default_rng(seed).integers(len(parts), size=3000):
                assert nearest.rows(np.array([3 * number + 1]))[0, 0] == number
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert problems == [] and sum(len(block) for block in nearest._held.values()) <= 1500
