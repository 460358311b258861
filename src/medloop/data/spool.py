"""Records on disk while they are being sorted: one line each, found again by number. Only offsets stay in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from medloop.contracts import Record


class Spool:
    """Append records, then read them in any order. A line is exactly what the final file will hold; leaving removes the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("w+b")
        self._starts = array("q", [0])

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, record: Record) -> None:
        raw = record.canonical_json().encode() + b"\n"
        self._file.write(raw)
        self._starts.append(self._starts[-1] + len(raw))

    def line(self, at: int) -> bytes:
        self._file.seek(self._starts[at])
        return self._file.read(self._starts[at + 1] - self._starts[at])

    def record(self, at: int) -> Record:
        return Record.model_validate_json(self.line(at))

    def lines(self, rows: Iterable[int]) -> Iterator[bytes]:
        return (self.line(int(at)) for at in rows)
