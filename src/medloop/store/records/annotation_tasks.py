"""Items of the review queue that are annotated in another system: which are to be sent, which came back, which must go.

    waiting(store, "label-studio/4f2c/7", NEGATIVE, kinds=("rate", "correct"), most=200, actor="cli")
    item_of_task(store, "label-studio/4f2c/7", ["101"])         # {"101": AnnotatedItem(...)}
    take_seat(store, item_id, "u_1", shown_first=None, now=...)  # the annotator has seen it, as if the queue had shown it
    gone(store, "label-studio/4f2c/7")                           # tasks whose item was erased, or refused for good

`sent_records` has a row for each task: the item, and its number there.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select

from medloop.contracts import AuditEvent
from medloop.contracts.queue import QueueContent
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.records.outbox import NOT_FOR_IT
from medloop.store.records.quarantine import refused, withheld
from medloop.store.records.review_queue import known_items, open_content
from medloop.store.tables import quarantine, rlhf_feedback, rlhf_preferences, sent_records, tombstones, traces
from medloop.store.tables import queue_items as items
from medloop.store.tables import queue_turns as turns

KIND = "queue_items"  # of the rows in `sent_records`


@dataclass(frozen=True)
class AnnotatedItem:
    """`subjects` are the people whom its texts are about."""

    item_id: str
    kind: Any
    content: QueueContent
    trace_id: str | None
    subjects: frozenset[str] = frozenset()


def waiting(
    store: Store, destination: str, reasons: Collection[str], *, kinds: Sequence[str], most: int, actor: str
) -> list[AnnotatedItem]:
    """Open items with one of these reasons that the destination does not have, the most important first."""
    sent = select(sent_records.c.record_id).where(sent_records.c.destination == destination)
    query = select(items).where(
        items.c.state == "open", items.c.kind.in_(kinds), items.c.item_id.not_in(sent), ~withheld(items.c.trace_id)
    )
    found: list[AnnotatedItem] = []
    with store.read() as conn:
        for row in conn.execute(query.order_by(items.c.priority.desc(), items.c.id)):
            if len(found) == most:
                break
            if set(reasons) & set(row.reasons):
                item = _item(store, conn, row)
                if not _may_not_be_seen(conn, item):
                    found.append(item)
    if found:
        with store.write() as conn:
            detail = {"purpose": "annotation", "rows": len(found)}
            audit.append(conn, AuditEvent(actor=actor, action="queue_items.read", subject=items.name, detail=detail))
    return found


def count_waiting(store: Store, destination: str, reasons: Collection[str], *, kinds: Sequence[str]) -> int:
    """How many there are; no text is read."""
    sent = select(sent_records.c.record_id).where(sent_records.c.destination == destination)
    query = select(items.c.reasons).where(items.c.state == "open", items.c.kind.in_(kinds), items.c.item_id.not_in(sent))
    with store.read() as conn:
        return sum(bool(set(reasons) & set(given)) for given in conn.execute(query.where(~withheld(items.c.trace_id))).scalars())


def _item(store: Store, conn: Connection, row: Row[Any]) -> AnnotatedItem:
    content = open_content(store, conn, row)
    named = [name for name in {row.trace_id, *content.traces} if name]
    subjects: set[str | None] = set(conn.execute(select(traces.c.user_hash).where(traces.c.trace_id.in_(named))).scalars())
    for column in (rlhf_feedback.c.feedback_id, rlhf_preferences.c.preference_id):
        about = select(column.table.c.subject).where(column.in_(content.records))
        subjects |= set(conn.execute(about).scalars())
    return AnnotatedItem(row.item_id, row.kind, content, row.trace_id, frozenset(filter(None, subjects)))


def _may_not_be_seen(conn: Connection, item: AnnotatedItem) -> bool:
    return _any_trace(conn, item.content, withheld(traces.c.trace_id))


def _any_trace(conn: Connection, content: QueueContent, is_so: ColumnElement[bool]) -> bool:
    """Of a comparison only the first trace is in a column of the item."""
    named = traces.c.trace_id.in_([name for name in content.traces if name is not None])
    return conn.execute(select(traces.c.id).where(named, is_so).limit(1)).first() is not None


def own_items(store: Store, item_ids: Collection[str]) -> tuple[set[str], set[str]]:
    """Which of these are items of this queue, and which were until they were erased."""
    stones = select(tombstones.c.record_id)
    with store.read() as conn:
        found = (conn.execute(stones.where(tombstones.c.record_id.in_(ids))).scalars() for ids in chunks(sorted(item_ids)))
        erased = {name for names in found for name in names}
    return known_items(store, sorted(item_ids)), erased


def item_of_task(store: Store, destination: str, task_ids: Iterable[str]) -> dict[str, AnnotatedItem | None]:
    """The item of each task that was sent there and is still here; None while raters may not see it."""
    found: dict[str, AnnotatedItem | None] = {}
    joined = sent_records.join(items, items.c.item_id == sent_records.c.record_id)
    with store.read() as conn:
        for chunk in chunks(sorted(set(task_ids))):
            query = select(items, sent_records.c.remote_id).select_from(joined)
            query = query.add_columns(withheld(items.c.trace_id).label("hidden"))
            own = (sent_records.c.destination == destination, sent_records.c.remote_id.in_(chunk))
            for row in conn.execute(query.where(*own)).all():
                item = None if row.hidden else _item(store, conn, row)
                found[row.remote_id] = None if item is None or _may_not_be_seen(conn, item) else item
    return found


def take_seat(store: Store, item_id: str, rater: str, *, shown_first: str | None, now: datetime) -> None:
    """Note that this rater was shown the item elsewhere; a turn that they have already stays as it is."""
    with store.write() as conn:
        own = select(turns.c.id).where(turns.c.item_id == item_id, turns.c.rater == rater)
        if conn.execute(own).first() is None:
            state = {"state": "held", "until": now, "timestamp": now, "shown_first": shown_first, "adjudicates": False}
            conn.execute(insert(turns).values(item_id=item_id, rater=rater, **state))
            audit.append(conn, AuditEvent(actor=rater, action="queue_items.read", subject=item_id))


def count_tasks(store: Store) -> dict[str, int]:
    """Tasks at all destinations, and those of them that must be deleted there; for the metrics."""
    own = (sent_records.c.kind == KIND, sent_records.c.remote_id != NOT_FOR_IT)
    names = select(sent_records.c.destination).where(*own).distinct()
    with store.read() as conn:
        sent = int(conn.execute(select(func.count()).select_from(sent_records).where(*own)).scalar_one())
        destinations = list(conn.execute(names).scalars())
    return {"sent": sent, "to_delete": sum(len(gone(store, name)) for name in destinations)}


def gone(store: Store, destination: str) -> dict[str, str]:
    """Task numbers by item, of what was erased here, or refused in quarantine; what merely waits there stays."""
    own = (sent_records.c.destination == destination, sent_records.c.remote_id != NOT_FOR_IT)
    columns = select(sent_records.c.record_id, sent_records.c.remote_id)
    erased = columns.where(*own, sent_records.c.record_id.in_(select(tombstones.c.record_id)))
    joined = sent_records.join(items, items.c.item_id == sent_records.c.record_id)
    hidden = columns.select_from(joined).where(*own, refused(items.c.trace_id))
    pairs = select(items, sent_records.c.remote_id).select_from(joined).where(*own, items.c.kind == "compare")
    with store.read() as conn:
        found = {row.record_id: row.remote_id for query in (erased, hidden) for row in conn.execute(query)}
        if conn.execute(select(quarantine.c.id).where(quarantine.c.state == "refused").limit(1)).first() is not None:
            for row in conn.execute(pairs).all():
                if _any_trace(conn, open_content(store, conn, row), refused(traces.c.trace_id)):
                    found[row.item_id] = row.remote_id
    return found
