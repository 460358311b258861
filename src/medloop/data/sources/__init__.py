"""Files as rows: one small reader per format.

`read_rows` yields a `Row` for every record of a file, good or bad: a row that cannot be read carries the reason
instead of values, so that the caller decides whether to stop or to skip. What makes the whole file unusable raises
InputError. Files may be gzipped; that is seen from their first bytes, not from their name.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from medloop.data.sources import json_lines, parquet, table
from medloop.data.sources.text import SourceRow, detect_encoding, first_bytes
from medloop.errors import InputError

Reader = Callable[[Path, str], Iterator[SourceRow]]

READERS: dict[str, Reader] = {
    "jsonl": json_lines.lines, "json": json_lines.array, "csv": table.rows, "tsv": table.rows, "parquet": parquet.rows,
}  # fmt: skip
_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}


def read_rows(path: Path, format: str, encoding: str) -> Iterator[SourceRow]:
    """Every record of `path`; `format` and `encoding` are resolved names, as `detect_format` and `detect_encoding` give."""
    return READERS[format](path, encoding)


def detect_format(path: Path, requested: str = "auto") -> str:
    """`jsonl`, `json` (one array), `csv`, `tsv` or `parquet`."""
    head = first_bytes(path)
    if not head:
        raise InputError(f"{path} is empty", "Name a file with at least one record")
    if head.startswith(b"PAR1"):
        return "parquet"
    if requested == "parquet":
        raise InputError(f"{path} is not a Parquet file", "Leave --format out, or name the right file")
    suffixes = [s.lower() for s in path.suffixes if s.lower() != ".gz"]
    named = _BY_SUFFIX.get(suffixes[-1], "") if suffixes else ""
    format = named if requested == "auto" else requested
    start = (
        head.replace(b"\x00", b"").removeprefix(b"\xef\xbb\xbf").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff").lstrip()[:1]
    )
    if format in ("jsonl", "json", "") and start in (b"{", b"["):
        return "json" if start == b"[" else "jsonl"
    if format in ("jsonl", "json"):
        raise InputError(f"{path} does not start with a JSON object or array", "Name a JSONL file, or use --format csv")
    if not format:
        raise InputError(
            f"{path}: the format cannot be recognised from its name or content", "Name it: --format jsonl, csv or parquet"
        )
    return "tsv" if named == "tsv" else format


__all__ = ["READERS", "SourceRow", "detect_encoding", "detect_format", "read_rows"]
