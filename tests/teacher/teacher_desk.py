"""A desk for teacher tests: files in a temporary folder, a config without waiting, answers of known quality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import JudgeRun, TeacherFiles, judge_all
from medloop.teacher.judge_items import JudgeItem
from medloop.testing.teacher_server import TeacherServer

GOOD = "A headache is usually due to stress. Please rest and drink water. See a doctor if it lasts three days. I understand the worry."


class Desk:
    def __init__(self, folder: Path) -> None:
        self.files = TeacherFiles(folder / "rl/teacher_judgements.jsonl", folder / "logs")
        self.folder = folder

    def config(self, server: TeacherServer, **changes: Any) -> TeacherConfig:
        quick = {
            "base_url": server.url,
            "backoff_s": 0.01,
            "deadline_s": 5.0,
            "in_flight": 1,
            "null_probes": 0,
            "circuit_open_s": 0.2,
            "passes": 1,
        }
        return TeacherConfig(**{**quick, **changes})

    def judge(self, server: TeacherServer, count: int = 1, *, key: str = "k", fresh: bool = False, **changes: Any) -> JudgeRun:
        return judge_all(items(count), self.config(server, **changes), key=key, files=self.files, fresh=fresh)


def items(count: int, answer: str = GOOD) -> list[JudgeItem]:
    return [JudgeItem(f"p{n}", f"Question {n}: my head hurts, what now?", answer) for n in range(count)]
