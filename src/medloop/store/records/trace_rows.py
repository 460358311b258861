"""Traces as lists show them, and what people said about one: ids, times, versions and numbers; no text is read here.

rows = list_traces(store, TraceFilter(version="clinic@3"), before=None, limit=51)
said_about(store, "tr_…")                # ratings, choices and corrections, oldest first, with the datasets that hold each
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any, Literal

from sqlalchemy import ColumnElement, exists, func, or_, select

from medloop.store.db import Store
from medloop.store.records.quarantine import withheld
from medloop.store.tables import (
    artifacts,
    codebook_entries,
    id_column,
    incidents,
    lineage,
    rlhf_corrections,
    rlhf_feedback,
    rlhf_preferences,
    tombstones,
    traces,
    withdrawals,
)

Judged = Literal["rated", "unrated", "incident"]
TABLES = {"feedback": rlhf_feedback, "preference": rlhf_preferences, "correction": rlhf_corrections}


@dataclass(frozen=True)
class TraceRow:
    row: int
    trace_id: str
    timestamp: datetime
    model_version: str
    agent_name: str
    session_id: str
    snapshot: str | None


@dataclass(frozen=True)
class TraceFilter:
    """`find` is the beginning of an id of a trace or a session; `judged` is about the ratings that name the trace."""

    version: str = ""
    find: str = ""
    judged: Judged | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        columns = traces.c
        found: list[ColumnElement[bool]] = [columns.trace_id.not_in(select(tombstones.c.record_id))]
        if self.version:
            found.append(columns.model_version == self.version)
        if self.find:
            found.append(
                or_(*(column.startswith(self.find, autoescape=True) for column in (columns.trace_id, columns.session_id)))
            )
        if self.since is not None:
            found.append(columns.timestamp >= self.since)
        if self.until is not None:
            found.append(columns.timestamp < self.until)
        rated = exists().where(rlhf_feedback.c.trace_id == columns.trace_id)
        if self.judged in ("rated", "unrated"):
            found.append(rated if self.judged == "rated" else ~rated)
        if self.judged == "incident":
            flagged = rlhf_feedback.join(incidents, incidents.c.record_id == rlhf_feedback.c.feedback_id)
            found.append(exists().select_from(flagged).where(rlhf_feedback.c.trace_id == columns.trace_id))
        return found


@dataclass(frozen=True)
class SaidAbout:
    """One record about a trace. `value` is the number of stars, the thumb or the choice; `datasets` are names, `rules` ids."""

    kind: str
    record_id: str
    timestamp: datetime
    by: str | None
    value: str
    critical: bool
    withdrawn: bool
    datasets: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    incident: str | None = None


def list_traces(store: Store, which: TraceFilter, *, before: int | None, limit: int) -> list[TraceRow]:
    """A page, newest first; `before` is the row of the last one of the page before."""
    names = ("id", "trace_id", "timestamp", "model_version", "agent_name", "session_id", "snapshot")
    query = select(*(traces.c[name] for name in names)).where(*which.conditions()).order_by(traces.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(traces.c.id < before)
    with store.read() as conn:
        return [TraceRow(*row) for row in conn.execute(query).all()]


def recent_versions(store: Store, last: int = 5000) -> list[str]:
    """The versions behind the newest traces, for a list of choices."""
    newest = select(traces.c.model_version).order_by(traces.c.id.desc()).limit(last).subquery()
    with store.read() as conn:
        return sorted(conn.execute(select(newest.c.model_version).distinct()).scalars())


def is_withheld(store: Store, trace_id: str) -> bool:
    """Whether the text waits for a privacy review or was refused there."""
    with store.read() as conn:
        query = select(func.count()).select_from(traces).where(traces.c.trace_id == trace_id, withheld(traces.c.trace_id))
        return bool(conn.execute(query).scalar_one())


def said_about(store: Store, trace_id: str) -> list[SaidAbout]:
    records: list[SaidAbout] = []
    with store.read() as conn:
        for kind, table in TABLES.items():
            query = select(table).where(table.c.trace_id == trace_id, id_column(table).not_in(select(tombstones.c.record_id)))
            rows = conn.execute(query.order_by(table.c.id)).all()
            ids = [str(row._mapping[id_column(table).name]) for row in rows]
            held, taught, flagged = _datasets(conn, ids), _rules(conn, ids), _incidents(conn, ids)
            back = set(conn.execute(select(withdrawals.c.record_id).where(withdrawals.c.record_id.in_(ids))).scalars())
            for record_id, row in zip(ids, rows, strict=True):
                values = row._mapping
                records.append(
                    SaidAbout(
                        kind,
                        record_id,
                        row.timestamp,
                        values["clinician_id"] or values["recorded_by"],
                        _value(kind, values),
                        bool(values.get("critical")),
                        record_id in back,
                        held.get(record_id, ()),
                        taught.get(record_id, ()),
                        flagged.get(record_id),
                    )
                )
    return sorted(records, key=lambda record: record.timestamp)


def _value(kind: str, values: Any) -> str:
    if kind == "feedback":
        return f"{values['rating']}" if values["rating"] is not None else str(values["thumb"] or "")
    return str(values["preferred"]) if kind == "preference" else ""


def _datasets(conn: Any, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    query = select(lineage.c.record_id, lineage.c.dataset, artifacts.c.path)
    query = query.outerjoin(artifacts, artifacts.c.sha256 == lineage.c.dataset).where(lineage.c.record_id.in_(ids))
    named: dict[str, dict[str, None]] = {}
    for record_id, dataset, path in conn.execute(query.order_by(lineage.c.id)).all():
        name = PurePath(path).name if path else dataset.removeprefix("sha256:")[:12]
        named.setdefault(record_id, {})[name] = None
    return {record_id: tuple(names) for record_id, names in named.items()}


def _rules(conn: Any, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The entries of the codebook that name one of these records as their evidence; the codebook is small."""
    wanted, rules = set(ids), dict[str, dict[str, None]]()
    if not wanted:
        return {}
    for entry_id, evidence in conn.execute(select(codebook_entries.c.entry_id, codebook_entries.c.evidence)).all():
        for record_id in wanted.intersection(evidence):
            rules.setdefault(record_id, {})[entry_id] = None
    return {record_id: tuple(names) for record_id, names in rules.items()}


def _incidents(conn: Any, ids: Sequence[str]) -> dict[str, str]:
    query = select(incidents.c.record_id, incidents.c.incident_id).where(incidents.c.record_id.in_(ids))
    return {row.record_id: row.incident_id for row in conn.execute(query.order_by(incidents.c.id)).all()}
