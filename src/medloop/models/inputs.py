"""Conversations out of JSON lines, for prediction and training.

A line is a record of the data engine (`conversation`), `{"messages": [...]}`, or `{"prompt": "..."}` / `{"question": "..."}`;
`id` (or `record_id`, `prompt_id`) names it. What is wrong is said with file and line, never with the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from medloop.contracts import Conversation, Message
from medloop.errors import InputError
from medloop.store.files import jsonl

IDS = ("id", "record_id", "prompt_id")
TEXTS = ("prompt", "question")


class Item(NamedTuple):
    """One line: its id if it has one, its place, what was said, and what an answer may rely on."""

    id: str | None
    line: int
    conversation: Conversation
    context: str | None = None


def read_items(path: Path) -> Iterator[Item]:
    """Every line of a file, streaming; the first bad one stops with an InputError that names it."""
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path} is empty", "Give a file with one JSON object per line")
    for number, row in jsonl.numbered(path):
        try:
            context = row.get("context")
            yield Item(_id(row), number, _conversation(row), context if isinstance(context, str) and context else None)
        except (ValidationError, _Unknown) as problem:
            raise InputError.at(path, number, _explain(problem), "Repair or remove that line") from None


class _Unknown(Exception):
    """A line of no known shape."""


def _id(row: dict[str, Any]) -> str | None:
    found = next((row[key] for key in IDS if row.get(key) not in (None, "")), None)
    return None if found is None else str(found)


def _conversation(row: dict[str, Any]) -> Conversation:
    if "conversation" in row:
        return Conversation.model_validate(row["conversation"])
    if "messages" in row:
        return Conversation.model_validate({"messages": row["messages"]})
    text = next((row[key] for key in TEXTS if key in row), None)
    if text is None:
        raise _Unknown(f"none of conversation, messages, {', '.join(TEXTS)} is there")
    if isinstance(text, list):
        return Conversation.model_validate({"messages": text})
    return Conversation(messages=(Message(role="user", content=text),))


def _explain(problem: ValidationError | _Unknown) -> str:
    if isinstance(problem, _Unknown):
        return str(problem)
    return "; ".join(
        f"{'.'.join(map(str, p['loc'])) or 'messages'}: {p['msg'].lower()}" for p in problem.errors(include_input=False)
    )
