"""Append-only JSON lines that survive a kill: `append` returns when the lines are on the disk. Gzipped files can be read, too.

    append(path, {"step": 1})            # one object or many; one write, one fsync; all of them or none
    for row in read(path): ...           # streams; a torn last line (from a kill during a write) is dropped
    for record in read(path, Record): ...

A last line without a newline was never acknowledged. It counts if it is a whole object, because files made by hand often
end like this. Otherwise it is torn: readers skip it and the next `append` removes it. A broken line anywhere else is damage
and raises an InputError with file and line.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast, overload

from pydantic import ValidationError

from medloop.contracts import Contract, canonical_json
from medloop.errors import InputError, explain_os_errors
from medloop.knobs import problem_list
from medloop.store.files.atomic import atomic_open, fsync_folder, make_folder
from medloop.store.files.lock import locked_file

Row = Mapping[str, Any] | Contract
C = TypeVar("C", bound=Contract)

GZIP = b"\x1f\x8b"
_AS_CSV = "Open it, save the sheet as 'CSV UTF-8', and name that file"
# First bytes of files that people hand in although they are not text.
NOT_TEXT = {
    b"PK\x03\x04": ("an Excel workbook or another zip archive", f"{_AS_CSV}; unpack an archive first"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook (.xls)", _AS_CSV),
    b"\x89PNG": ("a picture", "Name a file of text"), b"\xff\xd8\xff": ("a picture", "Name a file of text"),
    b"%PDF": ("a PDF document", "Name a file of text: JSON lines or CSV"),
}  # fmt: skip

APPEND_WAIT_S = 30.0  # an append holds the file for milliseconds


def append(path: Path, rows: Row | Iterable[Row]) -> int:
    """Add rows at the end and fsync them; returns how many. If that fails, the file keeps its old length."""
    lines = [_line(row) for row in ([rows] if isinstance(rows, Mapping | Contract) else rows)]
    with explain_os_errors(path, writing=True):
        make_folder(path.parent)
        while not _appended(path, lines):
            pass
    return len(lines)


def _appended(path: Path, lines: list[bytes]) -> bool:
    """Append the lines; False if the file was replaced while we waited for its lock, because the old file is gone."""
    with locked_file(path, wait_s=APPEND_WAIT_S, mode=0o600) as fd, os.fdopen(fd, "r+b", buffering=0, closefd=False) as file:
        try:
            if os.stat(path).st_ino != os.fstat(fd).st_ino:
                return False
        except FileNotFoundError:
            return False
        prefix = _mend(file)
        _write_whole(file, prefix + b"".join(lines), path.parent)
        return True


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write the whole file, streaming; readers see the old file or the new one. Returns how many rows."""
    count = 0
    with atomic_open(path) as file:
        for row in rows:
            file.write(_line(row))
            count += 1
    return count


@overload
def read(path: Path, *, skipped: list[int] | None = None) -> Iterator[dict[str, Any]]: ...
@overload
def read(path: Path, kind: type[C], *, skipped: list[int] | None = None) -> Iterator[C]: ...
def read(path: Path, kind: type[C] | None = None, *, skipped: list[int] | None = None) -> Iterator[dict[str, Any]] | Iterator[C]:
    """Stream the rows, as dictionaries or as `kind`.

    With a list as `skipped`, broken lines are skipped and their numbers are added to it.
    """
    for number, raw, last in _lines(path):
        try:
            value = _parse(raw)
            yield value if kind is None else kind.model_validate(value)
        except _Broken as problem:
            if last and (not raw.endswith(b"\n") or b"\0" in raw):
                return  # torn: never acknowledged
            if skipped is None:
                raise InputError.at(path, number, str(problem), problem.to_do) from None
            skipped.append(number)
        except ValidationError as error:
            if skipped is None:
                raise InputError.at(path, number, problem_list(error, "record"), "Repair or remove that line") from None
            skipped.append(number)


def numbered(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a user's file with their line numbers. Here a broken last line is an error like any other."""
    for number, raw, _ in _lines(path):
        try:
            yield number, _parse(raw)
        except _Broken as problem:
            raise InputError.at(path, number, str(problem), problem.to_do) from None


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unzipped where it is gzip; a damaged or missing file is an InputError."""
    with explain_os_errors(path):
        raw = path.open("rb")
    with raw:
        head = raw.read(8)
        raw.seek(0)
        for start, (what, to_do) in NOT_TEXT.items():
            if head.startswith(start):
                raise InputError(f"{path} is {what}, not text", to_do)
        try:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if head.startswith(GZIP) else raw
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise InputError(f"{path} is a damaged gzip file", "Copy or download it again") from None


class _Broken(Exception):
    """Why a line is not a JSON object, and what to do; never quotes the line."""

    to_do = "Repair or remove that line"


class _NotUtf8(_Broken):
    to_do = "Save the file as UTF-8, or bring it in with 'medloop data import', which reads other encodings"


def _line(row: Row) -> bytes:
    text = row.canonical_json() if isinstance(row, Contract) else canonical_json(dict(row))
    return text.encode() + b"\n"


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """The number of each line (from 1), its bytes with the newline, and whether it is the last; blank lines are skipped.

    A line without a newline ends the file, even if another process has written more by the time the next line is read.
    """
    with explain_os_errors(path), open_bytes(path) as file:
        before: tuple[int, bytes] | None = None
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            if before is not None:
                yield *before, False
            before = (number, raw)
            if not raw.endswith(b"\n"):
                break
        if before is not None:
            yield *before, True


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _NotUtf8("not UTF-8") from None
    except (ValueError, RecursionError):
        raise _Broken("not valid JSON") from None
    if not isinstance(value, dict):
        raise _Broken(f"expected an object, found {type(value).__name__}")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _mend(file: BinaryIO) -> bytes:
    """Seek to the end of the last good line and cut off a torn one; returns the newline that a whole last line lacks."""
    size = file.seek(0, os.SEEK_END)
    start, tail = _tail(file, size)
    if not tail:
        return b""
    try:
        _parse(tail)
    except _Broken:
        if tail.endswith(b"\n") and b"\0" not in tail:
            file.seek(size)
            return b""  # damage, not a torn write: the reader reports it
        file.truncate(start)
        file.seek(start)
        return b""
    file.seek(size)
    return b"" if tail.endswith(b"\n") else b"\n"


def _tail(file: BinaryIO, size: int) -> tuple[int, bytes]:
    """Where the last line starts, and its bytes."""
    step, start, tail = 4096, size, b""
    while start > 0:
        start = max(0, start - step)
        file.seek(start)
        tail = file.read(size - start)
        cut = tail.rfind(b"\n", 0, len(tail) - 1)
        if cut >= 0:
            return start + cut + 1, tail[cut + 1 :]
        step *= 2
    return start, tail


def _write_whole(file: BinaryIO, data: bytes, folder: Path) -> None:
    """Write and fsync, or restore the old length, so that a full disk leaves no half line."""
    before = file.tell()
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
        if before == 0:
            fsync_folder(folder)  # the file's name may be as new as its content
    except BaseException:
        file.truncate(before)
        raise
