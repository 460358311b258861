"""Incidents: answers that somebody called a critical failure. While one is open, no model is promoted.

    blocks_promotion(store, "clinic-7b@4")     # the incidents in the way; those of this very version first
    close(store, "inc_…", by="usr_1", note="Rule 12 added; the case passes since clinic-7b@5")

The flag on a feedback opens one (record.py) and adds the exchange as a red-team case. Closing needs a note, which is kept sealed;
nothing is removed, and the case stays for all later models.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, func, select, update

from medloop.contracts import AuditEvent, Incident, utc_now
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.write_request import LookupResults, NewRows, WriteRequest
from medloop.store.tables import incidents, red_team_cases

State = Literal["open", "closed"]
MOST_NOTE = 4000


class AlreadyClosedError(InputError):
    """Somebody was quicker."""


class NoSuchIncidentError(InputError):
    pass


@dataclass(frozen=True)
class Listed:
    """One incident as a list shows it: ids and times; the note is text and stays sealed."""

    incident_id: str
    record_id: str
    model_version: str | None
    state: str
    opened_by: str | None
    timestamp: str
    closed_by: str | None
    closed: str | None
    red_team_case: str | None


def open_incidents(store: Store) -> list[Incident]:
    """Oldest first."""
    with store.read() as conn:
        rows = conn.execute(select(incidents).where(incidents.c.state == "open").order_by(incidents.c.id)).all()
        return [crud.from_row(store, conn, Incident, row) for row in rows]


def blocks_promotion(store: Store, model_version: str) -> list[Incident]:
    """What must be closed before `model_version` may be promoted: every open incident, its own first.

    A new version has drawn no incident yet, but comes from the data and the model of one that has; so incidents of other versions
    block it too, until somebody has looked and closed them.
    """
    return sorted(open_incidents(store), key=lambda found: found.model_version != model_version)


def count_open(store: Store) -> int:
    with store.read() as conn:
        return int(conn.execute(select(func.count()).select_from(incidents).where(incidents.c.state == "open")).scalar_one())


def listed(store: Store, *, state: State | None = None, after: str | None = None, limit: int = 50) -> list[Listed]:
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
                raise InputError("'after' names no incident", "Send the 'next' of the page before")
            query = query.where(incidents.c.id > row_id)
        rows = conn.execute(query.order_by(incidents.c.id).limit(limit)).all()
    return [
        Listed(
            row.incident_id, row.record_id, row.model_version, row.state, row.opened_by, _when(row.timestamp),
            row.closed_by, None if row.closed is None else _when(row.closed), row.case_id,
        )
        for row in rows
    ]  # fmt: skip


def closing(store: Store, incident_id: str, *, by: str, note: str) -> WriteRequest:
    """The submission that closes an incident; what it raises comes out of `GroupCommitWriter.submit`."""
    if not note.strip() or len(note) > MOST_NOTE:
        raise InputError(f"Closing an incident needs a note of 1 to {MOST_NOTE} characters", "Say what was done about it")
    event = AuditEvent(actor=by, action="incidents.close", subject=incident_id)
    when = utc_now()
    answer = {"incident_id": incident_id, "state": "closed", "closed": _when(when)}

    def change(conn: Connection) -> None:
        found = conn.execute(select(incidents.c.state).where(incidents.c.incident_id == incident_id)).scalar()
        if found is None:
            raise NoSuchIncidentError("There is no such incident", "GET /api/v1/rlhf/incidents lists them")
        if found == "closed":
            raise AlreadyClosedError("This incident is closed already", "Nothing to do")
        key = store.keys.writing(conn)
        row = crud.sealed(incidents, key, incident_id, {"note": note.strip()})
        # The other sealed columns of this row: none. The note carries the key it was sealed with.
        said = {"state": "closed", "closed_by": by, "closed": when, "key_id": key.key_id, **row}
        conn.execute(update(incidents).where(incidents.c.incident_id == incident_id).values(**said))

    def build(known: LookupResults) -> NewRows:
        return NewRows(answer, events=(event,), update=change)

    return WriteRequest(by, build)


def close(store: Store, incident_id: str, *, by: str, note: str) -> None:
    """Close it in a transaction of its own, where no writer thread runs (the CLI)."""
    rows = closing(store, incident_id, by=by, note=note).build(LookupResults(store, None, {}, {}))
    assert rows.update is not None
    with store.write() as conn:
        rows.update(conn)
        audit.append(conn, rows.events)


def note_of(store: Store, incident_id: str) -> str | None:
    """What was said at closing."""
    found = crud.get(store, Incident, incident_id)
    return None if found is None else found.note


def _when(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
