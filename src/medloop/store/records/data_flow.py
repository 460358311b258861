"""How many records there are on the way from traces to a dataset; numbers only, no text is read."""

from sqlalchemy import func, select

from medloop.store.db import Store
from medloop.store.tables import rlhf_corrections, rlhf_feedback, rlhf_preferences, traces

JUDGED = (rlhf_feedback, rlhf_preferences, rlhf_corrections)


def count_flow(store: Store) -> tuple[int, dict[str, tuple[int, int]]]:
    """The traces, and of each kind of record those about a trace and the others."""
    with store.read() as conn:
        logged = int(conn.execute(select(func.count()).select_from(traces)).scalar_one())
        found = {}
        for table in JUDGED:
            total, about = conn.execute(select(func.count(), func.count(table.c.trace_id)).select_from(table)).one()
            found[table.name] = int(about), int(total - about)
    return logged, found
