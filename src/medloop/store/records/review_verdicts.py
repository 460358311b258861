"""The raters' verdicts on an item of the queue: finish a turn, skip it, and settle the item.

A verdict is a record that was submitted like any other, about the item's trace, question and answers and nothing else; the turn
stores its id. When all turns are finished, the item is done or
disputed. A senior who has not seen a disputed item settles it. Every step is one write.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, exists, func, or_, select, update

from medloop.contracts import AuditEvent, Correction, Feedback, Preference
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.feedback import same_texts
from medloop.contracts.queue import QueueContent
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records.crud import TABLES, from_rows
from medloop.store.records.quarantine import withheld
from medloop.store.records.review_queue import LapsedError, UnknownItemError, open_content, turn_of
from medloop.store.tables import id_column, quarantine, users, withdrawals
from medloop.store.tables import queue_items as items
from medloop.store.tables import queue_turns as turns

Judgement = Feedback | Preference | Correction
RECORDS: dict[str, type[Judgement]] = {"rate": Feedback, "compare": Preference, "correct": Correction}


@dataclass(frozen=True)
class TurnVerdict:
    """The verdict of one turn; `record_id` is the feedback, preference or correction that contains it."""

    rater: str
    record_id: str
    adjudicates: bool = False
    rating: int | None = None
    thumb: str | None = None
    feedback_type: str | None = None
    critical: bool | tuple[str, ...] = False  # of a comparison the answers
    preferred: str | None = None


def finish(
    store: Store, item_id: str, rater: str, record_id: str, *, now: datetime,
    agreed: Callable[[str, Sequence[TurnVerdict]], bool], site: str = DEFAULT_SITE,
) -> str:  # fmt: skip
    """Finish a turn with the record that is its verdict; returns the item's state. The same call again changes nothing."""
    with store.write() as conn:
        item, turn = turn_of(conn, item_id, rater, site)
        if turn.state == "done" and turn.record_id == record_id:
            return str(item.state)
        _check_seat(conn, item, turn, now)
        _check_record(store, conn, item, turn, record_id)
        own = and_(turns.c.item_id == item_id, turns.c.rater == rater)
        conn.execute(update(turns).where(own).values(state="done", record_id=record_id, until=now))
        state = _after(conn, item, turn, agreed)
        if state != item.state:
            conn.execute(update(items).where(items.c.item_id == item_id).values(state=state))
        audit.append(conn, AuditEvent(actor=rater, action="queue_items.finish", subject=item_id, detail={"state": state}))
    return state


def skip(store: Store, item_id: str, rater: str, *, now: datetime, site: str = DEFAULT_SITE) -> None:
    """Give the seat back; this rater gets the item again after a rest (review_queue.py)."""
    with store.write() as conn:
        _, turn = turn_of(conn, item_id, rater, site)
        if turn.state == "done":
            raise LapsedError("You have already finished this item", "Ask for the next one")
        conn.execute(update(turns).where(turns.c.item_id == item_id, turns.c.rater == rater).values(state="skipped", until=now))
        audit.append(conn, AuditEvent(actor=rater, action="queue_items.skip", subject=item_id))


def _check_seat(conn: Connection, item: Row[Any], turn: Row[Any], now: datetime) -> None:
    """Accept a late verdict while the seat is free. After the item is closed, the record stays ordinary feedback."""
    others = and_(turns.c.item_id == item.item_id, turns.c.rater != turn.rater, turns.c.adjudicates.is_(turn.adjudicates))
    has_seat = or_(turns.c.state == "done", and_(turns.c.state == "held", turns.c.until > now))
    n = conn.execute(select(func.count()).select_from(turns).where(others, has_seat)).scalar_one()
    expected_state = "disputed" if turn.adjudicates else "open"
    if turn.state != "held" or item.state != expected_state or n >= (1 if turn.adjudicates else item.raters):
        raise LapsedError("Your time for this item ran out, so it went to another reviewer", "Ask for the next one")


def _check_record(store: Store, conn: Connection, item: Row[Any], turn: Row[Any], record_id: str) -> None:
    contract = RECORDS[item.kind]
    table = TABLES[contract]
    row = conn.execute(select(table).where(id_column(table) == record_id)).first()
    if row is None or row.recorded_by != turn.rater:
        raise InputError("The record named as your verdict is not yours", "Send the rating first, then pass its id")
    (record,) = from_rows(store, conn, contract, [row])
    _check_exchange(record, item, open_content(store, conn, item))
    newer = select(table.c.id).where(table.c.recorded_by == turn.rater, table.c.supersedes == record_id)
    withdrawn = select(withdrawals.c.id).where(withdrawals.c.record_id == record_id)
    if any(conn.execute(query.limit(1)).first() is not None for query in (newer, withdrawn)):
        raise InputError("You have taken this record back or replaced it", "Pass the id of the newer one")
    if item.kind == "compare" and row.shown_first != turn.shown_first:
        raise InputError("The record has another order than was shown", "Send the item's own value of shown_first")
    other_turn = conn.execute(select(turns.c.id).where(turns.c.record_id == record_id)).first()
    if other_turn is not None:
        raise InputError("This record is already the verdict on another item", "Send one record per item")


