"""Rows of case files, as suites read them: the id, the messages for the model, the language, the strata."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medloop.contracts import Message
from medloop.errors import InputError
from medloop.lexicon.language import detect_language
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import refuse_duplicate

StrataOf = Callable[[str], Sequence[str]]
IDS = ("id", "prompt_id", "record_id")
QUESTIONS = ("question", "q", "query", "first_message", "chief_complaint", "complaint")
# Fields of a clinical description that stand beside the complaint; they become lines of the question.
DETAILS = ("history", "demographics", "age", "sex", "mental_state", "injury", "pain_nrs", "vitals")


def case_rows(path: Path, looks_like: str) -> Iterator[tuple[int, str, tuple[Message, ...], dict[str, Any]]]:
    """Line number, id, messages and row; InputError where a line has no question, an id comes twice, or the file is empty."""
    first_lines: dict[str, int] = {}
    for number, row in jsonl.numbered(path):
        name = next((str(row[field]) for field in IDS if row.get(field)), str(number))
        refuse_duplicate(first_lines, name, path, number)
        messages = _messages(row)
        if not messages:
            raise InputError.at(path, number, "no question", f"Lines look like {looks_like}")
        yield number, name, messages, row
    if not first_lines:
        raise InputError(f"{path} has no cases", f"Lines look like {looks_like}")


def user_text(messages: Sequence[Message]) -> str:
    """All messages of the user: a danger named in the first one still counts in the last."""
    return "\n".join(message.content for message in messages if message.role == "user")


def language_of(row: Mapping[str, Any], messages: Sequence[Message]) -> str:
    return str(row.get("language") or row.get("lang") or detect_language(user_text(messages)))


def strata_of_row(row: Mapping[str, Any], messages: Sequence[Message], strata_of: StrataOf) -> tuple[str, ...]:
    given = row.get("strata")
    return tuple(map(str, given if isinstance(given, list) else strata_of(user_text(messages))))


def _messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    chat = row.get("messages") or row.get("prompt")
    if isinstance(chat, list):
        try:
            return tuple(Message(role=turn["role"], content=turn["content"]) for turn in chat)
        except (KeyError, TypeError, ValidationError):
            return ()
    texts = [str(row[name]).strip() for name in QUESTIONS if row.get(name)] or ([chat] if isinstance(chat, str) else [])
    if not texts or not texts[0]:
        return ()
    details = [f"{name.replace('_', ' ')}: {_plain(row[name])}" for name in DETAILS if row.get(name) not in (None, "", {})]
    return (Message(role="user", content="\n".join([texts[0], *details])),)


def _plain(value: Any) -> str:
    """`{"hr": 130, "spo2": 85}` as "hr 130, spo2 85"."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {entry}" for name, entry in value.items() if entry not in (None, ""))
    return str(value)
