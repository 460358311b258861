"""Decisions about rounds of RL, added and never changed; the newest ones say which round is in use.

add_event(store, "accepted", number=2, path="models/rl/round2", artifact=…, actor="user:sam", gate=…)
in_use(round_events(store))                 # 2; 0 is SFT
in_use(round_events(store), before=2)       # what round 2 starts from
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, insert, select

from medloop.contracts import AuditEvent, uuid7
from medloop.contracts.rounds import RoundDecision, RoundEvent
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.tables import round_events as table

SFT_ROUND = 0


def add_event(
    store: Store, decision: RoundDecision, *, number: int, path: str, artifact: str, actor: str, gate: str | None = None,
    reason: str = "",
) -> RoundEvent:  # fmt: skip
    """Store a decision with its line in the audit log; the same decision as the last one about these bytes changes nothing."""
    event = RoundEvent(
        event_id=f"rnd_{uuid7()}", number=number, event=decision, path=path, artifact=artifact, gate=gate, reason=reason,
        decided_by=actor,
    )  # fmt: skip
    detail: dict[str, str | int | float | bool] = {"round": number, "artifact": artifact, "path": path}
    with store.write() as conn:
        last = conn.execute(select(table).order_by(table.c.id.desc()).limit(1)).first()
        if last is not None and _same(_event(last), event):
            return _event(last)
        conn.execute(insert(table).values(**event.model_dump()))
        audit.append(conn, AuditEvent(actor=actor, action=f"rounds.{decision}", subject=event.event_id, detail=detail))
    return event


def _same(last: RoundEvent, new: RoundEvent) -> bool:
    names = ("number", "event", "path", "artifact", "gate", "reason")
    return all(getattr(last, name) == getattr(new, name) for name in names)


def round_events(store: Store) -> list[RoundEvent]:
    """All decisions, oldest first."""
    with store.read() as conn:
        rows = conn.execute(select(table).order_by(table.c.id)).all()
    return [_event(row) for row in rows]


def _event(row: Row[Any]) -> RoundEvent:
    return RoundEvent(**{name: row._mapping[name] for name in RoundEvent.model_fields})


def in_use(events: Iterable[RoundEvent], *, before: int | None = None) -> int:
    """The round in use; with `before`, the one that this later round starts from. SFT_ROUND where none was accepted."""
    current = SFT_ROUND
    for event in events:
        if event.event != "refused" and (before is None or event.number < before):
            current = event.number
    return current
