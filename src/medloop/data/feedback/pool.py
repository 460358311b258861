"""Rows made from feedback while they are compared and split: their texts on disk, in memory some forty bytes a row."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Conversation, Message
from medloop.data.feedback.near_rows import Wordings
from medloop.data.feedback.rows import Draft, RowKind
from medloop.data.prepare.collect import opening
from medloop.data.prepare.spool import Spool
from medloop.data.text.language import detect_language
from medloop.data.text.near import Indexes, Mask
from medloop.data.text.risk import strata_of

KINDS: tuple[RowKind, ...] = ("pairs", "thumbs", "answers", "red")


@dataclass(frozen=True)
class Row:
    """A draft after scrubbing. `texts` are (chosen, rejected), (answer,) or nothing; `records` are the ids behind it."""

    kind: RowKind
    question: tuple[Message, ...]
    texts: tuple[str, ...]
    records: tuple[str, ...]
    about: dict[str, Any]

    @classmethod
    def of(cls, draft: Draft, question: tuple[Message, ...], texts: tuple[str, ...]) -> Row:
        user = "\n".join(message.content for message in question if message.role == "user")
        said = {"language": detect_language(user), "strata": list(strata_of(user))}
        return cls(draft.kind, question, texts, draft.records, said | draft.about)

    @property
    def asked(self) -> str:
        return opening(Conversation(messages=self.question))

    @property
    def prompt(self) -> str | tuple[Message, ...]:
        return self.question[0].content if len(self.question) == 1 else self.question

    @property
    def compared(self) -> tuple[str, ...]:
        """A thumb up and a thumb down on like answers are not copies of each other."""
        return (*self.texts, "up" if self.about["liked"] else "down") if self.kind == "thumbs" else self.texts


class Pool:
    """Rows by number. A row is added once and read back as often as it is needed."""

    def __init__(self, folder: Path) -> None:
        self.wordings = Wordings()
        self._spool = Spool(folder)
        self._kinds, self._speaking, self._wording = array("B"), array("I"), array("q")
        self._orders = bytearray()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.__exit__(None, None, None)

    def __len__(self) -> int:
        return len(self._spool)

    def add(self, row: Row, order: bytes) -> None:
        """`order` says where it stands in every list."""
        turns = [[message.role, message.content] for message in row.question]
        self._spool.put(json.dumps([turns, row.texts, row.records, row.about]).encode())
        self._kinds.append(KINDS.index(row.kind))
        self._speaking.append(len(row.records))
        self._wording.append(self.wordings.number(row.asked))
        self._orders += order[:16]

    def row(self, at: int) -> Row:
        turns, texts, records, about = json.loads(self._spool.line(at))
        question = tuple(Message.model_construct(role=role, content=content) for role, content in turns)
        return Row(KINDS[self._kinds[at]], question, tuple(texts), tuple(records), about)

    def of_kind(self, kind: RowKind, among: Mask | None = None) -> Indexes:
        """The rows of a kind in their order."""
        chosen = self.kinds() == KINDS.index(kind)
        found = np.flatnonzero(chosen if among is None else chosen & among)
        return np.asarray(found[np.lexsort(self._order(found))])

    def by_weight(self, kind: RowKind) -> Indexes:
        """The rows of a kind, those that more records speak for first."""
        found = np.flatnonzero(self.kinds() == KINDS.index(kind))
        speaking = np.array(self._speaking, dtype=np.int64)[found]
        return np.asarray(found[np.lexsort((*self._order(found), -speaking))])

    def kinds(self) -> NDArray[np.uint8]:
        return np.array(self._kinds, dtype=np.uint8)

    def wording(self, rows: Indexes) -> Indexes:
        return np.array(self._wording, dtype=np.int64)[rows]

    def _order(self, rows: Indexes) -> Sequence[NDArray[np.uint64]]:
        """For lexsort, which takes the most important column last."""
        high, low = np.frombuffer(bytes(self._orders), dtype=">u8").astype(np.uint64).reshape(-1, 2)[rows].T
        return low, high
