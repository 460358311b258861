"""Training jobs that read data which an erasure changes: found, and cancelled with the reason in their record."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from medloop.errors import IntegrityError
from medloop.jobs import job_row, queue, requests
from medloop.jobs.job_row import UnknownJobError
from medloop.settings import Settings

DAMAGED = (IntegrityError, OSError, ValueError, RuntimeError)  # RuntimeError: a path of a user who does not exist


class QueuedJobs:
    """The training jobs of a workspace, as an erasure needs them (`privacy.erasure.contracts.TrainingJobs`)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def any(self) -> bool:
        """Whether a training job waits, runs or pauses at all."""
        return any(not row.has_ended for row in queue.rows(self.settings, ("train",)))

    def on(self, hashes: Collection[str], paths: Collection[str]) -> list[str]:
        """Jobs that have not ended and were begun on one of these hashes, or read one of these paths of the workspace."""
        changed = [(self.settings.home / path).resolve() for path in paths]
        return sorted(
            row.job_id
            for row in queue.rows(self.settings, ("train",))
            if not row.has_ended and self._reads(row.job_id, set(hashes), changed)
        )

    def unread(self) -> list[str]:
        """Jobs whose files are damaged: nobody can tell what they read. They cannot run either, and block no erasure."""
        return [f"jobs/{job_id}" for job_id in sorted(queue.ids(self.settings, ("train",))) if self._is_damaged(job_id)]

    def stop(self, job_ids: Collection[str], erasure_id: str) -> None:
        reason = f"Cancelled by the erasure {erasure_id}, which changed its data. Submit it again to learn from what is left."
        for job_id in job_ids:
            queue.stop(job_id, self.settings, reason)

    def stopped(self, erasure_id: str) -> list[dict[str, str]]:
        """What this erasure cancelled, by the jobs' own records: also known to an erasure that was killed and continues."""
        return [
            {"job": row.job_id, "state": row.state, "reason": row.reason}
            for row in queue.rows(self.settings)
            if row.reason and row.reason.startswith(f"Cancelled by the erasure {erasure_id},")
        ]

    def _reads(self, job_id: str, hashes: set[str], changed: list[Path]) -> bool:
        folder = queue.folder_of(job_id, self.settings)
        if hashes & set(_begun_on(folder)):
            return True
        try:
            inputs = [folder.resolve(), *requests.input_paths(queue.request_of(folder), self.settings)]
        except DAMAGED:
            return False  # `unread` names it
        return any(read == path or read in path.parents or path in read.parents for read in inputs for path in changed)

    def _is_damaged(self, job_id: str) -> bool:
        try:
            folder = queue.folder_of(job_id, self.settings)
            if not job_row.read(folder).has_ended:
                requests.input_paths(queue.request_of(folder), self.settings)
        except UnknownJobError:
            return False  # it was removed
        except DAMAGED:
            return True
        return False


def _begun_on(folder: Path) -> Iterator[str]:
    """The hashes of model and data with which a run was begun, if it was."""
    try:
        config: Any = json.loads((folder / "config.json").read_bytes())
        identity = config["identity"]
        yield from (str(sha256) for sha256 in (identity["base_sha256"], *identity["inputs"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
