"""What a request of a site may name: to its users a record of another site does not exist.

    known = seen_from(known, "ward-7", lookups)       # the same for main; else without the rows of other sites

So each check that follows answers an id of another site, and a session there, exactly as one that nobody ever used. Whose record
it is does not matter: what somebody sent before they moved belongs to the site that they left.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from medloop.contracts import Trace
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.sites import record_site
from medloop.store.records.write_request import Lookup, LookupResults, with_quarantine
from medloop.store.tables import natural_id, traces

LOOKED_AT = 100  # newest traces of a session; where a trace was logged is encrypted, so no query can choose by it


def seen_from(known: LookupResults, site: str, lookups: Iterable[Lookup]) -> LookupResults:
    """The results of these lookups, without rows of other sites; by its session the newest trace of this site."""
    if site == DEFAULT_SITE or known.conn is None:
        return known
    rows = {}
    for lookup in lookups:
        if (row := known.rows.get(lookup)) is None:
            continue
        if lookup.kind is Trace:
            row = _own_trace(known.store, known.conn, lookup, row, site)
        elif record_site(known.store, row._mapping[natural_id(crud.TABLES[lookup.kind])]) != site:
            row = None
        if row is not None:
            rows[lookup] = row
    return with_quarantine(known.store, known.conn, rows)


def _own_trace(store: Store, conn: Connection, lookup: Lookup, found: Any, site: str) -> Any | None:
    candidates = [found]
    if lookup.column == traces.c.session_id.name:
        query = select(traces).where(traces.c.session_id == lookup.value).order_by(traces.c.id.desc()).limit(LOOKED_AT)
        candidates = list(conn.execute(query).all())
    return next((row for row in candidates if _logged_at(store, conn, row) == site), None)


def _logged_at(store: Store, conn: Connection, row: Any) -> str:
    return str(crud.from_row(store, conn, Trace, row).meta.get("site", DEFAULT_SITE))
