"""Reading what people wrote leaves a line in the audit log, before the first text is handed out.

    for feedback in read_audited(store, Feedback, actor="user:li", purpose="data build"): ...
    one = get_audited(store, Feedback, "fb_…", actor="user:li", purpose="quarantine review")

The line is `<table>.read` with the purpose and the number of rows. Texts are handed out only up to the row that was the newest
when the line was written, so the number is never too small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TypeVar

from sqlalchemy import func, select

from medloop.contracts import AuditEvent, Contract
from medloop.store import audit, records
from medloop.store.db import Store
from medloop.store.tables import natural_id

C = TypeVar("C", bound=Contract)


def read_audited(store: Store, kind: type[C], *, actor: str, purpose: str) -> Iterator[C]:
    """Every record of a kind in the order they came; nothing is written down where there is nothing to read."""
    table = records.TABLES[kind]
    with store.write() as conn:
        rows, last = conn.execute(select(func.count(), func.max(table.c.id)).select_from(table)).one()
        if rows:
            event = AuditEvent(
                actor=actor, action=f"{table.name}.read", subject=table.name, detail={"purpose": purpose, "rows": rows}
            )
            audit.append(conn, event)
    after = 0
    while after < (last or 0) and (found := records.page(store, kind, after=after)):
        for after, record in found:
            if after > last:
                return
            yield record


def get_audited(store: Store, kind: type[C], record_id: str, *, actor: str, purpose: str) -> C | None:
    """One record by its id, or None."""
    found = records.get(store, kind, record_id)
    if found is not None:
        table = records.TABLES[kind]
        with store.write() as conn:
            event = AuditEvent(
                actor=actor, action=f"{table.name}.read", subject=record_id, detail={"purpose": purpose, "rows": 1}
            )
            audit.append(conn, event)
    return found


def read_some(store: Store, kind: type[C], record_ids: Iterable[str], *, actor: str, purpose: str) -> list[C]:
    """The records of a kind that have one of these ids, in the order they came."""
    table, wanted = records.TABLES[kind], sorted(set(record_ids))
    found: list[tuple[int, C]] = []
    with store.read() as conn:
        for at in range(0, len(wanted), records.PAGE):
            some = table.c[natural_id(table)].in_(wanted[at : at + records.PAGE])
            for row in conn.execute(select(table).where(some)).all():
                opened = records.open_row(table, row, store.keys.reading(conn, row.key_id))
                plain = {name: value for name, value in row._mapping.items() if name in kind.model_fields}
                found.append((row.id, kind.model_validate(plain | {name: json.loads(text) for name, text in opened.items()})))
    if found:
        with store.write() as conn:
            detail: dict[str, str | int | float | bool] = {"purpose": purpose, "rows": len(found)}
            audit.append(conn, AuditEvent(actor=actor, action=f"{table.name}.read", subject=table.name, detail=detail))
    return [record for _, record in sorted(found, key=lambda one: one[0])]
