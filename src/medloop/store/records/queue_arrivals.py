"""New ratings, as the review queue looks at them: which came since it looked last, and what all raters said about their answers.

page = new_ratings(store, most=100)              # also those that quarantine has released since
verdicts = verdicts_on(store, page.trace_ids)    # numbers only, no text
with store.write() as conn:
    looked_at(conn, page)                        # in the transaction that adds the items
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, insert, or_, select, update

from medloop.contracts.polarity import REASONS_TO_REVIEW
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.records.polarity_sql import polarity_column
from medloop.store.records.quarantine import withheld
from medloop.store.records.review_verdicts import TurnVerdict
from medloop.store.tables import quarantine, queue_cursor, queue_items, queue_turns, rlhf_corrections, rlhf_feedback, traces

NEWEST_RATINGS = 50  # of one answer that are compared
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_FEEDBACK = rlhf_feedback.c


@dataclass(frozen=True)
class RatingPage:
    """`rows` of new ratings. `complaints` are records without a trace that are negative or contradict themselves."""

    rows: int
    last_row: int
    released: datetime
    trace_ids: tuple[str, ...]
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class KnownItem:
    item_id: str
    kind: str
    state: str
    reasons: dict[str, float]


def new_ratings(store: Store, *, most: int) -> RatingPage:
    """The next ratings that the queue has not looked at, oldest first."""
    with store.read() as conn:
        row, released = _cursor(conn)
        new = conn.execute(_ratings().where(_FEEDBACK.id > row).order_by(_FEEDBACK.id).limit(most)).all()
        decided = conn.execute(
            select(quarantine.c.record_id, quarantine.c.decided)
            .where(quarantine.c.state == "released", quarantine.c.decided > released)
            .order_by(quarantine.c.decided)
            .limit(most)
        ).all()
        ids = [held.record_id for held in decided]
        again = conn.execute(_ratings().where(or_(_FEEDBACK.feedback_id.in_(ids), _FEEDBACK.trace_id.in_(ids)))) if ids else ()
        rows = [*new, *again]
    superseded = {rating.supersedes for rating in rows}
    return RatingPage(
        rows=len(new) + len(decided), last_row=new[-1].id if new else row, released=decided[-1].decided if decided else released,
        trace_ids=tuple(dict.fromkeys(rating.trace_id for rating in rows if rating.trace_id is not None)),
        complaints=tuple(
            rating.feedback_id for rating in rows
            if rating.trace_id is None and rating.bad and rating.feedback_id not in superseded
        ),
    )  # fmt: skip


def _ratings() -> Select[Any]:
    bad = polarity_column().in_(REASONS_TO_REVIEW).label("bad")
    return select(_FEEDBACK.id, _FEEDBACK.feedback_id, _FEEDBACK.trace_id, _FEEDBACK.supersedes, bad)


def _cursor(conn: Connection) -> tuple[int, datetime]:
    cursor = conn.execute(select(queue_cursor)).first()
    return (0, NEVER) if cursor is None else (int(cursor.feedback_row), cursor.released)


def looked_at(conn: Connection, page: RatingPage) -> None:
    """The queue has looked at these ratings. Another process may be further by now; nobody goes back."""
    row, released = _cursor(conn)
    values = {"feedback_row": max(row, page.last_row), "released": max(released, page.released)}
    if conn.execute(update(queue_cursor).values(**values)).rowcount == 0:
        conn.execute(insert(queue_cursor).values(**values))


def verdicts_on(store: Store, trace_ids: Iterable[str]) -> dict[str, list[TurnVerdict]]:
    """What each rater said last about these answers; superseded ratings and traces that nobody may be shown are left out."""
    columns = (_FEEDBACK.rating, _FEEDBACK.thumb, _FEEDBACK.feedback_type, _FEEDBACK.critical, _FEEDBACK.supersedes)
    rater = func.coalesce(_FEEDBACK.clinician_id, _FEEDBACK.recorded_by, _FEEDBACK.feedback_id).label("rater")
    query = select(rater, _FEEDBACK.feedback_id, *columns).order_by(_FEEDBACK.id.desc()).limit(NEWEST_RATINGS)
    with store.read() as conn:
        return {name: _verdicts(conn.execute(query.where(_FEEDBACK.trace_id == name)).all()) for name in _shown(conn, trace_ids)}


def _verdicts(newest_first: Sequence[Any]) -> list[TurnVerdict]:
    superseded, verdicts = {row.supersedes for row in newest_first}, dict[str, TurnVerdict]()
    for row in newest_first:
        if row.feedback_id not in superseded and row.rater not in verdicts:
            verdicts[row.rater] = TurnVerdict(
                row.rater, row.feedback_id, rating=row.rating, thumb=row.thumb, feedback_type=row.feedback_type,
                critical=row.critical,
            )  # fmt: skip
    return list(verdicts.values())


def _shown(conn: Connection, trace_ids: Iterable[str]) -> list[str]:
    """Those of these traces that exist and that nobody holds back."""
    return [
        trace_id
        for chunk in chunks(list(trace_ids))
        for trace_id in conn.execute(
            select(traces.c.trace_id).where(traces.c.trace_id.in_(chunk), ~withheld(traces.c.trace_id)).order_by(traces.c.id)
        ).scalars()
    ]


def corrected_traces(store: Store, trace_ids: Iterable[str]) -> set[str]:
    column = rlhf_corrections.c.trace_id
    with store.read() as conn:
        return {
            name for some in chunks(list(trace_ids)) for name in conn.execute(select(column).where(column.in_(some))).scalars()
        }


def free_complaints(store: Store, feedback_ids: Iterable[str]) -> list[str]:
    """Those of these records that nobody has corrected and that quarantine does not hold back."""
    held = exists().where(quarantine.c.record_id == _FEEDBACK.feedback_id, quarantine.c.state != "released")
    corrected = exists().where(rlhf_corrections.c.feedback_id == _FEEDBACK.feedback_id)
    query = select(_FEEDBACK.feedback_id).where(~held, ~corrected).order_by(_FEEDBACK.id)
    with store.read() as conn:
        ids = chunks(list(feedback_ids))
        return [name for some in ids for name in conn.execute(query.where(_FEEDBACK.feedback_id.in_(some))).scalars()]


def items_on(store: Store, trace_ids: Iterable[str]) -> dict[tuple[str, str], KnownItem]:
    """By trace and kind, the items that are about these traces already, finished ones too."""
    items = queue_items.c
    columns = (items.trace_id, items.item_id, items.kind, items.state, items.reasons)
    with store.read() as conn:
        return {
            (row.trace_id, row.kind): KnownItem(row.item_id, row.kind, row.state, row.reasons)
            for some in chunks(list(trace_ids))
            for row in conn.execute(select(*columns).where(items.trace_id.in_(some), items.kind != "compare")).all()
        }


def raise_item(conn: Connection, item_id: str, priority: float, reasons: dict[str, float]) -> None:
    """An open item has one more reason; nobody's turn changes."""
    mine = and_(queue_items.c.item_id == item_id, queue_items.c.state == "open")
    conn.execute(update(queue_items).where(mine).values(priority=priority, reasons=reasons))


def close_corrected(conn: Connection, trace_ids: Iterable[str]) -> int:
    """Nobody is asked for a correction that somebody else has sent meanwhile; whoever holds the item may finish it."""
    items = queue_items.c
    held = exists().where(queue_turns.c.item_id == items.item_id, queue_turns.c.state == "held")
    corrected = exists().where(rlhf_corrections.c.trace_id == items.trace_id)
    closed = 0
    for some in chunks(list(trace_ids)):
        mine = and_(items.trace_id.in_(some), items.kind == "correct", items.state == "open", corrected, ~held)
        closed += conn.execute(update(queue_items).where(mine).values(state="done")).rowcount
    return closed
