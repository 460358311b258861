"""One judgement against one fault of the teacher's service; `trial.problems` says what should not have happened."""

from __future__ import annotations

import base64
import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from medloop.contracts import utc_now
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import JudgeRun, TeacherFiles, judge_all
from medloop.teacher.judge_items import JudgeItem
from medloop.testing.teacher_faults import CATALOGUE, ServerFault
from medloop.testing.teacher_server import TeacherServer

KEY = "sk-" + "7f3c1e9a5b2d4806a1c3e5f7091b2d4f"
QUESTION = "My head hurts, what now?"
ANSWER = "A headache is usually due to stress. Please rest and drink water. See a doctor if it lasts. I understand the worry."
HONEST_SCORE = 1.0  # of the loopback teacher for this answer


@dataclass(frozen=True)
class FaultTrial:
    """What one fault led to; `reserved` is the most that its requests could have cost."""

    fault: ServerFault
    run: JudgeRun
    rows: tuple[dict[str, Any], ...]
    cached: int
    reserved: float
    leaked: bool

    @property
    def score(self) -> float | None:
        judgement = self.run.results[0].judgement
        return judgement.teacher_score if judgement else None

    @property
    def outcomes(self) -> list[str]:
        return [str(row["outcome"]) for row in self.rows]

    @property
    def has_controls(self) -> bool:
        """Characters that move a cursor, break a line or turn text round, in what people will read."""
        judgement = self.run.results[0].judgement
        texts = (judgement.critique, judgement.suggested_answer, *judgement.evidence.values()) if judgement else ()
        return any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for part in texts for letter in part or "")

    @property
    def problems(self) -> list[str]:
        is_good = self.fault.outcome == "ok"
        checks = {
            f"logged as {self.outcomes}, not {self.fault.outcome}": set(self.outcomes) == {self.fault.outcome},
            f"score {self.score}": self.score == (HONEST_SCORE if is_good else None),
            "no reason is given": is_good or bool(self.run.results[0].missing),
            f"{self.cached} lines in the cache": self.cached == (1 if is_good else 0),
            "the run and its log disagree on the cost": sum(row["cost"] for row in self.rows) == self.run.cost,
            f"booked {self.run.cost} of {self.reserved} reserved": 0 <= self.run.cost <= self.reserved + 1e-12,
            "booked nothing for work": self.fault.is_free or self.run.cost > 0.1 * self.reserved,
            "booked something for a refusal": not self.fault.is_free or self.run.cost == 0,
            "the key or the patient's words are in a file": not self.leaked,
            "control characters were stored": not self.has_controls,
        }
        return [problem for problem, is_fine in checks.items() if not is_fine]


def try_fault(name: str, folder: Path) -> FaultTrial:
    """Judge one answer, with one attempt, while the service has this fault."""
    files = TeacherFiles(folder / "teacher_judgements.jsonl", folder / "logs")
    with TeacherServer(fault=lambda n: name) as server:
        config = TeacherConfig(base_url=server.url, passes=1, attempts=1, deadline_s=1.0, null_probes=0, peak_hours_utc=())
        run = judge_all([JudgeItem("p0", QUESTION, ANSWER)], config, key=KEY, files=files)
        reserved = sum(_reserved(config, body) for body in server.seen)
    rows = tuple(json.loads(line) for path in files.logs.glob("*.jsonl") for line in path.read_text().splitlines())
    cached = len(files.judgements.read_text().splitlines()) if files.judgements.exists() else 0
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()) + str(run).encode()
    secrets = (
        KEY[:16],
        KEY[5:25],
        base64.b64encode(KEY.encode()).decode()[:24],
        KEY.encode().hex()[:24],
        quote(KEY),
        KEY[::-1][:20],
    )
    leaked = any(secret.encode() in written for secret in secrets) or b"my head hurts" in written
    return FaultTrial(CATALOGUE[name], run, rows, cached, reserved, leaked)


def _reserved(config: TeacherConfig, body: dict[str, Any]) -> float:
    prompt = sum(len(message["content"].encode()) for message in body["messages"]) // 2 + 32
    return config.cost(0, prompt, body["max_tokens"], utc_now())
