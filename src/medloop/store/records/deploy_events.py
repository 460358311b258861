"""What happened to the versions that were deployed: steps, problems, alarms, and which bytes are blocked. Rows are only added.

    add_event(store, DeployEvent(event_id=new_event_id(), kind="load", served_name="med-assistant-v3-1f2e", …))
    events(store, limit=50)                       # newest first
    open_deployment(store, "med-assistant-v3-1f2e")     # the id of a deployment that did not end, to be continued
    block_of(store, artifact)                     # the event that blocks these bytes; None: they may go live

A row that was changed, added or removed past medloop is an IntegrityError.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, insert, select

from medloop.contracts import AuditEvent, uuid7
from medloop.contracts.deploy import DeployEvent, DeployKind
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import deploy_events as table

ENDS: tuple[DeployKind, ...] = ("done", "fail")


def new_event_id() -> str:
    return f"dev_{uuid7()}"


def add_event(store: Store, event: DeployEvent) -> DeployEvent:
    """Store an event with its line in the audit log."""
    with store.write() as conn:
        conn.execute(insert(table).values(**event.model_dump()))
        detail: dict[str, str | int | float | bool] = {"served_name": event.served_name, **event.numbers}
        optional = {"deployment": event.deployment, "version": event.version, "replica": event.replica, "reason": event.reason}
        detail |= {name: value for name, value in optional.items() if value}
        audit.append(
            conn, AuditEvent(actor=event.changed_by, action=f"deploy.{event.kind}", subject=event.event_id, detail=detail)
        )
    return event


def events(
    store: Store, *, limit: int = 100, kinds: Iterable[DeployKind] = (), deployment: str | None = None,
    served_name: str | None = None,
) -> list[DeployEvent]:  # fmt: skip
    """The newest events, newest first."""
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if wanted := tuple(kinds):
        query = query.where(table.c.kind.in_(wanted))
    if deployment is not None:
        query = query.where(table.c.deployment == deployment)
    if served_name is not None:
        query = query.where(table.c.served_name == served_name)
    return [_event(row) for row in genuine_rows(store, table, query)]


def open_deployment(store: Store, served_name: str) -> str | None:
    """The id of the newest deployment of this name, if it neither ended nor failed."""
    steps = events(store, kinds=("start", *ENDS), served_name=served_name, limit=1)
    return steps[0].deployment if steps and steps[0].kind == "start" else None


def block_of(store: Store, artifact: str) -> DeployEvent | None:
    """Why these bytes may not go live: the newest block, unless a person cleared it since."""
    query = select(table).where(table.c.artifact == artifact, table.c.kind.in_(("block", "clear")))
    rows = genuine_rows(store, table, query.order_by(table.c.id.desc()).limit(1))
    return _event(rows[0]) if rows and rows[0].kind == "block" else None


def _event(row: Row[Any]) -> DeployEvent:
    return DeployEvent(**{name: row._mapping[name] for name in DeployEvent.model_fields})
