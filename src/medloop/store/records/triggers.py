"""Retrain triggers: what was new, why it was enough, and which jobs trained on it. Each trigger is stored once.

A trigger's evidence has the newest row number of each table. The next trigger counts from there, so no record counts twice.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, select, update

from medloop.contracts import AuditEvent
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.files.lock import locked_file
from medloop.store.records.marks import TABLES, Kind, newest_row_numbers
from medloop.store.tables import id_column, quarantine, retrain_triggers, rlhf_feedback, rlhf_preferences, withdrawals


@dataclass(frozen=True)
class Trigger:
    trigger_id: str
    reason: str
    evidence: dict[str, Any]
    records: int
    jobs: tuple[str, ...]
    timestamp: datetime


@dataclass(frozen=True)
class NewRecords:
    """What came in since the last trigger. `flags` are the critical flags of each rater, without those that were taken back."""

    since: Trigger | None
    seen: dict[Kind, int]
    newest: dict[Kind, int]
    flags: dict[str, int]
    waiting_since: datetime | None = None  # the last trigger, else the first record

    @property
    def critical(self) -> int:
        return sum(self.flags.values())

    @property
    def rows(self) -> int:
        return sum(self.newest.values()) - sum(self.seen.values())


def new_records(store: Store) -> NewRecords:
    with store.read() as conn:
        return _news(conn)


def record_rows(store: Store) -> int:
    """The highest row numbers of all records together: how many there are, about; takes three index lookups."""
    with store.read() as conn:
        return sum(newest_row_numbers(conn).values())


def _news(conn: Connection) -> NewRecords:
    last = conn.execute(select(retrain_triggers).order_by(retrain_triggers.c.id.desc()).limit(1)).first()
    known = last.evidence["rows"] if last is not None else {}
    seen: dict[Kind, int] = {kind: int(known.get(kind, 0)) for kind in TABLES}
    newest = newest_row_numbers(conn)
    # An erasure can remove the newest rows. Row numbers are never reused, so no new row is missed.
    newest = {kind: max(n, seen[kind]) for kind, n in newest.items()}
    since = _first_received(conn) if last is None else last.timestamp
    return NewRecords(None if last is None else _trigger(last), seen, newest, _flags(conn, seen), since)


def _flags(conn: Connection, seen: dict[Kind, int]) -> dict[str, int]:
    """By rater, the new critical flags. A record that names nobody is by the user who sent it."""
    flags: Counter[str] = Counter()
    harmful = func.json_array_length(rlhf_preferences.c.critical) > 0
    flagged: dict[Kind, Any] = {"feedback": rlhf_feedback.c.critical, "preference": harmful}
    for kind, is_flag in flagged.items():
        table = TABLES[kind]
        new, record_id = table.c.id > seen[kind], id_column(table)
        replaced = select(table.c.supersedes).where(new, table.c.supersedes.is_not(None))
        counted = and_(new, is_flag, record_id.not_in(select(withdrawals.c.record_id)), record_id.not_in(replaced))
        rater = func.coalesce(table.c.clinician_id, table.c.recorded_by, record_id)
        flags.update({name: int(n) for name, n in conn.execute(select(rater, func.count()).where(counted).group_by(rater))})
    return dict(flags)


def _first_received(conn: Connection) -> datetime | None:
    times = ((table, func.coalesce(table.c.received, table.c.timestamp)) for table in TABLES.values())
    firsts = (conn.execute(select(time).order_by(table.c.id).limit(1)).scalar() for table, time in times)
    return min((first for first in firsts if first is not None), default=None)


def held_back_ids(store: Store) -> set[str]:
    """The ids of records that wait in quarantine or were refused."""
    with store.read() as conn:
        return set(conn.execute(select(quarantine.c.record_id).where(quarantine.c.state != "released")).scalars())


def add_trigger(
    store: Store, new: NewRecords, reason: str, evidence: dict[str, Any], records: int, *, actor: str
) -> Trigger | None:
    """Store the trigger, unless another one was stored after `new` was read."""
    with store.write() as conn:
        before = _news(conn).since
        if (before and before.trigger_id) != (new.since and new.since.trigger_id):
            return None
        number = int(conn.execute(select(func.count()).select_from(retrain_triggers)).scalar_one()) + 1
        name = f"retrain-{number}"
        whole = {**evidence, "rows": dict(new.newest)}
        conn.execute(insert(retrain_triggers).values(trigger_id=name, reason=reason, evidence=whole, records=records))
        audit.append(conn, AuditEvent(actor=actor, action="retrain_triggers.add", subject=name, detail={"reason": reason}))
        row = conn.execute(select(retrain_triggers).where(retrain_triggers.c.trigger_id == name)).one()
        return _trigger(row)


def list_triggers(store: Store, *, without_job: bool = False) -> list[Trigger]:
    query = select(retrain_triggers).order_by(retrain_triggers.c.id)
    with store.read() as conn:
        rows = conn.execute(query.where(retrain_triggers.c.jobs.is_(None)) if without_job else query).all()
    return [_trigger(row) for row in rows]


def set_jobs(store: Store, trigger_id: str, job_ids: Sequence[str], *, actor: str) -> None:
    with store.write() as conn:
        mine = retrain_triggers.c.trigger_id == trigger_id
        conn.execute(update(retrain_triggers).where(mine, retrain_triggers.c.jobs.is_(None)).values(jobs=list(job_ids)))
        detail: dict[str, str | int | float | bool] = {"jobs": ", ".join(job_ids)}
        audit.append(conn, AuditEvent(actor=actor, action="retrain_triggers.job", subject=trigger_id, detail=detail))


def newest_trigger(store: Store) -> Trigger | None:
    return new_records(store).since


@contextmanager
def filing_lock(store: Store) -> Iterator[None]:
    """Let one process at a time make jobs from triggers."""
    path = store.settings.workspace.jobs / ".retrain.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(path, wait_s=store.wait_s, mode=0o600):
        yield


def _trigger(row: Row[Any]) -> Trigger:
    return Trigger(row.trigger_id, row.reason, row.evidence, row.records, tuple(row.jobs or ()), row.timestamp)
