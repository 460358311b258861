"""A MAC on every row that matters, so that an edit past medloop is noticed: roles, ratings, flags, incidents, consents.

    check_rows(store, conn)        # rows whose MAC does not fit; rows that the audit log knows and that are gone, and the reverse

The MAC covers the readable columns of a row and which encrypted ones are empty (what they hold is sealed by AES-GCM). Its key is
derived from the key of the audit log, which only the master key opens; somebody who can write to the database cannot make one.
A table takes part by having the column `mac`. The MAC is computed here, in a hook of the connection, for every INSERT and UPDATE
that goes through `Store`: no caller has to think of it. An UPDATE of a row whose MAC did not fit leaves it unfit, so that
ordinary work never hides an edit (docs/decisions/0020-row-macs.md).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Float,
    Insert,
    LargeBinary,
    Row,
    Select,
    Table,
    Update,
    bindparam,
    cast,
    event,
    func,
    select,
    update,
)

from medloop.contracts import canonical_json, utc_now
from medloop.contracts.deploy import DEPLOY_KINDS
from medloop.store.tables import audit_log, metadata, natural_id, tombstones
from medloop.store.tables.columns import MAC, UNSIGNED, UtcDateTime

if TYPE_CHECKING:
    from medloop.store.db import Store

MAC_BYTES = 16
PAGE_ROWS = 1000
MOST_LISTED = 100  # rows that a report names; a rewritten table has thousands
_UPDATED = "medloop.macs"  # in conn.info: the rows that this transaction changed, by table
NEW_HEAD = "audit.new_head"  # the line by which a person accepts the log as it is, with the newest row of each of them
_RECORDS = ("rlhf_feedback", "rlhf_preferences", "rlhf_corrections")
# Tables whose every row is announced in the audit log by its id, and the actions of these lines.
ANNOUNCED: dict[str, tuple[str, ...]] = {
    **{name: (f"{name}.add",) for name in (*_RECORDS, "traces", "incidents", "red_team_cases", "users", "api_keys")},
    "retrain_triggers": ("retrain_triggers.add",),
    "quarantine": ("quarantine.hold",),
    "record_sites": ("record_sites.add",),
    "withdrawals": tuple(f"{name}.withdraw" for name in _RECORDS),
    "consents": ("consents.grant", "consents.withdraw"),
    "erasure_requests": ("erasure.request",),
    "artifact_flags": ("artifact_flags.add",),
    "guidelines": ("guidelines.change",),
    "workspace_settings": ("settings.change",),
    "gate_policies": ("gate.policy", "gate.withdraw_policy"),
    "gate_results": ("gate.decide",),
    "gate_sign_offs": ("gate.sign",),
    "gate_waivers": ("gate.waive",),
    "round_events": ("rounds.accepted", "rounds.refused", "rounds.rolled_back"),
    "codebook_entries": ("codebook.propose",),
    "codebook_versions": tuple(f"codebook.{action}" for action in ("approve", "merge", "retire", "rollback", "promote")),
    "codebook_trials": ("codebook.try",),
    "rubric_criteria": ("rubric.draft", "rubric.edit"),
    "registry_versions": ("registry.register",),
    "registry_aliases": ("registry.promote", "registry.demote", "registry.rollback"),
    "serving_routes": ("routes.change",),
    "experiments": ("experiments.plan",),
    "experiment_events": tuple(
        f"experiments.{event}" for event in ("started", "ramped", "stopped", "decided", "rolled_back", "rollback_failed")
    ),
    "cycle_events": ("loop.started", "loop.done", "loop.waiting", "loop.failed", "loop.ended"),
    "deploy_events": tuple(f"deploy.{kind}" for kind in DEPLOY_KINDS),
}
# Where the id of the row is in the detail of the line, which is about something else: the person, the language.
_IN_DETAIL = {"consents": "consent", "guidelines": "id"}


@dataclass(frozen=True)
class ChangedRow:
    """A row by table and id; `kind` is what is wrong with it."""

    table: str
    row_id: str
    kind: str  # changed, missing or unannounced


@dataclass(frozen=True)
class RowReport:
    """How many rows were checked, how many do not fit, and the first of them."""

    checked: int
    wrong: int
    rows: tuple[ChangedRow, ...] = ()


@cache
def guarded_tables() -> tuple[Table, ...]:
    return tuple(table for table in metadata.sorted_tables if MAC in table.c)


@dataclass(frozen=True)
class _Covered:
    """The columns that a MAC covers, by how they are written; each getter takes its columns from a row."""

    names: frozenset[str]
    plain: Callable[[Mapping[Any, Any]], tuple[Any, ...]]
    times: tuple[str, ...]
    floats: tuple[str, ...]
    blobs: tuple[str, ...]


@cache
def _covered(table: Table) -> _Covered:
    columns = sorted((c for c in table.columns if c.name != "id" and not c.info.get(UNSIGNED)), key=lambda c: c.name)
    kinds: dict[type, list[str]] = {UtcDateTime: [], Float: [], LargeBinary: [], object: []}
    for column in columns:
        kinds[next(kind for kind in kinds if isinstance(column.type, kind))].append(column.name)
    times, floats, blobs, plain = (tuple(names) for names in kinds.values())
    return _Covered(frozenset(column.name for column in columns), itemgetter(*plain), times, floats, blobs)


def mac_of(key: bytes, table: Table, row: Mapping[Any, Any]) -> bytes:
    covered = _covered(table)
    values: list[Any] = [table.name, covered.plain(row)]
    values += [None if row[name] is None else row[name].astimezone(UTC).isoformat() for name in covered.times]
    values += [None if row[name] is None else float(row[name]) for name in covered.floats]
    values += [row[name] is not None for name in covered.blobs]
    return hmac.digest(key, canonical_json(values).encode(), "sha256")[:MAC_BYTES]


def listen(store: Store) -> None:
    """Sign what goes through the connections of a store."""

    def sign(conn: Connection, statement: Any, multiparams: Any, params: Any, _options: Any) -> tuple[Any, Any, Any]:
        if isinstance(statement, Insert) and MAC in statement.table.c:
            return _sign_insert(row_key(store, conn), statement, multiparams, params)
        if isinstance(statement, Update) and MAC in statement.table.c:
            _note_update(store, conn, statement, multiparams or [params])
        return statement, multiparams, params

    event.listen(store.engine, "before_execute", sign, retval=True)


def row_key(store: Store, conn: Connection) -> bytes:
    """The key of the MACs, remembered as soon as the key it comes from is certainly stored."""
    if store.row_key is None:
        is_stored = store.keys.exists(conn, "audit")
        key = hmac.digest(store.keys.auditing(conn).raw, b"medloop row mac", "sha256")
        if not is_stored:
            return key
        store.row_key = key
    return store.row_key


def begin(conn: Connection) -> None:
    conn.info[_UPDATED] = {}


def sign_updates(store: Store, conn: Connection) -> None:
    """The MACs of the rows that this transaction changed, just before its commit."""
    updated: dict[Table, set[int]] = conn.info.pop(_UPDATED)
    for table, row_ids in updated.items():
        key, ids = row_key(store, conn), sorted(row_ids)
        for start in range(0, len(ids), PAGE_ROWS):
            rows = conn.execute(select(table).where(table.c.id.in_(ids[start : start + PAGE_ROWS]))).all()
            macs = [{"row": row.id, "new": mac_of(key, table, row._mapping)} for row in rows]
            if macs:  # a row may be deleted again by the same transaction
                conn.execute(update(table).where(table.c.id == bindparam("row")).values(mac=bindparam("new")), macs)


def _sign_insert(key: bytes, statement: Insert, multiparams: Any, params: Any) -> tuple[Any, Any, Any]:
    table = statement.table
    assert isinstance(table, Table) and statement.select is None, "rows of a guarded table are inserted by their values"
    if multiparams or params:
        rows = [signed(key, table, row) for row in (multiparams or [params])]
        return statement, rows, {}
    given = statement.compile().params
    return statement.values(**{name: value for name, value in signed(key, table, given).items() if name not in given}), [], {}


def signed(key: bytes, table: Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its MAC, and with the values that the database would fill in, because the MAC covers them."""
    row = {**_defaults(table), **given}
    if row.get("timestamp", "") is None:
        row["timestamp"] = utc_now()
    row[MAC] = mac_of(key, table, row)
    return row


