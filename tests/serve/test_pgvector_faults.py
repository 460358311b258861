"""Vectors in PostgreSQL when others interfere: bytes of removed vectors, readers in the way, the extension dropped, tables gone.

`make test-pgvector` runs this file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from knowledge_world import CHINESE, GUIDELINE, word_encoder
from sqlalchemy import event
from test_knowledge_search import add_text
from test_pgvector import QUESTION, counts, database_url, run_sql, search_of

from medloop.contracts.knowledge import DocumentPage
from medloop.errors import BusyError, StoreError
from medloop.loop import knowledge
from medloop.loop.knowledge import prune_vectors, vector_note
from medloop.serve.agent import chunks
from medloop.serve.agent.documents import ReadDocument
from medloop.serve.agent.library import Library
from medloop.settings import Settings
from medloop.store.db import Store, ensure_master_key, open_store, upgrade
from medloop.store.records import knowledge_vectors
from medloop.store.records.knowledge_vectors import PARTS, VectorTable, pgvector_state

pytestmark = pytest.mark.pgvector
WIDTH = 384


@pytest.fixture
def clinic(vector_store: Store) -> Store:
    add_text(vector_store.settings.home, "guideline", GUIDELINE)
    add_text(vector_store.settings.home, "covid", CHINESE)
    return vector_store


@pytest.fixture
def own(postgres: Any, workspace: Path) -> Iterator[Store]:
    """A store in a database of its own, whose extension can be dropped."""
    url = database_url(postgres)
    run_sql(url, "CREATE EXTENSION vector")
    settings = Settings.model_validate({"home": workspace, "database": {"url": url}})
    ensure_master_key(settings)
    upgrade(settings)
    add_text(workspace, "guideline", GUIDELINE)
    with open_store(settings) as store:
        yield store


def connect(store: Store) -> Any:
    """Somebody else at the database, in the schema of the store."""
    url = store.engine.url
    options = str(url.query.get("options", ""))
    return psycopg.connect(f"host={url.query['host']} user=postgres dbname={url.database}", options=options)


def vectors_table(store: Store) -> str:
    (name,) = (name for name in knowledge_vectors.tables(store) if name != PARTS)
    return name


def wait_for(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Bytes


def in_files(store: Store, server: Any, vectors: np.ndarray) -> int:
    """How many of the vectors stand, as PostgreSQL stores them, in any file of a table or an index of the whole server."""
    with connect(store) as conn:
        conn.execute("CHECKPOINT")
    content = b"\0".join(path.read_bytes() for path in (server.folder / "data/base").rglob("*") if path.is_file())
    return sum(row.astype("<f4").tobytes() in content for row in vectors)


@pytest.mark.parametrize("reader", [False, True])
def test_removed_vectors_are_in_no_file_of_the_database(vector_store: Store, pgvector: Any, reader: bool) -> None:
    table = VectorTable(vector_store, pgvector_state(vector_store), "encoder", WIDTH)
    table.create()
    kept, secret, more = np.random.default_rng(5 + reader).normal(size=(3, 30, WIDTH)).astype(">f4")
    for name, rows in (("a", kept), ("s", secret), ("b", more)):
        table.write(name, f"document {name}", rows.tobytes())
    table.build_index()
    assert in_files(vector_store, pgvector, secret) == 30
    with connect(vector_store) as other:
        if reader:  # a dump of everything but the vectors, say: what it can still see must not be kept for it
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute(f"SELECT count(*) FROM {PARTS}")
        assert knowledge_vectors.prune(vector_store, lambda: {"document a", "document b"}) == 1
    assert in_files(vector_store, pgvector, secret) == 0
    assert in_files(vector_store, pgvector, kept) == in_files(vector_store, pgvector, more) == 30
    assert counts(vector_store) == (2, 60)
    with connect(vector_store) as conn:  # the graph is there again, and so is the key
        indexes = conn.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = %s", (table.name,)
        ).fetchall()
    assert sorted("hnsw" in row[0] for row in indexes) == [False, True]
    part = table.parts()["b"]
    assert np.array_equal(np.frombuffer(table.vectors(part.part_id), ">f4").reshape(30, WIDTH), more)
    assert table.nearest(more[3].tolist(), 1) == [(part.part_id, 3)] and knowledge_vectors.prune(vector_store, set) == 2


def test_a_removal_waits_for_a_reader(clinic: Store) -> None:
    search_of(clinic).index()
    Library(clinic.settings.home).remove(Library(clinic.settings.home).documents()[0].card.document_id)
    with connect(clinic) as reader, connect(clinic) as watcher:
        watcher.autocommit = True
        reader.execute(f"SELECT count(*) FROM {vectors_table(clinic)}")
        done: list[int] = []
        removal = threading.Thread(target=lambda: done.append(prune_vectors(clinic, patience_s=120)))
        removal.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        wait_for(lambda: watcher.execute(waiting).fetchone()[0] > 0)
        assert not done
        reader.rollback()
        removal.join()
    assert done == [1] and counts(clinic)[0] == 1


def test_a_server_goes_on_and_removes_what_a_reader_held_back(clinic: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge_vectors, "_HELD_MS", 50)
    search = search_of(clinic)
    before = search.examine(QUESTION)
    added = add_text(clinic.settings.home, "gout", "# Gout\n\nColchicine treats an attack of gout in the big toe.")
    assert search.examine("Does colchicine treat gout?").found.passages  # type: ignore[union-attr]
    Library(clinic.settings.home).remove(added)
    with connect(clinic) as reader:
        reader.execute(f"SELECT count(*) FROM {vectors_table(clinic)}")
        with pytest.raises(BusyError, match="knowledge check"):
            prune_vectors(clinic, patience_s=0)
        assert search.examine(QUESTION) == before and counts(clinic)[0] == 3
        assert search.examine("Does colchicine treat gout?").found.passages == ()  # type: ignore[union-attr]
    assert search._remove_at is not None
    search._remove_at = 0  # a minute later
    assert search.examine(QUESTION) == before and counts(clinic)[0] == 2 and search._remove_at is None


def test_a_command_says_what_a_reader_held_back_and_the_printed_step_removes_it(
    command_line: Any, own: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge, "load_text_encoder", lambda settings: word_encoder())
    monkeypatch.setattr(knowledge_vectors, "PATIENCE_S", 0.0)
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", own.settings.database.url.get_secret_value())
    call = lambda *args: command_line("--home", own.settings.home, "knowledge", *args)  # noqa: E731
    (tmp_path / "gout.md").write_text("# Gout\n\nColchicine treats an attack of gout.", encoding="utf-8")
    assert "pgvector" in call("add", tmp_path / "gout.md").out and counts(own)[0] == 2
    document = json.loads(call("list", "--json").out)[1]["document_id"]
    with connect(own) as reader:
        reader.execute(f"SELECT count(*) FROM {vectors_table(own)}")
        refused = call("remove", document)
        assert refused.code != 0 and "still in the database" in refused.err and "run: medloop knowledge check" in refused.err
    assert counts(own)[0] == 2
    assert call("check").code == 0 and counts(own)[0] == 1  # the printed step


# The extension


def test_a_server_whose_extension_is_dropped_searches_files_and_says_so(own: Store, caplog: pytest.LogCaptureFixture) -> None:
    url, search = own.settings.database.url.get_secret_value(), search_of(own)
    for _ in range(8):  # so often that the driver prepares the statements
        before = search.examine(QUESTION)
    assert before is not None and before.found.passages
    run_sql(url, "DROP EXTENSION vector CASCADE")
    for _ in range(2):
        assert search.examine(QUESTION) == before and "pgvector" not in search.index().backend  # type: ignore[union-attr]
    assert "the extension pgvector is not enabled" in caplog.text and "CREATE EXTENSION vector" in vector_note(own)
    assert knowledge_vectors.tables(own) == []  # without its column, a table still has the vectors in its file
    run_sql(url, "CREATE EXTENSION vector")
    assert search.examine(QUESTION) == before
    other = search_of(own)
    assert other.examine(QUESTION) == before and "pgvector" in other.index().backend  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        ("DROP EXTENSION vector CASCADE", "CREATE EXTENSION vector"),
        ("CREATE SCHEMA elsewhere", "ALTER EXTENSION vector SET SCHEMA elsewhere"),
    ],
)
@pytest.mark.parametrize("who", ["running", "new", "check"])
def test_vectors_of_an_extension_that_was_made_again_are_made_again(own: Store, change: tuple[str, ...], who: str) -> None:
    search = search_of(own)
    for _ in range(8):
        before = search.examine(QUESTION)
    run_sql(own.settings.database.url.get_secret_value(), *change)
    if who != "running":
        search = search_of(own, tidy=who == "check")
        assert search.index() is not None and search.repair() == 0
    assert search.examine(QUESTION) == before and search.examine(QUESTION) == before
    assert "pgvector" in search.index().backend and counts(own)[1] > 0  # type: ignore[union-attr]


def test_a_removal_reaches_a_table_whose_extension_is_gone(own: Store, postgres: Any) -> None:
    table = VectorTable(own, pgvector_state(own), "encoder", WIDTH)
    table.create()
    secret = np.random.default_rng(9).normal(size=(10, WIDTH)).astype(">f4")
    table.write("s", "document s", secret.tobytes())
    run_sql(own.settings.database.url.get_secret_value(), "DROP EXTENSION vector CASCADE")
    assert in_files(own, postgres, secret) == 10
    assert prune_vectors(own) == 1 and in_files(own, postgres, secret) == 0


# Versions, other processes, other people's tables


def test_vectors_of_an_older_cutting_do_not_stay(clinic: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    search_of(clinic).index()
    monkeypatch.setattr(chunks, "VERSION", "another")
    exact, real = [], VectorTable.nearest

    def nearest(self: VectorTable, *args: Any, **options: Any) -> list[tuple[int, int]]:
        exact.append("parts" in options)
        return real(self, *args, **options)

    monkeypatch.setattr(VectorTable, "nearest", nearest)
    search = search_of(clinic)
    assert search.examine(QUESTION) is not None and not any(exact)  # a server leaves the old table for others that use it
    search = search_of(clinic, tidy=True)  # as 'medloop knowledge check' does
    index = search.index()
    assert index is not None and counts(clinic) == (2, len(index.chunks))


def test_adding_a_document_counts_its_own_rows_only(clinic: Store) -> None:
    table = VectorTable(clinic, pgvector_state(clinic), "encoder", 4)
    table.create()
    table.write("a", "document a", bytes(16 * 500))
    said: list[str] = []
    event.listen(clinic.engine, "before_cursor_execute", lambda *args: said.append(args[2]))
    table.write("b", "document b", bytes(16 * 500))
    table.write("b", "document b", bytes(16 * 500))
    reading = [statement for statement in said if table.name in statement and statement.startswith("SELECT")]
    assert len(reading) == 2 and all("WHERE v.part_id = p.id" in statement for statement in reading) and counts(clinic)[1] == 1000


def test_tables_that_vanish_while_vectors_are_written_are_made_again(clinic: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = VectorTable.write, []

    def write(self: VectorTable, *args: Any) -> None:
        if not calls:
            knowledge_vectors.forget(clinic)  # another process, for which vectors are files
        calls.append(args)
        real(self, *args)

    monkeypatch.setattr(VectorTable, "write", write)
    result = search_of(clinic).examine(QUESTION)
    assert result is not None and result.found.passages and counts(clinic)[0] == 2


def test_errors_of_the_database_are_sentences(clinic: Store) -> None:
    with pytest.raises(StoreError, match="UndefinedTable"):
        clinic.vacuum(["knowledge_vectors_gone"])
    table = VectorTable(clinic, pgvector_state(clinic), "encoder", 4)
    table.create()
    table.width = 3  # rows that do not fit the column
    with pytest.raises(StoreError, match="refused the operation"):
        table.write("a", "document a", bytes(12))


def test_tables_of_others_are_left_alone(clinic: Store) -> None:
    search_of(clinic).index()
    theirs = ("knowledge_vectors_old", "knowledge_vectors_0123456789ab_copy", 'knowledge_vectors "2"; --', "knowledge_vector")
    with clinic.derived() as conn:
        for name in theirs:
            quoted = name.replace('"', '""')
            conn.exec_driver_sql(f'CREATE TABLE "{quoted}" (id integer)')
        conn.exec_driver_sql(
            f"INSERT INTO {PARTS} (vectors, name, document, rows, sha256) VALUES ('knowledge_vectors_old', 'x', 'gone', 1, '')"
        )
    assert prune_vectors(clinic) == 1
    knowledge_vectors.forget(clinic, but=vectors_table(clinic))
    knowledge_vectors.forget(clinic)
    with connect(clinic) as conn:
        left = conn.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'knowledge%%' AND schemaname = current_schema()"
        )
        assert {row[0] for row in left} == set(theirs)


def test_a_document_with_identifiers_that_comes_late_is_not_written(clinic: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written, real_write, real_open = [], VectorTable.write, knowledge.open_index

    def write(self: VectorTable, name: str, document: str, vectors: bytes) -> None:
        written.append(document)
        real_write(self, name, document, vectors)

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(knowledge, "open_index", real_open)
        text = "Discharge letter. Patient: Travis Gordon, SSN 536-22-1984. Take aspirin 100 mg daily."
        read = ReadDocument("letter", "txt", "letter.txt", "sha256:" + "a" * 64, (DocumentPage(text=text),))
        Library(clinic.settings.home).add(read, actor="user:test", identifiers="keep")
        return real_open(*args, **options)

    monkeypatch.setattr(VectorTable, "write", write)
    monkeypatch.setattr(knowledge, "open_index", late)
    search = search_of(clinic)
    index = search.index()
    kept = next(document for document in Library(clinic.settings.home).documents() if document.card.identifiers == "kept")
    assert kept.sha256 not in written and len(written) == 2
    assert index is not None and "pgvector" not in index.backend and knowledge_vectors.tables(clinic) == []
