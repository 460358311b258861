"""A workspace with answers that people disliked, and annotations as Label Studio writes them; for the double and the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medloop.contracts import Conversation, Feedback, Message, Trace
from medloop.data.feedback.build import FeedbackConfig
from medloop.loop.feedback import build_from_feedback
from medloop.loop.workspace import init_workspace
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import crud, users
from medloop.testing.feedback import make_question

RATERS = "li@example.org=dr-li, wu@example.org=dr-wu, ann@example.org=ann"
GOLDEN = "Rest it, cool it, and see a doctor today if it swells or you cannot put weight on it (case {})."

Json = dict[str, Any]


def new_workspace(folder: Path) -> Path:
    init_workspace(folder)
    return folder


def add_people(store: Store) -> dict[str, str]:
    roles = {"dr-li": "clinician", "dr-wu": "clinician", "ann": "annotator", "bot": "engineer"}
    return {name: users.add_user(store, name, role, actor="t").user_id for name, role in roles.items()}


def add_negatives(store: Store, n: int, *, rater: str, first: int = 0) -> list[str]:
    """Traces with a thumb down each."""
    records: list[Any] = []
    for number in range(first, first + n):
        messages = (
            Message(role="user", content=make_question(number)),
            Message(role="assistant", content=f"It is nothing, wait {number} weeks."),
        )
        trace = Trace(
            trace_id=f"trace-{number}", session_id=f"s-{number}", agent_name="triage", model_version="m@1",
            conversation=Conversation(messages=messages), user_hash=f"sub_{number:032x}",
        )  # fmt: skip
        question, answer = trace.conversation.question, trace.conversation.answer or ""
        thumb = Feedback(
            session_id=f"s-{number}", agent_name="triage", user_query=question, agent_response=answer, thumb="down",
            feedback_type="negative", trace_id=trace.trace_id, clinician_id=rater, recorded_by=rater, consent=("training",),
            subject=trace.user_hash,
        )  # fmt: skip
        records += [trace, thumb]
    crud.add(store, records, actor="t")
    return [record.trace_id for record in records if isinstance(record, Trace)]


def text(name: str, value: Any, about: str = "answer") -> Json:
    return {"from_name": name, "to_name": about, "type": "textarea", "value": {"text": [value]}}


def stars(value: Any) -> Json:
    return {"from_name": "rating", "to_name": "answer", "type": "rating", "value": {"rating": value}}


def harm(name: str = "harm", about: str = "answer", value: Any = "harm") -> Json:
    return {"from_name": name, "to_name": about, "type": "choices", "value": {"choices": [value]}}


def corrected(n: int) -> list[Json]:
    return [stars(2), text("golden", GOLDEN.format(n)), text("comment", f"Reason {n}: it plays warning sign number {n} down.")]


def built(store: Store, home: Path, name: str) -> list[Json]:
    return list(jsonl.read(home / "data/feedback/feedback" / name))


def build(store: Store) -> None:
    build_from_feedback(store, FeedbackConfig(test_share=0), seed=7, actor="t")
