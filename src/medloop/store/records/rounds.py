"""Decisions about rounds of RL, added and never changed; the newest ones say which round is in use.

    decide(store, number=2, path="models/rl/round2", artifact=…, actor="user:sam")       # accepted, or refused with the reason
    add_rollback(store, number=1, path=…, artifact=…, actor="user:sam", reason=…)
    in_use(round_events(store))                 # the event that put the round into use; None: SFT, and nobody decided yet
    in_use(round_events(store), before=2)       # what round 2 starts from

An event that was changed, added or removed past medloop is an IntegrityError.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from medloop.contracts import AuditEvent, uuid7
from medloop.contracts.rounds import RoundEvent
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records.gates import latest_gate, promotion_refusal
from medloop.store.records.registry import StoredVersion, insert_change
from medloop.store.tables import round_events as table

SFT_ROUND = 0


def decide(store: Store, *, number: int, path: str, artifact: str, actor: str) -> RoundEvent:
    """Accept a round, or refuse it with the reason. The gate's records are read while no other writer can change them."""
    with store.write() as conn:
        gate, reason = latest_gate(store, artifact), promotion_refusal(store, artifact)
        event = RoundEvent(
            event_id=f"rnd_{uuid7()}", number=number, event="refused" if reason else "accepted", path=path, artifact=artifact,
            gate=None if gate is None else gate.content_id(), reason=reason or "", decided_by=actor,
        )  # fmt: skip
        return _add(store, conn, event)


def add_rollback(
    store: Store, *, number: int, path: str, artifact: str, actor: str, reason: str = "",
    champion: Callable[[], StoredVersion | None] = lambda: None,
) -> RoundEvent:  # fmt: skip
    """This earlier round is in use again, and the version that `champion` names has the alias again: both or neither.

    `champion` is asked while no other writer can change what it reads; what it raises undoes everything.
    """
    event = RoundEvent(
        event_id=f"rnd_{uuid7()}", number=number, event="rolled_back", path=path, artifact=artifact, reason=reason,
        decided_by=actor,
    )  # fmt: skip
    with store.write() as conn:
        if (version := champion()) is not None:
            model = version.record.model
            insert_change(store, conn, model, "champion", version, action="rollback", actor=actor, reason=reason)
        return _add(store, conn, event, **({"reason": reason} if reason else {}))


def _add(store: Store, conn: Connection, event: RoundEvent, **more: str) -> RoundEvent:
    """Store an event with its line in the audit log; the same decision as the last one about these bytes changes nothing."""
    last = next(reversed(round_events(store)), None)
    if last is not None and _same(last, event):
        return last
    conn.execute(insert(table).values(**event.model_dump()))
    detail: dict[str, str | int | float | bool] = {"round": event.number, "artifact": event.artifact, "path": event.path, **more}
    line = AuditEvent(actor=event.decided_by, action=f"rounds.{event.event}", subject=event.event_id, detail=detail)
    audit.append(conn, line)
    return event


def _same(last: RoundEvent, new: RoundEvent) -> bool:
    names = ("number", "event", "path", "artifact", "gate", "reason")
    return all(getattr(last, name) == getattr(new, name) for name in names)


def round_events(store: Store) -> list[RoundEvent]:
    """All decisions, oldest first."""
    return [_event(row) for row in genuine_rows(store, table, select(table).order_by(table.c.id))]


def _event(row: Row[Any]) -> RoundEvent:
    return RoundEvent(**{name: row._mapping[name] for name in RoundEvent.model_fields})


def in_use(events: Iterable[RoundEvent], *, before: int | None = None) -> RoundEvent | None:
    """The event that says what is in use; with `before`, what this later round starts from. None where none was accepted."""
    current = None
    for event in events:
        if event.event != "refused" and (before is None or event.number < before):
            current = event
    return current
