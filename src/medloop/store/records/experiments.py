"""Experiments: their plans and events, which are added and never changed, and the observations of their users.

    add_plan(store, plan, salt)
    add_event(store, ExperimentEvent(...))                 # with its line in the audit log
    running(store, site="main")                            # the one whose arms are drawn now, or None
    page = new_records(store, experiment_id, most=500)     # traces and feedback that it has not read yet
    add_observations(store, page, rows)                    # one transaction: observations and how far it has read
    observations(store, experiment_id)                     # IntegrityError if one was changed past medloop

`erase_observations` is called by an erasure, inside its transaction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from medloop.contracts import AuditEvent, utc_now
from medloop.contracts.assistant import Champion
from medloop.contracts.experiment import EXPOSED, ExperimentEvent, ExperimentPlan, ExperimentState, Observation
from medloop.contracts.feedback import ChoiceOutcome
from medloop.errors import InputError
from medloop.store import audit, row_macs
from medloop.store.db import Store
from medloop.store.genuine_rows import changed_rows, genuine_rows
from medloop.store.records.chunks import chunks
from medloop.store.records.lineage import superseded
from medloop.store.tables import (
    experiment_cursors,
    experiment_events,
    experiment_observations,
    experiments,
    queue_turns,
    rlhf_feedback,
    rlhf_preferences,
    traces,
)

LIST = "'medloop experiment list' shows all experiments"


class NoSuchExperimentError(InputError):
    """There is no experiment with this id."""


class ExperimentStateError(InputError):
    """The experiment is not in the state that this step needs."""


@dataclass(frozen=True)
class StoredExperiment:
    """A plan with its salt and everything that happened since."""

    plan: ExperimentPlan
    salt: str
    events: tuple[ExperimentEvent, ...] = ()

    @property
    def state(self) -> ExperimentState:
        states: dict[str, ExperimentState] = {"started": "running", "stopped": "stopped", "decided": "decided"}
        known = [states[event.event] for event in self.events if event.event in states]
        return known[-1] if known else "planned"

    @property
    def enrolled(self) -> float:
        """The share of all users who take part; it only grows."""
        return self.enrolled_at(utc_now())

    def enrolled_at(self, time: datetime) -> float:
        shares = [
            float(event.detail["enrolled"])
            for event in self.events
            if event.event in ("started", "ramped") and event.timestamp <= time
        ]
        return shares[-1] if shares else 0.0

    @property
    def started(self) -> datetime | None:
        return next((event.timestamp for event in self.events if event.event == "started"), None)

    @property
    def ended(self) -> datetime | None:
        return next((event.timestamp for event in self.events if event.event in ("stopped", "decided")), None)


@dataclass(frozen=True)
class RatingRow:
    """The numbers of one rating and the answer it is about; no text."""

    row: int
    record_id: str
    trace_id: str | None
    session_id: str
    rating: int | None
    thumb: str | None
    feedback_type: str | None
    critical: bool
    timestamp: datetime


@dataclass(frozen=True)
class ExposedTrace:
    """An answer that takes part: whose it is, of which arm, in which segment."""

    unit: str
    arm: Champion
    language: str
    stratum: str


@dataclass(frozen=True)
class UnreadRecords:
    """What an experiment has not read yet: ids of traces, ratings, and how far it will have read."""

    experiment_id: str
    trace_ids: tuple[str, ...]
    feedback: tuple[RatingRow, ...]
    trace_row: int
    feedback_row: int

    def __bool__(self) -> bool:
        return bool(self.trace_ids or self.feedback)


@dataclass(frozen=True, slots=True)
class ObservedRow:
    """An observation as the analysis reads it, in the order of arrival; `unit` is None after an erasure."""

    row: int
    unit: str | None
    arm: str
    metric: str
    value: float | None
    language: str
    stratum: str
    timestamp: datetime


def add_plan(store: Store, plan: ExperimentPlan, salt: str) -> StoredExperiment:
    with store.write() as conn:
        values = {"experiment_id": plan.experiment_id, "site": plan.site, "salt": salt, "timestamp": plan.timestamp}
        conn.execute(insert(experiments).values(**values, plan=plan.model_dump(mode="json", exclude_none=True)))
        detail: dict[str, str | int | float | bool] = {
            "site": plan.site, "champion": plan.champion, "challenger": plan.challenger, "primary": plan.primary,
            "planned_users": plan.planned_users, "alpha": plan.alpha,
        }  # fmt: skip
        line = AuditEvent(actor=plan.planned_by, action="experiments.plan", subject=plan.experiment_id, detail=detail)
        audit.append(conn, line)
    return StoredExperiment(plan, salt)


def add_event(store: Store, event: ExperimentEvent, *, only_in: Sequence[ExperimentState] = ()) -> StoredExperiment:
    """Add what happened; ExperimentStateError if the experiment is meanwhile in another state than one of `only_in`."""
    with store.write() as conn:
        experiment = get(store, event.experiment_id)
        if only_in and experiment.state not in only_in:
            raise ExperimentStateError(f"The experiment is {experiment.state}, not {' or '.join(only_in)}", LIST)
        if event.event == "started" and (other := _running(store, conn, experiment.plan.site)) is not None:
            raise ExperimentStateError(
                f"{other.plan.experiment_id} is running at the site {experiment.plan.site} already",
                f"Stop it first: medloop experiment stop {other.plan.experiment_id}",
            )
        conn.execute(insert(experiment_events).values(**event.model_dump()))
        detail: dict[str, str | int | float | bool] = {"experiment": event.experiment_id}
        detail |= {name: value for name, value in event.detail.items() if isinstance(value, str | int | float | bool)}
        audit.append(conn, AuditEvent(actor=event.by, action=f"experiments.{event.event}", subject=event.event_id, detail=detail))
    return get(store, event.experiment_id)


def get(store: Store, experiment_id: str) -> StoredExperiment:
    rows = genuine_rows(store, experiments, select(experiments).where(experiments.c.experiment_id == experiment_id))
    if not rows:
        raise NoSuchExperimentError(f"There is no experiment '{experiment_id[:64]}'", LIST)
    mine = select(experiment_events).where(experiment_events.c.experiment_id == experiment_id).order_by(experiment_events.c.id)
    return _stored(rows[0], genuine_rows(store, experiment_events, mine))


def every(store: Store, *, site: str | None = None) -> list[StoredExperiment]:
    """All experiments, newest first."""
    query = select(experiments).order_by(experiments.c.id.desc())
    rows = genuine_rows(store, experiments, query if site is None else query.where(experiments.c.site == site))
    events = genuine_rows(store, experiment_events, select(experiment_events).order_by(experiment_events.c.id))
    return [_stored(row, [event for event in events if event.experiment_id == row.experiment_id]) for row in rows]


def running(store: Store, site: str) -> StoredExperiment | None:
    """The experiment whose arms are drawn at a site now. Rows that medloop did not write are an IntegrityError.

    This is asked all the time, so it does not compare with the audit log; `get` does.
    """
    with store.read() as conn:
        return _running(store, conn, site)


def running_ids(store: Store) -> list[str]:
    """The ids of the experiments that run, of all sites."""
    with store.read() as conn:
        sites = conn.execute(select(experiments.c.site).distinct()).scalars().all()
        found = [_running(store, conn, site) for site in sorted(sites)]
    return [experiment.plan.experiment_id for experiment in found if experiment is not None]


def _running(store: Store, conn: Connection, site: str) -> StoredExperiment | None:
    for row in _fitting(store, conn, select(experiments).where(experiments.c.site == site).order_by(experiments.c.id.desc())):
        mine = experiment_events.c.experiment_id == row.experiment_id
        events = _fitting(store, conn, select(experiment_events).where(mine).order_by(experiment_events.c.id))
        if (experiment := _stored(row, events)).state == "running":
            return experiment
    return None


def _fitting(store: Store, conn: Connection, query: Select[Any]) -> Sequence[Row[Any]]:
    table, rows = query.get_final_froms()[0], conn.execute(query).all()
    if rows:
        key = row_macs.row_key(store, conn)
        if not all(row_macs.fits(key, table, row) for row in rows):  # type: ignore[arg-type]
            raise changed_rows(table)  # type: ignore[arg-type]
    return rows


def _stored(row: Row[Any], events: Iterable[Row[Any]]) -> StoredExperiment:
    fields = ExperimentEvent.model_fields
    known = tuple(ExperimentEvent(**{name: event._mapping[name] for name in fields}) for event in events)
    return StoredExperiment(ExperimentPlan.model_validate(row.plan), row.salt, known)


# What it reads, and what it has seen


def new_records(store: Store, experiment_id: str, *, most: int) -> UnreadRecords:
    """The next traces and ratings, oldest first; a rating has the time at which the server got it, which nobody can date back."""
    feedback = rlhf_feedback.c
    with store.read() as conn:
        trace_row, feedback_row = _cursor(conn, experiment_id)
        new_traces = conn.execute(
            select(traces.c.id, traces.c.trace_id).where(traces.c.id > trace_row).order_by(traces.c.id).limit(most)
        ).all()
        columns = (
            feedback.id, feedback.feedback_id, feedback.trace_id, feedback.session_id, feedback.rating, feedback.thumb,
            feedback.feedback_type, feedback.critical, func.coalesce(feedback.received, feedback.timestamp),
        )  # fmt: skip
        query = select(*columns).where(feedback.id > feedback_row).order_by(feedback.id).limit(most)
        ratings = conn.execute(query).all() if len(new_traces) < most else []  # their answers come first
    return UnreadRecords(
        experiment_id, tuple(row.trace_id for row in new_traces), tuple(RatingRow(*row) for row in ratings),
        new_traces[-1].id if new_traces else trace_row, ratings[-1].id if ratings else feedback_row,
    )  # fmt: skip


def has_new_records(store: Store, experiment_id: str) -> bool:
    """Whether there are traces or ratings that the experiment has not read."""
    with store.read() as conn:
        trace_row, feedback_row = _cursor(conn, experiment_id)
        newest = [conn.execute(select(func.max(table.c.id))).scalar() or 0 for table in (traces, rlhf_feedback)]
    return newest[0] > trace_row or newest[1] > feedback_row


def traces_of_sessions(store: Store, session_ids: Iterable[str]) -> dict[str, str]:
    """The newest trace of each session, by session: for ratings that name no trace."""
    known: dict[str, str] = {}
    with store.read() as conn:
        for chunk in chunks(sorted(set(session_ids))):
            query = select(traces.c.session_id, traces.c.trace_id).where(traces.c.session_id.in_(chunk)).order_by(traces.c.id)
            known |= {row.session_id: row.trace_id for row in conn.execute(query)}
    return known


def exposed_traces(store: Store, experiment_id: str, trace_ids: Iterable[str]) -> dict[str, ExposedTrace]:
    """Those of these traces that take part in an experiment, by id."""
    table, exposed = experiment_observations, dict[str, ExposedTrace]()
    mine = (table.c.experiment_id == experiment_id, table.c.metric == EXPOSED)
    with store.read() as conn:
        for chunk in chunks(sorted(set(trace_ids))):
            for row in conn.execute(select(table).where(*mine, table.c.record_id.in_(chunk))):
                exposed[row.record_id] = ExposedTrace(row.unit, row.arm, row.language, row.stratum)
    return exposed


def choices_between(
    store: Store, champion: str, challenger: str, since: datetime
) -> list[tuple[str, str, tuple[str, str], ChoiceOutcome, str | None]]:  # fmt: skip
    """Choices between answers of these two versions: item (or record), reviewer, versions of a and b, choice, shown first."""
    table, turns, both = rlhf_preferences, queue_turns, (champion, challenger)
    gone = superseded(store, table)
    query = (
        select(table, turns.c.item_id)
        .outerjoin(turns, turns.c.record_id == table.c.preference_id)
        .where(table.c.model_a.in_(both), table.c.model_b.in_(both), table.c.timestamp >= since)
        .order_by(table.c.id)
    )
    with store.read() as conn:
        rows = conn.execute(query).all()
    return [
        (
            row.item_id or row.trace_id or row.preference_id, row.clinician_id or row.recorded_by or "",
            (row.model_a, row.model_b), row.preferred, row.shown_first,
        )
        for row in rows
        if row.preference_id not in gone
    ]  # fmt: skip


def skip_to_now(store: Store, experiment_id: str) -> None:
    """Read nothing that came before the experiment: its cursor starts behind the newest records."""
    with store.write() as conn:
        newest = [conn.execute(select(func.max(table.c.id))).scalar() or 0 for table in (traces, rlhf_feedback)]
        _set_cursor(conn, experiment_id, newest[0], newest[1])


def add_observations(store: Store, page: UnreadRecords, new: Sequence[Observation]) -> None:
    """The observations of a page and how far it goes, in one transaction; a record that was read before changes nothing."""
    with store.write() as conn:
        cursor = _cursor(conn, page.experiment_id)
        if cursor[0] >= page.trace_row and cursor[1] >= page.feedback_row:
            return  # another process was faster
        known: set[tuple[str, str]] = set()
        table = experiment_observations
        for chunk in chunks({row.record_id for row in new}):
            query = select(table.c.record_id, table.c.metric).where(
                table.c.experiment_id == page.experiment_id, table.c.record_id.in_(chunk)
            )
            known |= {(row.record_id, row.metric) for row in conn.execute(query)}
        rows = [row.model_dump() for row in new if (row.record_id, row.metric) not in known]
        if rows:
            conn.execute(insert(table), rows)
        _set_cursor(conn, page.experiment_id, page.trace_row, page.feedback_row)


def observations(store: Store, experiment_id: str, *, checked: bool = True) -> list[ObservedRow]:
    """All observations in the order of arrival, the erased ones among them; without ratings that were replaced or taken back.

    `checked` raises IntegrityError if one was changed past medloop; for a page, the server's own watch over the rows does.
    """
    table, gone = experiment_observations, superseded(store, rlhf_feedback)
    mine = table.c.experiment_id == experiment_id
    if checked:
        genuine_rows(store, table, select(table).where(mine))
    names = ("id", "unit", "arm", "metric", "value", "language", "stratum", "timestamp", "record_id")
    with store.read() as conn:
        rows = conn.execute(select(*(table.c[name] for name in names)).where(mine).order_by(table.c.id)).all()
    return [ObservedRow(*row[:-1]) for row in rows if row[-1] not in gone]


def observed_so_far(store: Store, experiment_id: str) -> tuple[int, int, int]:
    """The newest observation, how many are erased, and the events: what a report depends on, cheap to ask."""
    table, events = experiment_observations, experiment_events
    mine = table.c.experiment_id == experiment_id
    with store.read() as conn:
        newest = conn.execute(select(func.max(table.c.id)).where(mine)).scalar() or 0
        erased = conn.execute(select(func.count()).where(mine, table.c.unit.is_(None)).select_from(table)).scalar_one()
        steps = conn.execute(select(func.max(events.c.id)).where(events.c.experiment_id == experiment_id)).scalar() or 0
    return newest, erased, steps


def erase_observations(conn: Connection, record_ids: Iterable[str]) -> int:
    """Empty the observations of erased records; how many there were."""
    table, emptied = experiment_observations, 0
    values = {"unit": None, "value": None, "record_id": None, "erased": utc_now(), "language": "erased", "stratum": "erased"}
    for chunk in chunks(record_ids):
        emptied += conn.execute(update(table).where(table.c.record_id.in_(chunk)).values(**values)).rowcount
    return emptied


def _cursor(conn: Connection, experiment_id: str) -> tuple[int, int]:
    table = experiment_cursors
    row = conn.execute(select(table).where(table.c.experiment_id == experiment_id)).first()
    return (0, 0) if row is None else (row.trace_row, row.feedback_row)


def _set_cursor(conn: Connection, experiment_id: str, trace_row: int, feedback_row: int) -> None:
    table, values = experiment_cursors, {"trace_row": trace_row, "feedback_row": feedback_row}
    if not conn.execute(update(table).where(table.c.experiment_id == experiment_id).values(**values)).rowcount:
        conn.execute(insert(table).values(experiment_id=experiment_id, **values))
