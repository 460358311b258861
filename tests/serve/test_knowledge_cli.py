"""`medloop knowledge` as a person meets it, and every next step that it prints."""

import json
import re
import shlex
from pathlib import Path

import pytest
from knowledge_world import GUIDELINE, make_pdf

from medloop.loop import knowledge
from medloop.loop.workspace import init_workspace
from medloop.store import audit
from medloop.store.db import open_store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose documents are searched by words alone: a model would take seconds to load."""
    monkeypatch.setattr(knowledge, "encoder_place", lambda settings: None)
    init_workspace(tmp_path / "clinic")
    return tmp_path / "clinic"


def test_add_search_list_check_remove(command_line, home: Path, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(GUIDELINE, encoding="utf-8")
    pdf = make_pdf(tmp_path / "sepsis.pdf", ["Sepsis needs antibiotics within one hour of recognition."])
    (tmp_path / "letter.txt").write_text("Patient: Travis Gordon, SSN 536-22-1984, was seen today.", encoding="utf-8")
    call = lambda *args: command_line("--home", home, "knowledge", *args)  # noqa: E731

    added = call("add", tmp_path / "guide.md", tmp_path / "letter.txt", pdf)
    assert added.code == 3 and "1 of 3 files were not added" in added.err and "Travis" not in added.err + added.out
    assert "Index: 2 documents" in added.out and "words only" in added.out
    again = call("add", tmp_path / "guide.md")
    assert again.code == 0 and "already there: 1" in again.out

    found = call("search", "How soon antibiotics in sepsis?")
    assert "page 1, characters 0 to" in found.out and found.out.startswith("1.")
    result = json.loads(call("search", "How soon antibiotics in sepsis?", "--json").out)
    assert result["fit"] >= result["threshold"] and result["passages"][0]["page"] == 1
    assert "Not in the documents" in call("search", "How do I renew a passport in Lisbon?").out

    listed = json.loads(call("list", "--json").out)
    assert [row["kind"] for row in listed] == ["md", "pdf"] and listed[1]["source"] == "sepsis.pdf"
    assert call("check").out.startswith("2 documents") and json.loads(call("check", "--json").out)["damaged"] == []
    removed = call("remove", listed[1]["document_id"][:9])
    assert "Index: 1 documents" in removed.out and call("search", "sepsis antibiotics hour").out.startswith("Not in")
    assert call("remove", "doc_nothing").code == 3
    with open_store(knowledge.Settings(home=home)) as store:
        assert {"knowledge.add", "knowledge.remove"} <= set(audit.recent_actions(store))


def test_a_damaged_document_is_named(command_line, home: Path, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(GUIDELINE, encoding="utf-8")
    command_line("--home", home, "knowledge", "add", tmp_path / "guide.md")
    path = next((home / "knowledge/documents").glob("*/pages.jsonl"))
    path.write_bytes(path.read_bytes() + b"\n")
    checked = command_line("--home", home, "knowledge", "check")
    assert checked.code == 10 and path.parent.name in checked.out and "damaged" in checked.err


def test_every_printed_next_step_runs(command_line, home: Path, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(GUIDELINE, encoding="utf-8")
    said = command_line("--home", home, "knowledge", "list").out
    said += command_line("--home", home, "knowledge", "add", tmp_path / "guide.md").out
    steps = re.findall(r"medloop (--home .*)", said)
    assert len(steps) == 2
    for step in steps:
        words = [str(tmp_path / "guide.md") if word == "FILE" else word for word in shlex.split(step)]
        assert command_line(*words).code == 0, step
