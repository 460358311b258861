"""The live route: which version of the model answers, and every change of it. Rows are added and never changed.

    add_route(store, Route(served_name="med-assistant-v3", model="med-assistant", version=3, reason="passed the gate", ...))
    live_route(store)                # the newest one; None: nothing was deployed yet
    live_route(store, "challenger")  # the version that an experiment compares with it
    site_champion(store, "ward-7")   # of a site with a champion of its own; None: it has that of `main`
    live_routes(store)               # of all sites and arms: what the model servers must have
    route_number(store)              # changes with every new route: cheap enough to ask before every answer

A row that was changed, added or removed past medloop is an IntegrityError.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, func, insert, select

from medloop.contracts import AuditEvent, uuid7
from medloop.contracts.assistant import Champion, Route
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.errors import BusyError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records.deploy_events import block_of
from medloop.store.records.registry import taint_of
from medloop.store.tables import serving_routes as table

_NEWEST = select(func.max(table.c.id))


class RouteMovedError(BusyError):
    """Somebody else has changed the route since it was read."""


def add_route(
    store: Store, route: Route, *, arm: Champion = "champion", expected: int | None = None,
    check: Callable[[], None] | None = None, site: str = DEFAULT_SITE,
) -> Route:  # fmt: skip
    """From now on this one answers. Its line in the audit log is part of the same transaction.

    With `expected` the newest route of the arm must still have this number, else RouteMovedError; `check` may refuse by raising,
    while no other writer can change what it reads.
    """
    with store.write() as conn:
        if expected is not None and (conn.execute(_newest_of(arm, site)).scalar() or 0) != expected:
            raise RouteMovedError("The route was changed by somebody else meanwhile", "Look at it: medloop deploy status")
        if check is not None:
            check()
        route_id = f"route_{uuid7()}"
        conn.execute(insert(table).values(route_id=route_id, arm=arm, site=site, **route.model_dump()))
        detail: dict[str, str | int | float | bool] = {"served_name": route.served_name, "model": route.model, "arm": arm}
        detail |= {} if route.version is None else {"version": route.version}
        detail |= {} if site == DEFAULT_SITE else {"site": site}
        audit.append(conn, AuditEvent(actor=route.changed_by, action="routes.change", subject=route_id, detail=detail))
    return route


def live_route(store: Store, arm: Champion = "champion", *, site: str = DEFAULT_SITE) -> Route | None:
    rows = genuine_rows(store, table, _of(arm, site).limit(1))
    return _route(rows[0]) if rows else None


def live_routes(store: Store) -> list[Route]:
    """The newest route of each arm of `main`, then the champions of sites that have one of their own."""
    arms: tuple[Champion, ...] = ("champion", "challenger")
    main = [route for arm in arms if (route := live_route(store, arm)) is not None]
    return [*main, *site_champions(store).values()]


def site_champion(store: Store, site: str) -> Route | None:
    """The champion of a site other than `main`; None where it has none, gave it back, it was blocked, or an erasure reached it:
    a cycle that is done again replaces the champion of `main` alone."""
    own = live_route(store, site=site) if site != DEFAULT_SITE else None
    if own is None or own.version is None:
        return None
    is_out = own.artifact is not None and (block_of(store, own.artifact) or taint_of(store, own.artifact))
    return None if is_out else own


def site_champions(store: Store) -> dict[str, Route]:
    """By site, in the order of their names."""
    with store.read() as conn:
        known = sorted(conn.execute(select(table.c.site).distinct()).scalars())
    return {site: route for site in known if (route := site_champion(store, site)) is not None}


def last_change(store: Store) -> datetime | None:
    """When a route of any arm at any site was changed last."""
    rows = genuine_rows(store, table, select(table).order_by(table.c.id.desc()).limit(1))
    return rows[0].timestamp if rows else None


def routes(store: Store, *, limit: int = 100, arm: Champion = "champion") -> list[Route]:
    """The newest changes, newest first."""
    return [_route(row) for row in genuine_rows(store, table, _of(arm).limit(limit))]


def route_number(store: Store, arm: Champion | None = None, *, site: str = DEFAULT_SITE) -> int:
    """The number of the newest change (of an arm at a site; without one, of any); 0 where there is none."""
    with store.read() as conn:
        return conn.execute(_NEWEST if arm is None else _newest_of(arm, site)).scalar() or 0


def _newest_of(arm: Champion, site: str) -> Select[Any]:
    return select(func.max(table.c.id)).where(table.c.arm == arm, table.c.site == site)


def _of(arm: Champion, site: str = DEFAULT_SITE) -> Select[Any]:
    return select(table).where(table.c.arm == arm, table.c.site == site).order_by(table.c.id.desc())


def _route(row: Row[Any]) -> Route:
    return Route(**{name: row._mapping[name] for name in Route.model_fields})
