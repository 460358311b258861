"""The index: finds by words and vectors, says when nothing fits, is made again when it is missing, damaged or outdated."""

from pathlib import Path
from typing import Any

import pytest
from knowledge_world import CHINESE, GUIDELINE, make_pdf, word_encoder

from medloop.contracts.knowledge import DocumentPage
from medloop.errors import IntegrityError
from medloop.serve.agent import search
from medloop.serve.agent.documents import ReadDocument, read_file
from medloop.serve.agent.library import Library, PersonalDataError
from medloop.serve.agent.search import open_index


def add_text(home: Path, name: str, text: str) -> str:
    path = home / f"{name}.md"
    path.write_text(text, encoding="utf-8")
    (read,) = read_file(path)
    path.unlink()
    return Library(home).add(read, actor="user:test").document.document_id


@pytest.fixture
def home(tmp_path: Path) -> Path:
    add_text(tmp_path, "guideline", GUIDELINE)
    add_text(tmp_path, "covid", CHINESE)
    return tmp_path


def test_a_citation_points_to_its_page_and_characters(tmp_path: Path, opened: Any) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["Chickenpox spreads easily among children.", "Adrenaline treats anaphylaxis at once."])
    (read,) = read_file(path)
    library = Library(tmp_path)
    library.add(read, actor="user:test")
    index = opened(tmp_path, word_encoder())
    passage = index.search("What treats anaphylaxis?").passages[0]
    assert passage.page == 2
    assert library.pages(passage.document)[1].text[passage.start : passage.end] == passage.text and "Adrenaline" in passage.text


def test_headings_find_what_the_words_of_a_piece_do_not_say(home: Path, opened: Any) -> None:
    index = opened(home, None)
    first = index.search("Does dantrolene help in heat stroke?").passages[0]
    assert "Dantrolene" in first.text and first.title.endswith("Heat Stroke > Treatment")
    assert "第4周" in index.search("新冠出院后第几周复诊随访").passages[0].text


def test_what_is_not_in_the_documents_gives_no_passage(home: Path, opened: Any) -> None:
    for encoder in (None, word_encoder()):
        index = opened(home, encoder)
        for question in ("How do I renew my passport in Lisbon?", "股票今天涨了吗", "", "???", "a" * 5000):
            assert index.search(question).passages == (), question


def test_neighbours_on_a_page_are_one_passage(tmp_path: Path, opened: Any) -> None:
    add_text(
        tmp_path,
        "long",
        "# Insulin\n\n" + "\n".join(f"Insulin rule {n}: " + "store it cold and keep it dry. " * 18 for n in range(3)),
    )
    index = opened(tmp_path, None)
    assert len(index.chunks) == 3
    passages = index.search("insulin store cold dry").passages
    assert len(passages) < 3 and max(len(passage.text) for passage in passages) > 500


def test_the_same_content_is_one_document_and_is_encoded_once(home: Path, opened: Any) -> None:
    calls: list[int] = []
    opened(home, word_encoder(calls))
    encoded = sum(calls)
    assert add_text(home, "again", GUIDELINE) == add_text(home, "third", GUIDELINE) and len(Library(home).documents()) == 2
    opened(home, word_encoder(calls))
    assert encoded > 0 and sum(calls) == encoded


def test_an_interrupted_index_goes_on_with_the_next_document(home: Path, opened: Any) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        opened(home, word_encoder(calls), on_document=stop)
    assert len(calls) == 1
    opened(home, word_encoder(calls))
    assert len(calls) == 2  # one per document: the first one was not repeated


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "note"])
def test_the_file_of_the_index_is_made_again(home: Path, damage: str) -> None:
    before = open_index(home, word_encoder())
    (path,) = (home / "knowledge/index").glob("*.usearch")
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "note":
        path.with_suffix(".json").write_text('{"version": "0.0.1"}')
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else whole[:-40] + bytes(255 - byte for byte in whole[-40:]))
    after = open_index(home, word_encoder())
    assert before is not None and after is not None
    assert after.nearest.rebuilt and after.search("heat stroke cooling") == before.search("heat stroke cooling")
    again = open_index(home, word_encoder())
    assert again is not None and not again.nearest.rebuilt


def test_damaged_vectors_are_encoded_again(home: Path) -> None:
    calls: list[int] = []
    open_index(home, word_encoder(calls))
    path = sorted((home / "knowledge/vectors").glob("*.f32"))[0]
    content = path.read_bytes()
    path.write_bytes(content[:10] + bytes([content[10] ^ 255]) + content[11:])
    open_index(home, word_encoder(calls))
    assert len(calls) == 3


def test_removal_leaves_nothing_of_a_document(home: Path) -> None:
    before = open_index(home, word_encoder())
    library = Library(home)
    library.remove(library.documents()[0].card.document_id)
    after = open_index(home, word_encoder())
    assert before is not None and after is not None and before.hash != after.hash
    assert after.search("dantrolene in heat stroke").passages == ()
    assert len(list((home / "knowledge/vectors").glob("*.f32"))) == len(list((home / "knowledge/index").glob("*.usearch"))) == 1
    assert not any(b"Dantrolene" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_a_changed_document_is_not_read(home: Path) -> None:
    path = next((home / "knowledge/documents").glob("*/pages.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"40 degrees", b"50 degrees").replace("3天".encode(), "9天".encode()))
    with pytest.raises(IntegrityError):
        open_index(home, None)
    assert len(Library(home).damaged()) == 1


def test_a_document_about_a_person_is_refused_or_scrubbed(tmp_path: Path) -> None:
    library = Library(tmp_path)
    text = "Discharge letter. Patient: Travis Gordon, SSN 536-22-1984. Take aspirin 100 mg daily."
    read = ReadDocument("letter", "txt", "letter.txt", "sha256:" + "a" * 64, (DocumentPage(text=text),))
    with pytest.raises(PersonalDataError) as refused:
        library.add(read, actor="user:test")
    assert "Travis" not in str(refused.value) and not library.documents()
    added = library.add(read, actor="user:test", identifiers="scrub")
    (page,) = library.pages(added.document.document_id)
    assert "Travis" not in page.text and "1984" not in page.text and "aspirin 100 mg" in page.text
    assert added.document.identifiers == "scrubbed"


def test_the_hash_names_everything_that_changes_a_result(home: Path, monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    hashes = {opened(home, None).hash, opened(home, word_encoder()).hash}
    monkeypatch.setattr(search, "VERSION", "another")
    hashes.add(opened(home, None).hash)
    assert len(hashes) == 3
