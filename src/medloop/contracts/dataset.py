"""Records, prompts, pairs, and the card that says where a dataset came from."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Json, Text, Timestamp
from medloop.contracts.chat import Conversation, Message

Language = Literal["zh", "en", "mixed", "other"]
Stratum = Literal["emergency", "medication", "pregnancy", "child", "elderly", "routine"]
Split = Literal["train", "dev", "test", "gold", "red"]
SPLIT_FILES: dict[str, str] = {  # of data/processed
    "train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl", "gold": "gold_set.jsonl", "red": "red_team.jsonl",
}  # fmt: skip
HIGH_RISK: frozenset[str] = frozenset({"emergency", "medication", "pregnancy", "child", "elderly"})
DropReason = Literal[
    "empty", "no_answer", "broken_turns", "too_short", "too_long", "not_text", "debris", "phi",
    "exact_duplicate", "near_duplicate", "contaminated",
]  # fmt: skip


class Origin(Contract):
    """Where a record came from: which source and which line of it."""

    source: Text
    line: int = Field(ge=1)
    licence: str = "unknown"


class Record(Contract):
    """One cleaned example. Its id is the hash of the conversation, so the same conversation has the same id everywhere.

    `context` are the passages that an answer may rely on, the most relevant first.
    """

    record_id: Hash
    conversation: Conversation
    language: Language
    strata: tuple[Stratum, ...] = Field(min_length=1)
    origin: Origin
    reviewed: bool = False
    context: tuple[Text, ...] | None = None
    meta: Json = Field(default_factory=dict)

    @property
    def stratum(self) -> Stratum:
        """The most serious of its strata (they are in this order)."""
        return self.strata[0]

    @property
    def high_risk(self) -> bool:
        return self.stratum in HIGH_RISK


class Prompt(Contract):
    """A prompt for RL, without an answer."""

    prompt_id: Hash
    messages: tuple[Message, ...] = Field(min_length=1)
    language: Language
    strata: tuple[Stratum, ...] = Field(min_length=1)
    red_team: bool = False
    context: tuple[Text, ...] | None = None
    origin: Origin


class PreferencePair(Contract):
    """A line of `preferences.jsonl`."""

    prompt: Text | tuple[Message, ...]
    chosen: Text
    rejected: Text
    context: tuple[Text, ...] | None = None
    metadata: Json = Field(default_factory=dict)


class Source(Contract):
    """One imported file, kept as it came, with its hash, its licence and how to read it.

    A dataset card leaves `imported` out: the same data gives the same card wherever and whenever it was imported.
    """

    name: Text
    path: Text
    sha256: Hash
    format: Text
    encoding: Text
    shape: str | None = None
    columns: dict[str, str] | None = None
    rows: int = Field(ge=0)
    rejected_rows: int = Field(0, ge=0)
    licence: str = "unknown"
    imported: Timestamp | None = None


class FileEntry(Contract):
    path: Text
    rows: int = Field(ge=0)
    sha256: Hash


class DatasetCard(Contract):
    """Everything a reader needs to trust a dataset; its content id is the dataset hash.

    `scrub` counts rows scanned, changed and held back, and what was replaced by kind; None: no scan for identifiers.
    """

    name: Text
    seed: int
    sources: tuple[Source, ...]
    files: dict[Split, FileEntry]
    rows_in: int = Field(ge=0)
    drops: dict[str, dict[DropReason, int]] = Field(default_factory=dict)
    languages: dict[str, dict[Language, int]] = Field(default_factory=dict)
    strata: dict[str, dict[Stratum, int]] = Field(default_factory=dict)
    decontamination: dict[str, int] = Field(default_factory=dict)
    scrub: dict[str, int] | None = None
    config: Json = Field(default_factory=dict)
    parents: tuple[Hash, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)


class ErasedRows(Contract):
    """How many rows an erasure removed from a dataset, which had the hash `before` until then."""

    erasure_id: Text
    before: Hash
    rows: int = Field(ge=0)


class FeedbackCard(Contract):
    """The card of a dataset made from feedback: which records came in, which rows came out, what was dropped and why.

    It has no time: the same records give the same card. `records` counts by kind and status, `rows` by kind and split.
    """

    name: Text
    seed: int
    files: dict[str, FileEntry]
    records: dict[str, dict[str, int]]
    rows: dict[str, dict[str, int]]
    drops: dict[str, dict[str, int]] = Field(default_factory=dict)
    languages: dict[str, int] = Field(default_factory=dict)
    strata: dict[str, int] = Field(default_factory=dict)
    decontamination: dict[str, int] = Field(default_factory=dict)
    config: Json = Field(default_factory=dict)
    parents: tuple[Hash, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    erased: tuple[ErasedRows, ...] = ()
