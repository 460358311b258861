"""What happened in the cycles of the loop: added, never changed, each with its line in the audit log.

    add_cycle_event(store, CycleEvent(cycle="cycle1", step="data", event="done", inputs=…, outputs={…}))
    cycle_events(store, "cycle1")           # of one cycle, oldest first
    cycle_names(store)                      # all cycles, oldest first

An event that was changed, added or removed past medloop is an IntegrityError.
"""

from typing import Any

from sqlalchemy import Row, func, insert, select

from medloop.contracts import AuditEvent
from medloop.contracts.cycle import CycleEvent
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import cycle_events as table


def add_cycle_event(store: Store, event: CycleEvent) -> CycleEvent:
    with store.write() as conn:
        conn.execute(insert(table).values(**event.model_dump()))
        detail: dict[str, str | int | float | bool] = {"cycle": event.cycle, "step": event.step, "inputs": event.inputs}
        line = AuditEvent(actor=event.decided_by, action=f"loop.{event.event}", subject=event.event_id, detail=detail)
        audit.append(conn, line)
    return event


def cycle_events(store: Store, cycle: str) -> list[CycleEvent]:
    return [_event(row) for row in genuine_rows(store, table, select(table).where(table.c.cycle == cycle).order_by(table.c.id))]


def cycle_names(store: Store) -> list[str]:
    with store.read() as conn:
        return list(conn.execute(select(table.c.cycle).group_by(table.c.cycle).order_by(func.min(table.c.id))).scalars())


def _event(row: Row[Any]) -> CycleEvent:
    return CycleEvent(**{name: row._mapping[name] for name in CycleEvent.model_fields})
