"""Datasets and erasures as jobs: they take minutes, which no request can wait for. The same functions as the commands.

    job_id = file_build(FeedbackConfig(name="week46"), settings, seed=7, actor="usr_1")
    look(job_id, "BUILD", settings)              # state, progress, and `result` once it is there

A worker of its own does the work, so a `kill -9` is made good like that of a training job: a dataset is begun again, an erasure
goes on from its journal. What came of it lies in the job's folder, `result.json`: ids, hashes and counts, no text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import JobDetail, JobStatus
from medloop.contracts.job import Errand, ErrandRequest
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.progress import Step
from medloop.jobs import queue
from medloop.jobs.affected import Running
from medloop.jobs.job_row import OVER, UnknownJobError
from medloop.jobs.lease import Lease
from medloop.loop.erasure import erase_records
from medloop.loop.feedback import build_from_feedback
from medloop.privacy.erasure.erase import Request, preview, proof_path
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.files.atomic import atomic_write

RESULT = "result.json"
REPORT_S = 1.0  # at most one status file a second
LOOK_S = 0.1
Json = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """An errand as somebody asks for it; `result` is there when it has succeeded."""

    status: JobStatus
    result: Json | None

    @property
    def is_over(self) -> bool:
        return self.status.state in OVER


def file_build(config: FeedbackConfig, settings: Settings, *, seed: int, actor: str) -> str:
    asked = {"seed": seed, "settings": config.model_dump(mode="json")}
    return queue.submit_errand(ErrandRequest(stage="BUILD", actor=actor, config=asked), settings)


def file_erasure(wish: Request, settings: Settings, *, actor: str, dry_run: bool) -> str:
    """`wish.subject` must be the hash already: the folder of a job is no place for a patient's number."""
    asked = {"reason": wish.reason, "records": list(wish.records), "keep_jobs": wish.keep_jobs, "dry_run": dry_run}
    asked |= {} if wish.subject is None else {"subject": wish.subject}
    return queue.submit_errand(ErrandRequest(stage="ERASE", actor=actor, config=asked), settings)


def look(job_id: str, stage: Errand, settings: Settings, *, wait_s: float = 0.0) -> Seen:
    """Where an errand is; for up to `wait_s` seconds its end is waited for. One of the other kind is not found."""
    folder, deadline = queue.folder_of(job_id, settings), time.monotonic() + wait_s
    while True:
        status = queue.status_of(job_id, settings)
        if status.stage != stage:
            raise UnknownJobError(f"There is no job {job_id} here", "Check its address")
        if status.state in OVER or time.monotonic() >= deadline:
            there = status.state == "succeeded" and (folder / RESULT).is_file()
            return Seen(status, json.loads((folder / RESULT).read_bytes()) if there else None)
        time.sleep(LOOK_S)


def run(lease: Lease, settings: Settings, stopped: Callable[[], bool]) -> str:
    """Do what the job asks for; returns the sentence that its record keeps."""
    asked = queue.errand_of(lease.folder)
    with open_store(settings) as store:
        if asked.stage == "BUILD":
            result, said = _build(store, asked, Ticks(lease, stopped))
        else:
            result, said = _erase(store, asked, settings)
    atomic_write(lease.folder / RESULT, json.dumps(result, ensure_ascii=False, indent=2) + "\n")
    return said


def _build(store: Store, asked: ErrandRequest, ticks: Ticks) -> tuple[Json, str]:
    config = FeedbackConfig.model_validate(asked.config["settings"])
    built = build_from_feedback(store, config, seed=asked.config["seed"], actor=asked.actor, progress=ticks.phase)
    rows = {name: entry.rows for name, entry in built.card.files.items()}
    result = {
        "name": config.name, "sha256": built.sha256, "rows": rows, "records": built.card.records, "dropped": built.card.drops,
        "new": built.new, "held": built.held,
    }  # fmt: skip
    return result, f"The dataset is {_inside(built.folder, store)}."


def _erase(store: Store, asked: ErrandRequest, settings: Settings) -> tuple[Json, str]:
    given: Mapping[str, Any] = asked.config
    wish = Request(given["reason"], given.get("subject"), tuple(given["records"]), given["keep_jobs"])
    if given["dry_run"]:
        found = preview(store, wish, actor=asked.actor, jobs=Running(settings))
        said = {"rows": found.rows, "files": found.files, "unsearched": found.unsearched, "shared": found.shared}
        return {"state": "preview", **said, "jobs": found.jobs}, "Nothing was changed."
    proof = erase_records(store, wish, actor=asked.actor, jobs=Running(settings))
    result: Json = {"state": "complete" if proof.complete else "incomplete", "erasure_id": proof.erasure_id, "rows": proof.rows}
    result |= {"files": [str(one["path"]) for one in proof.files], "flagged": [one["path"] for one in proof.flagged]}
    result |= {"jobs": list(proof.jobs), "left": list(proof.left), "unsearched": list(proof.unsearched), "shared": proof.shared}
    result["proof"] = proof.model_dump(mode="json", exclude_none=True)
    word = "complete" if proof.complete else "NOT complete"
    return result, f"The erasure is {word}; the proof is {_inside(proof_path(store, proof.erasure_id), store)}."


def _inside(path: Path, store: Store) -> str:
    return path.relative_to(store.settings.home).as_posix()


class Ticks:
    """Phases and steps into status.json; a wish for the end is heard at the next step."""

    def __init__(self, lease: Lease, stopped: Callable[[], bool]) -> None:
        self.lease, self.stopped, self.last = lease, stopped, 0.0

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Step]:
        done = 0

        def step(count: int) -> None:
            nonlocal done
            done += count
            if self.stopped():
                raise KeyboardInterrupt
            if time.monotonic() - self.last >= REPORT_S:
                self.last = time.monotonic()
                self.lease.report(JobDetail(phase_progress=round(min(100 * done / max(total, 1), 100.0), 1), message=f"{name}."))

        step(0)
        yield step
