"""The live route: which version of the model answers, and every change of it. Rows are added and never changed.

    add_route(store, Route(served_name="med-assistant-v3", model="med-assistant", version=3, reason="passed the gate", ...))
    live_route(store)                # the newest one; None: nothing was deployed yet
    route_number(store)              # changes with every new route: cheap enough to ask before every answer

A row that was changed, added or removed past medloop is an IntegrityError.
"""

from typing import Any

from sqlalchemy import Row, func, insert, select

from medloop.contracts import AuditEvent, uuid7
from medloop.contracts.assistant import Route
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import serving_routes as table

_NEWEST = select(func.max(table.c.id))


def add_route(store: Store, route: Route) -> Route:
    """From now on this one answers. Its line in the audit log is part of the same transaction."""
    with store.write() as conn:
        route_id = f"route_{uuid7()}"
        conn.execute(insert(table).values(route_id=route_id, **route.model_dump()))
        detail: dict[str, str | int | float | bool] = {"served_name": route.served_name, "model": route.model}
        detail |= {} if route.version is None else {"version": route.version}
        audit.append(conn, AuditEvent(actor=route.changed_by, action="routes.change", subject=route_id, detail=detail))
    return route


def live_route(store: Store) -> Route | None:
    rows = genuine_rows(store, table, select(table).order_by(table.c.id.desc()).limit(1))
    return _route(rows[0]) if rows else None


def routes(store: Store, *, limit: int = 100) -> list[Route]:
    """The newest changes, newest first."""
    return [_route(row) for row in genuine_rows(store, table, select(table).order_by(table.c.id.desc()).limit(limit))]


def route_number(store: Store) -> int:
    """The number of the newest change; 0 where there is none."""
    with store.read() as conn:
        return conn.execute(_NEWEST).scalar() or 0


def _route(row: Row[Any]) -> Route:
    return Route(**{name: row._mapping[name] for name in Route.model_fields})
