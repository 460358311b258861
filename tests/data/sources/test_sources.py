"""Files as rows: formats, encodings, and what a broken file says."""

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medloop.data.sources import detect_encoding, detect_format, read_rows
from medloop.data.sources.table import BROKEN
from medloop.errors import InputError

ROWS = [
    {"question": "头疼怎么办？", "answer": "多休息，\n少熬夜。"},
    {"question": 'Is "tea" fine?', "answer": "Yes, mostly"},
    {"question": "咳嗽三天", "answer": "多喝水"},
]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def as_jsonl(rows: list[dict[str, str]]) -> str:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def save(path: Path) -> Path:
    if ".csv" in path.name or ".tsv" in path.name:
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, ["question", "answer"], delimiter="\t" if ".tsv" in path.name else ",")
            table.writeheader()
            table.writerows(ROWS)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(as_jsonl(ROWS).encode()))
    else:
        write(path, json.dumps(ROWS, ensure_ascii=False, indent=1) if path.suffix == ".json" else as_jsonl(ROWS))
    return path


def values(path: Path) -> list[dict[str, str]]:
    format = detect_format(path)
    rows = list(read_rows(path, format, "binary" if format == "parquet" else detect_encoding(path)))
    assert not [row.problem for row in rows if row.problem]
    return [row.values for row in rows]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.csv", "a.tsv", "a.parquet", "a.txt"])
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    assert values(save(tmp_path / name)) == ROWS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_encodings_are_told_apart(tmp_path: Path, encoding: str, name: str) -> None:
    text = as_jsonl(ROWS) if name == "a.jsonl" else json.dumps(ROWS, ensure_ascii=False)
    assert values(write(tmp_path / name, text, encoding)) == ROWS


def test_a_damaged_utf8_file_is_not_taken_for_gb18030(tmp_path: Path) -> None:
    raw = as_jsonl(ROWS).encode().replace("咳嗽".encode(), "咳嗽".encode()[:-1])
    (tmp_path / "a.jsonl").write_bytes(raw)
    assert detect_encoding(tmp_path / "a.jsonl") == "utf-8-sig"
    bad = [row for row in read_rows(tmp_path / "a.jsonl", "jsonl", "utf-8-sig") if row.problem]
    assert [(row.line, row.problem) for row in bad] == [(3, "has bytes that are not UTF-8")]


def test_a_bad_byte_in_an_array_names_its_line(tmp_path: Path) -> None:
    raw = json.dumps(ROWS, ensure_ascii=False, indent=1).encode().replace("咳嗽".encode(), "咳嗽".encode()[:-1])
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(InputError, match="line 11: has bytes that are not UTF-8"):
        list(read_rows(tmp_path / "a.json", "json", detect_encoding(tmp_path / "a.json")))


@pytest.mark.parametrize(
    ("line", "problem"),
    [("{oops", "is not valid JSON"), ("[1]", "is an array, expected an object"), ('{"a": NaN}', "is not valid JSON"), ("[" * 9999, "is not valid JSON")],
)  # fmt: skip
def test_a_broken_line_is_named_and_the_others_are_read(tmp_path: Path, line: str, problem: str) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n\n' + line + '\n{"a": 2}\n')
    assert [(row.line, row.problem) for row in read_rows(path, "jsonl", "utf-8-sig")] == [(1, ""), (3, problem), (4, "")]


def test_an_array_is_read_across_chunks_and_its_broken_element_is_named(tmp_path: Path) -> None:
    elements = [{"text": "字" * size} for size in (10, 300_000, 5, 90_000)]
    path = write(tmp_path / "a.json", json.dumps(elements, ensure_ascii=False))
    assert [row.values for row in read_rows(path, "json", "utf-8-sig")] == elements
    write(path, json.dumps(elements, ensure_ascii=False)[:-20])
    with pytest.raises(InputError, match="element 4: not valid JSON"):
        list(read_rows(path, "json", "utf-8-sig"))


