"""Items and raters for the tests of the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from medloop.contracts import Conversation, Feedback, Message, Preference, Trace
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.feedback.review import queue
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records import review_queue as rows
from medloop.store.records.review_queue import LeasedItem


def item(number: int, kind: str = "rate", **more: Any) -> QueueItem:
    content = QueueContent(
        prompt=(Message(role="user", content=f"question {number}"),),
        answers=("one", "two") if kind == "compare" else (f"answer {number}",),
    )
    return QueueItem.model_validate({"kind": kind, "content": content, "priority": 0.5, "raters": 2, **more})


def fill(store: Store, *given: QueueItem) -> None:
    assert rows.add_items(store, given, actor="test") == len(given)


def rated(store: Store, rater: str, held: LeasedItem | None = None, **values: Any) -> str:
    """A rating of this rater in the store, of the item they hold or of something else; returns its id."""
    question, answer = held.content.exchange if held else ("q", "r")
    trace_id = held.trace_id if held else None
    record = Feedback(
        session_id="s", agent_name="a", user_query=question, agent_response=answer, recorded_by=rater, trace_id=trace_id,
        **(values or {"rating": 4}),
    )  # fmt: skip
    crud.add(store, [record], actor=rater)
    return record.feedback_id


def chose(store: Store, rater: str, preferred: str, shown_first: str | None, question: str = "q") -> str:
    record = Preference.model_validate(
        {
            "prompt": question,
            "response_a": "one",
            "response_b": "two",
            "preferred": preferred,
            "shown_first": shown_first,
            "recorded_by": rater,
        }
    )
    crud.add(store, [record], actor=rater)
    return record.preference_id


def answer(store: Store, rater: str, *, senior: bool = False, now: datetime | None = None, **values: Any) -> str:
    """Take the next item, rate it, finish it; returns the item's state."""
    held = queue.next_item(store, rater, senior=senior, now=now)
    assert held is not None
    return queue.finish(store, held.item_id, rater, rated(store, rater, held, **values), now=now)


def trace(name: str, question: str, answer: str, **more: Any) -> Trace:
    messages = (Message(role="user", content=question), Message(role="assistant", content=answer))
    base = {
        "trace_id": name,
        "session_id": "s",
        "agent_name": "a",
        "model_version": "m",
        "conversation": Conversation(messages=messages),
    }
    return Trace.model_validate({**base, **more})


def thumb(name: str, rater: str, up: bool) -> Feedback:
    base = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "trace_id": name}
    return Feedback.model_validate({**base, "clinician_id": rater, "thumb": "up" if up else "down"})
