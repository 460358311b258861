"""New ratings, as the review queue looks at them: which came since it looked last, and what all raters said about their answers.

page = new_ratings(store, most=100)              # also those that quarantine has released since
verdicts = verdicts_on(store, page.trace_ids)    # numbers only, no text
with store.write() as conn:
    looked_at(conn, page)                        # in the transaction that adds the items
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, insert, or_, select, update

from medloop.contracts.polarity import REASONS_TO_REVIEW
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.records.marks import CORRECTED_BY_RATER
from medloop.store.records.polarity_sql import polarity_column
from medloop.store.records.quarantine import withheld
from medloop.store.records.review_verdicts import TurnVerdict
from medloop.store.tables import (
    quarantine,
    queue_cursor,
    queue_items,
    queue_turns,
    rlhf_corrections,
    rlhf_feedback,
    rlhf_preferences,
    traces,
    withdrawals,
)

NEWEST_RATINGS = 50  # of one answer that are compared
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_FEEDBACK, _CHOICE, _FIXED = rlhf_feedback.c, rlhf_preferences.c, rlhf_corrections.c
_WITHDRAWN = select(withdrawals.c.record_id)
_RELEASED = select(quarantine.c.record_id, quarantine.c.decided).where(quarantine.c.state == "released")


@dataclass(frozen=True)
class Cursor:
    """How far the queue has looked: the last row of each table, and the last release from quarantine."""

    feedback_row: int = 0
    preference_row: int = 0
    correction_row: int = 0
    released: datetime = NEVER


@dataclass(frozen=True)
class RatingPage:
    """New records, `rows` of them. `complaints` are ratings without a trace that are negative or contradict themselves, `choices`
    say that an answer could do harm or that both are bad, `corrected` are traces that somebody corrected."""

    rows: int
    cursor: Cursor
    trace_ids: tuple[str, ...]
    complaints: tuple[str, ...]
    choices: tuple[str, ...]
    corrected: tuple[str, ...]


@dataclass(frozen=True)
class KnownItem:
    item_id: str
    kind: str
    state: str
    reasons: dict[str, float]


def new_ratings(store: Store, *, most: int) -> RatingPage:
    """The next records that the queue has not looked at, oldest first; with those that quarantine has released since."""
    with store.read() as conn:
        cursor = _cursor(conn)
        ratings = _next(conn, _ratings(), _FEEDBACK.id, cursor.feedback_row, most)
        choices = _next(conn, _choices(), _CHOICE.id, cursor.preference_row, most)
        corrections = _next(conn, _corrections(), _FIXED.id, cursor.correction_row, most)
        released = _next(conn, _RELEASED, quarantine.c.decided, cursor.released, most)
        ids = [held.record_id for held in released]
        named = or_(_FEEDBACK.feedback_id.in_(ids), _FEEDBACK.trace_id.in_(ids))
        looked = [*ratings, *(conn.execute(_ratings().where(named)).all() if ids else ())]
        chosen = [*choices, *(conn.execute(_choices().where(_CHOICE.preference_id.in_(ids))).all() if ids else ())]
    superseded = {row.supersedes for row in (*looked, *chosen)}
    return RatingPage(
        rows=max(map(len, (ratings, choices, corrections, released))),
        cursor=Cursor(
            feedback_row=ratings[-1].id if ratings else cursor.feedback_row,
            preference_row=choices[-1].id if choices else cursor.preference_row,
            correction_row=corrections[-1].id if corrections else cursor.correction_row,
            released=released[-1].decided if released else cursor.released,
        ),
        trace_ids=tuple(dict.fromkeys(row.trace_id for row in looked if row.trace_id is not None)),
        complaints=tuple(
            row.feedback_id for row in looked if row.trace_id is None and row.bad and row.feedback_id not in superseded
        ),
        choices=tuple(row.preference_id for row in chosen if row.bad and row.preference_id not in superseded),
        corrected=tuple({row.trace_id for row in corrections if row.trace_id is not None}),
    )  # fmt: skip


def _next(conn: Connection, query: Select[Any], column: Any, after: Any, most: int) -> Sequence[Any]:
    return conn.execute(query.where(column > after).order_by(column).limit(most)).all()


def _ratings() -> Select[Any]:
    bad = polarity_column().in_(REASONS_TO_REVIEW).label("bad")
    return select(_FEEDBACK.id, _FEEDBACK.feedback_id, _FEEDBACK.trace_id, _FEEDBACK.supersedes, bad).where(
        _FEEDBACK.feedback_id.not_in(_WITHDRAWN)
    )


def _choices() -> Select[Any]:
    bad = or_(func.json_array_length(_CHOICE.critical) > 0, _CHOICE.preferred == "both_bad").label("bad")
    return select(_CHOICE.id, _CHOICE.preference_id, _CHOICE.supersedes, bad).where(_CHOICE.preference_id.not_in(_WITHDRAWN))


def _corrections() -> Select[Any]:
    return select(_FIXED.id, _FIXED.trace_id).where(_FIXED.correction_id.not_in(_WITHDRAWN))


def _cursor(conn: Connection) -> Cursor:
    row = conn.execute(select(queue_cursor)).first()
    return Cursor() if row is None else Cursor(row.feedback_row, row.preference_row, row.correction_row, row.released)


def looked_at(conn: Connection, page: RatingPage) -> None:
    """The queue has looked at these records. Another process may be further by now; nobody goes back."""
    before, after = asdict(_cursor(conn)), asdict(page.cursor)
    values = {name: max(before[name], after[name]) for name in after}
    if conn.execute(update(queue_cursor).values(**values)).rowcount == 0:
        conn.execute(insert(queue_cursor).values(**values))


def verdicts_on(store: Store, trace_ids: Iterable[str]) -> dict[str, list[TurnVerdict]]:
    """What each rater said last about these answers; superseded ratings and traces that nobody may be shown are left out."""
    columns = (_FEEDBACK.rating, _FEEDBACK.thumb, _FEEDBACK.feedback_type, _FEEDBACK.critical, _FEEDBACK.supersedes)
    rater = func.coalesce(_FEEDBACK.clinician_id, _FEEDBACK.recorded_by, _FEEDBACK.feedback_id).label("rater")
    query = select(rater, _FEEDBACK.feedback_id, *columns).where(_FEEDBACK.feedback_id.not_in(_WITHDRAWN))
    query = query.order_by(_FEEDBACK.id.desc()).limit(NEWEST_RATINGS)
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
    with store.read() as conn:
        return set(_ids_in(conn, _FIXED.trace_id, list(trace_ids), _FIXED.correction_id.not_in(_WITHDRAWN), CORRECTED_BY_RATER))


def free_complaints(store: Store, record_ids: Iterable[str]) -> list[str]:
    """Those of these ratings and choices that nobody has corrected and that quarantine does not hold back, nor their traces."""
    with store.read() as conn:
        ids = list(record_ids)
        held = set(_ids_in(conn, quarantine.c.record_id, ids, quarantine.c.state != "released"))
        corrected = set(_ids_in(conn, _FIXED.feedback_id, ids, CORRECTED_BY_RATER))
        held.update(_ids_in(conn, _CHOICE.preference_id, ids, withheld(_CHOICE.trace_id)))
    return [name for name in ids if name not in held | corrected]


def _ids_in(conn: Connection, column: Any, ids: Sequence[str], *where: Any) -> Iterator[str]:
    for some in chunks(ids):
        yield from conn.execute(select(column).where(column.in_(some), *where)).scalars()


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
    corrected = exists().where(_FIXED.trace_id == items.trace_id, CORRECTED_BY_RATER)
    closed = 0
    for some in chunks(list(trace_ids)):
        mine = and_(items.trace_id.in_(some), items.kind == "correct", items.state == "open", corrected, ~held)
        closed += conn.execute(update(queue_items).where(mine).values(state="done")).rowcount
    return closed