def test_csv_names_rows_by_the_line_they_start_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'question,answer\nq1,"a\nb"\nonly one field\nq3,a3\n')
    assert [(row.line, row.problem) for row in read_rows(path, "csv", "utf-8-sig")] == [
        (2, ""),
        (4, "has 1 fields, the header has 2"),
        (5, ""),
    ]


BROKEN_QUOTES = [
    ('q1,a1\nq2,"open\nq3,a3\n', [(2, 2), (3, 0), (4, 2)]),
    ('q1,a1\nq2,"open\nq3,"a3"\nq4,a4\n', [(2, 2), (3, 0), (4, 2), (5, 2)]),
    ('q1,"a "quoted" word"\nq2,a2\n', [(2, 0), (3, 2)]),
    ('q1,"open\nq2,"open too\nq3,"a\nb"\nq4,a4\n', [(2, 0), (3, 0), (4, 2), (6, 2)]),
    ('"q\n1","open\nq2,a2\nq3,"a, b"\n', [(3, 0), (4, 2), (5, 2)]),  # the field that is open begins on line 3
    ('q1,a1\nq2,"open', [(2, 2), (3, 0)]),
    ('q1,"open\n\nq2,a2\n', [(2, 0), (4, 2)]),
    ('q1,"open\n' + "q2,a2\n" * 700_000 + 'q3,"a3"\n', None),  # more than a field may have
]


@pytest.mark.parametrize(("body", "expected"), BROKEN_QUOTES)
def test_a_broken_quote_costs_the_line_on_which_it_stands(
    tmp_path: Path, body: str, expected: list[tuple[int, int]] | None
) -> None:
    """Seen: one quote in line 2,055 stopped an import that was told to skip bad lines."""
    path = write(tmp_path / "a.csv", "question,answer\n" + body)
    read = list(read_rows(path, "csv", "utf-8-sig"))
    if expected is None:
        assert len(read) == 700_002 and [row.line for row in read if row.problem] == [2]
        return
    assert [(row.line, len(row.values)) for row in read] == expected
    assert {row.problem.split(" (")[0] for row in read if row.problem} == {BROKEN}


UNSURE = [
    ('q1,a1\nq2,"She said "ow" and\nthen pain, and fever\nall day",a2\nq3,a3\n', 3),  # line 4 would be a row of its own
    ('q1,"Patient said:\n"hello" and left,\nthen pain",a1\n', 2),
    ('q1,"open\nand more text\nq2,a2\n', 2),
    ('q1,"a "b\n",a1\n', 2),
    ('q1,"The "big" one\nand so,"he said"\nlast"\nq3,a3\n', 2),  # line 3 would be a row of its own
    ('q1,"pain\n"x", fever "ow" "\nq3,a3\n', 2),
    ('"q1 "x"","a dose\nyes,\n"x"pain"\nq2,a2\n', 2),
]


@pytest.mark.parametrize(("body", "line"), UNSURE)
def test_a_piece_of_a_broken_field_never_becomes_a_row(tmp_path: Path, body: str, line: int) -> None:
    path = write(tmp_path / "a.csv", "question,answer\n" + body)
    with pytest.raises(InputError, match=f"line {line}: a quoted field begins here .*--on-error skip cannot help"):
        list(read_rows(path, "csv", "utf-8-sig"))


def test_a_broken_quote_in_the_header_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'question,"answer\nq1,a1\n')
    with pytest.raises(InputError, match="line 1: a quoted field is not closed"):
        list(read_rows(path, "csv", "utf-8-sig"))


def test_a_cut_gzip_file_is_an_error_not_a_short_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(as_jsonl(ROWS * 500).encode())[:-20])
    with pytest.raises(InputError, match="damaged gzip"):
        list(read_rows(path, "jsonl", "utf-8-sig"))


@pytest.mark.parametrize("content", [b"", b"  \n\n ", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_called_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError, match="is empty"):
        detect_format(tmp_path / "a.jsonl")


def test_a_damaged_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:-30] + b"x" * 30)
    with pytest.raises(InputError, match="Parquet file is damaged"):
        list(read_rows(path, "parquet", "binary"))
