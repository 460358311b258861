"""Incidents in the store: list, count and close them. feedback/incidents.py says what an open incident means."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select, update

from medloop.contracts import Incident
from medloop.contracts.base import iso_utc
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.tables import incidents, red_team_cases


class AlreadyClosedError(InputError):
    """Somebody else closed it first."""


class NoSuchIncidentError(InputError):
    pass


@dataclass(frozen=True)
class IncidentSummary:
    """An incident in a list: ids and times. The note is text, so it stays encrypted."""

    incident_id: str
    record_id: str
    model_version: str | None
    state: str
    opened_by: str | None
    timestamp: str
    closed_by: str | None
    closed: str | None
    red_team_case: str | None


@dataclass(frozen=True)
class IncidentCounts:
    open: int
    closed: int
    oldest_open: datetime | None


def open_incidents(store: Store) -> list[Incident]:
    """All open incidents, oldest first."""
    with store.read() as conn:
        rows = conn.execute(select(incidents).where(incidents.c.state == "open").order_by(incidents.c.id)).all()
        return [crud.from_row(store, conn, Incident, row) for row in rows]


def count_incidents(store: Store) -> IncidentCounts:
    with store.read() as conn:
        states = conn.execute(select(incidents.c.state, func.count()).group_by(incidents.c.state)).all()
        oldest = conn.execute(select(func.min(incidents.c.timestamp)).where(incidents.c.state == "open")).scalar()
    counts = {state: int(count) for state, count in states}
    return IncidentCounts(counts.get("open", 0), counts.get("closed", 0), oldest)


def list_incidents(
    store: Store, *, state: str | None = None, after: str | None = None, limit: int = 50
) -> list[IncidentSummary]:  # fmt: skip
    """A page, oldest first; `after` is the last incident_id of the page before."""
    query = select(incidents, red_team_cases.c.case_id).outerjoin(
        red_team_cases, red_team_cases.c.incident_id == incidents.c.incident_id
    )
    if state is not None:
        query = query.where(incidents.c.state == state)
    with store.read() as conn:
        if after is not None:
            row_id = conn.execute(select(incidents.c.id).where(incidents.c.incident_id == after)).scalar()
            if row_id is None:
                raise InputError("'after' names an unknown incident", "Pass the 'next' value of the previous page")
            query = query.where(incidents.c.id > row_id)
        rows = conn.execute(query.order_by(incidents.c.id).limit(limit)).all()
    return [
        IncidentSummary(
            row.incident_id, row.record_id, row.model_version, row.state, row.opened_by, iso_utc(row.timestamp), row.closed_by,
            None if row.closed is None else iso_utc(row.closed), row.case_id,
        )
        for row in rows
    ]  # fmt: skip


def close_incident(conn: Connection, *, store: Store, incident_id: str, by: str, note: str, when: datetime) -> None:
    """Close an incident inside a `store.write()`; the note is encrypted."""
    state = conn.execute(select(incidents.c.state).where(incidents.c.incident_id == incident_id)).scalar()
    if state is None:
        raise NoSuchIncidentError("There is no such incident", "GET /api/v1/rlhf/incidents lists them")
    if state == "closed":
        raise AlreadyClosedError("This incident is already closed")
    key = store.keys.writing(conn)
    # The note is the only encrypted column of the row, so the row's key_id can change with it.
    values = {"state": "closed", "closed_by": by, "closed": when, "key_id": key.key_id}
    values |= crud.encrypt_columns(incidents, key, incident_id, {"note": note})
    conn.execute(update(incidents).where(incidents.c.incident_id == incident_id).values(**values))
