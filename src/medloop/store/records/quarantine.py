"""Records whose text may still identify a person, held until somebody has reviewed them and released or refused them.

    hold(conn, "fb_…", "rlhf_feedback", doubt=1.0, reasons=["a number that could not be removed"], actor="api")
    for held in list_held(store): ...
    texts = open_held(store, "fb_…", actor="usr_1").texts         # the audit log has a line about the reading first
    decide(store, "fb_…", "released", actor="usr_1", reason="medical_term", was="waiting")

`kind` is the record's table. A decision can be reversed, and each decision leaves an audit line. Its reason comes from a list: a
free text could repeat the name in the audit log, where nobody can erase it. A record about a trace is released only after the
trace: without the earlier messages, nobody can judge it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, exists, func, insert, or_, select, update

from medloop.contracts import AuditEvent, Contract, Conversation, utc_now
from medloop.errors import InputError
from medloop.store import audit, tables
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.audited_read import get_audited
from medloop.store.records.record_pages import last_row
from medloop.store.tables import audit_log, natural_id, quarantine

State = Literal["waiting", "released", "refused"]
Decision = Literal["released", "refused"]
ReleaseReason = Literal["nobody", "medical_term", "public_name"]
RefusalReason = Literal["name", "contact", "place_or_date", "story", "other"]
REASONS: dict[Decision, tuple[str, ...]] = {"released": get_args(ReleaseReason), "refused": get_args(RefusalReason)}
KINDS = {
    "feedback": "rlhf_feedback", "preference": "rlhf_preferences", "correction": "rlhf_corrections", "trace": "traces",
}  # fmt: skip


class NotHeldError(InputError):
    """The record is not in quarantine."""


class AlreadyDecidedError(InputError):
    """Somebody else has decided first: the record is no longer in the state that the caller saw."""


class TraceFirstError(InputError):
    """The record is about a trace that is not released."""


@dataclass(frozen=True)
class HeldRecord:
    """One record in quarantine; `reasons` name kinds of doubt, never the text."""

    record_id: str
    kind: str
    doubt: float
    reasons: tuple[str, ...]
    state: State
    decided_by: str | None
    decided: datetime | None
    timestamp: datetime


@dataclass(frozen=True)
class HeldTexts:
    """A held record with its texts, each under the name of its field."""

    held: HeldRecord
    texts: tuple[tuple[str, str], ...]


def hold(conn: Connection, record_id: str, kind: str, *, doubt: float, reasons: Sequence[str], actor: str) -> bool:
    """Put a record into quarantine, inside a `store.write()`; False if it is already there (its decision stays)."""
    if conn.execute(select(quarantine.c.id).where(quarantine.c.record_id == record_id)).first() is not None:
        return False
    row = {"record_id": record_id, "kind": kind, "doubt": doubt, "reasons": list(reasons), "state": "waiting"}
    conn.execute(insert(quarantine).values(**row, timestamp=utc_now()))
    audit.append(conn, AuditEvent(actor=actor, action="quarantine.hold", subject=record_id, detail={"kind": kind}))
    return True


def list_held(store: Store, state: str | None = "waiting") -> list[HeldRecord]:
    """Held records, oldest first; all states with None."""
    query = select(quarantine).order_by(quarantine.c.id)
    with store.read() as conn:
        rows = conn.execute(query if state is None else query.where(quarantine.c.state == state)).all()
    return [_held(row) for row in rows]


def page(
    store: Store,
    *,
    state: str | None = "waiting",
    kind: str | None = None,
    after: str | None = None,
    limit: int = 50,
    not_by: str | None = None,
) -> list[HeldRecord]:
    """A page, oldest first; `after` is the last record_id of the page before, `not_by` leaves out what this user sent."""
    query = select(quarantine).where(*_conditions(state, kind, not_by)).order_by(quarantine.c.id).limit(limit)
    with store.read() as conn:
        if after is not None:
            last = last_row(conn, select(quarantine.c.id).where(quarantine.c.record_id == after), "record")
            query = query.where(quarantine.c.id > last)
        return [_held(row) for row in conn.execute(query).all()]


def count(store: Store, *, state: str | None = "waiting", not_by: str | None = None) -> int:
    query = select(func.count()).select_from(quarantine).where(*_conditions(state, None, not_by))
    with store.read() as conn:
        return int(conn.execute(query).scalar_one())


def _conditions(state: str | None, kind: str | None, not_by: str | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if state is not None:
        conditions.append(quarantine.c.state == state)
    if kind is not None:
        conditions.append(quarantine.c.kind == KINDS[kind])
    for name in KINDS.values() if not_by is not None else ():
        table = tables.metadata.tables[name]
        if "recorded_by" in table.c:
            mine = table.c[natural_id(table)] == quarantine.c.record_id
            conditions.append(~exists().where(mine, table.c.recorded_by == not_by))
    if not_by is not None:
        held = select(quarantine.c.record_id).where(quarantine.c.kind == tables.traces.name)
        mine_too = _logged(audit_log.c.subject).where(audit_log.c.actor == not_by, audit_log.c.subject.in_(held))
        conditions.append(or_(quarantine.c.kind != tables.traces.name, quarantine.c.record_id.not_in(mine_too)))
    return conditions


def get(store: Store, record_id: str) -> HeldRecord:
    with store.read() as conn:
        row = conn.execute(select(quarantine).where(quarantine.c.record_id == record_id)).first()
    if row is None:
        raise NotHeldError(f"{record_id} is not in quarantine", "'medloop quarantine list' shows what is")
    return _held(row)


def sent_by(store: Store, held: HeldRecord) -> str | None:
    """The user who sent the record; None if unknown."""
    table = tables.metadata.tables[held.kind]
    if "recorded_by" in table.c:
        query = select(table.c.recorded_by).where(table.c[natural_id(table)] == held.record_id)
    else:
        query = _logged(audit_log.c.actor).where(audit_log.c.subject == held.record_id).order_by(audit_log.c.seq.desc()).limit(1)
    with store.read() as conn:
        sender: str | None = conn.execute(query).scalar()
    return sender


def _logged(column: ColumnElement[str]) -> Select[Any]:
    """A column of the audit lines about new traces: they say who sent a trace. Without an index, a million lines take 0.2 s."""
    return select(column).where(audit_log.c.action == f"{tables.traces.name}.add")


def trace_to_decide_first(store: Store, held: HeldRecord) -> HeldRecord | None:
    """The trace that this record is about, if it is not released: somebody must decide on it first."""
    with store.read() as conn:
        return _first(conn, held.record_id, held.kind)


def released_ids(store: Store, record_ids: Sequence[str]) -> set[str]:
    """Which of these records a person has reviewed and released."""
    ids: set[str] = set()
    with store.read() as conn:
        for start in range(0, len(record_ids), crud.PAGE_SIZE):
            some = quarantine.c.record_id.in_(record_ids[start : start + crud.PAGE_SIZE])
            ids.update(conn.execute(select(quarantine.c.record_id).where(some, quarantine.c.state == "released")).scalars())
    return ids


def _first(conn: Connection, record_id: str, kind: str) -> HeldRecord | None:
    table = tables.metadata.tables[kind]
    if table is tables.traces:
        return None
    named = select(table.c.trace_id).where(table.c[natural_id(table)] == record_id).scalar_subquery()
    row = conn.execute(select(quarantine).where(quarantine.c.record_id == named, quarantine.c.state != "released")).first()
    return None if row is None else _held(row)


def withheld(trace_id: ColumnElement[str | None]) -> ColumnElement[bool]:
    """Whether raters may not see a trace: it waits or was refused, or a record about it was refused."""
    return or_(exists().where(quarantine.c.record_id == trace_id, quarantine.c.state != "released"), refused(trace_id))


def refused(trace_id: ColumnElement[str | None]) -> ColumnElement[bool]:
    """Whether a trace was refused, or a record about it: one that merely waits may come back."""
    own = exists().where(quarantine.c.record_id == trace_id, quarantine.c.state == "refused")
    about = [
        exists().where(
            table.c.trace_id == trace_id,
            and_(quarantine.c.record_id == table.c[natural_id(table)], quarantine.c.state == "refused"),
        )
        for table in (tables.rlhf_feedback, tables.rlhf_preferences, tables.rlhf_corrections)
    ]
    return or_(own, *about)


def open_held(store: Store, record_id: str, *, actor: str) -> HeldTexts:
    """The record with its texts; the audit line about the reading is written before they are returned."""
    held = get(store, record_id)
    kind = contract_of(held.kind)
    record = get_audited(store, kind, record_id, actor=actor, purpose="quarantine review")
    if record is None:
        raise NotHeldError(f"{record_id} is no longer in the store", "It may have been erased: medloop audit show")
    columns = tables.encrypted_columns(crud.TABLES[kind])
    return HeldTexts(held, tuple(part for name in columns for part in _texts(name, getattr(record, name))))


def _texts(name: str, value: object) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, Conversation):
        return [(message.role, message.content) for message in value.messages]
    if isinstance(value, tuple):
        return [(name, str(item)) for item in value]
    if isinstance(value, Mapping):
        return [(name, "\n".join(_lines(value)))] if value else []
    return [(name, str(value))] if value != "" else []


def _lines(value: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Nested values as lines that people read, such as `guards 1 confidence: 0.95`; every text in them stays as it is."""
    for name, inner in value.items():
        inside = {str(place): item for place, item in enumerate(inner, 1)} if isinstance(inner, list | tuple) else inner
        if isinstance(inside, Mapping):
            yield from _lines(inside, f"{path}{name} ")
        else:
            yield f"{path}{name}: {('no', 'yes')[inside] if isinstance(inside, bool) else inside}"