@cache
def _defaults(table: Table) -> dict[str, Any]:
    """None for columns without a default, False for flags; `timestamp` is filled in with the time of the row."""
    names = _covered(table).names
    return {name: False if table.c[name].server_default is not None and name != "timestamp" else None for name in names}


def _note_update(store: Store, conn: Connection, statement: Update, params: Sequence[Mapping[str, Any]]) -> None:
    """Remember the rows of an UPDATE that changes what MACs cover, unless their MAC does not fit already."""
    table = statement.table
    assert isinstance(table, Table)
    names = {getattr(column, "key", column) for column in statement._values or ()}
    if names.isdisjoint(_covered(table).names):
        return
    assert _UPDATED in conn.info, "rows of a guarded table are changed in Store.transaction()"
    key, known = row_key(store, conn), conn.info[_UPDATED].setdefault(table, set())
    query = select(table) if statement.whereclause is None else select(table).where(statement.whereclause)
    for values in params or [{}]:
        rows = conn.execute(query, dict(values)).all()
        known.update(row.id for row in rows if row.id in known or fits(key, table, row))


def fits(key: bytes, table: Table, row: Row[Any]) -> bool:
    return row.mac is not None and hmac.compare_digest(row.mac, mac_of(key, table, row._mapping))


def check_rows(store: Store, conn: Connection) -> RowReport:
    """Every guarded row against its MAC, and the tables against the audit log, both ways."""
    checked, wrong = 0, list[ChangedRow]()
    for table in guarded_tables():
        page = check_page(store, conn, table, 0)
        while page.checked:
            checked, wrong = checked + page.checked, wrong + page.changed
            page = check_page(store, conn, table, page.last_row)
    for name in ANNOUNCED:
        wrong += check_announced(conn, name)
    return RowReport(checked, len(wrong), tuple(wrong[:MOST_LISTED]))


