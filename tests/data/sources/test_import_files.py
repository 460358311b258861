"""`medloop data import`, through the command."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from data_desk import Desk, write_jsonl

QA = [{"question": "头疼三天了怎么办", "answer": "多休息"}, {"question": "Is tea fine with a cold?", "answer": "Yes"}]


def source(desk: Desk, name: str) -> dict[str, object]:
    return json.loads((desk.raw / name / "source.json").read_text(encoding="utf-8"))


def test_the_file_is_kept_untouched_with_hash_licence_and_shape(desk: Desk, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "visits.jsonl", QA)
    lines = desk.run("import", path, "--name", "v", "--licence", "CC0").out.splitlines()
    assert lines[0] == "v: new, 2 rows (jsonl, utf-8, question-answer, licence CC0)."
    assert len(lines) == 2 and lines[1].endswith("data prepare")
    assert (desk.raw / "v/visits.jsonl").read_bytes() == path.read_bytes()
    entry = source(desk, "v")
    assert (entry["rows"], entry["shape"], entry["licence"], entry["path"]) == (
        2,
        "question-answer",
        "CC0",
        "data/raw/v/visits.jsonl",
    )


def test_the_same_bytes_again_change_nothing_and_others_need_replace(desk: Desk) -> None:
    desk.import_rows("v", QA)
    before = source(desk, "v")
    assert "nothing changed" in desk.import_rows("v", QA).out
    assert source(desk, "v") == before
    assert "already holds other bytes. Choose another --name, or pass --replace" in desk.import_rows("v", QA[:1]).error
    assert source(desk, "v") == before
    assert desk.import_rows("v", QA[:1], "--replace").out.startswith("v: replaced, 1 rows")


def test_a_broken_line_stops_everything_and_names_file_and_line(desk: Desk, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "visits.jsonl", QA)
    path.write_text(path.read_text(encoding="utf-8") + '{"question": "geheim 13800138000\n', encoding="utf-8")
    ran = desk.run("import", path, "--name", "v")
    assert ran.code == 3
    assert ran.error.startswith(f"{path}, line 3: is not valid JSON.")
    assert "13800138000" not in ran.error + ran.out
    assert list(desk.raw.iterdir()) == []


def test_skipped_lines_are_listed_without_their_content(desk: Desk, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "visits.jsonl", [QA[0], {"question": "secret"}, QA[1]])
    assert desk.run("import", path, "--name", "v", "--on-error", "skip").out.startswith("v: new, 2 rows, 1 skipped")
    assert (desk.raw / "v/rejected.jsonl").read_text(encoding="utf-8") == '{"line":2,"reason":"has no \'answer\'"}\n'


def test_unknown_columns_are_listed_with_the_known_shapes(desk: Desk) -> None:
    ran = desk.import_rows("v", [{"title": "x", "body": "y", "张三，电话13800138000，头痛": "z"}])
    assert "no known shape fits its columns (title, body, …)" in ran.error
    assert "question-answer (question + answer)" in ran.error


def test_columns_without_a_name_behind_a_sheet_fit_no_shape_and_are_not_read(desk: Desk, tmp_path: Path) -> None:
    """Seen: a sheet saved with two empty columns at its end was taken for records of our own, and the import crashed."""
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("\ufeffNr.;Frage;Antwort;;\r\n1;Is it flu?;Rest.;;\r\n;;;;\r\n", encoding="utf-8")
    ran = desk.run("import", sheet, "--name", "v")
    assert ran.code == 3 and "no known shape fits its columns (Nr., Frage, Antwort)" in ran.error
    seen = desk.run("preview", sheet, "--map", "question=Frage", "--map", "answer=Antwort").out
    assert "not read: Nr.\n" in seen
    ran = desk.run("import", sheet, "--name", "v", "--map", "question=Frage", "--map", "answer=Antwort")
    assert ran.out.startswith("v: new, 1 rows (csv, utf-8, question-answer")


def test_a_column_can_be_named_by_hand(desk: Desk) -> None:
    rows = [{"title": "头疼三天了怎么办", "Answer": "多休息"}]
    assert "rows" in desk.import_rows("v", rows, "--map", "question=title").out
    assert source(desk, "v")["columns"] == {"question": "title", "answer": "Answer"}
    assert "there is no field 'frage'" in desk.import_rows("w", rows, "--map", "frage=title").error


@pytest.mark.parametrize("text", ["caf\xe9 \xff\xfe broken".encode("latin-1"), "头疼".encode() + b"\xff"])
def test_bytes_that_fit_no_encoding_name_the_line(desk: Desk, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("question,answer\n头疼三天了怎么办,多休息\n".encode() + text + b",x\n")
    assert f"{path}, line 3: has bytes that are not UTF-8" in desk.run("import", path).error


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "", "x" * 80])
def test_a_name_cannot_leave_the_folder(desk: Desk, tmp_path: Path, name: str) -> None:
    path = write_jsonl(tmp_path / "visits.jsonl", QA)
    ran = desk.run("import", path, f"--name={name}")
    assert ran.code == 2 or (desk.raw / "visits").is_dir()  # an empty name is no name: the file's own is taken
    assert {p.name for p in desk.raw.iterdir()} <= {"visits"}


def test_several_files_are_stored_together_or_not_at_all(desk: Desk, tmp_path: Path) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", QA)
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"x": 1}])
    assert desk.run("import", good, bad, "--name", "v").code == 3
    assert list(desk.raw.iterdir()) == []
    desk.run("import", good, shutil.copy(good, tmp_path / "more.jsonl"), "--name", "v")
    assert sorted(p.name for p in desk.raw.iterdir()) == ["v-good", "v-more"]


def test_no_such_file_and_a_folder_are_one_sentence(desk: Desk, tmp_path: Path) -> None:
    assert desk.run("import", tmp_path / "nowhere.jsonl").error == f"{tmp_path / 'nowhere.jsonl'} does not exist. Check the path."
    assert "is a folder, but a file was expected" in desk.run("import", tmp_path, "--name", "v").error


def test_a_full_disk_is_one_sentence_and_leaves_nothing(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = write_jsonl(tmp_path / "visits.jsonl", QA)
    monkeypatch.setattr(shutil, "copyfile", no_space)
    ran = desk.run("import", path, "--name", "v")
    assert ran.code == 8
    assert "No space left on the disk" in ran.error
    assert list(desk.raw.iterdir()) == []


def test_a_changed_source_is_noticed_before_it_is_used(desk: Desk) -> None:
    desk.import_rows("v", QA)
    path = desk.raw / "v/v.jsonl"
    path.write_bytes(path.read_bytes().replace(b"tea", b"gin"))
    ran = desk.run("prepare")
    assert ran.code == 6
    assert "v.jsonl was changed" in ran.error


def test_list_shows_sources_and_says_what_to_do_first(desk: Desk) -> None:
    assert "No sources yet" in desk.run("list").out
    desk.import_rows("v", QA, "--licence", "CC0")
    assert desk.run("list").out.splitlines()[1].split()[:3] == ["v", "2", "0"]
