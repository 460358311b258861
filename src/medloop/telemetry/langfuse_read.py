"""What a Langfuse observation or score says, in our terms: a conversation with its answer, a thumb, stars, a correction.

Inputs and outputs are whatever an application logged. Known are plain texts, lists of messages, OpenAI's requests and responses,
LangChain's messages, and objects with a field such as `question` or `answer`. What cannot be read is counted, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from medloop.contracts import Conversation, Message
from medloop.contracts.base import to_utc
from medloop.privacy.clear_names import check_name

QUESTIONS = ("question", "query", "user_query", "input", "prompt", "text", "content")
ANSWERS = ("answer", "response", "agent_response", "output", "completion", "generation", "text", "content", "result")
ROLES = {"human": "user", "user": "user", "ai": "assistant", "assistant": "assistant", "model": "assistant", "system": "system"}
UP = {"up", "thumbs_up", "thumbs-up", "positive", "good", "like", "liked", "yes", "true", "👍", "赞"}
DOWN = {"down", "thumbs_down", "thumbs-down", "negative", "bad", "dislike", "disliked", "no", "false", "👎", "踩"}
MAX_TEXT = 20_000  # characters, as for what the API accepts
MAX_MESSAGES = 200
MAX_CONTEXTS = 50

Json = dict[str, Any]


@dataclass(frozen=True)
class ScoreSignal:
    """What a person said with a score; one of the first four is set."""

    thumb: Literal["up", "down"] | None = None
    rating: int | None = None
    comment: str | None = None
    correction: str | None = None


def conversation_of(observation: Json) -> Conversation | None:
    """The messages and the answer of a root observation; None where they cannot be read."""
    answer = _last_text(_decoded(observation.get("output")), ANSWERS)
    messages = _messages(_decoded(observation.get("input")))
    if not messages or not answer:
        return None
    turns = _alternating([*messages, ("assistant", answer)])
    if turns is None or any(len(text) > MAX_TEXT for _, text in turns) or len(turns) > MAX_MESSAGES:
        return None
    return Conversation(messages=tuple(Message(role=role, content=text) for role, text in turns))


def is_finished(observation: Json) -> bool:
    """A span without an end or without an output is still running; a later import reads it again."""
    return observation.get("endTime") is not None and observation.get("output") not in (None, "")


def contexts_of(observation: Json) -> tuple[str, ...]:
    """Passages the answer was based on, where the application logged them as `contexts`."""
    metadata = _decoded(observation.get("metadata"))
    found = _decoded(metadata.get("contexts")) if isinstance(metadata, dict) else None
    texts = [text for item in found if (text := _text(item))] if isinstance(found, list) else []
    return tuple(text for text in texts if len(text) <= MAX_TEXT)[:MAX_CONTEXTS]


def time_of(value: object) -> datetime | None:
    """A time of Langfuse in UTC; None where it is not one."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return to_utc(time) if time.tzinfo else time.replace(tzinfo=UTC)
    except ValueError:
        return None


def clear_name(*candidates: object, otherwise: str) -> str:
    """The first of these names that may be stored as it is."""
    for name in candidates:
        try:
            return check_name(name) if isinstance(name, str) and name else check_name("")
        except ValueError:
            continue
    return otherwise


def traced_id(score: Json) -> str | None:
    """The trace that a score is about, directly or by one of its observations."""
    subject = score.get("subject") or {}
    found = subject.get("id") if subject.get("kind") == "trace" else subject.get("traceId")
    return found if isinstance(found, str) and found else None


