"""Records that come from another system: each is stored once, and one that was erased here does not come back.

    stored_ids(store, Trace, ["lf_1", "lf_2"])                 # {"lf_1"}: stored, or erased
    add_new(store, [NewRecord(trace, doubt=None)], actor="user:li")

Where the other system has changed a record, the importer adds a new one that supersedes the old.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, or_, select, update

from medloop.contracts import Contract, Correction, Feedback, Preference, Trace
from medloop.store import audit, tables
from medloop.store.db import Store
from medloop.store.records import crud, quarantine
from medloop.store.records.chunks import chunks
from medloop.store.tables import id_column, sent_records, sync_cursors, tombstones


@dataclass(frozen=True)
class NewRecord:
    """A record, and how far its text may still name a person; None where nothing suggests it."""

    record: Contract
    doubt: float | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldTrace:
    """A trace, and the doubt about it while quarantine holds it."""

    trace: Trace
    doubt: float | None
    reasons: tuple[str, ...] = ()


def stored_ids(store: Store, kind: type[Contract], ids: Iterable[str]) -> set[str]:
    """Those of the ids that a record of this kind has, or had before it was erased."""
    wanted = sorted(set(ids))
    with store.read() as conn:
        return _taken(conn, kind, wanted)


def _taken(conn: Connection, kind: type[Contract], ids: Sequence[str]) -> set[str]:
    taken: set[str] = set()
    for column in (id_column(crud.TABLES[kind]), tombstones.c.record_id):
        for chunk in chunks(ids):
            taken.update(conn.execute(select(column).where(column.in_(chunk))).scalars())
    return taken


def add_new(store: Store, records: Sequence[NewRecord], *, actor: str) -> list[str]:
    """Add what is not stored yet, with quarantine and audit lines, in one transaction; returns the ids that are new."""
    if not records:
        return []
    with store.write() as conn:
        new: dict[str, NewRecord] = {}
        for kind in {type(entry.record) for entry in records}:
            same = {crud.id_of(entry.record): entry for entry in reversed(records) if type(entry.record) is kind}
            taken = _taken(conn, kind, sorted(same))
            new.update({record_id: same[record_id] for record_id in sorted(same.keys() - taken)})
        if not new:
            return []
        added = [entry.record for entry in new.values()]
        crud.insert_in(store, conn, added)
        audit.append(conn, crud.added_events(added, actor))
        for record_id, entry in new.items():
            if entry.doubt is not None:
                table = crud.TABLES[type(entry.record)].name
                quarantine.hold(conn, record_id, table, doubt=entry.doubt, reasons=entry.reasons, actor=actor)
        return list(new)


def traces_with_doubts(store: Store, ids: Iterable[str]) -> dict[str, HeldTrace]:
    """Traces by id, each with the doubt of its quarantine if it is not released."""
    traces: dict[str, HeldTrace] = {}
    with store.read() as conn:
        for chunk in chunks(sorted(set(ids))):
            held = {
                row.record_id: row
                for row in conn.execute(
                    select(tables.quarantine).where(
                        tables.quarantine.c.record_id.in_(chunk), tables.quarantine.c.state != "released"
                    )
                )
            }
            rows = conn.execute(select(tables.traces).where(tables.traces.c.trace_id.in_(chunk))).all()
            for trace in crud.from_rows(store, conn, Trace, rows):
                row = held.get(trace.trace_id)
                traces[trace.trace_id] = HeldTrace(trace, row.doubt if row else None, tuple(row.reasons) if row else ())
    return traces


def versions_of(
    store: Store, kind: type[Feedback] | type[Correction] | type[Preference], bases: Iterable[str]
) -> dict[str, list[Any]]:  # fmt: skip
    """The records `base`, `base.2`, `base.3` of each base, oldest first."""
    table, versions = crud.TABLES[kind], dict[str, list[Any]]()
    with store.read() as conn:
        for base_ids in chunks(sorted(set(bases))):
            for some in (base_ids[n : n + 50] for n in range(0, len(base_ids), 50)):
                rows = conn.execute(select(table).where(_is_version(table, some)).order_by(table.c.id)).all()
                for record in crud.from_rows(store, conn, kind, rows):
                    versions.setdefault(crud.id_of(record).split(".")[0], []).append(record)
    return versions


def _is_version(table: Table, bases: Sequence[str]) -> ColumnElement[bool]:
    """By the primary form of the id and its numbered successors; bases hold no wildcard."""
    column = id_column(table)
    return or_(column.in_(bases), *(column.between(f"{base}.", f"{base}.~") for base in bases))


def read_position(store: Store, name: str) -> dict[str, Any] | None:
    with store.read() as conn:
        return conn.execute(select(sync_cursors.c.position).where(sync_cursors.c.name == name)).scalar()


def save_position(store: Store, name: str, position: Mapping[str, Any] | None) -> None:
    """Keep how far a reader has come; None forgets it."""
    own_row = sync_cursors.c.name == name
    with store.write() as conn:
        if position is None:
            conn.execute(delete(sync_cursors).where(own_row))
        elif conn.execute(update(sync_cursors).where(own_row).values(position=dict(position))).rowcount == 0:
            conn.execute(insert(sync_cursors).values(name=name, position=dict(position)))


def own_records(store: Store, remote_ids: Iterable[str]) -> dict[str, str]:
    """The records of this store that were sent out under these ids."""
    own: dict[str, str] = {}
    with store.read() as conn:
        for chunk in chunks(sorted(set(remote_ids))):
            query = select(sent_records.c.remote_id, sent_records.c.record_id).where(sent_records.c.remote_id.in_(chunk))
            own.update({row.remote_id: row.record_id for row in conn.execute(query)})
    return own
