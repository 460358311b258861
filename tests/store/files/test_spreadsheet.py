"""Tables that no spreadsheet runs, and that come back as they were."""

import csv
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medloop.errors import InputError
from medloop.store.files.spreadsheet import guard, read_csv, to_csv, unguard

FORMULAS = [
    "=1+1",
    "+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\u00a0=1",
    "＝1",
    "＋1",
    "－1",
    "＠a",
    "'=1",
    "''-1",
]
CELLS = st.one_of(st.text(max_size=30), st.text("'=+-@\t\r\n ＝；;,\"a", max_size=8))


@pytest.mark.parametrize("text", FORMULAS)
def test_what_starts_like_a_formula_starts_with_an_apostrophe(text: str) -> None:
    assert guard(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "plain", "it's", "'quoted'", "a=b", "1-2", "胸痛", "' said"])
def test_other_text_is_left_alone(text: str) -> None:
    assert guard(text) == text == unguard(text)


@given(CELLS)
@example("'=1")
def test_every_text_comes_back(text: str) -> None:
    assert unguard(guard(text)) == text


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=6), mark=st.sampled_from(";,\t"))
def test_a_table_comes_back_cell_by_cell(
    rows: list[tuple[str, str]], mark: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    text = to_csv(["a", "b"], [{"a": f"x{a}", "b": b} for a, b in rows])
    parsed = list(csv.reader(text.removeprefix("\ufeff").splitlines(keepends=True)))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=mark, quoting=csv.QUOTE_ALL).writerows(parsed)  # as a spreadsheet of another country saves
    assert [(row["a"], row["b"]) for _, row in read_csv(path).rows] == [(f"x{a}", b) for a, b in rows]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
def test_encodings_that_spreadsheets_save_are_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "form.csv"
    path.write_bytes("编号;说明\r\n1;立即就医，不要等待\r\n\r\n".encode(encoding))
    assert read_csv(path).rows == ((2, {"编号": "1", "说明": "立即就医，不要等待"}),)


def test_numbers_stay_numbers() -> None:
    assert to_csv(["w"], [{"w": -0.15}, {"w": None}, {"w": "-0.15"}]).splitlines()[1:] == ['"-0.15"', '""', '"\'-0.15"']


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\x81\x20\xff", b'a,b\n"x', b"a,b\n1,2,3\n"])
def test_what_is_no_table_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.csv"):
        read_csv(tmp_path / "x.csv")


def test_the_table_of_the_teachers_cost_runs_no_formula(tmp_path: Path) -> None:
    from medloop.store.files import jsonl
    from medloop.teacher.usage import write_table

    jsonl.append(tmp_path / "2026-11-15.jsonl", {"model": "=cmd|' /C calc'!A0", "outcome": "ok", "cost": 0.1})
    table = read_csv(write_table(tmp_path))
    assert table.rows[0][1]["model"] == "=cmd|' /C calc'!A0" and "'=cmd" in (tmp_path / "teacher_usage.csv").read_text()
