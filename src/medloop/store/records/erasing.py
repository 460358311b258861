"""Rows that must go: which they are, their last text, and their removal with a tombstone for each.

found = about_subject(store, "sub_…")         # or about_records(store, ["fb_…"]): {table name: ids}, with all that hangs on them
for one in texts(store, found): ...            # what they say, while it can still be read
remove(store, found, Order(...))               # one transaction: tombstones, rows, lineage, quarantine, an audit line
compact(store, found)                          # so that the pages they lay on are overwritten, too
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from medloop.contracts import AuditEvent, canonical_json, utc_now
from medloop.store import audit, tables
from medloop.store.db import Store
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
from medloop.store.records import lineage
from medloop.store.records.crud import PAGE, open_row

Found = dict[str, set[str]]  # ids by table name
TABLES: dict[str, Table] = {table.name: table for table in tables.encrypted_tables()}
PRIMARY = ("rlhf_feedback", "rlhf_preferences", "rlhf_corrections", "traces")
MODEL_SAID = {"agent_response", "response_a", "response_b", "original", "answer"}
_SEALED = slice(1, 33)  # of a sealed text: random enough to be known again, and says nothing


@dataclass(frozen=True)
class Text:
    """One text of one row; `authored` by a person rather than a model. `subject` is whom the row is about."""

    table: str
    record_id: str
    subject: str | None
    value: str
    authored: bool


@dataclass(frozen=True)
class Order:
    """Who erases what, and why."""

    erasure_id: str
    reason: str
    actor: str


@contextmanager
def alone(store: Store, *, wait_s: float = 5.0) -> Iterator[Path]:
    """One erasure at a time in a workspace, and none while a finished dataset is put in place. The folder of the proofs."""
    folder = store.settings.workspace.reports / "erasure"
    make_folder(folder)
    with locked_file(folder, wait_s=wait_s, what="The erasure of this workspace"):
        yield folder


def about_subject(store: Store, subject: str) -> Found:
    """Everything about one person: their records and traces, whatever was said about those traces, and all versions."""
    found: Found = {}
    with store.read() as conn:
        for name in PRIMARY[:3]:
            _add(found, name, _ids(conn, TABLES[name], TABLES[name].c.subject == subject))
        _add(found, "traces", _ids(conn, tables.traces, tables.traces.c.user_hash == subject))
        _add(found, "traces", _cited(conn, found))
        _spread(conn, found)
    return found


def about_records(store: Store, record_ids: Sequence[str]) -> tuple[Found, list[str]]:
    """These records with their versions and corrections; of a trace all that was said about it. And the ids that are unknown."""
    found: Found = {}
    with store.read() as conn:
        known: set[str] = set()
        for name in PRIMARY:
            ids = _ids(conn, TABLES[name], _natural(TABLES[name]).in_(list(record_ids)))
            _add(found, name, ids)
            known |= ids
        _spread(conn, found)
    return found, [one for one in record_ids if one not in known]


def _spread(conn: Connection, found: Found) -> None:
    """What hangs on it: records of its traces, other versions, corrections of its feedback; until nothing is added."""
    before = -1
    while (size := sum(map(len, found.values()))) != before:
        before = size
        traced, rated = list(found.get("traces", ())), list(found.get("rlhf_feedback", ()))
        for name in PRIMARY[:3]:
            table = TABLES[name]
            _add(found, name, _any(conn, table, table.c.trace_id, traced))
            own = list(found.get(name, ()))
            _add(found, name, _any(conn, table, table.c.supersedes, own))
            older = {row for some in lineage.chunks(own) for row in _column(conn, table, "supersedes", some)}
            _add(found, name, _any(conn, table, _natural(table), sorted(older)))
        _add(found, "rlhf_corrections", _any(conn, tables.rlhf_corrections, tables.rlhf_corrections.c.feedback_id, rated))


def hanging(store: Store, found: Found) -> Found:
    """Red-team cases and queue items made of these records."""
    ids = sorted({one for some in found.values() for one in some})
    cases, items, scores = tables.red_team_cases, tables.queue_items, tables.scored_answers
    with store.read() as conn:
        return {
            "red_team_cases": _any(conn, cases, cases.c.record_id, ids),
            "queue_items": _any(conn, items, items.c.trace_id, ids) | _asked_with(store, found, set(ids)),
            "scored_answers": _any(conn, scores, scores.c.sample_id, ids),
        }


def _asked_with(store: Store, found: Mapping[str, set[str]], ids: set[str]) -> set[str]:
    """Queue items that a column does not give away: a second trace in a comparison, or a question that came from a file."""
    items = tables.queue_items
    hidden = (items.c.kind == "compare") | items.c.trace_id.is_(None)
    asked, again = {one.value for one in texts(store, found) if one.authored}, set()
    with store.read() as conn:
        for row in conn.execute(select(items).where(hidden)):
            content = json.loads(open_row(items, row, store.keys.reading(conn, row.key_id))["content"])
            said = {text for text, by_a_person in _strings(content.get("prompt", []), True) if by_a_person}
            if said & asked or ids & set(content.get("traces", ())):
                again.add(str(row.item_id))
    return again


def texts(store: Store, found: Mapping[str, set[str]]) -> Iterator[Text]:
    """Every text of these rows, opened."""
    for name, ids in found.items():
        for some in lineage.chunks(sorted(ids)):
            with store.read() as conn:
                rows = conn.execute(select(TABLES[name]).where(_natural(TABLES[name]).in_(some))).all()
                opened = [(row, open_row(TABLES[name], row, store.keys.reading(conn, row.key_id))) for row in rows]
            for row, plain in opened:
                yield from _texts(name, row, plain)


def everything(store: Store, but: Mapping[str, set[str]], names: Sequence[str] | None = None) -> Iterator[Text]:
    """Every text of the store, page by page, but for these rows."""
    for name in names or TABLES:
        table, after, gone = TABLES[name], 0, but.get(name, set())
        while True:
            with store.read() as conn:
                rows = conn.execute(select(table).where(table.c.id > after).order_by(table.c.id).limit(PAGE)).all()
                kept = [row for row in rows if row._mapping[tables.natural_id(table)] not in gone]
                opened = [(row, open_row(table, row, store.keys.reading(conn, row.key_id))) for row in kept]
            if not rows:
                break
            after = rows[-1].id
            for row, plain in opened:
                yield from _texts(name, row, plain)


def sealed_marks(store: Store, found: Mapping[str, set[str]]) -> list[bytes]:
    """Some bytes of each sealed text, by which it would be known if it were still on a page of the database file."""
    marks = []
    for name, ids in found.items():
        for some in lineage.chunks(sorted(ids)):
            with store.read() as conn:
                for row in conn.execute(select(TABLES[name]).where(_natural(TABLES[name]).in_(some))).all():
                    sealed = (row._mapping[column] for column in tables.encrypted_columns(TABLES[name]))
                    marks += [blob[_SEALED] for blob in sealed if blob is not None]
    return marks


def remove(store: Store, found: Mapping[str, set[str]], order: Order) -> dict[str, int]:
    """Tombstones, then the rows, in one transaction; returns how many rows went, by table."""
    counts: dict[str, int] = {}
    every = sorted({one for ids in found.values() for one in ids})
    with store.write() as conn:
        for name, ids in found.items():
            rows = [row for some in lineage.chunks(sorted(ids)) for row in _rows(conn, TABLES[name], some)]
            if not rows:
                continue
            if name == "incidents":  # it holds back promotion, so only what somebody noted about it goes
                conn.execute(update(TABLES[name]).where(_natural(TABLES[name]).in_(sorted(ids))).values(note=None))
                continue
            _bury(conn, TABLES[name], rows, order)
            counts[name] = len(rows)
        _blank_notes(conn, every)
        gone = tables.quarantine.c.record_id
        for some in lineage.chunks(every):
            conn.execute(delete(tables.quarantine).where(gone.in_(some)))
        lineage.forget(conn, every)
        detail: dict[str, str | int | float | bool] = {"rows": sum(counts.values()), "reason": order.reason}
        audit.append(conn, AuditEvent(actor=order.actor, action="erasure.rows", subject=order.erasure_id, detail=detail))
    return counts


def _bury(conn: Connection, table: Table, rows: Sequence[Row[Any]], order: Order) -> None:
    name, known = tables.natural_id(table), set(conn.execute(select(tables.tombstones.c.record_id)).scalars())
    stones = [
        {
            "record_id": row._mapping[name], "kind": table.name, "erasure_id": order.erasure_id, "reason": order.reason,
            "erased_by": order.actor, "proof": proof(row), "timestamp": utc_now(),
        }
        for row in rows
        if row._mapping[name] not in known
    ]  # fmt: skip
    if stones:
        conn.execute(insert(tables.tombstones), stones)
    for some in lineage.chunks([row._mapping[name] for row in rows]):
        if table is tables.queue_items:
            conn.execute(delete(tables.queue_turns).where(tables.queue_turns.c.item_id.in_(some)))
        conn.execute(delete(table).where(_natural(table).in_(some)))


def proof(row: Row[Any]) -> str:
    """A hash of the sealed row as it was: it proves what was there to whoever has a backup, and tells nothing to others."""
    shown = {name: value.hex() if isinstance(value, bytes) else str(value) for name, value in row._mapping.items()}
    return "sha256:" + hashlib.sha256(canonical_json(shown).encode()).hexdigest()


def _blank_notes(conn: Connection, ids: Sequence[str]) -> None:
    """An incident stays, for it holds back promotion; what somebody noted about it goes."""
    incidents = tables.incidents
    for some in lineage.chunks(ids):
        conn.execute(update(incidents).where(incidents.c.record_id.in_(some)).values(note=None))


def tombstones_of(store: Store, erasure_id: str) -> list[dict[str, str]]:
    stones = tables.tombstones
    with store.read() as conn:
        rows = conn.execute(select(stones).where(stones.c.erasure_id == erasure_id).order_by(stones.c.id)).all()
    return [{"record_id": row.record_id, "table": row.kind, "proof": row.proof} for row in rows]


def erased_in(store: Store, record_ids: Sequence[str]) -> dict[str, str]:
    """By record id, the erasure that took it."""
    stones = tables.tombstones
    with store.read() as conn:
        rows = conn.execute(select(stones).where(stones.c.record_id.in_(list(record_ids)))).all()
    return {row.record_id: row.erasure_id for row in rows}


def compact(store: Store, names: Sequence[str], left: Callable[[], bool] = lambda: False) -> str:
    """Overwrite what the rows lay on: SQLite's log is emptied and, where sealed bytes are `left`, the file made anew."""
    if store.is_sqlite:
        store.checkpoint()
        if not left():
            return "log emptied"
        _vacuum(store, [""])
        store.checkpoint()
        return "log emptied, file made anew"
    _vacuum(store, [name for name in names if name in TABLES])
    return "tables vacuumed"