def decide(
    store: Store, record_id: str, state: Decision, *, actor: str, reason: str | None = None, was: State | None = None
) -> HeldRecord:
    """Release a record for training, or refuse it. A decision can be changed later.

    `was` is the state that the caller saw; if somebody else has decided since, this decision does not count.
    """
    assert reason is None or reason in REASONS[state], "the list of reasons is checked where they come in"
    kind = get(store, record_id).kind
    with store.write() as conn:
        if state == "released" and (trace := _first(conn, record_id, kind)) is not None:
            raise TraceFirstError(
                f"This record is about the trace {trace.record_id}, which is {trace.state}", "Decide on the trace first"
            )
        unchanged = quarantine.c.state != state if was is None else quarantine.c.state == was
        change = update(quarantine).where(quarantine.c.record_id == record_id, unchanged)
        changed = conn.execute(change.values(state=state, decided_by=actor, decided=utc_now())).rowcount
        if changed:
            detail: dict[str, str | int | float | bool] = {} if reason is None else {"reason": reason}
            audit.append(conn, AuditEvent(actor=actor, action=f"quarantine.{state}", subject=record_id, detail=detail))
    held = get(store, record_id)
    if not changed and was is not None:
        raise AlreadyDecidedError(
            f"Somebody else has already decided on this record: it is {held.state}",
            "Your decision was not saved; review the record again",
        )
    return held


def contract_of(table: str) -> type[Contract]:
    """The contract of the records in a table."""
    return next(kind for kind, candidate in crud.TABLES.items() if candidate.name == table)


def _held(row: Row[Any]) -> HeldRecord:
    return HeldRecord(
        row.record_id, row.kind, row.doubt, tuple(row.reasons), row.state, row.decided_by, row.decided, row.timestamp
    )  # fmt: skip
