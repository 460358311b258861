"""Add records to the store and read them back; their text is encrypted.

    add(store, [feedback, trace], actor="api")       # one transaction; returns how many were new
    get(store, Feedback, "fb_…")                     # or None
    for feedback in iterate(store, Feedback): ...    # in the order they came, in bounded memory

Adding is idempotent by id: the same record again changes nothing; other content under the same id is a StoreError. So a caller
who does not know whether a write succeeded can repeat it. Each new record leaves a line in the audit log.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Table, func, select, update

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
from medloop.store.crypto import TextKey
from medloop.store.db import Store
from medloop.store.insert_rows import insert_rows
from medloop.store.records.chunks import chunks

C = TypeVar("C", bound=Contract)

TABLES: dict[type[Contract], Table] = {
    Feedback: tables.rlhf_feedback, Preference: tables.rlhf_preferences, Correction: tables.rlhf_corrections,
    Trace: tables.traces, Incident: tables.incidents, RedTeamCase: tables.red_team_cases, ScoredAnswer: tables.scored_answers,
}  # fmt: skip
PAGE_SIZE = 500  # rows per query
_NOT_IN_RECORD = {"id", "processed", "key_id", "text_key", "mac"}


def add(store: Store, records: Iterable[Contract], *, actor: str) -> int:
    """Add records of any of these kinds in one transaction; returns how many were new."""
    with store.write() as conn:
        return add_in(store, conn, records, actor=actor)


def add_in(store: Store, conn: Connection, records: Iterable[Contract], *, actor: str) -> int:
    """`add` as part of a larger `store.write()` transaction."""
    count = 0
    for kind, same_kind in _by_kind(records).items():
        new = _without_stored(store, conn, kind, same_kind)
        if not new:
            continue
        insert_in(store, conn, new.values())
        audit.append(conn, added_events(new.values(), actor))
        count += len(new)
    return count


def insert_in(store: Store, conn: Connection, records: Iterable[Contract]) -> None:
    """Insert records whose ids are certainly new, such as ids created here; the caller writes the audit lines."""
    keys, subjects = store.keys.writing(conn), dict[str, str | None]()
    for kind, same_kind in _by_kind(records).items():
        table, rows = TABLES[kind], []
        for record in same_kind:
            values = record.model_dump(mode="json")
            record_id = values[tables.natural_id(table)]
            subject = subject_of_row(values) or subjects.get(values.get("record_id", ""))  # incidents name their record
            subjects[record_id] = subject
            rows.append(_to_row(table, keys.for_row(subject, record_id), record, values))
        insert_rows(store, conn, table, rows)


def subject_of_row(values: Mapping[str, Any]) -> str | None:
    """The person that a record is about."""
    return values.get("subject") or values.get("user_hash")


def added_events(records: Iterable[Contract], actor: str) -> list[AuditEvent]:
    """The audit lines of new records."""
    return [
        AuditEvent(actor=actor, action=f"{TABLES[type(record)].name}.add", subject=id_of(record)) for record in records
    ]  # fmt: skip


def ids_by_name(records: Iterable[Contract]) -> dict[str, str]:
    """`{"feedback_id": "fb_…", "correction_id": "co_…"}`; of several records of one kind the first."""
    ids: dict[str, str] = {}
    for record in records:
        ids.setdefault(tables.natural_id(TABLES[type(record)]), id_of(record))
    return ids


def id_of(record: Contract) -> str:
    return str(getattr(record, tables.natural_id(TABLES[type(record)])))


def get(store: Store, kind: type[C], record_id: str) -> C | None:
    table = TABLES[kind]
    with store.read() as conn:
        row = conn.execute(select(table).where(tables.id_column(table) == record_id)).first()
        return None if row is None else from_row(store, conn, kind, row)


def exists(store: Store, kind: type[Contract], record_id: str) -> bool:
    """Whether there is such a record; it is not read."""
    table = TABLES[kind]
    with store.read() as conn:
        return conn.execute(select(table.c.id).where(tables.id_column(table) == record_id)).first() is not None


def is_taken(store: Store, record_id: str, *, but: type[Contract]) -> bool:
    """Whether a record of another kind has this id, or an erased one had it."""
    others = [tables.id_column(TABLES[kind]) for kind in (Feedback, Preference, Correction, Trace) if kind is not but]
    with store.read() as conn:
        for column in (*others, tables.tombstones.c.record_id):
            if conn.execute(select(column).where(column == record_id)).first() is not None:
                return True
    return False


def page(
    store: Store, kind: type[C], *, after: int = 0, limit: int = PAGE_SIZE, unprocessed: bool = False
) -> list[tuple[int, C]]:
    """Up to `limit` records that came after row number `after`, each with its own row number."""
    table = TABLES[kind]
    query = select(table).where(table.c.id > after).order_by(table.c.id).limit(limit)
    if unprocessed:
        query = query.where(table.c.processed.is_(False))
    with store.read() as conn:
        rows = conn.execute(query).all()
        return [(row.id, record) for row, record in zip(rows, from_rows(store, conn, kind, rows), strict=True)]


def iterate(store: Store, kind: type[C], *, unprocessed: bool = False) -> Iterator[C]:
    """All records in the order they came. Each page is a read of its own, so a slow consumer blocks nobody."""
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
    """Mark these records as used in a training set; returns how many were not marked before."""
    table, changed = TABLES[kind], 0
    with store.write() as conn:
        for chunk in chunks(record_ids):
            unprocessed = update(table).where(tables.id_column(table).in_(chunk), table.c.processed.is_(False))
            changed += conn.execute(unprocessed.values(processed=True)).rowcount
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


def _without_stored(store: Store, conn: Connection, kind: type[Contract], records: Sequence[Contract]) -> dict[str, Contract]:
    """The records that are not stored yet, by id; StoreError if an id is stored with other content."""
    table = TABLES[kind]
    id_name = tables.natural_id(table)
    new: dict[str, Contract] = {}
    for record in records:
        record_id = getattr(record, id_name)
        _refuse_other(record, new.setdefault(record_id, record), id_name)
    for chunk in chunks(list(new)):
        for row in conn.execute(select(table).where(tables.id_column(table).in_(chunk))).all():
            stored = from_row(store, conn, kind, row)
            _refuse_other(new.pop(getattr(stored, id_name)), stored, id_name)
    return new


def _refuse_other(record: Contract, stored: Contract, id_name: str) -> None:
    if record is not stored and record.canonical_json() != stored.canonical_json():
        raise StoreError(
            f"{id_name} {getattr(record, id_name)} is taken by a record with other content; nothing was added",
            "Records cannot be changed: give the new one its own id and put the old id into 'supersedes'",
        )


def _to_row(table: Table, key: TextKey, record: Contract, values: Mapping[str, Any]) -> dict[str, Any]:
    row_id = values[tables.natural_id(table)]
    row: dict[str, Any] = {**key.columns, "processed": False}
    texts: dict[str, bytes] = {}
    encrypted, times = tables.encrypted_columns(table), tables.time_columns(table)
    for name, value in values.items():
        if name in encrypted:
            if value is None:
                row[name] = None
            else:
                texts[name] = canonical_json(value).encode()
        else:
            row[name] = getattr(record, name) if name in times else value
            if isinstance(value, str) and "\0" in value:
                raise InputError(f"{table.name}: {name} contains a NUL character", "Remove it")
    row.update(key.encrypt_row(table.name, row_id, texts))
    return row


def encrypt_columns(table: Table, key: TextKey, row_id: str, values: Mapping[str, object]) -> dict[str, bytes]:
    """Columns of one row, encrypted as `add` encrypts them."""
    return key.encrypt_row(table.name, row_id, {name: canonical_json(value).encode() for name, value in values.items()})


def from_row(store: Store, conn: Connection, kind: type[C], row: Row[Any]) -> C:
    """The record of one whole row, its text decrypted."""
    return from_rows(store, conn, kind, [row])[0]


def from_rows(store: Store, conn: Connection, kind: type[C], rows: Sequence[Row[Any]]) -> list[C]:
    """The records of whole rows, their text decrypted."""
    records = []
    for row in rows:
        values = {name: value for name, value in row._mapping.items() if name not in _NOT_IN_RECORD}
        texts = decrypt_row(TABLES[kind], row, store.keys.reading(conn, row))
        records.append(kind.model_validate(values | {name: json.loads(plain) for name, plain in texts.items()}))
    return records


def decrypt_row(table: Table, row: Row[Any], key: TextKey) -> dict[str, bytes]:
    """The decrypted columns of one row; IntegrityError names a column that was changed or moved."""
    sealed = {name: row._mapping[name] for name in tables.encrypted_columns(table)}
    return key.decrypt_row(table.name, row._mapping[tables.natural_id(table)], sealed)
