"""Rows to erase: find them, read their texts a last time, and replace each with a tombstone.

ids = find_by_subject(store, "sub_…")          # or find_by_ids(store, ["fb_…"]): {table name: ids}, with all that depends on them
for text in texts_of(store, ids): ...          # their texts, while they can still be read
keys = keys_of(store, ids)                     # the keys of their texts
retire_keys(store, keys)                       # nothing new is written under them
remove_rows(store, ids, keys, ErasureOrder(...), …)  # one transaction: tombstones, rows, lineage, quarantine, an audit line
destroy_keys(store, keys)                      # no copy of the rows opens again: not in a log, not in a backup
compact(store, list(ids))                      # overwrites the pages of the database that held them
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from medloop.contracts import AuditEvent, canonical_json, utc_now
from medloop.store import audit, tables
from medloop.store.crypto import ErasedKeyError
from medloop.store.db import Store
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
from medloop.store.key_tree import BRANCH
from medloop.store.records import evidence, experiments, lineage
from medloop.store.records.chunks import chunks
from medloop.store.records.crud import PAGE_SIZE, decrypt_row, subject_of_row
from medloop.store.records.stored_texts import StoredText, texts_in
from medloop.store.tables import id_column, natural_id

RecordIds = dict[str, set[str]]  # by table name
TABLES: dict[str, Table] = {table.name: table for table in tables.encrypted_tables()}
SPOKEN_TABLES = ("rlhf_feedback", "rlhf_preferences", "rlhf_corrections")  # what people said about answers
SOURCE_TABLES = (*SPOKEN_TABLES, "traces")  # all other tables are derived from these
_SAMPLE = slice(1, 33)  # these bytes of a ciphertext identify it and reveal nothing


@dataclass(frozen=True)
class ErasureOrder:
    """Who erases, and why."""

    erasure_id: str
    reason: str
    actor: str


@contextmanager
def erasure_lock(store: Store, *, wait_s: float = 5.0) -> Iterator[Path]:
    """Allow one erasure at a time, and none while a finished dataset is put in place. Yields the folder of the proofs."""
    folder = store.settings.workspace.reports / "erasure"
    make_folder(folder)
    with locked_file(folder, wait_s=wait_s, what="The erasure of this workspace"):
        yield folder


# Which rows


def find_by_subject(store: Store, subject: str) -> RecordIds:
    """Everything about one person: their records and traces, all records about those traces, and all versions."""
    ids: RecordIds = {}
    with store.read() as conn:
        for name in SPOKEN_TABLES:
            _add(ids, name, _select_ids(conn, TABLES[name], TABLES[name].c.subject == subject))
        _add(ids, "traces", _select_ids(conn, tables.traces, tables.traces.c.user_hash == subject))
        _add(ids, "traces", _cited_traces(conn, ids))
        _add_dependents(conn, ids)
    return ids


def find_by_ids(store: Store, record_ids: Sequence[str]) -> tuple[RecordIds, list[str]]:
    """These records with their versions and corrections, all records about a trace among them; and the unknown ids."""
    ids: RecordIds = {}
    with store.read() as conn:
        for name in SOURCE_TABLES:
            _add(ids, name, _select_ids(conn, TABLES[name], id_column(TABLES[name]).in_(list(record_ids))))
        known = set().union(*ids.values())
        _add_dependents(conn, ids)
    return ids, [record_id for record_id in record_ids if record_id not in known]


def existing(store: Store, ids: Mapping[str, Iterable[str]]) -> RecordIds:
    """Those of these rows that the store holds."""
    with store.read() as conn:
        by_table = {name: _ids_with(conn, TABLES[name], id_column(TABLES[name]), table_ids) for name, table_ids in ids.items()}
    return {name: table_ids for name, table_ids in by_table.items() if table_ids and name != "incidents"}


def _add_dependents(conn: Connection, ids: RecordIds) -> None:
    """Add records about the traces, other versions, and corrections of the feedback, until nothing more is added."""
    before = -1
    while (size := sum(map(len, ids.values()))) != before:
        before = size
        trace_ids, feedback_ids = list(ids.get("traces", ())), list(ids.get("rlhf_feedback", ()))
        for name in SPOKEN_TABLES:
            table = TABLES[name]
            _add(ids, name, _ids_with(conn, table, table.c.trace_id, trace_ids))
            own = list(ids.get(name, ()))
            _add(ids, name, _ids_with(conn, table, table.c.supersedes, own))
            _add(ids, name, _ids_with(conn, table, id_column(table), sorted(_values(conn, table, "supersedes", own))))
        corrections = tables.rlhf_corrections
        _add(ids, "rlhf_corrections", _ids_with(conn, corrections, corrections.c.feedback_id, feedback_ids))


def find_derived(store: Store, ids: RecordIds) -> RecordIds:
    """Red-team cases, queue items, scores, entries of the codebook and criteria that were made from these records."""
    every = sorted(set().union(*ids.values()))
    cases, items, scores = tables.red_team_cases, tables.queue_items, tables.scored_answers
    with store.read() as conn:
        return {
            "red_team_cases": _ids_with(conn, cases, cases.c.record_id, every),
            "queue_items": _ids_with(conn, items, items.c.trace_id, every) | _items_naming(store, set(every)),
            "scored_answers": _ids_with(conn, scores, scores.c.sample_id, every),
            "codebook_entries": evidence.entries_from(conn, set(every)),
            "rubric_criteria": evidence.criteria_from(conn, set(every)),
        }


def _items_naming(store: Store, every: set[str]) -> set[str]:
    """Queue items that name a record where no column does: of two compared answers the second trace, feedback without a trace."""
    items, item_ids = tables.queue_items, set()
    with store.read() as conn:
        for row in conn.execute(select(items).where((items.c.kind == "compare") | items.c.trace_id.is_(None))):
            content = json.loads(_open(store, conn, items, row).get("content", b"{}"))
            if every & {*content.get("traces", ()), *content.get("records", ())}:
                item_ids.add(str(row.item_id))
    return item_ids


def _cited_traces(conn: Connection, ids: RecordIds) -> set[str]:
    return {trace for name in SPOKEN_TABLES for trace in _values(conn, TABLES[name], "trace_id", sorted(ids.get(name, ())))}


def _select_ids(conn: Connection, table: Table, where: Any) -> set[str]:
    return set(conn.execute(select(id_column(table)).where(where)).scalars())


def _ids_with(conn: Connection, table: Table, column: Any, values: Iterable[str]) -> set[str]:
    return {record_id for chunk in chunks(values) for record_id in _select_ids(conn, table, column.in_(chunk))}


def _values(conn: Connection, table: Table, column: str, ids: Iterable[str]) -> set[str]:
    """The values of a column in these rows, without NULL."""
    query = select(table.c[column]).where(table.c[column].is_not(None))
    return {value for chunk in chunks(ids) for value in conn.execute(query.where(id_column(table).in_(chunk))).scalars()}


def _add(ids: RecordIds, name: str, more: set[str]) -> None:
    if more:
        ids.setdefault(name, set()).update(more)


# Their texts


def texts_of(store: Store, ids: Mapping[str, set[str]]) -> Iterator[StoredText]:
    """Every text of these rows, decrypted."""
    for name, table_ids in ids.items():
        for chunk in chunks(sorted(table_ids)):
            with store.read() as conn:
                rows = _rows(conn, TABLES[name], chunk)
                texts = [_open(store, conn, TABLES[name], row) for row in rows]
            for row, plain in zip(rows, texts, strict=True):
                yield from texts_in(name, row, plain)


def other_texts(store: Store, but: Mapping[str, set[str]], names: Sequence[str] | None = None) -> Iterator[StoredText]:
    """Every text of the store except the texts of these rows, page by page."""
    for name in names or TABLES:
        table, after, excluded = TABLES[name], 0, but.get(name, set())
        while True:
            with store.read() as conn:
                page = conn.execute(select(table).where(table.c.id > after).order_by(table.c.id).limit(PAGE_SIZE)).all()
                rows = [row for row in page if row._mapping[natural_id(table)] not in excluded]
                texts = [_open(store, conn, table, row) for row in rows]
            if not page:
                break
            after = page[-1].id
            for row, plain in zip(rows, texts, strict=True):
                yield from texts_in(name, row, plain)


def ciphertext_samples(store: Store, ids: Mapping[str, set[str]]) -> list[bytes]:
    """Some bytes of each encrypted text, to recognize it if it is still on a page of the database file."""
    samples = []
    for name, table_ids in ids.items():
        for chunk in chunks(sorted(table_ids)):
            with store.read() as conn:
                for row in _rows(conn, TABLES[name], chunk):
                    blobs = (row._mapping[column] for column in tables.encrypted_columns(TABLES[name]))
                    samples += [blob[_SAMPLE] for blob in blobs if blob is not None]
    return samples


def _open(store: Store, conn: Connection, table: Table, row: Row[Any]) -> dict[str, bytes]:
    """The texts of a row; none of a row that came back from a backup after its key was destroyed."""
    try:
        return decrypt_row(table, row, store.keys.reading(conn, row))
    except ErasedKeyError:
        return {}


def _rows(conn: Connection, table: Table, ids: Sequence[str]) -> Sequence[Row[Any]]:
    return conn.execute(select(table).where(id_column(table).in_(list(ids))).order_by(table.c.id)).all()


# Their removal


def keys_of(store: Store, ids: Mapping[str, set[str]]) -> set[str]:
    """The keys to destroy: leaves of these rows and of the notes of incidents about them; the whole branch where no row stays."""
    incidents, every = tables.incidents, sorted(set().union(*ids.values()))
    with store.read() as conn:
        leaves = {leaf for name, table_ids in ids.items() for leaf in _values(conn, TABLES[name], "text_key", sorted(table_ids))}
        about = _ids_with(conn, incidents, incidents.c.record_id, every) - ids.get("incidents", set())
        leaves |= _values(conn, incidents, "text_key", sorted(about))
        branches = {leaf[:BRANCH] for leaf in leaves}
        stays = {leaf[:BRANCH] for table in TABLES.values() for leaf in _rows_under(conn, table, branches, "text_key") - leaves}
    return {leaf if leaf[:BRANCH] in stays else leaf[:BRANCH] for leaf in leaves}


def rows_under(store: Store, keys: Iterable[str]) -> RecordIds:
    """The rows that are encrypted under these leaves or branches."""
    ids: RecordIds = {}
    with store.read() as conn:
        for name, table in TABLES.items():
            _add(ids, name, _rows_under(conn, table, keys, natural_id(table)))
    return ids


def _rows_under(conn: Connection, table: Table, keys: Iterable[str], column: str) -> set[str]:
    values: set[str] = set()
    for chunk in chunks(keys):
        under = table.c.text_key.in_(chunk) | func.substr(table.c.text_key, 1, BRANCH).in_(chunk)
        values |= set(conn.execute(select(table.c[column]).where(under)).scalars())
    return values


def retire_keys(store: Store, keys: Iterable[str]) -> None:
    """Write nothing new under these keys. Inside a transaction, because a writer that holds the lock may be using one."""
    with store.transaction() as conn:
        store.keys.tree_file(conn).retire(keys)


def keys_left(store: Store, keys: Iterable[str]) -> bool:
    """Whether one of these keys can still be computed, because an older copy of the key tree came back."""
    with store.transaction() as conn:
        tree, _ = store.keys.tree_file(conn).tree()
    return any(not tree.is_gone(key) for key in keys)


def destroy_keys(store: Store, keys: Sequence[str]) -> Path:
    """Destroy keys that no row uses any more, for good; returns the file of the key tree."""
    with store.transaction() as conn:
        tree_file = store.keys.tree_file(conn)
    tree_file.destroy(keys)
    return tree_file.path


def remove_rows(
    store: Store, ids: Mapping[str, set[str]], keys: Sequence[str], order: ErasureOrder, drop_model: Callable[[str], bool]
) -> dict[str, int]:
    """Add tombstones and delete the rows in one transaction; returns how many rows were deleted from each table.

    Incidents stay, without their notes. A row that came in the meantime under one of the keys gets another key.
    """
    counts: dict[str, int] = {}
    every = sorted(set().union(*ids.values()))
    with store.write() as conn:
        for name, table_ids in ids.items():
            rows = [row for chunk in chunks(sorted(table_ids)) for row in _rows(conn, TABLES[name], chunk)]
            if not rows or name == "incidents":
                continue
            _tombstone(conn, TABLES[name], rows, order)
            counts[name] = len(rows)
        _clear_notes(store, conn, every, ids.get("incidents", set()))
        evidence.remove_clear_names(conn, every, drop_model)
        for chunk in chunks(every):
            for about in (tables.quarantine, tables.record_sites):
                conn.execute(delete(about).where(about.c.record_id.in_(chunk)))
        lineage.remove_records(conn, every)
        experiments.erase_observations(conn, every)
        for table in TABLES.values():
            _give_new_keys(store, conn, table, keys)
        detail: dict[str, str | int | float | bool] = {"rows": sum(counts.values()), "reason": order.reason}
        audit.append(conn, AuditEvent(actor=order.actor, action="erasure.rows", subject=order.erasure_id, detail=detail))
    return counts


def _tombstone(conn: Connection, table: Table, rows: Sequence[Row[Any]], order: ErasureOrder) -> None:
    """Add a tombstone for each row that has none yet, and delete the rows."""
    name, known = natural_id(table), set(conn.execute(select(tables.tombstones.c.record_id)).scalars())
    stones = [
        {
            "record_id": row._mapping[name], "kind": table.name, "erasure_id": order.erasure_id, "reason": order.reason,
            "erased_by": order.actor, "proof": row_hash(row), "timestamp": utc_now(),
        }
        for row in rows
        if row._mapping[name] not in known
    ]  # fmt: skip
    if stones:
        conn.execute(insert(tables.tombstones), stones)
    for chunk in chunks(row._mapping[name] for row in rows):
        if table is tables.queue_items:
            conn.execute(delete(tables.queue_turns).where(tables.queue_turns.c.item_id.in_(chunk)))
        conn.execute(delete(table).where(id_column(table).in_(chunk)))


def _give_new_keys(store: Store, conn: Connection, table: Table, keys: Iterable[str]) -> None:
    fresh = store.keys.writing(conn)
    under = sorted(_rows_under(conn, table, keys, natural_id(table)))
    for row in (row for chunk in chunks(under) for row in _rows(conn, table, chunk)):
        row_id = row._mapping[natural_id(table)]
        key = fresh.for_row(subject_of_row(dict(row._mapping)), row_id)
        opened = decrypt_row(table, row, store.keys.reading(conn, row))
        values = {**key.columns, **key.encrypt_row(table.name, row_id, opened)}
        conn.execute(update(table).where(table.c.id == row.id).values(**values))


def row_hash(row: Row[Any]) -> str:
    """A hash of the encrypted row. Somebody with a backup can match it to the row; to others it reveals nothing."""
    values = {name: value.hex() if isinstance(value, bytes) else str(value) for name, value in row._mapping.items()}
    return "sha256:" + hashlib.sha256(canonical_json(values).encode()).hexdigest()


def _clear_notes(store: Store, conn: Connection, ids: Sequence[str], incident_ids: set[str]) -> None:
    """Remove the notes of these incidents and of those about these records. They stay; later notes get another key."""
    incidents, fresh = tables.incidents, store.keys.writing(conn)
    for incident_id in sorted(incident_ids | _ids_with(conn, incidents, incidents.c.record_id, ids)):
        values = {"notes": None, **fresh.for_row(None, incident_id).columns}
        conn.execute(update(incidents).where(incidents.c.incident_id == incident_id).values(**values))


def tombstones_of(store: Store, erasure_id: str) -> list[dict[str, str]]:
    stones = tables.tombstones
    with store.read() as conn:
        rows = conn.execute(select(stones).where(stones.c.erasure_id == erasure_id).order_by(stones.c.id)).all()
    return [{"record_id": row.record_id, "table": row.kind, "proof": row.proof} for row in rows]


def erased_in(store: Store, record_ids: Sequence[str]) -> dict[str, str]:
    """The erasure that removed each of these records, by record id."""
    stones = tables.tombstones
    with store.read() as conn:
        rows = conn.execute(select(stones).where(stones.c.record_id.in_(list(record_ids)))).all()
    return {row.record_id: row.erasure_id for row in rows}


def compact(store: Store, names: Sequence[str], left: Callable[[], bool] = lambda: False) -> str:
    """Overwrite the pages of removed rows: empty SQLite's log and, if encrypted bytes are `left`, rewrite the file."""
    if store.is_sqlite:
        store.checkpoint()
        if not left():
            return "log emptied"
        store.vacuum()
        store.checkpoint()
        return "log emptied, file made anew"
    store.vacuum(name for name in names if name in TABLES)
    return "tables vacuumed"
