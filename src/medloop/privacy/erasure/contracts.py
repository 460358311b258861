"""The request, the journal and the proof of an erasure, and what it needs to know about training jobs."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import Field

from medloop.contracts import Contract, canonical_json
from medloop.contracts.base import Text, Timestamp
from medloop.store.records.evidence import ForeignRecord


@dataclass(frozen=True)
class ErasureRequest:
    """What to erase and why: one subject (an external id or its hash), or records by their ids.

    Training jobs on data that changes are cancelled; with `keep_jobs` the proof only lists them.
    """

    reason: str
    subject: str | None = None
    records: tuple[str, ...] = ()
    keep_jobs: bool = False
    approved_by: str | None = None  # the second person, if safety evidence goes
    approved_ids: str | None = None  # the set of records that this person approved (`ErasurePlan.ids_sha256`)
    request_id: str | None = None  # of the stored request that was approved


class TrainingJobs(Protocol):
    """What an erasure needs from the training jobs of a workspace."""

    def on(self, hashes: Collection[str], paths: Collection[str]) -> list[str]:
        """The unfinished jobs that train on these hashes or read these paths of the workspace."""

    def unread(self) -> list[str]:
        """The folders of damaged jobs, where it is unknown what they read."""

    def stop(self, job_ids: Collection[str], erasure_id: str) -> None:
        """Cancel the jobs and wait until they end; their rows keep the reason."""

    def stopped(self, erasure_id: str) -> list[dict[str, str]]:
        """The jobs that this erasure cancelled: job, state and reason."""


class ErasureCase(Contract):
    """One erasure: whom it is about, who asked for it and why."""

    erasure_id: Text
    subject: str | None = None
    asked: tuple[Text, ...] = ()
    reason: Text
    actor: Text
    started: Timestamp
    keep_jobs: bool = False
    shared: int = Field(0, ge=0)  # records of others that hold some of the same text and stay
    evidence: dict[str, int] = Field(default_factory=dict)  # critical flags and incidents that lose their text
    approved_by: str | None = None  # the second person who agreed to that
    request_id: str | None = None  # of the stored request that this person approved
    replays: str | None = None  # the erasure that this one repeats, after a backup was restored


class ErasureProof(ErasureCase):
    """What an erasure did, without any erased text. `complete`: the last search found none, and no job trains on it."""

    finished: Timestamp
    complete: bool
    rows: dict[str, int] = Field(default_factory=dict)  # erased rows of the store, by table
    tombstones: tuple[dict[str, str], ...] = ()
    files: tuple[dict[str, Any], ...] = ()  # rewritten or removed files, with their hashes before and after
    flagged: tuple[dict[str, str], ...] = ()  # models that were trained on erased data
    jobs: tuple[Text, ...] = ()  # runs that started on the old data, and jobs that were not stopped or did not end
    alive: tuple[Text, ...] = ()  # jobs that were told to stop and have not ended
    cancelled: tuple[dict[str, str], ...] = ()  # training jobs that were stopped
    elsewhere: tuple[Text, ...] = ()  # files outside the workspace that were made from erased records
    store: str = ""
    keys_destroyed: int = Field(0, ge=0)  # of the texts: what was encrypted under them does not open again
    key_file: str = ""  # the file that held them; copies of it from before the erasure still hold them
    verified: dict[str, int] = Field(default_factory=dict)  # the last search: files, bytes, hits, texts
    left: tuple[Text, ...] = ()
    columns: tuple[Text, ...] = ()  # where the database still holds it: columns that are not encrypted, with some ids
    by_hand: tuple[Text, ...] = ()  # what is never edited by an erasure and holds a code or text of the person
    unsearched: tuple[Text, ...] = ()


class ErasurePlan(ErasureCase):
    """The journal: encrypted, and deleted when the erasure is complete."""

    record_ids: dict[str, tuple[str, ...]]
    words: tuple[tuple[str, bool], ...]
    marks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # of the texts: leaves and branches of the key tree
    sessions: tuple[str, ...] = ()  # session ids that no other record has
    condemned: tuple[str, ...] = ()  # of a replay: files and folders that hold erased text, by their hash

    @property
    def ids(self) -> set[str]:
        return {record_id for ids in self.record_ids.values() for record_id in ids}

    @property
    def ids_sha256(self) -> str:
        """Names the set of records and how much safety evidence is in it: two people agree on exactly this.

        Items of the review queue are left out: the server makes them from these records by itself, a moment after each.
        """
        return self._sha256({name: ids for name, ids in self.record_ids.items() if name != "queue_items"})

    def is_agreed(self, ids_sha256: str | None) -> bool:
        """Whether a request is for exactly these records; one from before queue items were left out is for them as well."""
        return ids_sha256 in (self.ids_sha256, self._sha256(self.record_ids))

    def _sha256(self, ids: dict[str, tuple[str, ...]]) -> str:
        return hashlib.sha256(canonical_json([ids, self.evidence]).encode()).hexdigest()


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would do."""

    rows: dict[str, int]
    files: list[str]
    datasets: int
    shared: int
    unsearched: list[str]
    jobs: list[str]
    foreign: list[ForeignRecord]
    evidence: dict[str, int]
    ids_sha256: str
    by_hand: list[str]
