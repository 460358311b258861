"""A request to the writer (group_commit.py): which records it looks up first, and which rows it stores."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, bindparam, func, select

from medloop.contracts import AuditEvent, Contract
from medloop.errors import BusyError, InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.chunks import chunks
from medloop.store.tables import natural_id, quarantine

# Statements are built once: SQLAlchemy takes longer to build one than SQLite takes to answer it.
_QUARANTINED = select(quarantine).where(
    quarantine.c.record_id.in_(bindparam("ids", expanding=True)), quarantine.c.state != "released"
)

Json = dict[str, Any]


class OverloadedError(BusyError):
    """Too many requests are waiting: nothing was stored, send it again later."""


class StoreUnavailableError(BusyError):
    """The database did not answer in time: send it again later, with the same idempotency key."""


class KeyReusedError(InputError):
    """One idempotency key was used for two different requests."""


@dataclass(frozen=True)
class NewRows:
    """The rows of one request, all or none. `answer` is stored with the idempotency key: ids and times, never a text."""

    answer: Json
    records: tuple[Contract, ...] = ()
    plain_rows: tuple[tuple[Table, Json], ...] = ()  # rows without encrypted columns
    events: tuple[AuditEvent, ...] = ()  # in addition to the audit line of each record
    known: bool = False  # an earlier request has stored it: there is nothing to add
    update: Callable[[Connection], None] | None = None  # a change to existing rows, in the same transaction


@dataclass(frozen=True)
class Lookup:
    """A record that a request refers to: by its id, or the newest one with `value` in another column."""

    kind: type[Contract]
    value: str
    column: str = ""


class LookupResults:
    """What the requests of a batch look up; a row is decrypted only when needed, and once for the whole batch.

    `rows` are as stored, with `recorded_by` and the like readable; `quarantined` are, by record id, the quarantine rows of these
    records that are not released.
    """

    def __init__(self, store: Store, conn: Connection | None, rows: Mapping[Lookup, Any], quarantined: Mapping[str, Any]) -> None:
        self.store, self.conn, self.rows, self.quarantined = store, conn, rows, quarantined
        self._records: dict[Lookup, Any] = {}

    def record(self, kind: type[crud.C], lookup: Lookup) -> crud.C | None:
        row = self.rows.get(lookup)
        if row is None:
            return None
        assert self.conn is not None and lookup.kind is kind
        if lookup not in self._records:
            self._records[lookup] = crud.from_row(self.store, self.conn, kind, row)
        record: crud.C = self._records[lookup]
        return record


@dataclass(frozen=True)
class WriteRequest:
    """One request. `build` runs in the writer's thread, outside the transaction; the caller gets what it raises."""

    caller: str
    build: Callable[[LookupResults], NewRows]
    idempotency_key: str | None = None  # one namespace per caller
    fingerprint: str = ""
    lookups: tuple[Lookup, ...] = ()
    prepare: Callable[[], object] | None = None  # long work, done in another thread before the request waits for the writer
    begin: Callable[[], Future[Any]] | None = None  # the same for work in another process: starts it


@dataclass(frozen=True)
class WriteResult:
    answer: Json
    replayed: bool = False


def look_up(store: Store, conn: Connection, lookups: set[Lookup]) -> LookupResults:
    return with_quarantine(store, conn, _find_rows(conn, lookups))


def with_quarantine(store: Store, conn: Connection, rows: Mapping[Lookup, Any]) -> LookupResults:
    return LookupResults(store, conn, rows, _quarantined_rows(conn, rows))


def _find_rows(conn: Connection, lookups: set[Lookup]) -> dict[Lookup, Any]:
    rows = {}
    for kind, column_name in {(lookup.kind, lookup.column) for lookup in lookups}:
        table = crud.TABLES[kind]
        column = table.c[column_name or natural_id(table)]
        values = sorted(lookup.value for lookup in lookups if (lookup.kind, lookup.column) == (kind, column_name))
        query = _rows_with(table, column, bool(column_name))
        for chunk in chunks(values):
            for row in conn.execute(query, {"values": chunk}):
                rows[Lookup(kind, row._mapping[column], column_name)] = row
    return rows


@cache
def _rows_with(table: Table, column: Column[Any], newest: bool) -> Select[Any]:
    """The rows with certain values in a column; the newest one for each value, if many may have it."""
    named = column.in_(bindparam("values", expanding=True))
    if not newest:
        return select(table).where(named)
    return select(table).where(table.c.id.in_(select(func.max(table.c.id)).where(named).group_by(column)))


def _quarantined_rows(conn: Connection, rows: Mapping[Lookup, Any]) -> dict[str, Any]:
    ids = sorted({row._mapping[natural_id(crud.TABLES[lookup.kind])] for lookup, row in rows.items()})
    return {row.record_id: row for chunk in chunks(ids) for row in conn.execute(_QUARANTINED, {"ids": chunk})}
