"""What an erasure is asked to do, its journal, its proof, and what it needs to know of training jobs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import Field

from medloop.contracts import Contract
from medloop.contracts.base import Text, Timestamp


@dataclass(frozen=True)
class ErasureRequest:
    """Whom or what to erase: one subject (an external id or its hash), or records by their ids; and why.

    Training jobs on data that changes are cancelled, unless `keep_jobs`; then they are only named.
    """

    reason: str
    subject: str | None = None
    records: tuple[str, ...] = ()
    keep_jobs: bool = False


class TrainingJobs(Protocol):
    """The training jobs of a workspace, as far as an erasure has to do with them."""

    def on(self, hashes: Collection[str], paths: Collection[str]) -> list[str]:
        """Those not over that learn from these hashes or read these paths of the workspace."""

    def unread(self) -> list[str]:
        """The folders of jobs that are too damaged to say what they read."""

    def stop(self, job_ids: Collection[str], erasure_id: str) -> None:
        """Cancel them and see them end; their records keep the reason."""

    def stopped(self, erasure_id: str) -> list[dict[str, str]]:
        """What this erasure cancelled: job, state and reason."""


class ErasureCase(Contract):
    """One erasure: whom it is about, who asked for it and why."""

    erasure_id: Text
    subject: str | None = None
    asked: tuple[Text, ...] = ()
    reason: Text
    actor: Text
    started: Timestamp
    keep_jobs: bool = False
    shared: int = Field(0, ge=0)  # records of others that hold some of the same text, and stay


class ErasureProof(ErasureCase):
    """What an erasure did. No erased word is in it; `complete`: the last look found none either, and no job goes on with them."""

    finished: Timestamp
    complete: bool
    rows: dict[str, int] = Field(default_factory=dict)  # rows of the store that went, by table
    tombstones: tuple[dict[str, str], ...] = ()
    files: tuple[dict[str, Any], ...] = ()  # what was rewritten or removed, with its hash before and after
    flagged: tuple[dict[str, str], ...] = ()  # models that learnt from what went
    jobs: tuple[Text, ...] = ()  # runs that were begun on the old data, and jobs that were kept or did not end
    alive: tuple[Text, ...] = ()  # jobs that were to be stopped for it and have not ended
    cancelled: tuple[dict[str, str], ...] = ()  # training jobs that were stopped for it
    elsewhere: tuple[Text, ...] = ()  # files outside the workspace that were made of it
    store: str = ""
    verified: dict[str, int] = Field(default_factory=dict)  # the last look: files, bytes, hits, texts looked for
    left: tuple[Text, ...] = ()
    unsearched: tuple[Text, ...] = ()


class ErasurePlan(ErasureCase):
    """The journal: sealed while the erasure is under way, gone afterwards."""

    record_ids: dict[str, tuple[str, ...]]
    words: tuple[tuple[str, bool], ...]
    marks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()

    @property
    def ids(self) -> set[str]:
        return {record_id for ids in self.record_ids.values() for record_id in ids}


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would do."""

    rows: dict[str, int]
    files: list[str]
    datasets: int
    shared: int
    unsearched: list[str]
    jobs: list[str]