@dataclass(frozen=True)
class CheckedPage:
    """Some rows of a table that were checked: how many, the number of the last one, and those that do not fit."""

    checked: int
    last_row: int
    changed: list[ChangedRow]


def check_page(store: Store, conn: Connection, table: Table, after: int, rows: int = PAGE_ROWS) -> CheckedPage:
    """The next rows of a guarded table against their MACs."""
    key = row_key(store, conn) if store.keys.exists(conn, "audit") else b""  # without it no MAC fits
    page = conn.execute(select(table).where(table.c.id > after).order_by(table.c.id).limit(rows)).all()
    unfit = [row for row in page if not key or not fits(key, table, row)]
    changed = [ChangedRow(table.name, _shown_id(table, row), "changed") for row in unfit]
    return CheckedPage(len(page), page[-1].id if page else after, changed)


def check_announced(conn: Connection, name: str) -> list[ChangedRow]:
    """One table against the audit log: rows that the log knows and that are gone, and the reverse."""
    table, announced = metadata.tables[name], _announced(conn, name)
    ids = select(table.c[natural_id(table)])
    queries = {
        "missing": announced.except_(ids, select(tombstones.c.record_id)),
        "unannounced": ids.where(table.c.id > _accepted(conn).get(name, 0)).except_(announced),
    }
    return [
        ChangedRow(name, str(row_id), kind)
        for kind, query in queries.items()
        for row_id in conn.execute(query.limit(MOST_LISTED)).scalars()
    ]


def _announced(conn: Connection, name: str) -> Select[Any]:
    row_id: ColumnElement[str] = audit_log.c.subject
    if (key := _IN_DETAIL.get(name)) and conn.dialect.name == "sqlite":
        row_id = func.json_extract(audit_log.c.detail, f"$.{key}")
    elif key:
        row_id = cast(audit_log.c.detail, JSON)[key].as_string()
    return select(row_id).where(audit_log.c.action.in_(ANNOUNCED[name]))


def newest_rows(conn: Connection) -> dict[str, int]:
    """The number of the newest row of each announced table that has rows."""
    tables = (metadata.tables[name] for name in ANNOUNCED)
    newest = {table.name: conn.execute(select(func.max(table.c.id))).scalar() for table in tables}
    return {name: row for name, row in newest.items() if row is not None}


def _accepted(conn: Connection) -> dict[str, int]:
    """The rows up to which a person accepted that the log does not know them."""
    query = select(audit_log.c.detail).where(audit_log.c.action == NEW_HEAD).order_by(audit_log.c.seq.desc()).limit(1)
    detail = conn.execute(query).scalar()
    return {} if detail is None else {name: row for name, row in json.loads(detail).items() if name in ANNOUNCED}


def _shown_id(table: Table, row: Row[Any]) -> str:
    """The id that a row has in the loop, or its number where the second column is not an id."""
    name = natural_id(table)
    return str(row._mapping[name]) if table.c[name].unique else f"row {row.id}"
