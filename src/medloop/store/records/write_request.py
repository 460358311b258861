"""What a request hands to the writer (ingest.py), what it needs to know from the store for it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, select

from medloop.contracts import AuditEvent, Contract
from medloop.errors import BusyError, InputError
from medloop.store.db import Store
from medloop.store.records import crud as records
from medloop.store.tables import natural_id, quarantine

_CHUNK = 400
_HELD = select(quarantine).where(quarantine.c.record_id.in_(bindparam("ids", expanding=True)), quarantine.c.state != "released")

Json = dict[str, Any]


class OverloadedError(BusyError):
    """Too much is waiting: nothing was stored, send it again later."""


class AwayError(BusyError):
    """The database did not answer in time: send it again later, with the same idempotency key."""


class KeyReusedError(InputError):
    """One idempotency key, two different requests."""


@dataclass(frozen=True)
class Rows:
    """What one request adds, whole or not at all. `answer` is kept with the idempotency key: ids and times, never a text."""

    answer: Json
    records: tuple[Contract, ...] = ()
    beside: tuple[tuple[Table, Json], ...] = ()  # rows without encrypted columns
    events: tuple[AuditEvent, ...] = ()  # beyond the line that each record has anyway
    also: Callable[[Connection], None] | None = None  # a change to rows that are there, in the same transaction


@dataclass(frozen=True)
class Need:
    """A record that a submission names: by its id, or the newest with `value` in another column."""

    kind: type[Contract]
    value: str
    column: str = ""


class Known:
    """The rows that a batch asked for; opened (decrypted) only when somebody looks inside, and once for the whole batch."""

    def __init__(self, store: Store, conn: Connection | None, rows: Mapping[Need, Any], held: Mapping[str, Any]) -> None:
        self._store, self._conn, self._rows, self._held = store, conn, rows, held
        self._opened: dict[Need, Any] = {}

    def row(self, need: Need) -> Any | None:
        """The row as stored, with `recorded_by` and the like readable; None if there is none."""
        return self._rows.get(need)

    def held(self, record_id: str) -> Any | None:
        """The quarantine row of a needed record that nobody has released; None if there is none."""
        return self._held.get(record_id)

    def record(self, kind: type[records.C], need: Need) -> records.C | None:
        row = self.row(need)
        if row is None:
            return None
        assert self._conn is not None and need.kind is kind
        if need not in self._opened:
            self._opened[need] = records.from_row(self._store, self._conn, kind, row)
        found: records.C = self._opened[need]
        return found


@dataclass(frozen=True)
class Submission:
    """One request. `build` runs in the writer's thread, outside the transaction; what it raises is its answer."""

    caller: str
    build: Callable[[Known], Rows]
    key: str | None = None  # idempotency key, one namespace per caller
    fingerprint: str = ""
    needs: tuple[Need, ...] = ()
    before: Callable[[], object] | None = None  # long work, done aside before it waits for the writer


@dataclass(frozen=True)
class Stored:
    answer: Json
    replayed: bool = False


def look_up(conn: Connection, wanted: set[Need]) -> dict[Need, Any]:
    found = {}
    for kind, name in {(need.kind, need.column) for need in wanted}:
        table = records.TABLES[kind]
        column = table.c[name or natural_id(table)]
        for chunk in chunks(sorted(need.value for need in wanted if (need.kind, need.column) == (kind, name))):
            query = select(table).where(column.in_(chunk))
            if name:  # many rows may have this value: the newest
                newest = select(func.max(table.c.id)).where(column.in_(chunk)).group_by(column)
                query = select(table).where(table.c.id.in_(newest))
            for row in conn.execute(query):
                found[Need(kind, row._mapping[column], name)] = row
    return found


def held_rows(conn: Connection, rows: Mapping[Need, Any]) -> dict[str, Any]:
    """The quarantine rows of these records, but for released ones."""
    ids = {row._mapping[natural_id(records.TABLES[need.kind])] for need, row in rows.items()}
    found = {}
    for chunk in chunks(sorted(ids)):
        found.update({row.record_id: row for row in conn.execute(_HELD, {"ids": chunk})})
    return found


def chunks(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]
