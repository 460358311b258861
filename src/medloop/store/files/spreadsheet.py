"""Tables for spreadsheets: cells that no spreadsheet runs as a formula, and a reader for what people saved.

    text = to_csv(["id", "answer"], rows)          # with the BOM by which Excel knows UTF-8
    table = read_csv(path)                         # UTF-8, UTF-16 or GB18030; comma, semicolon or tab

A text that starts like a formula (= + - @, their full-width forms, a tab or a line break) gets a leading apostrophe, and so does
a text with apostrophes before such a sign; reading removes one. So every text comes back as it was. Numbers are not texts: a
weight of -0.15 stays a number. See owasp.org/www-community/attacks/CSV_Injection.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.errors import InputError, explain_os_errors

BOM = "\ufeff"
MOST_BYTES = 64 * 2**20  # a form is small; a larger file was given by mistake
_FORMULA = r"(?:[^\S\t\r\n]|\ufeff)*[=+\-@\t\r\n＝＋－＠]"
_RISKY = re.compile(rf"'*{_FORMULA}")
_GUARDED = re.compile(rf"'+{_FORMULA}")


def guard(text: str) -> str:
    """The text as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if _RISKY.match(text) else text


def unguard(cell: str) -> str:
    """The text that `guard` was given."""
    return cell[1:] if _GUARDED.match(cell) else cell


def to_csv(header: Sequence[str], rows: Iterable[Mapping[str, object]], *, headed: bool = True) -> str:
    """The whole table, or a later part of it without BOM and header; None becomes an empty cell.

    Every cell is quoted, so that no text starts a new cell.
    """
    text = io.StringIO()
    table = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    if headed:
        text.write(BOM)
        table.writerow([guard(name) for name in header])
    for row in rows:
        table.writerow([_cell(row.get(name)) for name in header])
    return text.getvalue()


def _cell(value: object) -> str | int | float:
    if value is None:
        return ""
    return value if isinstance(value, int | float) else guard(str(value))


@dataclass(frozen=True)
class CsvTable:
    """The rows, each with its number as a spreadsheet counts and its cells by column."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, dict[str, str]], ...]


def read_csv(path: Path) -> CsvTable:
    """A table that a spreadsheet saved; rows without any text are skipped, a row with too many cells is an error."""
    with explain_os_errors(path):
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {MOST_BYTES // 2**20} MiB, so it is not a form", "Give the form itself")
        text = _decode(path, path.read_bytes())
    first = text.splitlines()[0] if text.strip() else ""
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True))
    except csv.Error:
        raise InputError(f"{path} is not a readable table", "Save it as CSV again") from None
    if not lines:
        raise InputError(f"{path} is empty", "Give a CSV file with a header")
    header = tuple(unguard(cell).strip() for cell in lines[0])
    return CsvTable(header, tuple(_rows(path, header, lines[1:])))


def _rows(path: Path, header: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterable[tuple[int, dict[str, str]]]:
    for number, cells in enumerate(lines, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if any(cell.strip() for cell in cells[len(header) :]):
            raise InputError(f"{path}, row {number} has more cells than the header", "Save it as CSV again")
        full = [*cells, *[""] * (len(header) - len(cells))]
        yield number, {name: unguard(cell) for name, cell in zip(header, full, strict=False)}


def _decode(path: Path, data: bytes) -> str:
    """UTF-16 if the file starts with its BOM, else UTF-8, else GB18030, which Excel writes in China; nothing else is guessed."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        names = ["utf-16"]
    else:
        names = ["utf-8-sig", "gb18030"]
    for name in names:
        try:
            return data.decode(name)
        except UnicodeDecodeError:
            continue
    raise InputError(f"{path} is neither UTF-8 nor GB18030", "Save it as 'CSV UTF-8'")
