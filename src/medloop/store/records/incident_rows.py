"""Incidents in the store: listed, counted, and closed by two people. What an open one means is in feedback/incidents.py.

One person proposes to close an incident and says why; another person, a clinician, confirms or declines it. The rule is
checked here, in the transaction of the change, so it holds for every door.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, func, select, update

from medloop.contracts import Incident, IncidentStep, RedTeamCase
from medloop.contracts.base import iso_utc
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.record_pages import last_row
from medloop.store.tables import incidents, red_team_cases, users

Step = Literal["proposed", "declined", "closed"]
IncidentState = Literal["open", "proposed", "closed"]
PROPOSERS = ("clinician", "engineer", "admin")
CONFIRMERS = ("clinician",)  # whoever confirms has to be able to read the conversation
NEED_SECOND = "Ask another clinician. If there is none, an admin adds one: medloop users add NAME --role clinician"


class AlreadyClosedError(InputError):
    """Somebody else closed it first."""


class AlreadyProposedError(InputError):
    """Somebody has already proposed to close it."""


class NotProposedError(InputError):
    """Nobody has proposed to close it, so there is nothing to confirm or to decline."""


class SecondPersonError(InputError):
    """This person may not take this step: they proposed it themselves, or their role may not."""


class NoSuchIncidentError(InputError):
    pass


@dataclass(frozen=True)
class IncidentSummary:
    """An incident as a list shows it: ids and times; the notes are text and stay sealed."""

    incident_id: str
    record_id: str
    model_version: str | None
    language: str | None
    state: str
    opened_by: str | None
    timestamp: str
    proposed_by: str | None
    closed_by: str | None
    closed: str | None
    red_team_case: str | None


@dataclass(frozen=True)
class IncidentCounts:
    open: int
    closed: int
    oldest_open: datetime | None
    proposed: int = 0  # of the open ones, those that wait for a second person


@dataclass(frozen=True)
class IncidentFilter:
    """Which incidents a list shows. Proposed ones are open too."""

    state: IncidentState | None = None
    since: datetime | None = None
    until: datetime | None = None
    language: str | None = None
    only: tuple[str, ...] | None = None  # of these ids, after a search for words

    def conditions(self) -> list[ColumnElement[bool]]:
        columns, conditions = incidents.c, list[ColumnElement[bool]]()
        if self.state is not None:
            conditions.append(columns.state == ("closed" if self.state == "closed" else "open"))
        if self.state == "proposed":
            conditions.append(columns.proposed_by.is_not(None))
        if self.since is not None:
            conditions.append(columns.timestamp >= self.since)
        if self.until is not None:
            conditions.append(columns.timestamp < self.until)
        if self.language is not None:
            conditions.append(columns.language == self.language)
        if self.only is not None:
            conditions.append(columns.incident_id.in_(self.only))
        return conditions


def open_incidents(store: Store) -> list[Incident]:
    """All open incidents, oldest first."""
    with store.read() as conn:
        rows = conn.execute(select(incidents).where(incidents.c.state == "open").order_by(incidents.c.id)).all()
        return [crud.from_row(store, conn, Incident, row) for row in rows]


def count_incidents(store: Store) -> IncidentCounts:
    is_open = incidents.c.state == "open"
    with store.read() as conn:
        states = conn.execute(select(incidents.c.state, func.count()).group_by(incidents.c.state)).all()
        oldest = conn.execute(select(func.min(incidents.c.timestamp)).where(is_open)).scalar()
        proposed = conn.execute(select(func.count()).where(is_open, incidents.c.proposed_by.is_not(None))).scalar_one()
    counts = {state: int(count) for state, count in states}
    return IncidentCounts(counts.get("open", 0), counts.get("closed", 0), oldest, int(proposed))


def count_proposed(store: Store, *, not_by: str) -> int:
    """Open incidents that wait for a second person, without those that this person proposed to close."""
    query = select(func.count()).where(incidents.c.state == "open", incidents.c.proposed_by != not_by)
    with store.read() as conn:
        return int(conn.execute(query).scalar_one())


def list_incidents(
    store: Store, which: IncidentFilter = IncidentFilter(), *, after: str | None = None, limit: int = 50, newest: bool = False
) -> list[IncidentSummary]:
    """A page, oldest first unless `newest`; `after` is the last incident_id of the page before."""
    query = select(incidents, red_team_cases.c.case_id).outerjoin(
        red_team_cases, red_team_cases.c.incident_id == incidents.c.incident_id
    )
    query = query.where(*which.conditions())
    with store.read() as conn:
        if after is not None:
            last = last_row(conn, select(incidents.c.id).where(incidents.c.incident_id == after), "incident")
            query = query.where(incidents.c.id < last if newest else incidents.c.id > last)
        order = incidents.c.id.desc() if newest else incidents.c.id
        return [_summary(row) for row in conn.execute(query.order_by(order).limit(limit)).all()]


def case_of(store: Store, incident_id: str) -> str | None:
    """The red-team case of an incident; None after an erasure."""
    query = select(red_team_cases.c.case_id).where(red_team_cases.c.incident_id == incident_id)
    with store.read() as conn:
        case_id: str | None = conn.execute(query).scalar()
    return case_id


def open_case_of(store: Store, question: str, answer: str) -> str | None:
    """The open incident about this very answer to this very question; the texts are encrypted, so those of open ones are read."""
    is_open = red_team_cases.c.incident_id.in_(select(incidents.c.incident_id).where(incidents.c.state == "open"))
    with store.read() as conn:
        rows = conn.execute(select(red_team_cases).where(is_open)).all()
        cases = crud.from_rows(store, conn, RedTeamCase, rows)
    return next((case.incident_id for case in cases if (case.prompt, case.answer) == (question, answer)), None)


def _summary(row: Row[Any]) -> IncidentSummary:
    return IncidentSummary(
        row.incident_id, row.record_id, row.model_version, row.language, row.state, row.opened_by, iso_utc(row.timestamp),
        row.proposed_by, row.closed_by, None if row.closed is None else iso_utc(row.closed), row.case_id,
    )  # fmt: skip


def take_step(conn: Connection, *, store: Store, incident_id: str, step: Step, by: str, note: str, when: datetime) -> None:
    """Propose, decline or confirm inside a `store.write()`; the note is encrypted."""
    row = conn.execute(select(incidents).where(incidents.c.incident_id == incident_id)).first()
    if row is None:
        raise NoSuchIncidentError("There is no such incident", "'medloop incidents list' shows all")
    _check_step(conn, row, step, by)
    key = store.keys.writing(conn).for_leaf(row.text_key)
    notes = json.loads(crud.decrypt_row(incidents, row, store.keys.reading(conn, row)).get("notes", b"[]"))
    notes += [""] * (len(row.steps) - len(notes))  # an erasure removed the notes of earlier steps
    # The notes are the only encrypted column of the row, so the row may take the key of the new note.
    values: dict[str, Any] = {"key_id": key.key_id, "proposed_by": by if step == "proposed" else None}
    values["steps"] = [*row.steps, IncidentStep(step=step, by=by, timestamp=when).model_dump(mode="json")]
    if step == "closed":
        values |= {"state": "closed", "closed_by": by, "closed": when, "proposed_by": row.proposed_by}
    values |= crud.encrypt_columns(incidents, key, incident_id, {"notes": [*notes, note]})
    conn.execute(update(incidents).where(incidents.c.incident_id == incident_id).values(**values))


def _check_step(conn: Connection, row: Row[Any], step: Step, by: str) -> None:
    """Whether this person may take this step now."""
    if row.state == "closed":
        raise AlreadyClosedError("This incident is already closed", "If it happens again, flag the new answer")
    if step == "proposed" and row.proposed_by is not None:
        raise AlreadyProposedError("Somebody has already proposed to close this incident", "Confirm or decline the proposal")
    if step != "proposed" and row.proposed_by is None:
        raise NotProposedError("Nobody has proposed to close this incident yet", "Propose it first and say what was done")
    if step == "closed" and row.proposed_by == by:
        raise SecondPersonError("You proposed to close this incident, so somebody else has to confirm it", NEED_SECOND)
    takes_it_back = step == "declined" and row.proposed_by == by
    allowed = PROPOSERS if step == "proposed" or takes_it_back else CONFIRMERS
    user = conn.execute(select(users.c.role, users.c.disabled).where(users.c.user_id == by)).first()
    if user is None or user.disabled:
        raise SecondPersonError("Only an active user of this workspace can do this", "'medloop users list' shows all users")
    if user.role not in allowed:
        verb = {"proposed": "propose to close", "declined": "decline to close", "closed": "close"}[step]
        raise SecondPersonError(f"Your role ({user.role}) cannot {verb} an incident", f"Allowed roles: {', '.join(allowed)}")


def may_confirm(store: Store, incident: Incident) -> list[str]:
    """Names of the active clinicians other than the one who proposed."""
    own = (users.c.role.in_(CONFIRMERS), users.c.disabled.is_(False), users.c.user_id != (incident.proposed_by or ""))
    with store.read() as conn:
        return list(conn.execute(select(users.c.name).where(*own).order_by(users.c.name)).scalars())
