"""Feedback without its texts: numbers, choices, names and times, streamed. Nothing here needs a key.

    for mark in iterate_marks(store): ...                       # ratings, choices and corrections, each kind in order
    for unit, marks in marks_by_unit(store, "feedback"): ...    # all marks about one answer or one pair

A record that a later one supersedes is left out. The rater is `clinician_id`, else the user who sent the record. Records from
the queue belong to the unit of their item, other records to the unit of their trace. Records with neither cannot be matched
without reading texts, so they count everywhere except in agreement.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

from sqlalchemy import Connection, Row, Table, case, func, select

from medloop.contracts.polarity import REASONS_TO_REVIEW
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.records.lineage import superseded
from medloop.store.records.polarity_sql import polarity_column
from medloop.store.records.quarantine import withheld
from medloop.store.records.users import RATERS
from medloop.store.tables import (
    natural_id,
    queue_items,
    queue_turns,
    rlhf_corrections,
    rlhf_feedback,
    rlhf_preferences,
    traces,
    users,
)

Kind = Literal["feedback", "preference", "correction"]
TABLES: dict[Kind, Table] = {"feedback": rlhf_feedback, "preference": rlhf_preferences, "correction": rlhf_corrections}
PAGE_SIZE = 1000
# What a program or an engineer proposes is not a correction that the queue could stop asking for.
_NOT_RATERS = select(users.c.user_id).where(users.c.role.not_in(RATERS))
CORRECTED_BY_RATER = func.coalesce(rlhf_corrections.c.clinician_id, rlhf_corrections.c.recorded_by, "").not_in(_NOT_RATERS)
_COLUMNS = (
    "timestamp", "clinician_id", "recorded_by", "trace_id", "subject", "consent", "rating", "thumb", "axes", "critical",
    "preferred", "shown_first", "model_a", "model_b", "model_version",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FeedbackMark:
    """The numbers and choices of one record."""

    kind: Kind
    row: int
    record_id: str
    timestamp: datetime
    rater: str | None
    sender: str | None
    unit: str | None = None
    trace_id: str | None = None
    subject: str | None = None
    consent: tuple[Any, ...] = ()
    rating: int | None = None
    thumb: str | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    critical: bool = False
    preferred: str | None = None
    shown_first: str | None = None
    models: tuple[str | None, str | None] = (None, None)
    model_version: str | None = None
    adjudicates: bool = False  # a senior's verdict on a disputed item
    expected: str | None = None  # the better answer, where the item checks its raters

    @property
    def chose_first(self) -> bool | None:
        """Whether the answer that was shown first was chosen; None where neither was, or the order is unknown."""
        return None if self.shown_first is None or self.preferred not in ("a", "b") else self.preferred == self.shown_first

    @property
    def choice(self) -> int | None:
        """0 or 1. With two named models, 0 is the model that comes first by name, even if it was answer `b`.

        2 is equal and 3 both bad.
        """
        if self.preferred is None:
            return None
        if self.preferred not in ("a", "b"):
            return 2 if self.preferred == "tie" else 3
        first, second = self.models
        swapped = first is not None and second is not None and first > second and self.unit == self.trace_id
        return int((self.preferred == "b") != swapped)


@dataclass(frozen=True)
class TimeSpan:
    """A period; both ends may be open."""

    since: datetime | None = None
    until: datetime | None = None


ALL_TIME = TimeSpan()


def iterate_marks(store: Store, *, span: TimeSpan = ALL_TIME, after: dict[Kind, int] | None = None) -> Iterator[FeedbackMark]:
    """Every mark, kind by kind, in the order they came; `after` has the last known row number of each kind."""
    for kind, table in TABLES.items():
        last, gone = (after or {}).get(kind, 0), superseded(store, table)
        while True:
            query = _select(kind).where(table.c.id > last).order_by(table.c.id).limit(PAGE_SIZE)
            with store.read() as conn:
                rows = conn.execute(_from(query, table, span)).all()
            if not rows:
                break
            yield from (mark for row in rows if (mark := _mark(kind, row)).record_id not in gone)
            last = rows[-1].id


def marks_by_unit(store: Store, kind: Kind, *, span: TimeSpan = ALL_TIME) -> Iterator[tuple[str, list[FeedbackMark]]]:
    """The marks about each answer or pair that has more than one, or whose truth is known. The database sorts them."""
    table, gone = TABLES[kind], superseded(store, TABLES[kind])
    unit = func.coalesce(queue_turns.c.item_id, table.c.trace_id)
    query = _from(_select(kind).where(unit.is_not(None)).order_by(unit, table.c.id), table, span)
    with store.read() as conn:
        rows = conn.execution_options(yield_per=PAGE_SIZE).execute(query)
        marks = (mark for row in rows if (mark := _mark(kind, row)).record_id not in gone)
        for name, some in groupby(marks, key=lambda mark: mark.unit):
            together = list(some)
            if name is not None and (len(together) > 1 or together[0].expected is not None):
                yield name, together


def _select(kind: Kind) -> Any:
    table = TABLES[kind]
    names = [name for name in _COLUMNS if name in table.c]
    id_column = table.c[natural_id(table)]
    turn = (queue_turns.c.item_id, queue_turns.c.adjudicates, queue_items.c.expected)
    query = select(table.c.id, id_column.label("record_id"), *turn, *(table.c[name] for name in names))
    query = query.outerjoin(queue_turns, queue_turns.c.record_id == id_column)
    return query.outerjoin(queue_items, queue_items.c.item_id == queue_turns.c.item_id)


def _from(query: Any, table: Table, span: TimeSpan) -> Any:
    if span.since is not None:
        query = query.where(table.c.timestamp >= span.since)
    return query if span.until is None else query.where(table.c.timestamp < span.until)


def _mark(kind: Kind, row: Row[Any]) -> FeedbackMark:
    values = row._mapping
    names = ("timestamp", "trace_id", "subject", "rating", "thumb", "preferred", "shown_first", "model_version")
    return FeedbackMark(
        kind=kind, row=row.id, record_id=row.record_id, rater=values["clinician_id"] or values["recorded_by"],
        sender=values["recorded_by"], unit=values["item_id"] or values["trace_id"], consent=tuple(values["consent"]),
        axes=values.get("axes") or {}, critical=bool(values.get("critical")),
        models=(values.get("model_a"), values.get("model_b")), adjudicates=bool(values["adjudicates"]),
        expected=values["expected"], **{name: values[name] for name in names if name in values},
    )  # fmt: skip


def busiest_raters(store: Store, *, span: TimeSpan = ALL_TIME, most: int = 500) -> list[str]:
    """The raters with the most ratings and choices; only these have profiles."""
    counts: dict[str, int] = {}
    with store.read() as conn:
        for table in (rlhf_feedback, rlhf_preferences):
            rater = func.coalesce(table.c.clinician_id, table.c.recorded_by)
            query = _from(select(rater, func.count()).where(rater.is_not(None)), table, span)
            for name, n in conn.execute(query.group_by(rater).order_by(func.count().desc(), rater).limit(most)).all():
                counts[name] = counts.get(name, 0) + int(n)
    return sorted(counts, key=lambda name: (-counts[name], name))[:most]


def newest_row_numbers(conn: Connection) -> dict[Kind, int]:
    """The highest row number of each kind; takes three index lookups."""
    return {kind: int(conn.execute(select(func.max(table.c.id))).scalar() or 0) for kind, table in TABLES.items()}


def sampled_traces(store: Store, *, most: int, span: TimeSpan = ALL_TIME) -> list[str]:
    """Ids of up to `most` traces, spread evenly over the rows."""
    with store.read() as conn:
        n = conn.execute(_from(select(func.count()).select_from(traces), traces, span)).scalar_one()
        step = max(1, -(-int(n) // most))
        query = _from(select(traces.c.trace_id).where(traces.c.id % step == 0), traces, span)
        return list(conn.execute(query.order_by(traces.c.id).limit(most)).scalars())


def newest_traces(store: Store, most: int) -> list[str]:
    """Ids of the newest traces, without those that raters may not see."""
    query = select(traces.c.trace_id).where(~withheld(traces.c.trace_id)).order_by(traces.c.id.desc()).limit(most)
    with store.read() as conn:
        return list(conn.execute(query).scalars())


def traces_with_records(store: Store, trace_ids: list[str]) -> set[str]:
    """Which of these traces somebody rated, compared or corrected."""
    traces_: set[str] = set()
    with store.read() as conn:
        for some in chunks(trace_ids):
            for table in TABLES.values():
                traces_.update(conn.execute(select(table.c.trace_id).where(table.c.trace_id.in_(some)).distinct()).scalars())
    return traces_


def rated_traces(store: Store, most: int) -> list[str]:
    """The most recently rated traces, newest first."""
    query = select(rlhf_feedback.c.trace_id).where(rlhf_feedback.c.trace_id.is_not(None))
    with store.read() as conn:
        trace_ids = conn.execute(query.order_by(rlhf_feedback.c.id.desc()).limit(most)).scalars()
        return list(dict.fromkeys(name for name in trace_ids if name is not None))


@dataclass(frozen=True)
class TraceFeedback:
    """The feedback about one trace. `complaint`: 1 if somebody complained, 0 if nobody did, None if nobody judged it."""

    complaint: float | None = None
    raters: int = 0
    corrected: bool = False


NO_FEEDBACK = TraceFeedback()


def feedback_on_traces(store: Store, trace_ids: list[str]) -> dict[str, TraceFeedback]:
    """The feedback about those of these traces that have some. Negative or contradictory feedback is a complaint."""
    table, feedback = rlhf_feedback.c, dict[str, TraceFeedback]()
    polarity = polarity_column()
    judged = polarity.is_not(None)
    rater = func.coalesce(table.clinician_id, table.recorded_by)
    bad = func.max(case((polarity.in_(REASONS_TO_REVIEW), 1), else_=0))
    with store.read() as conn:
        for some in chunks(trace_ids):
            query = select(table.trace_id, bad, func.count(rater.distinct())).where(table.trace_id.in_(some), judged)
            for name, complaint, n in conn.execute(query.group_by(table.trace_id)).all():
                feedback[name] = TraceFeedback(float(complaint), int(n))
            done = select(rlhf_corrections.c.trace_id).where(rlhf_corrections.c.trace_id.in_(some), CORRECTED_BY_RATER)
            for name in conn.execute(done.distinct()).scalars():
                if name is not None:
                    feedback[name] = replace(feedback.get(name, NO_FEEDBACK), corrected=True)
    return feedback
