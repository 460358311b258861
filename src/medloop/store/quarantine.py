"""Records whose text may still name somebody: held back until a person has looked. Released or refused, never forgotten.

    hold(conn, "fb_…", "rlhf_feedback", doubt=1.0, reasons=["a number that could not be taken out"], actor="api")
    for one in listed(store): ...
    decide(store, "fb_…", "released", actor="user:li")

`kind` is the record's table. A decision can be turned round, and each one leaves an audit line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, insert, select, update

from medloop.contracts import AuditEvent, Contract, utc_now
from medloop.errors import InputError
from medloop.store import audit, records
from medloop.store.db import Store
from medloop.store.tables import quarantine

State = Literal["waiting", "released", "refused"]


@dataclass(frozen=True)
class Held:
    """One record in quarantine; `reasons` say what sort of thing is left in it, never the text."""

    record_id: str
    kind: str
    doubt: float
    reasons: tuple[str, ...]
    state: State
    decided_by: str | None
    decided: datetime | None
    timestamp: datetime


def hold(conn: Connection, record_id: str, kind: str, *, doubt: float, reasons: Sequence[str], actor: str) -> bool:
    """Hold a record back, inside a `store.write()`; False when it is known already (a decision stays as it is)."""
    if conn.execute(select(quarantine.c.id).where(quarantine.c.record_id == record_id)).first() is not None:
        return False
    row = {"record_id": record_id, "kind": kind, "doubt": doubt, "reasons": list(reasons), "state": "waiting"}
    conn.execute(insert(quarantine).values(**row, timestamp=utc_now()))
    audit.append(conn, AuditEvent(actor=actor, action="quarantine.hold", subject=record_id, detail={"kind": kind}))
    return True


def listed(store: Store, state: str | None = "waiting") -> list[Held]:
    """Held records, oldest first; all states with None."""
    query = select(quarantine).order_by(quarantine.c.id)
    with store.read() as conn:
        rows = conn.execute(query if state is None else query.where(quarantine.c.state == state)).all()
    return [_held(row) for row in rows]


def get(store: Store, record_id: str) -> Held:
    with store.read() as conn:
        row = conn.execute(select(quarantine).where(quarantine.c.record_id == record_id)).first()
    if row is None:
        raise InputError(f"{record_id} is not in quarantine", "See what is: medloop quarantine list")
    return _held(row)


def decide(store: Store, record_id: str, state: Literal["released", "refused"], *, actor: str) -> Held:
    """Release a record for training, or refuse it for good. A person decides, so a person may change their mind."""
    get(store, record_id)
    with store.write() as conn:
        found = update(quarantine).where(quarantine.c.record_id == record_id, quarantine.c.state != state)
        changed = conn.execute(found.values(state=state, decided_by=actor, decided=utc_now())).rowcount
        if changed:
            audit.append(conn, AuditEvent(actor=actor, action=f"quarantine.{state}", subject=record_id))
    return get(store, record_id)


def kind_named(table: str) -> type[Contract]:
    """The contract of the records in a table."""
    return next(kind for kind, found in records.TABLES.items() if found.name == table)


def _held(row: Row[Any]) -> Held:
    return Held(
        row.record_id, row.kind, row.doubt, tuple(row.reasons), row.state, row.decided_by, row.decided, row.timestamp
    )  # fmt: skip
