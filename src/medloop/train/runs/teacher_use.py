"""What the teacher cost in one training run.

What was paid for a job stands in the teacher's log, and every list and page shows that. The metrics of the run, and the table in
the model's folder, have what went into the model: less, where a run that was killed asked again after its checkpoint.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

USAGE_FILE = "teacher_usage.csv"  # one row for each step: step, calls, tokens, usd


class TeacherUse(NamedTuple):
    calls: int
    tokens: int
    usd: float

    def sentence(self) -> str:
        return f"Teacher: {self.calls:,} requests, {self.tokens:,} tokens, {self.usd:.4f} USD"


class Asked(Protocol):
    """A sum of the teacher's log."""

    requests: int
    tokens: int
    usd: float


def paid_use(asked: Asked | None, lines: Sequence[Mapping[str, Any]]) -> TeacherUse | None:
    """What a job cost by the log; by its metrics where the log has no line of it."""
    return teacher_use(lines) if asked is None else TeacherUse(asked.requests, asked.tokens, round(asked.usd, 6))


def teacher_use(lines: Sequence[Mapping[str, Any]]) -> TeacherUse | None:
    """From the lines of metrics.jsonl; the newest one that names the teacher has the sums of the run."""
    for line in reversed(lines):
        if used := (line.get("extra") or {}).get("teacher"):
            return TeacherUse(round(used["calls"]), round(used["tokens"]), float(used["usd"]))
    return None


def published_use(model: Path) -> TeacherUse | None:
    """From the folder of a trained model; None where no teacher was asked."""
    path = model / USAGE_FILE
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return None
    sums = [sum(float(row[name]) for row in rows) for name in ("calls", "tokens", "usd")]
    return TeacherUse(round(sums[0]), round(sums[1]), round(sums[2], 6))
