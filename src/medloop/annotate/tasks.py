"""A task of Label Studio from an item of the review queue, and whether a task still shows what was sent.

Names in `data` are those of the label config. Our id of the item stands in `meta`: a task that was sent before an interruption is
found by it. Which of two answers is on the left follows from the id, so that it cannot be changed there.
"""

import hashlib
from typing import Any, Literal

from medloop.contracts.queue import QueueContent, QueueKind

OUR_ID = "medloop_item"
NOTHING = "–"

Json = dict[str, Any]


def first_of(item_id: str) -> Literal["a", "b"]:
    """The answer on the left."""
    return "b" if hashlib.sha256(f"order {item_id}".encode()).digest()[0] % 2 else "a"


def task_of(item_id: str, kind: QueueKind, content: QueueContent) -> Json:
    return {"data": data_of(item_id, kind, content), "meta": {OUR_ID: item_id}}


def data_of(item_id: str, kind: QueueKind, content: QueueContent) -> dict[str, str]:
    last = max((n for n, message in enumerate(content.prompt) if message.role == "user"), default=len(content.prompt) - 1)
    earlier = "\n\n".join(f"{message.role}: {message.content}" for message in content.prompt[:last])
    data = {
        "earlier": earlier or NOTHING,
        "contexts": "\n\n".join(content.contexts) or NOTHING,
        "question": content.prompt[last].content or NOTHING,
    }
    if kind != "compare":
        return {**data, "answer": content.answers[0]}
    answers = content.answers if first_of(item_id) == "a" else content.answers[::-1]
    return {**data, "answer_1": answers[0], "answer_2": answers[1]}


def id_in(task: Json) -> str | None:
    """Our id in a task, if it has one."""
    meta = task.get("meta")
    value = meta.get(OUR_ID) if isinstance(meta, dict) else None
    return value if isinstance(value, str) else None


def shows(task: Json, data: dict[str, str]) -> bool:
    """Whether the task still has the texts that were sent: a verdict on other texts is about something else."""
    found = task.get("data")
    return isinstance(found, dict) and all(found.get(name) == text for name, text in data.items())
