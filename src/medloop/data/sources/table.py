"""CSV and TSV with a header line. Fields may hold line ends in quotes; a row is named by the line it starts on."""

from __future__ import annotations

import csv
import itertools
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from medloop.data.sources.text import SourceRow, bad_bytes, text_lines
from medloop.errors import InputError

MAX_FIELD = 4 * 2**20  # characters; a quote that is never closed would swallow the rest of the file
BROKEN = "a quoted field is not closed or not followed by a separator"
BEGINS = "a quoted field begins here and is not closed or not followed by a separator"
UNSURE = "--on-error skip cannot help, because it is not certain where the next row begins"
ENOUGH_ROWS = 20  # with whole fields in quotes; a text that was broken goes on no longer
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_MEND = 'Write quotes inside a field twice ("")'


def rows(path: Path, encoding: str) -> Iterator[SourceRow]:
    csv.field_size_limit(MAX_FIELD)
    lines = _Lines(path, encoding)
    header_line = next(lines, "")
    delimiter = _delimiter(header_line)
    lines.go_back(lines.taken)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    first_broken = 0  # of the broken lines that nothing whole stands between
    while True:
        start = lines.number + 1 if header is not None else 1
        lines.begin_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            broken = _broken_field(lines.taken, delimiter)
            if header is None:
                raise InputError.at(path, broken.line, BROKEN, _MEND) from None
            lines.go_back([taken for taken in lines.taken if taken.line > broken.line])
            first_broken = first_broken or broken.line
            if not _record_begins(lines, delimiter, len(header)):
                raise InputError.at(path, first_broken, f"{BEGINS}; {UNSURE}", _MEND) from None
            yield SourceRow(broken.line, problem=f"{BROKEN} (quotes inside a field are written twice)")
            continue
        first_broken = 0
        if lines.bad:
            yield SourceRow(lines.bad, problem=bad_bytes(encoding))
        elif header is None:
            header = _check_header(path, cells)
        elif any(cells):
            yield _row(start, header, cells)


class _Taken(NamedTuple):
    """A line as it was read; text is None where its bytes do not fit the encoding."""

    line: int
    text: str | None


class _Lines:
    """Decoded lines for the csv module, remembering where it is; an undecodable line becomes an empty one, marked bad."""

    def __init__(self, path: Path, encoding: str) -> None:
        self._lines = text_lines(path, encoding)
        self._again: deque[_Taken] = deque()  # lines that a broken quote had swallowed, or that somebody has looked at
        self.taken: list[_Taken] = []  # since the record began
        self.number = 0
        self.bad = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        taken = self._again.popleft() if self._again else _Taken(*next(self._lines))
        self.number = taken.line
        self.taken.append(taken)
        if taken.text is None:
            self.bad = taken.line
            return "\n"
        return taken.text

    def begin_record(self) -> None:
        self.bad = 0
        self.taken = []

    def go_back(self, taken: Sequence[_Taken]) -> None:
        """Read these lines, the last ones that were read, once more."""
        self._again.extendleft(reversed(taken))
        if taken:
            self.number = taken[0].line - 1

    def ahead(self) -> Iterator[_Taken]:
        """The lines to come, as many as a field may have; they stay to be read."""
        size = 0
        for taken in itertools.chain(tuple(self._again), self._keep_reading()):
            yield taken
            size += len(taken.text or "")
            if size > MAX_FIELD:
                return

    def _keep_reading(self) -> Iterator[_Taken]:
        for read in self._lines:
            self._again.append(_Taken(*read))
            yield self._again[-1]


def _broken_field(taken: Sequence[_Taken], delimiter: str) -> _Taken:
    """The line on which the quoted field begins that ends nowhere, or ends in the middle of text."""
    text, place = "".join(line.text or "\n" for line in taken), 0
    while place < len(text) and text[place] not in "\r\n":
        field = _QUOTED.match(text, place) if text[place] == '"' else re.compile(f"[^{delimiter}\r\n]*").match(text, place)
        if field is None or (text[place] == '"' and text[field.end() : field.end() + 1] not in ("", delimiter, "\r", "\n")):
            break
        place = field.end() + 1
    end = 0
    for line in taken:
        end += len(line.text or "\n")
        if place < end:
            return line
    return taken[-1]


def _record_begins(lines: _Lines, delimiter: str, width: int) -> bool:
    """Whether the line after a broken one begins a row, and is not a piece of the field that was broken.

    A piece would end at a quote that closes: the next quote that belongs to no whole field has to be one that opens, and the
    next line has to fit the header.
    """
    is_next, rows_with_quotes = True, 0
    whole = re.compile(rf"(?:^|(?<={delimiter})){_QUOTED.pattern}(?={delimiter}|$)")
    for line in lines.ahead():
        text = (line.text or "").rstrip("\r\n")
        rest = whole.sub("", text) if '"' in text else text
        if '"' in rest:
            before, after = rest[: rest.index('"')], rest[rest.index('"') + 1 :]
            opens = not before or before.endswith(delimiter)
            closes = not after or after.startswith(delimiter)
            is_open = '"' not in after.replace('""', "")
            return opens and not closes and (is_open or text.count(delimiter) >= width - 1)
        if text and is_next:
            is_next = False
            if rest.count(delimiter) != width - 1:
                return False
        rows_with_quotes += rest != text
        if rows_with_quotes == ENOUGH_ROWS:
            break
    return True


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