def signal_of(score: Json) -> ScoreSignal | None:
    """What a score says; None where that is unknown. EVAL scores are of a model, not of a person."""
    value, kind = score.get("value"), score.get("dataType")
    comment = score.get("comment")
    comment = comment.strip()[:MAX_TEXT] or None if isinstance(comment, str) else None
    if score.get("source") == "EVAL":
        return None
    if kind == "CORRECTION" and isinstance(value, str) and value.strip():
        return ScoreSignal(correction=value.strip()[:MAX_TEXT], comment=comment)
    if kind == "TEXT" and isinstance(value, str) and value.strip():
        return ScoreSignal(comment=value.strip()[:MAX_TEXT])
    if kind == "CATEGORICAL" and isinstance(value, str):
        word = value.strip().lower()
        thumb: Literal["up", "down"] | None = "up" if word in UP else "down" if word in DOWN else None
        return ScoreSignal(thumb=thumb, comment=comment) if thumb else None
    if kind == "BOOLEAN" and isinstance(value, bool | int):
        return ScoreSignal(thumb="up" if value else "down", comment=comment)
    if kind == "NUMERIC" and isinstance(value, int | float) and not isinstance(value, bool):
        return _number(float(value), str(score.get("name", "")), comment)
    return None


def _number(value: float, name: str, comment: str | None) -> ScoreSignal | None:
    """Stars where the name says so, else 1 is a thumb up, and 0 and -1 are thumbs down; other numbers could mean anything."""
    if "star" in name.lower() or "rating" in name.lower():
        return ScoreSignal(rating=int(value), comment=comment) if value in (1, 2, 3, 4, 5) else None
    if value in (1, 0, -1):
        return ScoreSignal(thumb="up" if value == 1 else "down", comment=comment)
    return None


def _decoded(value: object) -> Any:
    """Inputs and outputs are raw strings: JSON where it is JSON, else the text itself."""
    if isinstance(value, str) and value[:1] in '[{"':
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _messages(value: Any) -> list[tuple[str, str]]:
    """(role, text) of what went in; a plain text is the user's."""
    if isinstance(value, dict):
        for key in ("messages", "args", "history"):
            if isinstance(inner := value.get(key), list) and (messages := _messages(inner)):
                return messages
        text = next((text for key in QUESTIONS if (text := _text(value.get(key)))), "")
        return [("user", text)] if text else []
    if isinstance(value, list):
        if value and isinstance(value[0], list):  # LangChain logs a batch of one
            return _messages(value[0])
        pairs = [(_role(item), _text(item)) for item in value if isinstance(item, dict)]
        return [(role, text) for role, text in pairs if role and text]
    return [("user", text)] if (text := _text(value)) else []


def _role(message: Json) -> str:
    return ROLES.get(str(message.get("role") or message.get("type") or "").lower(), "")


def _last_text(value: Any, keys: Sequence[str]) -> str:
    """The answer in what came out."""
    if isinstance(value, list):
        answers = [item for item in value if not isinstance(item, dict) or _role(item) in ("assistant", "")]
        return _last_text(answers[-1], keys) if answers else ""
    if isinstance(value, dict):
        if isinstance(choices := value.get("choices"), list) and choices and isinstance(choices[0], dict):
            return _text(choices[0].get("message") or choices[0].get("text"))
        if isinstance(messages := value.get("messages"), list):
            return _last_text(messages, keys)
        return next((text for key in keys if (text := _text(value.get(key)))), "")
    return _text(value)


def _text(value: Any) -> str:
    """A text, the content of a message, or the text parts of one."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict):
        return _text(value.get("content") if "content" in value else value.get("text"))
    if isinstance(value, list):
        parts = (_text(part) for part in value if isinstance(part, str) or (isinstance(part, dict) and "text" in part))
        return "\n".join(part for part in parts if part)
    return ""


def _alternating(turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]] | None:
    """Neighbours of one role are one message; the system message comes first. None where a conversation begins otherwise."""
    system = [text for role, text in turns if role == "system"]
    merged: list[tuple[str, str]] = []
    for role, text in turns:
        if role == "system":
            continue
        if merged and merged[-1][0] == role:
            merged[-1] = (role, f"{merged[-1][1]}\n{text}")
        else:
            merged.append((role, text))
    if not merged or merged[0][0] != "user" or merged[-1][0] != "assistant":
        return None
    return [("system", "\n".join(system)), *merged] if system else merged
