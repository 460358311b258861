"""The cost of the teacher: every request is a line in `logs/deepseek_teacher/DAY.jsonl`; `teacher_usage.csv` has the totals.

A line has hashes, tokens, latency, outcome and cost, and the job that asked where it was one; never a text. The table is
rewritten from the lines each time. A page that stays open asks every few seconds, and days that are over do not change: what
was read of a file is kept until its size or its time differs.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from medloop.contracts import utc_now
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write
from medloop.store.files.spreadsheet import guard

USAGE = "teacher_usage.csv"
_JOB: ContextVar[str] = ContextVar("job", default="")


@dataclass
class UsageLine:
    """One day of one model with one template; `retries` are requests after the first for the same judgement."""

    day: str
    model: str
    template: str
    requests: int = 0
    ok: int = 0
    failed: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


@dataclass
class UsageSum:
    """What a job, or a day, asked and cost."""

    requests: int = 0
    tokens: int = 0
    usd: float = 0.0
    last: str = ""  # when it asked last: the time of the line, else the day

    def add(self, row: Mapping[str, Any]) -> None:
        self.requests += 1
        self.tokens += sum(int(row.get(name, 0)) for name in ("hit_tokens", "miss_tokens", "completion_tokens"))
        self.usd += float(row.get("cost", 0.0))

    def join(self, other: "UsageSum") -> None:
        self.requests, self.tokens, self.usd = self.requests + other.requests, self.tokens + other.tokens, self.usd + other.usd
        self.last = max(self.last, other.last)


@dataclass(frozen=True)
class UsageDay:
    """What one file of the log says. `damaged`: the numbers of its lines that cannot be read and are left out."""

    lines: Mapping[tuple[str, str, str], UsageLine]
    jobs: Mapping[str, UsageSum]
    whole: UsageSum
    damaged: tuple[int, ...]


def current_job() -> dict[str, str]:
    """The job that this process works on, for a line of the log; nothing at the command line and in the server."""
    return {"job": job} if (job := _JOB.get()) else {}


@contextmanager
def for_job(job_id: str) -> Iterator[None]:
    """What is asked inside counts for this job."""
    before = _JOB.set(job_id)
    try:
        yield
    finally:
        _JOB.reset(before)


def by_job(folder: Path) -> dict[str, UsageSum]:
    """What each job cost: training, evaluations, gates, builds, whatever asked the teacher. A damaged line is left out: it must
    not hide the jobs; `totals` names it."""
    sums: dict[str, UsageSum] = {}
    for path in _files(folder):
        for job, asked in _day(path).jobs.items():
            sums.setdefault(job, UsageSum()).join(asked)
    return sums


def today(folder: Path) -> UsageSum:
    """What the teacher was asked today (UTC), by whomever; without damaged lines."""
    path = log_path(folder)
    return replace(_day(path).whole) if path.exists() else UsageSum()


def log_path(folder: Path, day: datetime | None = None) -> Path:
    return folder / f"{(day or utc_now()).date().isoformat()}.jsonl"


def spent_today(folder: Path) -> float:
    path = log_path(folder)
    return sum(float(row.get("cost", 0.0)) for row in jsonl.read(path)) if path.exists() else 0.0


def totals(folder: Path, damaged: list[str] | None = None) -> list[UsageLine]:
    """By day, model and template. A damaged line is an error; with a list as `damaged` it is left out and named there."""
    found: list[UsageLine] = []
    for path in _files(folder):
        day = _day(path)
        if damaged is not None:
            damaged += [f"{path.name}:{number}" for number in day.damaged]
        elif day.damaged:
            list(jsonl.read(path))  # raises, with file, line and what to do
        found += [replace(day.lines[name]) for name in sorted(day.lines)]
    return found


def _day(path: Path) -> UsageDay:
    state = path.stat()
    return _read_day(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1000)
def _read_day(path: Path, inode: int, size: int, mtime_ns: int) -> UsageDay:
    """Of one state of a file. What is returned is shared, so nobody changes it."""
    lines: dict[tuple[str, str, str], UsageLine] = {}
    jobs: dict[str, UsageSum] = {}
    whole, skipped = UsageSum(), list[int]()
    for row in jsonl.read(path, skipped=skipped):
        asked = [whole, jobs.setdefault(str(job), UsageSum())] if (job := row.get("job")) else [whole]
        for found in asked:
            found.add(row)
            found.last = str(row.get("time") or path.stem)
        name = (path.stem, str(row.get("model", "?")), f"{row.get('template', '?')} {row.get('template_version', '')}".strip())
        line = lines.setdefault(name, UsageLine(*name))
        line.requests += 1
        line.ok += row.get("outcome") == "ok"
        line.failed += row.get("outcome") != "ok"
        line.retries += int(row.get("attempt", 1)) > 1
        line.prompt_tokens += int(row.get("hit_tokens", 0)) + int(row.get("miss_tokens", 0))
        line.cached_tokens += int(row.get("hit_tokens", 0))
        line.completion_tokens += int(row.get("completion_tokens", 0))
        line.usd += float(row.get("cost", 0.0))
        line.seconds += float(row.get("latency_ms", 0)) / 1000
    return UsageDay(lines, jobs, whole, tuple(skipped))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("????-??-??.jsonl"))


def write_table(folder: Path, target: Path | None = None) -> Path:
    """Write `teacher_usage.csv` from all lines; returns its path."""
    names = [field.name for field in fields(UsageLine)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(names)
    for line in totals(folder):
        row = [getattr(line, name) for name in names]
        table.writerow([_cell(value) for value in row])
    path = target or folder / USAGE
    atomic_write(path, text.getvalue())
    return path


def _cell(value: str | int | float) -> str | int:
    """Names come from a service and from settings: a spreadsheet must not run them as formulas."""
    if isinstance(value, str):
        return guard(value)
    return f"{value:.6f}" if isinstance(value, float) else value
