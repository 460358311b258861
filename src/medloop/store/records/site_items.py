"""Which items of the review queue a site may review: those about answers that were given there, and nothing else.

    mark_items(store, conn, items, actor="cli")       # with the items, in one transaction: a row of record_sites for each
    of_site(items.c.item_id, "ward-7")                # a condition for a query; users of main review all

An item about answers of two sites, or about a text of unknown origin, is for the central staff alone.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select, true

from medloop.contracts import AuditEvent, Trace, utc_now
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.queue import QueueItem
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.tables import record_sites, traces, users


def of_site(record_id: Any, site: str) -> ColumnElement[bool]:
    """Whether a record, or an item of the queue, came from this site; users of main see what all sites sent."""
    if site == DEFAULT_SITE:
        return true()
    condition: ColumnElement[bool] = record_id.in_(select(record_sites.c.record_id).where(record_sites.c.site == site))
    return condition


def mark_items(store: Store, conn: Connection, items: Sequence[QueueItem], *, actor: str) -> None:
    if conn.execute(select(users.c.id).where(users.c.site != DEFAULT_SITE).limit(1)).first() is None:
        return
    for item in items:
        if (site := _site_of(store, conn, item)) != DEFAULT_SITE:
            conn.execute(insert(record_sites).values(record_id=item.item_id, site=site, timestamp=utc_now()))
            event = AuditEvent(actor=actor, action="record_sites.add", subject=item.item_id, detail={"site": site})
            audit.append(conn, event)


def _site_of(store: Store, conn: Connection, item: QueueItem) -> str:
    """The one site that everything in the item comes from."""
    names = {name for name in (item.trace_id, *item.content.traces) if name is not None}
    rows = conn.execute(select(traces).where(traces.c.trace_id.in_(names))).all() if names else []
    logged = crud.from_rows(store, conn, Trace, rows)
    found = [str(trace.meta.get("site", DEFAULT_SITE)) for trace in logged]
    for name in item.content.records:
        sent_from = conn.execute(select(record_sites.c.site).where(record_sites.c.record_id == name)).scalar()
        found.append(sent_from or DEFAULT_SITE)
    is_known = len(logged) == len(names) and found
    return found[0] if is_known and len(set(found)) == 1 else DEFAULT_SITE
