"""Undo: the author of a judgement takes it back a moment after sending it.

    withdraw(store, rlhf_feedback, "fb_…", "usr_1", now=utc_now())    # the queue item to judge again, if it was one

The record stays, as all do, but it counts nowhere (`lineage.superseded` names it), the turn at the queue is open again, and an
item that the queue made of the complaint meanwhile is removed. An incident stays open: two people close it, never one key. If the
author flags the answer again, that incident goes on with the new record (`flag_again`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, delete, exists, insert, select, update

from medloop.contracts import AuditEvent, RedTeamCase
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.queue import QueueContent
from medloop.errors import InputError, StoreError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records.crud import decrypt_row, encrypt_columns, from_rows
from medloop.store.records.site_items import of_site
from medloop.store.tables import id_column, incidents, queue_items, queue_turns, red_team_cases, withdrawals

UNDO = timedelta(seconds=10)  # how long a page offers it
GRACE = timedelta(seconds=5)  # for a slow connection
LEASE = timedelta(minutes=30)


class TooLateError(StoreError):
    """The time to undo is over."""


def withdraw(
    store: Store, table: Table, record_id: str, author: str, *, now: datetime, site: str = DEFAULT_SITE
) -> str | None:  # fmt: skip
    """Take a record back; returns the item of the queue that it was the verdict on. A second call changes nothing."""
    with store.write() as conn:
        own = (table.c.recorded_by == author, of_site(id_column(table), site))
        record = conn.execute(select(table).where(id_column(table) == record_id, *own)).first()
        if record is None:
            raise InputError("You have no such record", "Open it from your history")
        item_id = conn.execute(select(queue_turns.c.item_id).where(queue_turns.c.record_id == record_id)).scalar()
        if conn.execute(select(withdrawals.c.id).where(withdrawals.c.record_id == record_id)).first() is not None:
            return None
        if now - record.received > UNDO + GRACE:
            raise TooLateError("This was sent more than ten seconds ago, so it counts", "Change it from your history")
        conn.execute(insert(withdrawals).values(record_id=record_id, kind=table.name, withdrawn_by=author, timestamp=now))
        if item_id is not None:
            _reopen(conn, item_id, author, now)
        _remove_complaint(store, conn, record, record_id)
        audit.append(conn, AuditEvent(actor=author, action=f"{table.name}.withdraw", subject=record_id))
    return None if item_id is None else str(item_id)


def is_withdrawn(store: Store, record_id: str) -> bool:
    with store.read() as conn:
        return conn.execute(select(withdrawals.c.id).where(withdrawals.c.record_id == record_id)).first() is not None


def open_after_undo(store: Store, author: str) -> list[tuple[RedTeamCase, str | None]]:
    """Cases of open incidents whose flag this author has taken back, each with the model that gave the answer."""
    taken_back = select(incidents.c.incident_id, incidents.c.model_version).join(
        withdrawals, withdrawals.c.record_id == incidents.c.record_id
    )
    taken_back = taken_back.where(withdrawals.c.withdrawn_by == author, incidents.c.state == "open")
    with store.read() as conn:
        models: dict[str | None, str | None] = {row.incident_id: row.model_version for row in conn.execute(taken_back)}
        rows = conn.execute(select(red_team_cases).where(red_team_cases.c.incident_id.in_(list(models)))).all()
        return [(case, models[case.incident_id]) for case in from_rows(store, conn, RedTeamCase, rows)]


def flag_again(conn: Connection, *, store: Store, cases: Sequence[RedTeamCase]) -> None:
    """The incidents of these cases, and the cases themselves, go on with another record, inside a `store.write()`."""
    for case in cases:
        _continue_incident(conn, store, case)


def _continue_incident(conn: Connection, store: Store, case: RedTeamCase) -> None:
    still_open = (incidents.c.incident_id == case.incident_id, incidents.c.state == "open")
    if conn.execute(update(incidents).where(*still_open).values(record_id=case.record_id)).rowcount != 1:
        raise InputError(
            "The incident of your first flag was closed a moment ago", "Send it again; the flag opens a new incident"
        )
    key = store.keys.writing(conn).for_row(None, case.case_id)
    texts = encrypt_columns(red_team_cases, key, case.case_id, case.model_dump(include={"prompt", "answer", "reason"}))
    values = {"record_id": case.record_id, **key.columns, **texts}
    conn.execute(update(red_team_cases).where(red_team_cases.c.case_id == case.case_id).values(**values))


def _reopen(conn: Connection, item_id: str, author: str, now: datetime) -> None:
    """The turn is held again, so the item is as it was before the verdict."""
    own = and_(queue_turns.c.item_id == item_id, queue_turns.c.rater == author)
    adjudicates = conn.execute(select(queue_turns.c.adjudicates).where(own)).scalar_one()
    conn.execute(update(queue_turns).where(own).values(state="held", record_id=None, until=now + LEASE))
    state = "disputed" if adjudicates else "open"
    conn.execute(update(queue_items).where(queue_items.c.item_id == item_id).values(state=state))


def _remove_complaint(store: Store, conn: Connection, record: Row[Any], record_id: str) -> None:
    """Items that the queue made since, that nobody has seen, and that came from this record (complaints.py)."""
    seen = exists().where(queue_turns.c.item_id == queue_items.c.item_id)
    since = record.received - timedelta(seconds=1)  # SQLite stamps an item to the second
    for row in conn.execute(select(queue_items).where(queue_items.c.timestamp >= since, ~seen)).all():
        content = QueueContent.model_validate_json(
            decrypt_row(queue_items, row, store.keys.reading(conn, row))["content"]
        )  # fmt: skip
        complained = bool({"thumbs_down", "critical", "raters_disagree"} & set(row.reasons))
        if record_id in content.records or (complained and record.trace_id is not None and row.trace_id == record.trace_id):
            conn.execute(delete(queue_items).where(queue_items.c.item_id == row.item_id))
