"""What one person sent, newest first, and how each record was used.

    for own in own_records(store, user_id, limit=20): own.kind, own.record, own.fate, own.incident

A fate is `withdrawn` (they took it back), `superseded` (by a newer record of theirs), `quarantined` or `refused` (it may
identify a person), `dataset` (with the
names of the datasets), `no_consent` (stored but not used), `testing` (only for tests, so it is in no dataset) or `waiting`.
Reading one's own records is audited, too: one line per page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any, Literal

from sqlalchemy import Connection, Row, Table, select

from medloop.contracts import AuditEvent, Correction, Feedback, Preference
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.lineage import select_superseded
from medloop.store.records.site_items import of_site
from medloop.store.tables import artifacts, id_column, incidents, lineage, natural_id, quarantine, withdrawals

Kind = Literal["feedback", "preference", "correction"]
Fate = Literal["withdrawn", "superseded", "quarantined", "refused", "dataset", "no_consent", "testing", "waiting"]
KINDS: dict[Kind, type[Feedback] | type[Preference] | type[Correction]] = {
    "feedback": Feedback,
    "preference": Preference,
    "correction": Correction,
}


@dataclass(frozen=True)
class OwnRecord:
    kind: Kind
    record_id: str
    timestamp: datetime
    record: Feedback | Preference | Correction
    fate: Fate
    datasets: tuple[str, ...] = ()
    incident: str | None = None  # open or closed


@dataclass(frozen=True)
class _RelatedRows:
    """What other tables say about a page of records, by record id."""

    withdrawn: set[str]
    superseded: set[str]
    quarantine: dict[str, str]
    datasets: dict[str, list[str]]
    incidents: dict[str, str]


def own_records(
    store: Store, user_id: str, *, site: str = DEFAULT_SITE, before: datetime | None = None, limit: int = 20
) -> list[OwnRecord]:  # fmt: skip
    """A page of everything this user sent, newest first; `before` is the time of the last record on the previous page. A user of
    a site gets what they sent from there: before, they may have read what other sites wrote."""
    with store.write() as conn:  # a write, because the audit line comes before the text
        rows = [(kind, row) for kind in KINDS for row in _rows(conn, kind, user_id, site, before, limit)]
        rows = sorted(rows, key=lambda pair: pair[1].timestamp, reverse=True)[:limit]
        if not rows:
            return []
        event = AuditEvent(actor=user_id, action="records.read", subject=user_id, detail={"purpose": "own", "rows": len(rows)})
        audit.append(conn, event)
        related = _related_rows(conn, [row._mapping[natural_id(_table(kind))] for kind, row in rows])
        for kind, row in reversed(rows):  # a changed record keeps the incident of the one that it supersedes
            if row.supersedes in related.incidents:
                related.incidents.setdefault(row._mapping[natural_id(_table(kind))], related.incidents[row.supersedes])
        return [_own_record(store, conn, kind, row, related) for kind, row in rows]


def own_record(
    store: Store, user_id: str, kind: Kind, record_id: str, *, site: str = DEFAULT_SITE
) -> Feedback | Preference | Correction | None:
    """One of the user's records by its id; None if it does not exist or somebody else sent it."""
    table = _table(kind)
    with store.write() as conn:
        own = (table.c.recorded_by == user_id, of_site(id_column(table), site))
        row = conn.execute(select(table).where(id_column(table) == record_id, *own)).first()
        if row is None:
            return None
        audit.append(conn, AuditEvent(actor=user_id, action=f"{table.name}.read", subject=record_id, detail={"purpose": "own"}))
        return crud.from_row(store, conn, KINDS[kind], row)


def _table(kind: Kind) -> Table:
    return crud.TABLES[KINDS[kind]]


def _rows(
    conn: Connection, kind: Kind, user_id: str, site: str, before: datetime | None, limit: int
) -> Sequence[Row[Any]]:  # fmt: skip
    table = _table(kind)
    query = select(table).where(table.c.recorded_by == user_id, of_site(id_column(table), site))
    query = query.order_by(table.c.timestamp.desc()).limit(limit)
    return conn.execute(query if before is None else query.where(table.c.timestamp < before)).all()


def _related_rows(conn: Connection, ids: list[str]) -> _RelatedRows:
    superseded: set[str] = set()
    for table in map(_table, KINDS):
        superseded.update(conn.execute(select_superseded(table).where(table.c.supersedes.in_(ids))).scalars())
    withdrawn = set(conn.execute(select(withdrawals.c.record_id).where(withdrawals.c.record_id.in_(ids))).scalars())
    quarantined = conn.execute(select(quarantine.c.record_id, quarantine.c.state).where(quarantine.c.record_id.in_(ids))).all()
    flagged = conn.execute(select(incidents.c.record_id, incidents.c.state).where(incidents.c.record_id.in_(ids))).all()
    query = select(lineage.c.record_id, lineage.c.dataset, artifacts.c.path)
    query = query.outerjoin(artifacts, artifacts.c.sha256 == lineage.c.dataset).where(lineage.c.record_id.in_(ids))
    datasets: dict[str, list[str]] = {}
    for row in conn.execute(query.order_by(lineage.c.id)).all():
        name = PurePath(row.path).name if row.path else row.dataset.removeprefix("sha256:")[:12]
        datasets.setdefault(row.record_id, []).append(name)
    states = {row.record_id: row.state for row in quarantined}
    # A comparison may have two; it is open while one of them is.
    open_first = {row.record_id: row.state for row in sorted(flagged, key=lambda row: row.state == "open")}
    return _RelatedRows(withdrawn, superseded, states, datasets, open_first)


def _own_record(store: Store, conn: Connection, kind: Kind, row: Row[Any], related: _RelatedRows) -> OwnRecord:
    record = crud.from_row(store, conn, KINDS[kind], row)
    record_id = str(row._mapping[natural_id(_table(kind))])
    datasets = tuple(dict.fromkeys(related.datasets.get(record_id, [])))
    fate = _fate(record_id, record, datasets, related)
    return OwnRecord(kind, record_id, record.timestamp, record, fate, datasets, related.incidents.get(record_id))


def _fate(record_id: str, record: Feedback | Preference | Correction, datasets: tuple[str, ...], related: _RelatedRows) -> Fate:
    state = related.quarantine.get(record_id)
    if record_id in related.withdrawn:
        return "withdrawn"
    if record_id in related.superseded:
        return "superseded"
    if state in ("waiting", "refused"):
        return "quarantined" if state == "waiting" else "refused"
    if datasets:
        return "dataset"
    if "training" in record.consent:
        return "waiting"
    return "testing" if "evaluation" in record.consent else "no_consent"
