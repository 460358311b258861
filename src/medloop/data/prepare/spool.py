"""Rows on disk while they are sorted: one line each, read back by number. Only offsets stay in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType

from medloop.contracts import Record


class Spool:
    """Append lines, then read them in any order. The file has no name, so nothing remains when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._file = TemporaryFile(dir=folder)
        self._starts = array("q", [0])

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def put(self, line: bytes) -> None:
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def append(self, record: Record) -> None:
        """A record as exactly the line that the final file will hold."""
        self.put(record.canonical_json().encode() + b"\n")

    def line(self, index: int) -> bytes:
        self._file.seek(self._starts[index])
        return self._file.read(self._starts[index + 1] - self._starts[index])

    def record(self, index: int) -> Record:
        return Record.model_validate_json(self.line(index))

    def lines(self, rows: Iterable[int]) -> Iterator[bytes]:
        return (self.line(int(index)) for index in rows)
