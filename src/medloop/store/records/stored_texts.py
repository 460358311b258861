"""The texts inside a decrypted row, and who gave each: only what people and models said is searched for when a person is erased.

    for text in texts_in("traces", row, plain): ...     # StoredText(value=…, author="person")

Of a column that holds more than one text, `FIELDS` names the fields that are texts. What stands in its other fields (versions,
models, rules, servers, times) was put there by medloop: it is in the records of everybody, and often in the settings.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Row

from medloop.contracts.chat import is_from_gateway
from medloop.store import tables
from medloop.store.tables import natural_id

# person: typed by somebody. application: sent along by another program, such as notes. passage: found by medloop in a document or
# given to a tool; searched in, not for.
# system: names, versions and numbers that medloop put there.
Author = Literal["person", "model", "application", "passage", "system"]

MESSAGES = frozenset({"messages", "content"})
FIELDS: dict[tuple[str, str], frozenset[str]] = {
    ("traces", "conversation"): MESSAGES,
    ("queue_items", "content"): MESSAGES | {"prompt", "answers"},
    ("codebook_entries", "content"): frozenset({"text", "triggers", "first_sentence", "question", "reason", "answers"}),
    ("rubric_criteria", "content"): frozenset({"criterion", "question", "detector"}),
    ("scored_answers", "reward"): frozenset({"parts", "reason", "suggested_answer"}),
}
MODEL_COLUMNS = {"agent_response", "response_a", "response_b", "original", "answer"}
SENT_ALONG = {("traces", "contexts"), ("traces", "meta")}  # by an application; the gateway's own are medloop's


@dataclass(frozen=True)
class StoredText:
    """One text of one row; `subject` is the person the row is about."""

    table: str
    record_id: str
    subject: str | None
    value: str
    author: Author

    @property
    def authored(self) -> bool:
        """Whether numbers in it may be a person's, and a short copy counts."""
        return self.author in ("person", "application")


def texts_in(name: str, row: Row[Any], plain: Mapping[str, bytes]) -> Iterator[StoredText]:
    record_id = row._mapping[natural_id(tables.metadata.tables[name])]
    subject = row._mapping.get("subject") or row._mapping.get("user_hash")
    from_gateway = name == "traces" and is_from_gateway(json.loads(plain.get("meta", b"{}")))
    for column, data in plain.items():
        author: Author = "model" if column in MODEL_COLUMNS else "person"
        if (name, column) in SENT_ALONG:
            author = ("passage" if column == "contexts" else "system") if from_gateway else "application"
        content = json.loads(data)
        if from_gateway and column == "meta":  # a model wrote the arguments of its tools, perhaps with words of the person
            calls = strings(content.pop("tools", []), "passage")
            yield from (StoredText(name, record_id, subject, value, by) for value, by in calls)
        for value, by in strings(content, author, FIELDS.get((name, column))):
            yield StoredText(name, record_id, subject, value, by)


def strings(value: Any, author: Author, fields: frozenset[str] | None = None) -> Iterator[tuple[str, Author]]:
    """Every string inside a value with its author. Messages of assistants and systems count as a model's."""
    if isinstance(value, str):
        yield value, author
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, author, fields)
    elif isinstance(value, dict):
        by = "model" if author == "person" and value.get("role") in ("assistant", "system") else author
        for key, item in value.items():
            is_text = key != "role" if fields is None else key in fields
            yield from strings(item, by if is_text else "passage" if key == "contexts" else "system", fields)
