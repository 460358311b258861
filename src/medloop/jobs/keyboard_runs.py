"""Training runs that somebody started at the keyboard (`medloop train sft`, `medloop demo`): a folder under `jobs/` and no row.

    keyboard_runs.newest(settings, limit=20)                 # as the queue's jobs, newest first, with their starts
    keyboard_runs.status_of("train_irs-rl", settings)

The run holds the lock of its folder while it lives; its result has a card with the same start. Neither: it was stopped, and the
same command continues it.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from medloop.contracts import JobDetail, JobMetrics, JobStatus
from medloop.contracts.job import JobState
from medloop.errors import BusyError
from medloop.jobs.job_row import unknown
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.lock import locked_file

RUN_ID = re.compile(r"train_(sft|reward|dpo|kto|ppo|grpo|irs)-([A-Za-z0-9][A-Za-z0-9._-]{0,63})")
RESULTS = ("lora", "full", "reward", "rl")  # folders of models/


def newest(settings: Settings, *, limit: int) -> list[tuple[datetime, JobStatus]]:
    home = settings.workspace.jobs
    folders = [path for path in home.iterdir() if RUN_ID.fullmatch(path.name)] if home.is_dir() else []
    starts = {path.name: started for path in folders if (started := _started(path)) is not None}
    names = sorted(starts, key=lambda name: starts[name], reverse=True)[:limit]
    return [(starts[name], status_of(name, settings)) for name in names]


def status_of(run: str, settings: Settings) -> JobStatus:
    """A damaged line of its metrics is left out: it must not hide the other runs; `lines_of` names it."""
    folder, match = settings.workspace.jobs / run, RUN_ID.fullmatch(run)
    started = _started(folder) if match else None
    if match is None or started is None:
        raise unknown(run)
    rewards: list[float] = [line["avg_reward"] for line in _lines(folder, skipped=[]) if line.get("avg_reward") is not None]
    detail = JobDetail(metrics=JobMetrics(avg_reward=rewards[-1])) if rewards else JobDetail()
    return JobStatus(job_id=run, stage=match[1], state=_state(folder, match[2], started, settings), detail=detail)


def lines_of(run: str, settings: Settings) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a torn last line is left out."""
    return list(_lines(settings.workspace.jobs / run)) if RUN_ID.fullmatch(run) else []


def _lines(folder: Path, skipped: list[int] | None = None) -> Iterator[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return jsonl.read(path, skipped=skipped) if path.is_file() else iter(())


def _state(folder: Path, name: str, started: datetime, settings: Settings) -> JobState:
    try:
        with locked_file(folder, wait_s=0, shared=True):
            pass
    except BusyError:
        return "running"
    cards = (settings.workspace.models / kind / name / "card.json" for kind in RESULTS)
    return "succeeded" if any(_started(card.parent, "card.json") == started for card in cards) else "paused"


def _started(folder: Path, file: str = "config.json") -> datetime | None:
    """When the run of this folder began; None where the file is missing or is not of a run."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return datetime.fromisoformat(json.loads((folder / file).read_bytes())["started"])
    return None
