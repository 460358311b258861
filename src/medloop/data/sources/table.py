"""CSV and TSV with a header line. Fields may hold line ends in quotes; a row is named by the line it starts on."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from medloop.data.sources.text import SourceRow, bad_bytes, text_lines
from medloop.errors import InputError

MAX_FIELD = 4 * 2**20  # characters; a quote that is never closed would swallow the rest of the file


def rows(path: Path, encoding: str) -> Iterator[SourceRow]:
    csv.field_size_limit(MAX_FIELD)
    lines = _Lines(path, encoding)
    header_line = next(lines, "")
    reader = csv.reader(_after(header_line, lines), delimiter=_delimiter(header_line), strict=True)
    header: list[str] | None = None
    while True:
        start = lines.number + 1 if header is not None else 1
        lines.bad = 0
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            raise InputError.at(path, start, "a quoted field is not closed or not followed by a separator", _MEND) from None
        if lines.bad:
            yield SourceRow(lines.bad, problem=bad_bytes(encoding))
        elif header is None:
            header = _check_header(path, cells)
        elif any(cells):
            yield _row(start, header, cells)


_MEND = 'Write quotes inside a field twice ("")'


class _Lines:
    """Decoded lines for the csv module, remembering where it is; an undecodable line becomes an empty one, marked bad."""

    def __init__(self, path: Path, encoding: str) -> None:
        self._lines = text_lines(path, encoding)
        self.number = 0
        self.bad = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        self.number, text = next(self._lines)
        if text is None:
            self.bad = self.number
            return "\n"
        return text


def _after(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _delimiter(header: str) -> str:
    return max(",\t;", key=header.count)


def _check_header(path: Path, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    twice = sorted({name for name in header if header.count(name) > 1 and name})
    if twice:
        raise InputError.at(path, 1, f"the column '{twice[0]}' occurs twice", "Give every column its own name")
    return header


def _row(line: int, header: list[str], cells: list[str]) -> SourceRow:
    if len(cells) != len(header):
        return SourceRow(line, problem=f"has {len(cells)} fields, the header has {len(header)}")
    return SourceRow(line, dict(zip(header, cells, strict=True)))
