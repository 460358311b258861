"""Answers to be judged, from the files people have: records, chats, question and answer pairs, answers of `medloop predict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medloop.contracts import Conversation, Record, canonical_json, sha256_id
from medloop.errors import InputError
from medloop.store.files import jsonl
from medloop.teacher.judge import Item

_QUESTION = ("question", "prompt", "user_query", "query")
_ANSWER = ("answer", "text", "response", "agent_response", "output")
_NAME = ("prompt_id", "record_id", "id")
# Not "user" and "assistant": the fence takes out what looks like a turn of a chat.
_SPEAKER = {"user": "Patient", "assistant": "Earlier answer"}
# High risk first: when money runs out, the answers that matter most have been judged.
_PRIORITY = {"emergency": 0, "medication": 1, "pregnancy": 1, "child": 1, "elderly": 1}


def read_items(path: Path, *, questions: Iterable[Path] = (), limit: int = 0) -> list[Item]:
    """Items of a file of JSON lines. Lines without a question take it, by id, from the records in `questions`."""
    known = {r.record_id: r for file in questions for r in jsonl.read(file, Record)}
    items = []
    for number, row in enumerate(jsonl.read(path), 1):
        item = _item(row, known)
        if item is None:
            fields = f"one of {', '.join(_QUESTION)} and one of {', '.join(_ANSWER)}"
            raise InputError.at(path, number, "no question with an answer", f"A line is a record, has messages, or has {fields}")
        items.append(item)
        if limit and len(items) == limit:
            break
    if not items:
        raise InputError(f"{path} is empty", "Give a file with one JSON object per line")
    return items


def _item(row: Mapping[str, Any], known: Mapping[str, Record]) -> Item | None:
    if "conversation" in row:
        try:
            return of_record(Record.model_validate(row))
        except ValidationError:
            return None
    name = next((str(row[key]) for key in _NAME if row.get(key)), None)
    if "messages" in row and not {*_QUESTION, *_ANSWER} & row.keys():
        return _of_chat(row["messages"], name)
    record = known.get(name or "")
    question = record.conversation.question if record else _text(row, _QUESTION)
    answer = _text(row, _ANSWER)
    if not question or answer is None:
        return None
    context = row.get("context")
    return Item(
        prompt_id=name or sha256_id(canonical_json([question, answer])),
        question=question,
        answer=answer,
        context=context if isinstance(context, str) and context else None,
        priority=_PRIORITY.get(record.stratum, 5) if record else 5,
    )


def of_record(record: Record) -> Item | None:
    """A record's own answer; None when it has none. Earlier turns are given as context."""
    return _of_conversation(record.conversation, record.record_id, _PRIORITY.get(record.stratum, 5))


def _of_chat(messages: Any, name: str | None) -> Item | None:
    try:
        said = Conversation(messages=messages)
    except ValidationError:
        return None
    return _of_conversation(said, name or sha256_id(canonical_json(said.model_dump(mode="json"))), 5)


def _of_conversation(said: Conversation, name: str, priority: int) -> Item | None:
    if said.answer is None:
        return None
    earlier = "\n".join(f"{_SPEAKER[m.role]}: {m.content}" for m in said.prompt[:-1] if m.role != "system")
    return Item(name, said.question, said.answer, earlier or None, priority)


def _text(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list):  # messages
            said = [m.get("content") for m in value if isinstance(m, dict) and m.get("role") == "user"]
            if said and isinstance(said[-1], str):
                return said[-1]
    return None
