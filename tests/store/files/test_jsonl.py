"""Append-only JSON lines: what was acknowledged is read back, a torn end is passed over, damage is named."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop.contracts import Message
from medloop.errors import InputError, MedloopError, NoSpaceError, StoreError
from medloop.store.files import jsonl

ROWS = [{"n": n, "text": "腹痛 \n" + "x" * n} for n in range(3)]


def written(path: Path) -> list[dict]:
    return list(jsonl.read(path))


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/a.jsonl"
    assert jsonl.append(path, ROWS[0]) == 1
    assert jsonl.append(path, ROWS[1:]) == 2
    assert written(path) == ROWS
    assert path.read_bytes().count(b"\n") == 3


def test_contracts_go_in_and_out(tmp_path: Path) -> None:
    messages = [Message(role="user", content="头痛"), Message(role="assistant", content="rest")]
    jsonl.append(tmp_path / "a.jsonl", messages)
    assert list(jsonl.read(tmp_path / "a.jsonl", Message)) == messages


def test_truncation_at_every_byte_of_the_last_two_lines_loses_only_what_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    jsonl.append(path, ROWS)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(lines[0]), len(whole)):
        path.write_bytes(whole[:size])
        complete = [
            row for row, end in zip(ROWS, ends(lines), strict=True) if size >= end - 1
        ]  # a whole object counts without its newline
        assert written(path) == complete
        jsonl.append(path, {"n": 99})
        assert written(path) == [*complete, {"n": 99}]
        assert b"\n{" in path.read_bytes() and path.read_bytes().endswith(b"}\n")


def ends(lines: list[bytes]) -> list[int]:
    return [sum(map(len, lines[: index + 1])) for index in range(len(lines))]


@pytest.mark.parametrize("tail", [b"\0" * 5000, b'{"n":9' + b"\0" * 100, b'{"n":\0\0\0}\n', b'{"n":"\xe8\x85', b"{", b"\xff\xfe"])
def test_torn_or_nul_tail_is_dropped_and_cut_off_by_the_next_append(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.jsonl"
    jsonl.append(path, ROWS)
    with path.open("ab") as file:
        file.write(tail)
    assert written(path) == ROWS
    jsonl.append(path, {"n": 7})
    assert written(path) == [*ROWS, {"n": 7}]
    assert b"\0" not in path.read_bytes()


def test_last_line_without_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "by_hand.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n":1}')
    jsonl.append(path, {"n": 2})
    assert written(path) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    "line",
    [b"{broken}\n", b"[1]\n", b'{"n":NaN}\n', b"\xff\n", b"\0\0\n", b"[" * 100_000 + b"\n", b'{"n":' + b"9" * 9999 + b"}\n"],
)
def test_broken_line_in_the_middle_is_named_by_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":0}\n\n' + line + b'{"n":3}\n')
    with pytest.raises(InputError, match=r"a\.jsonl, line 3: "):
        written(path)
    skipped: list[int] = []
    assert list(jsonl.read(path, skipped=skipped)) == [{"n": 0}, {"n": 3}]
    assert skipped == [3]


def test_broken_last_line_with_its_newline_is_damage_and_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":0}\n{broken}\n')
    with pytest.raises(InputError, match="line 2"):
        written(path)
    jsonl.append(path, {"n": 1})
    assert path.read_bytes() == b'{"n":0}\n{broken}\n{"n":1}\n'


def test_error_about_a_record_never_quotes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    jsonl.append(path, {"role": "canary-role", "content": 7, "canary": 1})
    with pytest.raises(InputError, match=r"line 1: role: .*content: ") as caught:
        list(jsonl.read(path, Message))
    assert "canary-role" not in str(caught.value)


def test_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        written(tmp_path / "no.jsonl")


def test_failed_write_or_fsync_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    jsonl.append(path, ROWS)
    before = path.read_bytes()
    for code, expected in ((errno.EIO, StoreError), (errno.ENOSPC, NoSpaceError)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd, code=code: (_ for _ in ()).throw(OSError(code, "x")))
            with pytest.raises(expected):
                jsonl.append(path, {"n": 4})
        assert path.read_bytes() == before


def test_not_a_number_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        jsonl.append(tmp_path / "a.jsonl", [{"n": 1}, {"n": float("nan")}])
    assert not (tmp_path / "a.jsonl").exists()


def test_write_replaces_the_file_only_when_all_rows_came(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert jsonl.write(path, iter(ROWS)) == 3

    def failing():
        yield {"n": 1}
        raise MedloopError("source went away")

    with pytest.raises(MedloopError):
        jsonl.write(path, failing())
    assert written(path) == ROWS and [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


@given(st.lists(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()), max_size=5))
def test_any_text_survives_the_round_trip(tmp_path_factory, rows: list[dict]) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    jsonl.append(path, rows)
    assert written(path) == rows


def test_a_line_is_not_lost_when_the_file_is_replaced_while_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    jsonl.append(path, {"n": 1})
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threading.Thread(target=jsonl.append, args=(path, {"n": 2}))
        waiting.start()
        time.sleep(0.1)
        jsonl.write(path, [{"n": 0}])
        fcntl.flock(held, fcntl.LOCK_UN)
        waiting.join()
    assert [row["n"] for row in jsonl.read(path)] == [0, 2]


def test_a_file_that_grows_while_it_is_read_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n"')
    rows = jsonl.read(path)
    assert next(rows) == {"n": 1}  # by now the half line behind it has been read
    with path.open("ab") as file:
        file.write(b': 2}\n{"n": 3}\n')
    assert list(rows) == []
    assert list(jsonl.read(path)) == [{"n": 1}, {"n": 2}, {"n": 3}]
