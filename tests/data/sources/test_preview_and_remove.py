"""`medloop data preview` and `medloop data remove`, through the commands."""

import json
from pathlib import Path

from data_desk import Desk, write_jsonl

from medloop.embedded.corpus import generate
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store

ROWS = [{"title": "Is tea fine with a cold?", "answer": "Yes", "rank": 1}, {"title": "头疼三天了怎么办", "answer": "多休息"}]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_preview_shows_shape_columns_languages_problems_and_rows_and_writes_nothing(desk: Desk, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "visits.jsonl", [*ROWS, {"title": "No answer"}])
    before = files(desk.home)
    shown = desk.run("preview", path, "--map", "question=title", "--n", "1").out
    assert "2 rows can be read, 1 cannot (jsonl, utf-8, question-answer)" in shown
    assert "Columns: question from title, answer; not read: rank" in shown and "line 3: has no 'answer'" in shown
    assert "zh 50%" in shown and "user: Is tea fine with a cold?" in shown and "多休息" not in shown
    assert f"data import {path} --map question=title --on-error skip" in shown
    assert files(desk.home) == before


def test_a_preview_is_what_the_import_reads(desk: Desk, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "visits.jsonl", ROWS)
    seen = json.loads(desk.run("preview", path, "--map", "question=title", "--json").out)
    desk.run("import", path, "--name", "v", "--map", "question=title")
    stored = json.loads((desk.raw / "v/source.json").read_text(encoding="utf-8"))
    assert {name: seen[name] for name in ("rows", "shape", "columns", "format", "encoding")} == {
        name: stored[name] for name in ("rows", "shape", "columns", "format", "encoding")
    }


def test_a_preview_of_columns_that_fit_nothing_names_them(desk: Desk, tmp_path: Path) -> None:
    assert (
        "no known shape fits its columns (title, answer, rank)"
        in desk.run("preview", write_jsonl(tmp_path / "v.jsonl", ROWS)).error
    )


def test_a_removed_source_is_gone_and_the_audit_log_knows(desk: Desk) -> None:
    desk.import_rows("v", [{"question": "Is it flu?", "answer": "Rest."}])
    assert "v is removed (1 rows)" in desk.run("remove", "v").out
    assert not list(desk.raw.iterdir()) and "no source 'v'" in desk.run("remove", "v").error
    with open_store(Settings(home=desk.home)) as store:
        assert [row["subject"] for row in audit.show(store, 50) if row["action"] == "data.remove"] == ["data/raw/v"]


def test_a_source_of_the_prepared_data_is_removed_only_by_force(desk: Desk) -> None:
    desk.import_rows("v", list(generate(120, seed=1)))
    assert desk.run("prepare", "--gold", "2", "--red", "0").code == 0
    assert "The prepared data was made from 'v'" in desk.run("remove", "v").error and (desk.raw / "v").is_dir()
    assert desk.run("remove", "v", "--force").code == 0 and not (desk.raw / "v").exists()
