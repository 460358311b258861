"""The shapes that conversations come in, and the two they leave in.

| shape | columns |
|---|---|
| record | `record_id` and `conversation` with `messages`: what `data prepare` and `data build` write |
| messages | `messages`: list of {role, content} |
| sharegpt | `conversations`: list of {from, value} |
| alpaca | `instruction`, `output`, perhaps `input`, `history` (list of [question, answer]) |
| question-answer | `question`, `answer`, perhaps `reasoning` |
| prompt-response | `prompt`, `response` or `completion`; each a text or a list of {role, content} |

Every shape may carry `system`, and `context`: passages that the answer may rely on, as a text or a list of texts (in CSV a JSON
list). Column names are compared without case; `--map question=title` names a column by hand.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from medloop.contracts import Conversation, Record
from medloop.errors import ConfigError
from medloop.knobs import did_you_mean

RoleText = tuple[str, str]  # role (user, assistant, system) and content, uncleaned

_ROLES = {
    "user": "user", "human": "user", "patient": "user", "prompter": "user", "患者": "user", "用户": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant",
    "doctor": "assistant", "医生": "assistant", "助手": "assistant", "system": "system",
}  # fmt: skip


class ShapeProblem(Exception):
    """Why a row does not fit its shape; names columns, never content."""


@dataclass(frozen=True)
class Shape:
    """`needs` and `may` map a field to the column names it is known under."""

    name: str
    needs: Mapping[str, tuple[str, ...]]
    may: Mapping[str, tuple[str, ...]]

    @property
    def fields(self) -> dict[str, tuple[str, ...]]:
        return {**self.needs, **self.may}


_CONTEXT = {"context": ("context", "contexts", "passages")}
_SYSTEM = {"system": ("system", "system_prompt"), **_CONTEXT}
SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("record", {"record_id": ("record_id",), "conversation": ("conversation",)}, _CONTEXT),
        Shape("messages", {"messages": ("messages",)}, _SYSTEM),
        Shape("sharegpt", {"conversations": ("conversations", "conversation")}, _SYSTEM),
        Shape(
            "alpaca",
            {"instruction": ("instruction",), "output": ("output", "response")},
            {"input": ("input",), "history": ("history",), **_SYSTEM},
        ),
        Shape(
            "question-answer",
            {"question": ("question", "query"), "answer": ("answer", "response", "output")},
            {"reasoning": ("reasoning", "complex_cot"), **_SYSTEM},
        ),
        Shape("prompt-response", {"prompt": ("prompt",), "response": ("response", "completion", "answer", "output")}, _SYSTEM),
    )
}


def fit(names: Iterable[str], mapping: Mapping[str, str]) -> tuple[Shape, dict[str, str]] | None:
    """The first shape whose needed fields are all among `names`, with the column of each field; None if none fits."""
    by_lower = {name.lower(): name for name in names if name}
    for shape in SHAPES.values():
        if not mapping.keys() <= shape.fields.keys():
            continue
        columns = {
            field: mapping.get(field) or next((by_lower[alias] for alias in aliases if alias in by_lower), "")
            for field, aliases in shape.fields.items()
        }
        if all(columns[field] in by_lower.values() for field in {*shape.needs, *mapping}):
            return shape, {field: column for field, column in columns.items() if column}
    return None


def check_mapping(mapping: Mapping[str, str]) -> None:
    known = sorted({field for shape in SHAPES.values() for field in shape.fields})
    for field in mapping:
        if field not in known:
            guess = did_you_mean(field, known)
            hint = f"Did you mean {guess}? " if guess else ""
            raise ConfigError(f"--map {field}={mapping[field]}: there is no field '{field}'", f"{hint}Fields: {', '.join(known)}")


def messages_of(values: Mapping[str, Any], shape: str, columns: Mapping[str, str]) -> list[RoleText]:
    """The messages of one row, in order; ShapeProblem when a needed column is absent or is not what it should be."""
    for field in SHAPES[shape].needs:
        if columns[field] not in values:
            raise ShapeProblem(f"has no '{columns[field]}'")
    row = {field: values.get(column) for field, column in columns.items()}
    head: list[RoleText] = [("system", system)] if (system := _text(row, "system")) else []
    match shape:
        case "record":
            conversation = row["conversation"]
            messages = conversation.get("messages") if isinstance(conversation, Mapping) else None
            return _listed(messages, "conversation", "role", "content")
        case "messages":
            return head + _listed(row["messages"], "messages", "role", "content")
        case "sharegpt":
            return head + _listed(row["conversations"], "conversations", "from", "value")
        case "alpaca":
            question = "\n".join(part for part in (_text(row, "instruction"), _text(row, "input")) if part)
            return [*head, *_history(row), ("user", question), ("assistant", _text(row, "output"))]
        case "prompt-response":
            return head + _either(row, "prompt", "user") + _either(row, "response", "assistant")
    reasoning = _text(row, "reasoning")
    answer = f"<think>\n{reasoning}\n</think>\n{_text(row, 'answer')}" if reasoning else _text(row, "answer")
    return [*head, ("user", _text(row, "question")), ("assistant", answer)]


def passages_of(values: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    """The context passages of a row, in order; ShapeProblem when they are neither a text nor a list of texts."""
    lower = {name.lower(): name for name in values}
    names = [columns["context"]] if "context" in columns else [lower[alias] for alias in _CONTEXT["context"] if alias in lower]
    context = values.get(names[0]) if names else None
    if isinstance(context, str) and context.lstrip().startswith("["):
        with suppress(ValueError):  # a cell of a table can hold a list only as JSON
            context = json.loads(context)
    if isinstance(context, Mapping):  # {"contexts": [...]}, beside labels or sources
        context = context.get("contexts", context.get("passages", context))
    passages = context if isinstance(context, list) else [] if context is None else [context]
    texts = [passage.get("text", passage.get("content")) if isinstance(passage, Mapping) else passage for passage in passages]
    if not all(isinstance(text, str) for text in texts):
        raise ShapeProblem("'context' is neither a text nor a list of texts")
    return texts


def is_reviewed(values: Mapping[str, Any]) -> bool:
    """Whether the row, or its `meta`, says that somebody reviewed it."""
    for place in (values, values.get("meta"), values.get("metadata")):
        if isinstance(place, Mapping) and str(place.get("reviewed", "")).strip().lower() in ("true", "1", "yes"):
            return True
    return False


def to_sharegpt(record: Record) -> dict[str, Any]:
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    messages = [{"from": names[m.role], "value": m.content} for m in record.conversation.messages]
    return {"id": record.record_id, "conversations": messages} | _context(record)


def to_alpaca(record: Record) -> dict[str, Any]:
    """The last exchange is instruction and output; earlier ones are `history`."""
    conversation: Conversation = record.conversation
    system = [m.content for m in conversation.messages if m.role == "system"]
    messages = [m.content for m in conversation.messages if m.role != "system"]
    pairs = [[messages[index], messages[index + 1]] for index in range(0, len(messages) - 1, 2)]
    question, answer = pairs[-1]
    row: dict[str, Any] = {"id": record.record_id, "instruction": question, "input": "", "output": answer, "history": pairs[:-1]}
    return row | ({"system": system[0]} if system else {}) | _context(record)


def _context(record: Record) -> dict[str, Any]:
    """The passages in a column of their own, which `data import` reads in every shape."""
    return {"context": list(record.context)} if record.context else {}


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row.get(field)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ShapeProblem(f"'{field}' is not a text")
    return str(value)


def _either(row: Mapping[str, Any], field: str, role: str) -> list[RoleText]:
    value = row.get(field)
    return _listed(value, field, "role", "content") if isinstance(value, list) else [(role, _text(row, field))]


def _listed(value: Any, field: str, role_key: str, text_key: str) -> list[RoleText]:
    if not isinstance(value, list) or not value:
        raise ShapeProblem(f"'{field}' is not a list of messages")
    return [_message(item, field, role_key, text_key) for item in value]


def _message(item: Any, field: str, role_key: str, text_key: str) -> RoleText:
    if not isinstance(item, Mapping):
        raise ShapeProblem(f"'{field}' holds something that is not a message")
    # Both spellings occur under both names in the wild: {role, content} under `conversations` is common.
    said_by = item.get(role_key, item.get("role", item.get("from")))
    role = _ROLES.get(str(said_by).strip().lower())
    if role is None:
        raise ShapeProblem(f"'{field}' has a message without a known role")
    content = item.get(text_key, item.get("content", item.get("value")))
    if isinstance(content, list):  # parts, as in the OpenAI format; only text is kept
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    if content is not None and not isinstance(content, str):
        raise ShapeProblem(f"'{field}' has a message that is not text")
    return role, content or ""


def _history(row: Mapping[str, Any]) -> list[RoleText]:
    messages: list[RoleText] = []
    for pair in row.get("history") or []:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ShapeProblem("'history' is not a list of [question, answer] pairs")
        messages += [("user", str(pair[0] or "")), ("assistant", str(pair[1] or ""))]
    return messages
