"""What people and rewards say about answers, in the store: added once, read back as it was, text encrypted.

    add(store, [feedback, trace], actor="api")       # one transaction; returns how many were new
    get(store, Feedback, "fb_…")                     # or None
    for feedback in iterate(store, Feedback): ...    # in the order they came, in bounded memory

Adding is idempotent by id: the same record again is a no-op, another one under the same id a StoreError. So a caller
who does not know whether a write went through simply repeats it. Each new record leaves a line in the audit log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Table, func, insert, select, update

from medloop.contracts import (
    AuditEvent,
    Contract,
    Correction,
    Feedback,
    Incident,
    Preference,
    RedTeamCase,
    ScoredAnswer,
    Trace,
    canonical_json,
)
from medloop.errors import InputError, StoreError
from medloop.store import audit, tables
from medloop.store.crypto import DataKey
from medloop.store.db import Store

C = TypeVar("C", bound=Contract)

TABLES: dict[type[Contract], Table] = {
    Feedback: tables.rlhf_feedback,
    Preference: tables.rlhf_preferences,
    Correction: tables.rlhf_corrections,
    Trace: tables.traces,
    Incident: tables.incidents,
    RedTeamCase: tables.red_team_cases,
    ScoredAnswer: tables.scored_answers,
}
PAGE = 500  # rows per query; far below SQLite's limit on variables
_OWN = {"id", "processed", "key_id"}  # columns that are not part of the record


def add(store: Store, records: Iterable[Contract], *, actor: str) -> int:
    """Add records of any of these kinds in one transaction; returns how many were new."""
    with store.write() as conn:
        return add_in(store, conn, records, actor=actor)


def add_in(store: Store, conn: Connection, records: Iterable[Contract], *, actor: str) -> int:
    """`add` as part of a larger `store.write()` transaction."""
    new = 0
    for kind, given in _by_kind(records).items():
        fresh = _without_known(store, conn, kind, given)
        if not fresh:
            continue
        insert_in(store, conn, fresh.values())
        audit.append(conn, (added(record, actor) for record in fresh.values()))
        new += len(fresh)
    return new


def insert_in(store: Store, conn: Connection, records: Iterable[Contract]) -> None:
    """Insert records whose ids are known to be new, such as ids just made here; the caller writes the audit lines."""
    for kind, given in _by_kind(records).items():
        table, key = TABLES[kind], store.keys.writing(conn)
        conn.execute(insert(table), [_to_row(table, key, record) for record in given])


def added(record: Contract, actor: str) -> AuditEvent:
    """The audit line of a new record."""
    return AuditEvent(actor=actor, action=f"{TABLES[type(record)].name}.add", subject=id_of(record))


def id_of(record: Contract) -> str:
    return str(getattr(record, tables.natural_id(TABLES[type(record)])))


def get(store: Store, kind: type[C], record_id: str) -> C | None:
    table = TABLES[kind]
    with store.read() as conn:
        row = conn.execute(select(table).where(_id_column(table) == record_id)).first()
        return None if row is None else from_row(store, conn, kind, row)


def page(store: Store, kind: type[C], *, after: int = 0, limit: int = PAGE, unprocessed: bool = False) -> list[tuple[int, C]]:
    """Up to `limit` records that came after row number `after`, each with its own row number."""
    table = TABLES[kind]
    query = select(table).where(table.c.id > after).order_by(table.c.id).limit(limit)
    if unprocessed:
        query = query.where(table.c.processed.is_(False))
    with store.read() as conn:
        return [(row.id, from_row(store, conn, kind, row)) for row in conn.execute(query).all()]


def iterate(store: Store, kind: type[C], *, unprocessed: bool = False) -> Iterator[C]:
    """All records in the order they came. Pages are separate reads, so a slow consumer holds nobody up."""
    after = 0
    while rows := page(store, kind, after=after, unprocessed=unprocessed):
        for after, record in rows:  # noqa: B007
            yield record


def count(store: Store, kind: type[Contract], *, unprocessed: bool = False) -> int:
    table = TABLES[kind]
    query = select(func.count()).select_from(table)
    with store.read() as conn:
        return int(conn.execute(query.where(table.c.processed.is_(False)) if unprocessed else query).scalar_one())


def mark_processed(store: Store, kind: type[Contract], record_ids: Iterable[str], *, actor: str) -> int:
    """Say that a training set has taken these records; returns how many were not marked before."""
    table, changed, ids = TABLES[kind], 0, iter(record_ids)
    with store.write() as conn:
        while chunk := list(islice(ids, PAGE)):
            wanted = update(table).where(_id_column(table).in_(chunk), table.c.processed.is_(False)).values(processed=True)
            changed += conn.execute(wanted).rowcount
        if changed:
            audit.append(
                conn, AuditEvent(actor=actor, action=f"{table.name}.processed", subject=table.name, detail={"rows": changed})
            )
    return changed


def _by_kind(records: Iterable[Contract]) -> dict[type[Contract], list[Contract]]:
    groups: dict[type[Contract], list[Contract]] = {}
    for record in records:
        assert type(record) in TABLES, f"no table for {type(record).__name__}"
        groups.setdefault(type(record), []).append(record)
    return groups


def _without_known(store: Store, conn: Connection, kind: type[Contract], given: Sequence[Contract]) -> dict[str, Contract]:
    """The records by id that are not stored yet; StoreError where an id is taken by other content."""
    table = TABLES[kind]
    id_name = tables.natural_id(table)
    fresh: dict[str, Contract] = {}
    for record in given:
        record_id = getattr(record, id_name)
        _refuse_other(record, fresh.setdefault(record_id, record), id_name)
    for chunk in _chunks(list(fresh)):
        for row in conn.execute(select(table).where(_id_column(table).in_(chunk))).all():
            stored = from_row(store, conn, kind, row)
            _refuse_other(fresh.pop(getattr(stored, id_name)), stored, id_name)
    return fresh


def _refuse_other(record: Contract, known: Contract, id_name: str) -> None:
    if record is not known and record.canonical_json() != known.canonical_json():
        raise StoreError(
            f"{id_name} {getattr(record, id_name)} is taken by a record with other content; nothing was added",
            "Records are not changed: give the new one an id of its own and name the old one in 'supersedes'",
        )


def _chunks(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), PAGE):
        yield values[start : start + PAGE]


def _id_column(table: Table) -> Any:
    return table.c[tables.natural_id(table)]


def _to_row(table: Table, key: DataKey, record: Contract) -> dict[str, Any]:
    said = record.model_dump(mode="json")
    row_id = said[tables.natural_id(table)]
    row: dict[str, Any] = {"key_id": key.key_id, "processed": False}
    hidden, times = tables.encrypted_columns(table), tables.time_columns(table)
    for name, value in said.items():
        if name in hidden:
            row[name] = None if value is None else key.encrypt(canonical_json(value).encode(), table.name, row_id, name)
        else:
            row[name] = getattr(record, name) if name in times else value
            if isinstance(value, str) and "\0" in value:
                raise InputError(f"{table.name}: {name} holds a NUL character", "Remove it")
    return row


def sealed(table: Table, key: DataKey, row_id: str, texts: dict[str, str]) -> dict[str, bytes]:
    """Columns of one row, encrypted as `add` does it."""
    return {name: key.encrypt(canonical_json(text).encode(), table.name, row_id, name) for name, text in texts.items()}


def from_row(store: Store, conn: Connection, kind: type[C], row: Row[Any]) -> C:
    """The record of one whole row, its text decrypted."""
    values = {name: value for name, value in row._mapping.items() if name not in _OWN}
    opened = open_row(TABLES[kind], row, store.keys.reading(conn, row.key_id))
    return kind.model_validate(values | {name: json.loads(plain) for name, plain in opened.items()})


def open_row(table: Table, row: Row[Any], key: DataKey) -> dict[str, bytes]:
    """The decrypted columns of one row; IntegrityError names the column that does not fit its place."""
    row_id = row._mapping[tables.natural_id(table)]
    sealed = {name: row._mapping[name] for name in tables.encrypted_columns(table)}
    return {name: key.decrypt(blob, table.name, row_id, name) for name, blob in sealed.items() if blob is not None}
