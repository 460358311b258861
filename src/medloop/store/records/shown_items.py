"""What the review queue has shown to a rater: a verdict is about one of these items, and an annotator speaks of nothing else.

trace_shown_to(store, trace_id, "u_1")            # the conversation of the trace as this rater saw it
contents_shown_to(store, "u_1", trace_id=None)    # the items in their hands
"""

from typing import Any

from sqlalchemy import select

from medloop.contracts import Conversation, Message
from medloop.contracts.queue import QueueContent
from medloop.store.db import Store
from medloop.store.records.quarantine import withheld
from medloop.store.records.review_queue import open_content
from medloop.store.tables import queue_items as items
from medloop.store.tables import queue_turns as turns


def contents_shown_to(store: Store, rater: str, *, trace_id: str | None) -> list[QueueContent]:
    """The items about this trace at which the rater has or had a turn, the newest first; without a trace those they hold."""
    which = turns.c.state == "held" if trace_id is None else items.c.trace_id == trace_id
    with store.read() as conn:
        rows = conn.execute(_shown(items, rater).where(which).order_by(turns.c.id.desc())).all()
        return [open_content(store, conn, row) for row in rows]


def trace_shown_to(store: Store, trace_id: str, rater: str) -> Conversation | None:
    """What this rater saw of the trace, scrubbed; None if they may not see it. Of two answers it is the trace's own."""
    content = next(iter(contents_shown_to(store, rater, trace_id=trace_id)), None)
    if content is None:
        return None
    answer = content.answers[content.traces.index(trace_id) if trace_id in content.traces else 0]
    return Conversation(messages=(*content.prompt, Message(role="assistant", content=answer)))


def was_shown(store: Store, trace_id: str, rater: str) -> bool:
    """Whether this rater has or had a turn at an item about the trace, and may still see the trace."""
    with store.read() as conn:
        return conn.execute(_shown(turns.c.id, rater).where(items.c.trace_id == trace_id).limit(1)).first() is not None


def _shown(columns: Any, rater: str) -> Any:
    query = select(columns).select_from(items.join(turns, turns.c.item_id == items.c.item_id))
    return query.where(turns.c.rater == rater, ~withheld(items.c.trace_id))
