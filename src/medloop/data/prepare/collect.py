"""First pass: every row of every source becomes a clean record on disk, or a drop with its reason.

In memory a record leaves about a kilobyte: where it came from, what it is, its signature and the features of its question.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Conversation, Origin, Record, Source
from medloop.contracts.dataset import DropReason, Language
from medloop.data.prepare.scrub_sources import Scrubbing
from medloop.data.prepare.spool import Spool
from medloop.data.progress import Progress
from medloop.data.sources import read_rows, shapes
from medloop.data.sources.import_files import source_file
from medloop.data.text.clean import Limits, clean_turns
from medloop.data.text.dedupe import PERMUTATIONS, Signatures, Signer
from medloop.data.text.language import detect_language
from medloop.data.text.near import Growing, Questions
from medloop.data.text.risk import ORDER, strata_of
from medloop.data.text.shingles import question_marks, text_marks, tokens

LANGUAGES: tuple[Language, ...] = get_args(Language)
OPENING_WORDS = 8  # a greeting alone is no question: the opening goes on until this many different words were said


@dataclass(frozen=True)
class Drop:
    """A row that was left out. `matched` is the record it repeats, `split` where that record went."""

    source: str
    line: int
    reason: DropReason
    record_id: str | None = None
    matched: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Rows:
    """One entry per clean record, in the order of source name and line."""

    spool: Spool
    source: NDArray[np.uint16]
    line: NDArray[np.uint32]
    language: NDArray[np.uint8]
    strata: NDArray[np.uint8]
    reviewed: NDArray[np.bool_]
    turns: NDArray[np.uint16]
    text_keys: NDArray[np.uint64]
    question_keys: NDArray[np.uint64]
    priorities: NDArray[np.uint64]
    questions: Questions

    def __len__(self) -> int:
        return len(self.source)


class _Columns:
    """Columns that grow; `rows` hands them over as numpy arrays without a copy."""

    def __init__(self, spool: Spool, most: int, seed: int) -> None:
        self._spool, self._seed, self._signer = spool, seed, Signer()
        self._small = {name: array(code) for name, code in _TYPES.items()}
        self._questions = Growing()
        self._signatures = np.empty((most, PERMUTATIONS), dtype=np.uint32)

    def add(self, record: Record, source: int) -> None:
        key, features = question_marks(opening(record.conversation))
        text_key, shingles = text_marks(whole_text(record.conversation))
        self._signatures[len(self._spool)] = self._signer.sign(shingles)
        self._questions.add(features)
        values = {
            "source": source,
            "line": record.origin.line,
            "language": LANGUAGES.index(record.language),
            "strata": sum(1 << ORDER.index(stratum) for stratum in record.strata),
            "reviewed": int(record.reviewed),
            "turns": min(len(record.conversation.messages), 0xFFFF),
            "text_keys": text_key,
            "question_keys": key,
            "priorities": priority(self._seed, key),
        }
        for name, value in values.items():
            self._small[name].append(value)
        self._spool.append(record)

    def signatures(self) -> Signatures:
        return self._signatures[: len(self._spool)]

    def rows(self) -> Rows:
        columns = {name: np.frombuffer(column, dtype=f"u{column.itemsize}") for name, column in self._small.items()}
        reviewed = columns.pop("reviewed").astype(np.bool_)
        return Rows(spool=self._spool, reviewed=reviewed, questions=self._questions.questions(), **columns)


_TYPES = {
    "source": "H", "line": "I", "language": "B", "strata": "B", "reviewed": "B", "turns": "H",
    "text_keys": "Q", "question_keys": "Q", "priorities": "Q",
}  # fmt: skip


def gather(
    sources: Sequence[Source], raw: Path, spool: Spool, *, limits: Limits, scrub: Scrubbing | None, seed: int, progress: Progress
) -> tuple[Rows, Signatures, list[Drop]]:
    """Read, clean, scrub, tag and spool every row; the signatures come apart, because they are large and soon done with."""
    total = sum(source.rows for source in sources)
    columns, drops = _Columns(spool, total, seed), []
    with progress("Reading and cleaning", total) as step:
        for number, source in enumerate(sources):
            for line, found, reviewed in _conversations(source, raw, limits):
                step(1)
                if scrub is not None and isinstance(found, Conversation):
                    found = scrub.conversation(found, source.name, line)
                if isinstance(found, Conversation):
                    columns.add(make_record(found, source, line, reviewed), number)
                else:
                    drops.append(Drop(source.name, line, found))
    return columns.rows(), columns.signatures(), drops


def make_record(conversation: Conversation, source: Source, line: int, reviewed: bool) -> Record:
    origin = Origin(source=source.name, line=line, licence=source.licence)
    return Record(
        record_id=conversation.content_id(), conversation=conversation, language=detect_language(asked(conversation)),
        strata=strata_of(asked(conversation)), origin=origin, reviewed=reviewed,
    )  # fmt: skip


def whole_text(conversation: Conversation) -> str:
    """Everything that was asked and answered, without the system message (it is the same for whole files)."""
    return "\n".join(message.content for message in conversation.messages if message.role != "system")


def asked(conversation: Conversation) -> str:
    """Everything the user said: it decides language and risk, as it does when only a prompt is known."""
    return "\n".join(message.content for message in conversation.messages if message.role == "user")


def opening(conversation: Conversation) -> str:
    """What the conversation is about: the user's turns up to the one where enough was said to know."""
    said = ""
    turns = [message.content for message in conversation.messages if message.role == "user"]
    for at, turn in enumerate(turns):
        said = f"{said}\n{turn}" if at else turn
        if len(turns) > 1 and len(set(tokens(said))) >= OPENING_WORDS:
            break
    return said


def _conversations(source: Source, raw: Path, limits: Limits) -> Iterator[tuple[int, Conversation | DropReason, bool]]:
    assert source.shape is not None and source.columns is not None, "import writes both"
    for row in read_rows(source_file(raw, source), source.format, source.encoding):
        if row.problem:
            continue  # counted by the import as rejected
        try:
            turns = shapes.turns_of(row.values, source.shape, source.columns)
        except shapes.ShapeProblem:
            continue
        yield row.line, clean_turns(turns, limits), shapes.is_reviewed(row.values)


def priority(seed: int, key: int) -> int:
    """Where a question stands in every draw: depends on the seed and the question alone, not on the other rows."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "big")