def _check_exchange(record: Judgement, item: Row[Any], content: QueueContent) -> None:
    """A verdict is about the item and nothing else. A comparison has two traces and may name none."""
    traces = (item.trace_id, None) if item.kind == "compare" else (item.trace_id,)
    if record.trace_id not in traces:
        raise InputError("This record is not about the item's trace", "Send one with the trace_id of the item")
    if not same_texts(record.exchange, content.exchange):
        raise InputError(
            "This record is about another question or another answer than the item", "Judge the item as you received it"
        )


def _after(conn: Connection, item: Row[Any], turn: Row[Any], agreed: Callable[[str, Sequence[TurnVerdict]], bool]) -> str:
    if turn.adjudicates:
        return "done"
    verdicts_ = _verdicts(conn, item)
    if len(verdicts_) < item.raters:
        return "open"
    return "done" if agreed(item.kind, verdicts_) else "disputed"


def _verdicts(conn: Connection, item: Row[Any]) -> list[TurnVerdict]:
    """The verdicts of the finished turns, oldest first; only columns that are not encrypted."""
    table = TABLES[RECORDS[item.kind]]
    names = [name for name in ("rating", "thumb", "feedback_type", "critical", "preferred") if name in table.c]
    query = select(turns.c.rater, turns.c.record_id, turns.c.adjudicates, *(table.c[name] for name in names))
    query = query.join(table, id_column(table) == turns.c.record_id)
    rows = conn.execute(query.where(turns.c.item_id == item.item_id, turns.c.state == "done").order_by(turns.c.id)).all()
    return [TurnVerdict(**dict(row._mapping) | {"critical": _flag(row._mapping.get("critical"))}) for row in rows]


def _flag(value: bool | list[str] | None) -> bool | tuple[str, ...]:
    return tuple(sorted(value)) if isinstance(value, list) else bool(value)


def check_verdicts(store: Store) -> set[str]:
    """The records that are verdicts on items whose better answer is known: they measure their raters."""
    query = select(turns.c.record_id).join(items, items.c.item_id == turns.c.item_id)
    with store.read() as conn:
        return set(conn.execute(query.where(items.c.expected.is_not(None), turns.c.record_id.is_not(None))).scalars())


def corrections_of_flagged(store: Store, most: int) -> list[str]:
    """The newest corrections by clinicians of answers that a clinician flagged as critical, without those that do not count."""
    fixed, flag = TABLES[Correction], TABLES[Feedback]
    flagged = exists().where(
        flag.c.trace_id == fixed.c.trace_id, flag.c.critical, flag.c.clinician_id.in_(_clinicians()),
        flag.c.feedback_id.not_in(select(withdrawals.c.record_id)),
    )  # fmt: skip
    query = _current_corrections().where(flagged)
    with store.read() as conn:
        return list(conn.execute(query.order_by(fixed.c.id.desc()).limit(most)).scalars())


def clinician_corrections(store: Store) -> list[str]:
    """All corrections by clinicians that count: neither withdrawn nor replaced nor held back."""
    with store.read() as conn:
        return list(conn.execute(_current_corrections()).scalars())


def _clinicians() -> Select[Any]:
    return select(users.c.user_id).where(users.c.role == "clinician")


def _current_corrections() -> Select[Any]:
    fixed = TABLES[Correction]
    newer = fixed.alias()
    return select(fixed.c.correction_id).where(
        fixed.c.clinician_id.in_(_clinicians()),
        fixed.c.correction_id.not_in(select(withdrawals.c.record_id)),
        ~exists().where(newer.c.supersedes == fixed.c.correction_id),
        fixed.c.correction_id.not_in(select(quarantine.c.record_id).where(quarantine.c.state != "released")),
        ~withheld(fixed.c.trace_id),
    )


def verdicts(store: Store, item_id: str) -> tuple[str, str, list[TurnVerdict]]:
    """The state and kind of an item, and its verdicts so far."""
    with store.read() as conn:
        item = conn.execute(select(items).where(items.c.item_id == item_id)).first()
        if item is None:
            raise UnknownItemError("There is no such item", "'medloop feedback queue list' shows the items")
        return str(item.state), str(item.kind), _verdicts(conn, item)
