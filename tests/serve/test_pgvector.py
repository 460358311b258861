"""Documents on PostgreSQL with pgvector: two processes, removal, erasure, backup, kill -9, another encoder, no extension.

`make test-pgvector` runs this file, and the tests of test_knowledge_search.py that must be true of both places of vectors.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from knowledge_world import CHINESE, GUIDELINE, word_encoder
from test_knowledge_search import add_text

from medloop.contracts import Feedback
from medloop.contracts.knowledge import DocumentPage
from medloop.errors import StoreError
from medloop.loop import knowledge
from medloop.loop.erasure import erase_records
from medloop.loop.knowledge import KnowledgeSearch, prune_vectors, vector_note
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.serve.agent.database_vectors import DatabaseVectors
from medloop.serve.agent.documents import ReadDocument
from medloop.serve.agent.library import Library
from medloop.serve.agent.search import TextEncoder, open_index
from medloop.settings import Settings
from medloop.store.backup.databases import _find
from medloop.store.db import Store, open_store
from medloop.store.records import crud, knowledge_vectors
from medloop.store.records.knowledge_vectors import pgvector_state

pytestmark = pytest.mark.pgvector
QUESTION = "How is heat stroke treated by cooling?"


def search_of(store: Store, encoder: TextEncoder | None = None, **options: Any) -> KnowledgeSearch:
    return KnowledgeSearch(store.settings, store=store, encoder=encoder or word_encoder(), _loaded=True, **options)


def counts(store: Store) -> tuple[int, int]:
    """Parts and vectors in the database."""
    names = knowledge_vectors.tables(store)
    with store.read() as conn:
        number = lambda name: conn.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one()  # noqa: E731
        parts = number(knowledge_vectors.PARTS) if names else 0
        return parts, sum(number(name) for name in names if name != knowledge_vectors.PARTS)


@pytest.fixture
def clinic(vector_store: Store) -> Store:
    add_text(vector_store.settings.home, "guideline", GUIDELINE)
    add_text(vector_store.settings.home, "covid", CHINESE)
    return vector_store


def test_the_database_finds_what_the_files_find(clinic: Store) -> None:
    home = clinic.settings.home
    questions = (QUESTION, "dantrolene", "Adrenaline in anaphylaxis", "新冠出院后第几周复诊随访", "passport in Lisbon", "")
    index = search_of(clinic).index()
    assert index is not None and index.backend.startswith("words + pgvector 0.")
    assert not (home / "knowledge/vectors").exists() and counts(clinic) == (2, len(index.chunks))
    files = open_index(home, word_encoder())
    assert files is not None and files.hash == index.hash
    for question in questions:
        mine, theirs = index.examine(question), files.examine(question)
        assert mine.found == theirs.found and mine.candidates == theirs.candidates and mine.fit == pytest.approx(theirs.fit)


def test_many_rows_are_searched_by_the_graph(clinic: Store) -> None:
    """Beside every row compared: of the 20 nearest, HNSW finds at least 95 of 100, and the exact order among them is kept."""
    random_rows = np.random.default_rng(7).normal(size=(3000, 48)).astype(np.float32)
    rows = random_rows / np.linalg.norm(random_rows, axis=1, keepdims=True)
    place = DatabaseVectors(clinic, pgvector_state(clinic), "sha256:" + "2" * 64, 48)
    (document, other) = Library(clinic.settings.home).documents()
    assert not place.holds(document, 3000)
    place.write(document, rows)
    place.write(other, rows[:0])
    nearest = place.finish(Library(clinic.settings.home), [document, other], "x")
    clinic.vacuum([place.table.name])
    with clinic.read() as conn:
        query = f"EXPLAIN SELECT 1 FROM {place.table.name} ORDER BY embedding {place.table._product} LIMIT 20"
        plan = conn.exec_driver_sql(query.replace(":vector", f"'{rows[0].tolist()}'")).scalars().all()
    assert any("_hnsw" in line for line in plan)
    assert any("InitPlan" in line for line in plan)  # the vector is read from its text once, not for every row
    found = 0
    for row in rows[:50]:
        exact = np.argsort(-(rows @ row), kind="stable")[:20]
        near = nearest(row, 20)
        found += len(set(exact) & set(near))
        assert near[0] == exact[0]
        np.testing.assert_allclose(nearest.cosines(near, row), rows[near] @ row, atol=1e-5)
        assert np.all(np.diff(nearest.cosines(near, row)) <= 1e-6)
    assert found >= 950
    np.testing.assert_array_equal(nearest.rows(np.array([5, 2999])), rows[[5, 2999]])


def test_two_servers_see_a_document_and_its_removal_at_once(clinic: Store) -> None:
    with open_store(clinic.settings) as second:
        one, two = search_of(clinic), search_of(second)
        assert one.examine(QUESTION) == two.examine(QUESTION)
        added = add_text(clinic.settings.home, "gout", "# Gout\n\nColchicine treats an attack of gout in the big toe.")
        for search in (one, two):
            result = search.examine("Does colchicine treat gout?")
            assert result is not None and result.found.passages[0].document == added
        Library(clinic.settings.home).remove(added)
        assert prune_vectors(second) == 1 and counts(clinic)[0] == 2
        for search in (one, two):
            result = search.examine("Does colchicine treat gout?")
            assert result is not None and result.found.passages == ()


def test_two_processes_that_encode_at_once_store_each_document_once(clinic: Store) -> None:
    with open_store(clinic.settings) as second:
        searches, results = (search_of(clinic), search_of(second)), []
        threads = [threading.Thread(target=lambda s=search: results.append(s.examine(QUESTION))) for search in searches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results[0] == results[1] and results[0] is not None and results[0].found.passages
        assert counts(clinic)[0] == 2


def test_vectors_that_another_process_removed_are_made_again(clinic: Store) -> None:
    search = search_of(clinic)
    before = search.examine(QUESTION)
    knowledge_vectors.forget(clinic)
    assert search_of(clinic).examine(QUESTION) == before  # another process
    name = next(name for name in knowledge_vectors.tables(clinic) if name != knowledge_vectors.PARTS)
    with clinic.derived() as conn:
        conn.exec_driver_sql(f"DELETE FROM {name}")
    assert search.examine(QUESTION) == before and search.examine(QUESTION) == before
    assert counts(clinic)[1] > 0


def test_an_erasure_removes_the_vectors_in_the_database(vector_store: Store) -> None:
    own = "Nobody but me ever wrote a remark quite like this one about cold porridge on rainy Thursdays and my sore left knee."
    home = vector_store.settings.home
    pages = (
        DocumentPage(number=1, text=f"Case report. {own}"),
        DocumentPage(number=2, text="Heat stroke is treated by cooling."),
    )
    Library(home).add(ReadDocument("Cases", "pdf", "cases.pdf", "sha256:" + "d" * 64, pages), actor="user:test")
    search = search_of(vector_store)
    assert search.index() is not None and counts(vector_store)[0] == 1
    feedback = Feedback(
        session_id="s", agent_name="a", user_query=own, agent_response="Rest a while.", thumb="down", consent=("training",),
        subject=subject_of(vector_store, "patient 7"),
    )  # fmt: skip
    crud.add(vector_store, [feedback], actor="test")
    assert erase_records(vector_store, ErasureRequest(reason="asked", subject="patient 7"), actor="test").complete
    assert counts(vector_store) == (0, 0)  # before anybody asks the next question
    result = search.examine(QUESTION)
    assert result is not None and "cooling" in result.found.passages[0].text and counts(vector_store)[0] == 1


def test_another_encoder_of_another_width_gets_a_table_of_its_own(clinic: Store) -> None:
    wide = word_encoder(width=96)
    other = TextEncoder("other", "sha256:" + "3" * 64, 96, True, wide.encode)
    first, second = search_of(clinic), search_of(clinic, other)
    before = first.examine(QUESTION)
    assert second.examine(QUESTION) is not None and len(knowledge_vectors.tables(clinic)) == 3
    assert first.examine(QUESTION) == before  # a server with the old one goes on
    search_of(clinic, other, tidy=True).index()  # as 'medloop knowledge check' does
    assert len(knowledge_vectors.tables(clinic)) == 2 and second.examine(QUESTION) is not None
    assert first.examine(QUESTION) == before  # its vectors are made again


def test_the_setting_takes_the_vectors_out_of_the_database(clinic: Store) -> None:
    search_of(clinic).index()
    settings = clinic.settings.model_copy(update={"database": clinic.settings.database.model_copy(update={"vectors": "files"})})
    with open_store(settings) as store:
        index = search_of(store).index()
        assert index is not None and "usearch" in index.backend and knowledge_vectors.tables(store) == []
        assert "database.vectors is 'files'" in vector_note(store)


def test_a_document_that_names_a_person_keeps_vectors_out_of_the_database(clinic: Store) -> None:
    search_of(clinic).index()
    text = "Discharge letter. Patient: Travis Gordon, SSN 536-22-1984. Take aspirin 100 mg daily."
    read = ReadDocument("letter", "txt", "letter.txt", "sha256:" + "a" * 64, (DocumentPage(text=text),))
    Library(clinic.settings.home).add(read, actor="user:test", identifiers="keep")
    index = search_of(clinic).index()
    assert index is not None and "pgvector" not in index.backend and knowledge_vectors.tables(clinic) == []
    assert "identifiers of a person" in vector_note(clinic)


def test_changed_vectors_are_found_and_made_again(clinic: Store) -> None:
    search = search_of(clinic)
    before = search.examine(QUESTION)
    name = next(name for name in knowledge_vectors.tables(clinic) if name != knowledge_vectors.PARTS)
    with clinic.derived() as conn:
        conn.exec_driver_sql(f"UPDATE {name} SET embedding = embedding OPERATOR(public.+) embedding WHERE number = 0")
    assert search.repair() == 2 and search.repair() == 0 and search.examine(QUESTION) == before


# Commands


@pytest.fixture
def cheap_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "load_text_encoder", lambda settings: word_encoder())


def database_url(server: Any, user: str = "postgres") -> str:
    name = f"d_{uuid.uuid4().hex}"
    with psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    return f"postgresql+psycopg://{user}@/{name}?host={server.folder}"


def run_sql(url: str, *statements: str) -> None:
    name, _, host = url.partition("@/")[2].partition("?host=")
    with psycopg.connect(f"host={host} user=postgres dbname={name}", autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)  # type: ignore[arg-type]


def test_without_the_extension_files_are_searched_and_the_command_says_how_to_enable_it(
    command_line: Any, postgres: Any, cheap_encoder: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a user of the database without any rights of an administrator, from nothing to vectors in the database and back."""
    url = database_url(postgres, "clinic_user")
    role = "DO $$ BEGIN CREATE ROLE clinic_user LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    run_sql(url, role, "CREATE SCHEMA medloop AUTHORIZATION clinic_user", "ALTER ROLE clinic_user SET search_path = medloop")
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", url)
    home = tmp_path / "clinic"
    call = lambda *args: command_line("--home", home, *args)  # noqa: E731
    assert command_line("init", home).code == 0
    (tmp_path / "guide.md").write_text(GUIDELINE, encoding="utf-8")
    for said in (call("knowledge", "add", tmp_path / "guide.md"), call("knowledge", "list"), call("knowledge", "check")):
        assert said.code == 0 and "the extension pgvector is not enabled in this database" in said.out
        assert "CREATE EXTENSION vector" in said.out
    found = call("knowledge", "search", QUESTION, "--json").out
    run_sql(url, "CREATE EXTENSION vector")  # the printed step
    assert "pgvector 0." in call("knowledge", "check").out
    assert "in the database" in call("knowledge", "list").out and not (home / "knowledge/vectors").exists()
    assert json.loads(call("knowledge", "search", QUESTION, "--json").out)["index"] == json.loads(found)["index"]
    assert "Index: 1 documents" in call("knowledge", "add", tmp_path / "guide.md").out
    document = json.loads(call("knowledge", "list", "--json").out)[0]["document_id"]
    assert "There are no documents" in call("knowledge", "remove", document).out
    with open_store(Settings(home=home, database={"url": url})) as store:
        assert knowledge_vectors.tables(store) == []