def _vacuum(store: Store, names: Sequence[str]) -> None:
    """VACUUM runs outside a transaction; on SQLite it waits for other readers like any writer."""
    if store.is_sqlite:
        with store._writer_lock(), closing(store.engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA query_only=OFF")
            raw.cursor().execute("VACUUM")
        return
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        for name in names:
            conn.exec_driver_sql(f"VACUUM {name}")


def _texts(name: str, row: Row[Any], plain: Mapping[str, bytes]) -> Iterator[Text]:
    row_id, subject = row._mapping[tables.natural_id(TABLES[name])], row._mapping.get("subject") or row._mapping.get("user_hash")
    for column, data in plain.items():
        for value, authored in _strings(json.loads(data), column not in MODEL_SAID):
            yield Text(name, row_id, subject, value, authored)


def _strings(value: Any, authored: bool) -> Iterator[tuple[str, bool]]:
    """Every string inside a value; what an assistant said in a conversation was not written by a person."""
    if isinstance(value, str):
        yield value, authored
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, authored)
    elif isinstance(value, dict):
        said = authored and value.get("role") not in ("assistant", "system")
        for key, one in value.items():
            if key != "role":
                yield from _strings(one, said)


def _rows(conn: Connection, table: Table, ids: Sequence[str]) -> Sequence[Row[Any]]:
    return conn.execute(select(table).where(_natural(table).in_(list(ids))).order_by(table.c.id)).all()


def _natural(table: Table) -> Any:
    return table.c[tables.natural_id(table)]


def _ids(conn: Connection, table: Table, where: Any) -> set[str]:
    return set(conn.execute(select(_natural(table)).where(where)).scalars())


def _any(conn: Connection, table: Table, column: Any, values: Sequence[str]) -> set[str]:
    return {one for some in lineage.chunks(values) for one in _ids(conn, table, column.in_(some))}


def _column(conn: Connection, table: Table, name: str, ids: Sequence[str]) -> set[str]:
    found = conn.execute(select(table.c[name]).where(_natural(table).in_(list(ids)), table.c[name].is_not(None))).scalars()
    return set(found)


def _cited(conn: Connection, found: Found) -> set[str]:
    """The traces that these records are about."""
    return {
        one
        for name in PRIMARY[:3]
        for some in lineage.chunks(sorted(found.get(name, ())))
        for one in _column(conn, TABLES[name], "trace_id", some)
    }


def _add(found: Found, name: str, ids: set[str]) -> None:
    if ids:
        found.setdefault(name, set()).update(ids)
