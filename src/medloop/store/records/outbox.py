"""What is still to be sent to another system, and what it must delete again: an outbox over the records themselves.

    pending(store, Trace, "langfuse", after=0, limit=100)          # not sent, not erased, not held in quarantine
    mark_sent(store, "langfuse", {"0199…": "0199…"}, kind="traces")
    erased(store, "langfuse")                                      # sent, and erased here since

Records are read where they lie, so storing one costs nothing more. What quarantine holds is sent after its release.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

from sqlalchemy import delete, func, insert, select

from medloop.contracts import Contract, utc_now
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.chunks import chunks
from medloop.store.records.crud import C
from medloop.store.tables import id_column, quarantine, sent_records, tombstones

NOT_FOR_IT = "-"  # the remote id of a record that this destination does not get


@dataclass(frozen=True)
class OutboxPage(Generic[C]):
    """Records to send; everything up to row `done` needs no second look after they are sent."""

    records: tuple[C, ...]
    done: int


def last_row(store: Store, kind: type[Contract]) -> int:
    with store.read() as conn:
        return int(conn.execute(select(func.max(crud.TABLES[kind].c.id))).scalar() or 0)


def pending(store: Store, kind: type[C], destination: str, *, after: int, limit: int) -> OutboxPage[C]:
    """The next records behind row `after` that the destination has not received."""
    table = crud.TABLES[kind]
    record_id = id_column(table)
    held = select(quarantine.c.record_id).where(quarantine.c.state != "released")
    sent = select(sent_records.c.record_id).where(sent_records.c.destination == destination)
    query = select(table).where(table.c.id > after, record_id.not_in(held), record_id.not_in(sent))
    waiting = select(func.min(table.c.id)).where(
        table.c.id > after, record_id.in_(select(quarantine.c.record_id).where(quarantine.c.state == "waiting"))
    )
    with store.read() as conn:
        rows = conn.execute(query.order_by(table.c.id).limit(limit)).all()
        first_waiting = conn.execute(waiting).scalar()
        newest = int(conn.execute(select(func.max(table.c.id))).scalar() or 0)
        records = tuple(crud.from_rows(store, conn, kind, rows))
    done = rows[-1].id if len(rows) == limit else max(newest, after)
    return OutboxPage(records, done if first_waiting is None else min(done, first_waiting - 1))


def count_pending(store: Store, kind: type[Contract], destination: str, *, after: int) -> int:
    table = crud.TABLES[kind]
    record_id = id_column(table)
    held = select(quarantine.c.record_id).where(quarantine.c.state != "released")
    sent = select(sent_records.c.record_id).where(sent_records.c.destination == destination)
    query = select(func.count()).select_from(table)
    with store.read() as conn:
        return int(conn.execute(query.where(table.c.id > after, record_id.not_in(held), record_id.not_in(sent))).scalar_one())


def mark_sent(store: Store, destination: str, remote_ids: Mapping[str, str], *, kind: str) -> None:
    """Remember under which id the destination knows each record."""
    if not remote_ids:
        return
    now = utc_now()
    with store.write() as conn:
        for chunk in chunks(sorted(remote_ids)):
            known = select(sent_records.c.record_id).where(
                sent_records.c.destination == destination, sent_records.c.record_id.in_(chunk)
            )
            new = set(chunk) - set(conn.execute(known).scalars())
            rows = [
                {"record_id": name, "destination": destination, "kind": kind, "remote_id": remote_ids[name], "timestamp": now}
                for name in sorted(new)
            ]
            if rows:
                conn.execute(insert(sent_records), rows)


def sent_to(store: Store, destination: str, record_ids: Iterable[str]) -> dict[str, str]:
    """Remote ids by record id, of those that the destination has received."""
    remote: dict[str, str] = {}
    with store.read() as conn:
        for chunk in chunks(sorted(set(record_ids))):
            query = select(sent_records.c.record_id, sent_records.c.remote_id).where(
                sent_records.c.destination == destination, sent_records.c.record_id.in_(chunk)
            )
            remote.update({row.record_id: row.remote_id for row in conn.execute(query) if row.remote_id != NOT_FOR_IT})
    return remote


def erased(store: Store, destination: str, *, kind: str) -> dict[str, str]:
    """Remote ids by record id, of what was sent there and has been erased here."""
    gone = sent_records.c.record_id.in_(select(tombstones.c.record_id))
    own = (sent_records.c.destination == destination, sent_records.c.kind == kind, sent_records.c.remote_id != NOT_FOR_IT)
    with store.read() as conn:
        rows = conn.execute(select(sent_records.c.record_id, sent_records.c.remote_id).where(gone, *own)).all()
    return {row.record_id: row.remote_id for row in rows}


def forget_sent(store: Store, destination: str, record_ids: Iterable[str]) -> None:
    """The destination has deleted these records."""
    with store.write() as conn:
        for chunk in chunks(sorted(set(record_ids))):
            conn.execute(
                delete(sent_records).where(sent_records.c.destination == destination, sent_records.c.record_id.in_(chunk))
            )


def count_sent(store: Store, destination: str) -> dict[str, int]:
    query = select(sent_records.c.kind, func.count()).where(
        sent_records.c.destination == destination, sent_records.c.remote_id != NOT_FOR_IT
    )
    with store.read() as conn:
        return {str(row[0]): int(row[1]) for row in conn.execute(query.group_by(sent_records.c.kind))}
