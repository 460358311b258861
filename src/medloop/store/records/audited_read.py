"""Reading what people wrote leaves a line in the audit log, before the first text is handed out.

    for feedback in read_audited(store, Feedback, actor="user:li", purpose="data build"): ...
    for page in pages(store, Feedback, actor="user:li", purpose="data build"): ...      # with row numbers, for `again`
    one = get_audited(store, Feedback, "fb_…", actor="user:li", purpose="quarantine review")

The line is `<table>.read` with the purpose and the number of rows. Texts are handed out only up to the row that was the newest
when the line was written, so the number is never too small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from sqlalchemy import Table, func, select, union

from medloop.contracts import AuditEvent, Contract, Trace
from medloop.store import audit, tables
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.tables import natural_id

C = TypeVar("C", bound=Contract)


def read_audited(store: Store, kind: type[C], *, actor: str, purpose: str) -> Iterator[C]:
    """Every record of a kind in the order they came; nothing is written down where there is nothing to read."""
    for some in pages(store, kind, actor=actor, purpose=purpose):
        yield from (record for _, record in some)


def pages(store: Store, kind: type[C], *, actor: str, purpose: str) -> Iterator[list[tuple[int, C]]]:
    """The same, some hundred at a time, each with its row number."""
    table = crud.TABLES[kind]
    with store.write() as conn:
        rows, last = conn.execute(select(func.count(), func.max(table.c.id)).select_from(table)).one()
        if rows:
            audit.append(conn, _line(table, table.name, actor, purpose, rows))
    after = 0
    while after < (last or 0) and (found := crud.page(store, kind, after=after)):
        after = found[-1][0]
        yield [(row, record) for row, record in found if row <= last]


def again(store: Store, kind: type[C], rows: Iterable[int]) -> dict[int, C]:
    """Records by the row numbers that `pages` gave: part of the same reading, so there is no second line in the log.

    A row that has been erased since is not in the answer.
    """
    table, wanted, found = crud.TABLES[kind], iter(rows), {}
    with store.read() as conn:
        while some := list(islice(wanted, crud.PAGE)):
            for row in conn.execute(select(table).where(table.c.id.in_(some))).all():
                found[row.id] = crud.from_row(store, conn, kind, row)
    return found


class Cited:
    """The traces that records name, looked up as they are needed; one line in the log, before the first of them."""

    def __init__(self, store: Store, kinds: Iterable[type[Contract]], *, actor: str, purpose: str) -> None:
        self._store = store
        table, cited = tables.traces, [crud.TABLES[kind].c.trace_id for kind in kinds]
        named = union(*(select(column).where(column.is_not(None)) for column in cited))
        with store.write() as conn:
            rows = conn.execute(select(func.count()).select_from(table).where(table.c.trace_id.in_(named))).scalar_one()
            if rows:
                audit.append(conn, _line(table, table.name, actor, purpose, rows))

    def of(self, trace_ids: Iterable[str | None]) -> dict[str, Trace]:
        """By id, those that are there and did not come back after an erasure."""
        traces, erased, wanted = tables.traces, tables.tombstones.c.record_id, iter({name for name in trace_ids if name})
        found: dict[str, Trace] = {}
        with self._store.read() as conn:
            while some := list(islice(wanted, crud.PAGE)):
                query = select(traces).where(traces.c.trace_id.in_(some), traces.c.trace_id.not_in(select(erased)))
                for row in conn.execute(query).all():
                    found[row.trace_id] = crud.from_row(self._store, conn, Trace, row)
        return found


def get_audited(store: Store, kind: type[C], record_id: str, *, actor: str, purpose: str) -> C | None:
    """One record by its id, or None."""
    found = crud.get(store, kind, record_id)
    if found is not None:
        table = crud.TABLES[kind]
        with store.write() as conn:
            audit.append(conn, _line(table, record_id, actor, purpose, 1))
    return found


def read_some(store: Store, kind: type[C], record_ids: Iterable[str], *, actor: str, purpose: str) -> list[C]:
    """The records of a kind that have one of these ids, in the order they came."""
    table, wanted = crud.TABLES[kind], sorted(set(record_ids))
    found: list[tuple[int, C]] = []
    with store.read() as conn:
        for at in range(0, len(wanted), crud.PAGE):
            some = table.c[natural_id(table)].in_(wanted[at : at + crud.PAGE])
            for row in conn.execute(select(table).where(some)).all():
                opened = crud.open_row(table, row, store.keys.reading(conn, row.key_id))
                plain = {name: value for name, value in row._mapping.items() if name in kind.model_fields}
                found.append((row.id, kind.model_validate(plain | {name: json.loads(text) for name, text in opened.items()})))
    if found:
        with store.write() as conn:
            audit.append(conn, _line(table, table.name, actor, purpose, len(found)))
    return [record for _, record in sorted(found, key=lambda one: one[0])]


def _line(table: Table, subject: str, actor: str, purpose: str, rows: int) -> AuditEvent:
    return AuditEvent(actor=actor, action=f"{table.name}.read", subject=subject, detail={"purpose": purpose, "rows": rows})
