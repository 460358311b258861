"""Read what people wrote; the audit log gets a line before the first text is returned.

    for feedback in read_audited(store, Feedback, actor="user:li", purpose="data build"): ...
    for page in read_pages(store, Feedback, actor="user:li", purpose="data build"): ...    # with row numbers, for `reread`
    feedback = get_audited(store, Feedback, "fb_…", actor="user:li", purpose="quarantine review")

The line is `<table>.read` with the purpose and the number of rows. Only rows that existed when the line was written are
returned, so the number is never too small.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sqlalchemy import Table, func, select, union

from medloop.contracts import AuditEvent, Contract, Trace
from medloop.store import audit, tables
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.chunks import chunks

C = TypeVar("C", bound=Contract)


def read_audited(store: Store, kind: type[C], *, actor: str, purpose: str) -> Iterator[C]:
    """Every record of a kind in the order they came; no audit line if there is nothing to read."""
    for page in read_pages(store, kind, actor=actor, purpose=purpose):
        yield from (record for _, record in page)


def read_pages(store: Store, kind: type[C], *, actor: str, purpose: str) -> Iterator[list[tuple[int, C]]]:
    """Every record of a kind in pages of a few hundred, each record with its row number."""
    table = crud.TABLES[kind]
    with store.write() as conn:
        count, last = conn.execute(select(func.count(), func.max(table.c.id)).select_from(table)).one()
        if count:
            audit.append(conn, _read_event(table, table.name, actor, purpose, count))
    after = 0
    while after < (last or 0) and (page := crud.page(store, kind, after=after)):
        after = page[-1][0]
        yield [(row, record) for row, record in page if row <= last]


def reread(store: Store, kind: type[C], rows: Iterable[int]) -> dict[int, C]:
    """Records by the row numbers from `read_pages`. This is part of the same reading, so there is no second audit line.

    Rows that were erased since are left out.
    """
    table, records = crud.TABLES[kind], dict[int, C]()
    with store.read() as conn:
        for chunk in chunks(rows):
            stored = conn.execute(select(table).where(table.c.id.in_(chunk))).all()
            records |= zip((row.id for row in stored), crud.from_rows(store, conn, kind, stored), strict=True)
    return records


class CitedTraces:
    """The traces that records refer to, read when they are needed; one audit line comes before the first."""

    def __init__(self, store: Store, kinds: Iterable[type[Contract]], *, actor: str, purpose: str) -> None:
        self._store = store
        table, columns = tables.traces, [crud.TABLES[kind].c.trace_id for kind in kinds]
        cited = union(*(select(column).where(column.is_not(None)) for column in columns))
        with store.write() as conn:
            count = conn.execute(select(func.count()).select_from(table).where(table.c.trace_id.in_(cited))).scalar_one()
            if count:
                audit.append(conn, _read_event(table, table.name, actor, purpose, count))

    def get(self, trace_ids: Iterable[str | None]) -> dict[str, Trace]:
        """The stored traces by id, without those that were sent again after their erasure."""
        table, erased = tables.traces, select(tables.tombstones.c.record_id)
        traces: dict[str, Trace] = {}
        with self._store.read() as conn:
            for chunk in chunks({trace_id for trace_id in trace_ids if trace_id}):
                query = select(table).where(table.c.trace_id.in_(chunk), table.c.trace_id.not_in(erased))
                traces |= {trace.trace_id: trace for trace in crud.from_rows(self._store, conn, Trace, conn.execute(query).all())}
        return traces


def get_audited(
    store: Store, kind: type[C], record_id: str, *, actor: str, purpose: str, allowed: Callable[[C], bool] | None = None
) -> C | None:  # fmt: skip
    """One record by its id, or None; one that is not `allowed` is given to nobody, so no line says that it was read."""
    record = crud.get(store, kind, record_id)
    if record is not None and allowed is not None and not allowed(record):
        return None
    if record is not None:
        with store.write() as conn:
            audit.append(conn, _read_event(crud.TABLES[kind], record_id, actor, purpose, 1))
    return record


def read_by_ids(store: Store, kind: type[C], record_ids: Iterable[str], *, actor: str, purpose: str) -> list[C]:
    """The records of a kind with these ids, in the order they came."""
    table, records = crud.TABLES[kind], dict[int, C]()
    with store.read() as conn:
        for chunk in chunks(sorted(set(record_ids))):
            for row in conn.execute(select(table).where(tables.id_column(table).in_(chunk))).all():
                records[row.id] = crud.from_row(store, conn, kind, row)
    if records:
        with store.write() as conn:
            audit.append(conn, _read_event(table, table.name, actor, purpose, len(records)))
    return [record for _, record in sorted(records.items())]


def _read_event(table: Table, subject: str, actor: str, purpose: str, rows: int) -> AuditEvent:
    return AuditEvent(actor=actor, action=f"{table.name}.read", subject=subject, detail={"purpose": purpose, "rows": rows})
