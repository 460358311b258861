"""First pass: every row of every source becomes a clean record on disk, or is dropped with a reason.

A record takes about a kilobyte of memory: its origin, its tags, its signature and the features of its question.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Conversation, Origin, Record, Source
from medloop.contracts.dataset import DropReason, Language
from medloop.data.prepare.scrub_sources import SourceScrubber
from medloop.data.prepare.spool import Spool
from medloop.data.progress import Progress
from medloop.data.sources import read_rows, shapes
from medloop.data.sources.import_files import source_file
from medloop.data.text.clean import CleanLimits, clean_messages, clean_text
from medloop.data.text.dedupe import PERMUTATIONS, Signatures, Signer
from medloop.data.text.near import QuestionFeatures, QuestionFeaturesBuilder
from medloop.data.text.risk import ORDER, strata_of
from medloop.data.text.shingles import question_marks, text_marks, tokens
from medloop.lexicon.language import detect_language

LANGUAGES: tuple[Language, ...] = get_args(Language)
OPENING_WORDS = 8  # the opening ends after this many different words, so a greeting alone is not taken for a question


@dataclass(frozen=True)
class Drop:
    """A row that was left out; `matched` is the record it repeats and `split` is that record's split."""

    source: str
    line: int
    reason: DropReason
    record_id: str | None = None
    matched: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class RecordTable:
    """One entry per clean record, in the order of source name and line."""

    spool: Spool
    source: NDArray[np.uint16]
    line: NDArray[np.uint32]
    language: NDArray[np.uint8]
    strata: NDArray[np.uint8]
    reviewed: NDArray[np.bool_]
    message_counts: NDArray[np.uint16]
    text_keys: NDArray[np.uint64]
    question_keys: NDArray[np.uint64]
    priorities: NDArray[np.uint64]
    questions: QuestionFeatures

    def __len__(self) -> int:
        return len(self.source)


class _Columns:
    """Growing columns; `rows` returns them as numpy arrays without a copy."""

    def __init__(self, spool: Spool, most: int, seed: int) -> None:
        self._spool, self._seed, self._signer = spool, seed, Signer()
        self._small = {name: array(code) for name, code in _TYPES.items()}
        self._questions = QuestionFeaturesBuilder()
        self._signatures = np.empty((most, PERMUTATIONS), dtype=np.uint32)

    def add(self, record: Record, source: int) -> None:
        key, features = question_marks(opening(record.conversation))
        text_key, shingles = text_marks(whole_text(record.conversation))
        self._signatures[len(self._spool)] = self._signer.sign(shingles)
        self._questions.add(features)
        values = {
            "source": source, "line": record.origin.line, "language": LANGUAGES.index(record.language),
            "strata": sum(1 << ORDER.index(stratum) for stratum in record.strata), "reviewed": int(record.reviewed),
            "message_counts": min(len(record.conversation.messages), 0xFFFF), "text_keys": text_key, "question_keys": key,
            "priorities": priority(self._seed, key),
        }  # fmt: skip
        for name, value in values.items():
            self._small[name].append(value)
        self._spool.append(record)

    def signatures(self) -> Signatures:
        return self._signatures[: len(self._spool)]

    def rows(self) -> RecordTable:
        columns = {name: np.frombuffer(column, dtype=f"u{column.itemsize}") for name, column in self._small.items()}
        reviewed = columns.pop("reviewed").astype(np.bool_)
        return RecordTable(spool=self._spool, reviewed=reviewed, questions=self._questions.questions(), **columns)


_TYPES = {
    "source": "H", "line": "I", "language": "B", "strata": "B", "reviewed": "B", "message_counts": "H",
    "text_keys": "Q", "question_keys": "Q", "priorities": "Q",
}  # fmt: skip


def collect_records(
    sources: Sequence[Source],
    raw: Path,
    spool: Spool,
    *,
    limits: CleanLimits,
    scrub: SourceScrubber | None,
    seed: int,
    progress: Progress,
) -> tuple[RecordTable, Signatures, list[Drop]]:
    """Read, clean, scrub, tag and spool every row. The signatures come apart, because they are large and freed soon."""
    total = sum(source.rows for source in sources)
    columns, drops = _Columns(spool, total, seed), []
    with progress("Reading and cleaning", total) as step:
        for number, source in enumerate(sources):
            for row in _clean_rows(source, raw, limits):
                step(1)
                result, passages = row.result, row.passages
                if scrub is not None and isinstance(result, Conversation):
                    result, passages = scrub.conversation(result, passages, source.name, row.line)
                if isinstance(result, Conversation):
                    columns.add(make_record(result, source, row.line, row.reviewed, passages), number)
                else:
                    drops.append(Drop(source.name, row.line, result))
    return columns.rows(), columns.signatures(), drops


def make_record(conversation: Conversation, source: Source, line: int, reviewed: bool, passages: tuple[str, ...] = ()) -> Record:
    origin = Origin(source=source.name, line=line, licence=source.licence)
    return Record(
        record_id=conversation.content_id(), conversation=conversation, language=detect_language(conversation.user_text),
        strata=strata_of(conversation.user_text), origin=origin, reviewed=reviewed, context=passages or None,
    )  # fmt: skip


def whole_text(conversation: Conversation) -> str:
    """All messages without the system message, which is the same for a whole file."""
    return "\n".join(message.content for message in conversation.messages if message.role != "system")


def opening(conversation: Conversation) -> str:
    """The first messages of the user, up to the one with enough different words to know the subject."""
    text = ""
    messages = [message.content for message in conversation.messages if message.role == "user"]
    for index, message in enumerate(messages):
        text = f"{text}\n{message}" if index else message
        if len(messages) > 1 and len(set(tokens(text))) >= OPENING_WORDS:
            break
    return text


class CleanRow(NamedTuple):
    """A row of a source: its conversation, or why it has none; its context passages."""

    line: int
    result: Conversation | DropReason
    reviewed: bool
    passages: tuple[str, ...]


def _clean_rows(source: Source, raw: Path, limits: CleanLimits) -> Iterator[CleanRow]:
    assert source.shape is not None and source.columns is not None, "import writes both"
    for row in read_rows(source_file(raw, source), source.format, source.encoding):
        if row.problem:
            continue  # counted by the import as rejected
        try:
            messages = shapes.messages_of(row.values, source.shape, source.columns)
            passages = [clean_text(passage) for passage in shapes.passages_of(row.values, source.columns)]
        except shapes.ShapeProblem:
            continue
        reviewed = shapes.is_reviewed(row.values)
        yield CleanRow(row.line, clean_messages(messages, limits), reviewed, tuple(passage for passage in passages if passage))


def priority(seed: int, key: int) -> int:
    """A question's rank in every draw: it depends only on the seed and the question."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "big")
