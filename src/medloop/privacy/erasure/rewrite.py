"""Remove the words and rows of erased records from a file; all other bytes stay the same.

    Cutter(needles, ids).cut("samples.jsonl", data)      # Cut(content, rows), or None if nothing has to be removed

JSON lines and tables lose whole rows; a list in a JSON file loses items; in any other text `[erased]` replaces the words.
A row is also removed if it names an erased record as its source, so that no model is trained on it again.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ahocorasick_rs import BytesAhoCorasick

from medloop.privacy.erasure.needles import Needles

ERASED = "[erased]"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins
ROWS = {".jsonl", ".ndjson"}
TABLES = {".csv", ".tsv"}
TEXTS = {".md", ".html", ".txt", ".log", ".yaml", ".yml", ".svg", ".head", ""}
SOURCES = ("records", "evidence", "feedback_id", "preference_id", "correction_id", "trace_id", "record_id")


@dataclass(frozen=True)
class Cut:
    """The content that is left of a file, and how many rows (or places) were removed."""

    content: bytes
    rows: int


class Unreadable(Exception):
    """A file that holds the words in a format from which they cannot be removed."""


class Cutter:
    """Cuts files for one erasure. `inspected` collects the answers removed from inspection samples: verdicts refer to them."""

    def __init__(self, needles: Needles, ids: set[str]) -> None:
        self.needles, self.ids, self.inspected = needles, frozenset(ids), set[str]()
        self._machine: tuple[int, BytesAhoCorasick] | None = None

    def holds(self, path: PurePath, data: bytes | memoryview) -> bool:
        """A quick check whether something may have to be removed."""
        return self.needles.hit(data) or (_ending(path) in ROWS and self._names(data))

    def cut(self, path: PurePath, data: bytes) -> Cut | None:
        """What is left, or None if nothing has to be removed; Unreadable if the words cannot be removed."""
        if data.startswith(_WIDE):
            wide = "utf-16-le" if data.startswith(_WIDE[0]) else "utf-16-be"
            cut = self.cut(path, data[2:].decode(wide, errors="replace").encode())
            return None if cut is None else Cut(data[:2] + cut.content.decode().encode(wide), cut.rows)
        how: Mapping[str, Callable[[bytes], Cut]] = {
            **dict.fromkeys(ROWS, self._lines),
            **dict.fromkeys(TABLES, self._table),
            ".json": self._json,
            **dict.fromkeys(TEXTS, self._text),
        }
        if (ending := _ending(path)) not in how:
            raise Unreadable
        cut = how[ending](data)
        if self.needles.hit(cut.content):
            raise Unreadable  # the words are still there, so the erasure must report the file
        return cut if cut.content != data else None

    def _names(self, data: bytes | memoryview) -> bool:
        """Whether an id occurs anywhere; the cut finds the row."""
        names = [*self.ids, *self.inspected]
        if self._machine is None or self._machine[0] != len(names):
            self._machine = (len(names), BytesAhoCorasick([name.encode() for name in names if name]))
        return bool(names) and bool(self._machine[1].find_matches_as_indexes(data))

    def _lines(self, data: bytes) -> Cut:
        lines, remaining = data.splitlines(keepends=True), []
        for line in lines:
            row = _parsed(line)
            if not self.needles.hit(line) and not self._from_erased(row):
                remaining.append(line)
            elif {"sample", "answer_id", "id"} <= row.keys():
                self.inspected.add(str(row["id"]))
        return Cut(b"".join(remaining), len(lines) - len(remaining))

    def _from_erased(self, row: Mapping[str, Any]) -> bool:
        """Whether a row or its metadata names an erased record as its source."""
        if row.get("inspected") in self.inspected:
            return True
        inner = (row.get(key) for key in ("metadata", "meta", "rule", "origin"))
        for part in (row, *(inner_part for inner_part in inner if isinstance(inner_part, dict))):
            for key in SOURCES:
                value = part.get(key)
                if any(isinstance(name, str) and name in self.ids for name in (value if isinstance(value, list) else [value])):
                    return True
        return False

    def _table(self, data: bytes) -> Cut:
        rows = list(_records(data))
        remaining = [row for index, row in enumerate(rows) if index == 0 or not self.needles.hit(row)]
        head = [rows[0]] if rows and self.needles.hit(rows[0]) else []
        return Cut(b"".join(remaining[len(head) :]), len(rows) - len(remaining) + len(head))

    def _json(self, data: bytes) -> Cut:
        try:
            value = json.loads(data)
        except ValueError:
            return self._text(data)
        count = 0

        def walk(value: Any, top: bool) -> Any:
            nonlocal count
            if isinstance(value, str):
                if self.needles.hit(value.encode(errors="replace")):
                    count += 1
                    return ERASED
                return value
            if isinstance(value, dict):
                return {key: walk(item, False) for key, item in value.items()}
            if not isinstance(value, list):
                return value
            held = [
                item for item in value if top and self.needles.hit(json.dumps(item, ensure_ascii=False).encode(errors="replace"))
            ]
            count += len(held)
            return [walk(item, False) for item in value if not any(item is other for other in held)]

        left = walk(value, True)
        return Cut(_like(data, value, left), count) if count else self._text(data)

    def _text(self, data: bytes) -> Cut:
        parts, position, spans = [], 0, self.needles.spans(data)
        for start, end in spans:
            parts += [data[position:start], ERASED.encode()]
            position = end
        return Cut(b"".join([*parts, data[position:]]), len(spans))


def rehash(data: bytes, hashes: Mapping[str, str], rows: Mapping[str, int], name: str) -> bytes:
    """Update the hashes and row counts in a card; other bytes stay. `rows` are the numbers of removed rows by file name."""
    for old, new in hashes.items():
        data = data.replace(old.encode(), new.encode())
        data = data.replace(f"`{old[7:19]}`".encode(), f"`{new[7:19]}`".encode())
    if not name.endswith(".json"):
        return data
    try:
        value = json.loads(data)
    except ValueError:
        return data
    left = _fewer(value, rows)
    return data if left == value else _like(data, value, left)


def _fewer(value: Any, rows: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_fewer(item, rows) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _fewer(item, rows) for key, item in value.items()}
    named = PurePath(str(value.get("path", ""))).name
    if named in rows and isinstance(value.get("rows"), int):
        changed["rows"] = max(0, value["rows"] - rows[named])
    return changed


def _like(data: bytes, before: Any, after: Any) -> bytes:
    """`after` as JSON, formatted like `data`."""
    for options in ({"separators": (",", ":")}, {"indent": 2}, {}, {"indent": 1}):
        for sort in (True, False):
            for ascii_ in (False, True):
                for end in (b"\n", b""):
                    written: dict[str, Any] = {**options, "sort_keys": sort, "ensure_ascii": ascii_}
                    if json.dumps(before, **written).encode(errors="replace") + end == data:
                        return json.dumps(after, **written).encode() + end
    return json.dumps(after, ensure_ascii=False, indent=2).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _records(data: bytes) -> Iterator[bytes]:
    """The rows of a table as bytes; a quoted cell may contain line breaks."""
    row = b""
    for line in re.findall(rb"[^\n]*\n|[^\n]+$", data):
        row += line
        if row.count(b'"') % 2 == 0:
            yield row
            row = b""
    if row:
        yield row


def _ending(path: PurePath) -> str:
    name = path.name.removesuffix(".gz")
    return PurePath(name).suffix.lower()