def test_a_user_without_rights_is_told_what_to_grant(clinic: Store, pgvector: Any) -> None:
    url = clinic.settings.database.url.get_secret_value()
    schema = url.partition("search_path%3D")[2]
    role = "DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    run_sql(database := url.partition("&options")[0], role, f'GRANT USAGE ON SCHEMA "{schema}" TO reader')
    run_sql(database, f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO reader')
    reader = clinic.settings.model_copy(
        update={"database": type(clinic.settings.database)(url=url.replace("postgres@", "reader@"))}
    )
    with open_store(reader) as store, pytest.raises(StoreError) as refused:
        search_of(store).index()
    assert "may not do this" in str(refused.value) and "grant it CREATE" in str(refused.value)


@pytest.mark.parametrize("extension", [True, False])
def test_a_backup_is_restored_with_and_without_the_extension(
    command_line: Any, postgres: Any, cheap_encoder: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: bool
) -> None:
    assert "pixeltable" in _find("pg_dump")
    url = database_url(postgres)
    run_sql(url, "CREATE EXTENSION vector")
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", url)
    home = tmp_path / "clinic"
    assert command_line("init", home).code == 0
    (tmp_path / "guide.md").write_text(GUIDELINE, encoding="utf-8")
    assert "pgvector" in command_line("--home", home, "knowledge", "add", tmp_path / "guide.md").out
    before = command_line("--home", home, "knowledge", "search", QUESTION, "--json").out
    assert command_line("--home", home, "backup", "create", tmp_path / "backups").code == 0
    if extension:  # in place: the tables move aside, with the schema that the extension lies in
        target, options = home, ["--replace"]
        key = shutil.copy(home / "keys/backup.key", tmp_path / "backup.key")
    else:
        target, options = tmp_path / "second", []
        key = shutil.copy(home / "keys/backup.key", tmp_path / "backup.key")
        url = database_url(postgres)
        monkeypatch.setenv("MEDLOOP_DATABASE__URL", url)
    done = command_line("restore", tmp_path / "backups", target, "--key-file", key, *options)
    assert done.code == 0, done.err
    checked = command_line("--home", target, "knowledge", "check").out
    assert ("pgvector 0." in checked) is extension and ("CREATE EXTENSION vector" in checked) is not extension
    assert json.loads(command_line("--home", target, "knowledge", "search", QUESTION, "--json").out) == json.loads(before)


def test_a_kill_in_the_middle_of_add_leaves_whole_documents_and_the_same_command_goes_on(
    vector_store: Store, tmp_path: Path
) -> None:
    files = tmp_path / "many.jsonl"
    text = "Chapter {n}. Colchicine {n} treats gout number {n}. " * 30
    files.write_text("".join(json.dumps({"title": f"Leaflet {n}", "text": text.format(n=n)}) + "\n" for n in range(12)))
    command = [sys.executable, Path(__file__).with_name("killed_knowledge.py"), vector_store.settings.home, files]
    env = {**os.environ, "MEDLOOP_DATABASE__URL": vector_store.settings.database.url.get_secret_value()}
    random.seed(11)
    for _ in range(6):
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            for _ in range(random.randint(1, 2)):
                if process.stdout.readline().startswith("Index"):
                    break
            process.kill()
        for table in (name for name in knowledge_vectors.tables(vector_store) if name != knowledge_vectors.PARTS):
            query = f"SELECT count(*) FROM {knowledge_vectors.PARTS} p WHERE p.rows <> (SELECT count(*) FROM {table} v WHERE v.part_id = p.id)"
            with vector_store.read() as conn:
                assert conn.exec_driver_sql(query).scalar_one() == 0
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "Index: 12 documents" in done.stdout and "pgvector" in done.stdout, done.stderr
    index = search_of(vector_store).index()
    assert index is not None and counts(vector_store) == (12, len(index.chunks))


def test_recall_is_that_of_the_files(vector_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hundred questions of benchmarks/knowledge.py with the real encoder; KNOWLEDGE_DATA names the folder of documents."""
    if not (data := os.environ.get("KNOWLEDGE_DATA")):
        pytest.skip("KNOWLEDGE_DATA names no folder (make test-pgvector DATA=DIR)")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import knowledge as benchmark

    home = vector_store.settings.home
    added = benchmark.add_documents(home, Path(data))
    encoder = knowledge.load_text_encoder(vector_store.settings)
    assert encoder is not None
    database = search_of(vector_store, encoder).index()
    files = open_index(home, encoder)
    questions = [json.loads(line) for line in benchmark.QUESTIONS.read_text(encoding="utf-8").splitlines()]
    questions = [question for question in questions if question["split"] in ("dev", "test") and "document" in question]
    hits = {name: hits_of(benchmark, index, home, questions, added) for name, index in (("pgvector", database), ("files", files))}
    print(f"\nrecall@5 of {len(questions)} questions: " + ", ".join(f"{name} {sum(found)}" for name, found in hits.items()))  # noqa: T201
    assert len(questions) == 100 and abs(sum(hits["pgvector"]) - sum(hits["files"])) <= 2


def hits_of(benchmark: Any, index: Any, home: Path, questions: Sequence[Any], added: dict[str, Any]) -> list[bool]:
    return [benchmark.is_found(index, Library(home), question, *added[question["document"]])[0] for question in questions]
