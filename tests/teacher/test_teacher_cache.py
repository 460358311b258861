"""What was judged is on the disk before it counts; a kill loses none of it and nothing is paid for twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Judgement
from medloop.errors import BusyError, NoSpaceError
from medloop.store.files import jsonl
from medloop.teacher.judge import exclusive
from medloop.testing.teacher_server import TeacherServer

CHILD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell starts its children with Ctrl-C ignored
import sys
from pathlib import Path
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import TeacherFiles, judge_all
from medloop.teacher.judge_items import JudgeItem
url, folder = sys.argv[1], Path(sys.argv[2])
config = TeacherConfig(base_url=url, in_flight=4, null_probes=0, passes=1)
items = [JudgeItem(f"p{n}", f"Question {n}: my head hurts?", "Please rest and see a doctor. It is usually due to stress.") for n in range(120)]
judge_all(items, config, key="k", files=TeacherFiles(folder / "rl/teacher_judgements.jsonl", folder / "logs"))
"""


def child(server: TeacherServer, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, server.url, str(folder)])


def judgements(folder: Path) -> list[Judgement]:
    path = folder / "rl/teacher_judgements.jsonl"
    return list(jsonl.read(path, Judgement)) if path.exists() else []


def test_a_kill_loses_no_finished_judgement_and_pays_for_none_twice(tmp_path: Path) -> None:
    with TeacherServer(latency_s=0.05) as server:
        for count in (20, 60):
            process = child(server, tmp_path)
            while len(judgements(tmp_path)) < count and process.poll() is None:
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        before = {j.key for j in judgements(tmp_path)}
        requests = server.requests
        assert child(server, tmp_path).wait(60) == 0
        assert server.requests - requests == 120 - len(before)  # only what was not on the disk
    keys = [j.key for j in judgements(tmp_path)]
    assert len(keys) == len(set(keys)) == 120 and before <= set(keys)
    assert server.requests <= 120 + 2 * 4  # at most what was in flight at each kill


def test_another_template_model_or_parameter_is_another_judgement(desk: Any) -> None:
    with TeacherServer() as server:
        for changes in ({}, {"template": "review"}, {"temperature": 0.5}, {"thinking": True}, {}):
            desk.judge(server, 2, **changes)
    assert server.requests == 8


def test_a_judgement_by_another_served_model_is_not_taken(desk: Any) -> None:
    with TeacherServer() as server:
        desk.judge(server, 2)
        server.model = "deepseek-next"
        desk.judge(server, 2, served_models=("deepseek-next",))
        judged = desk.judge(server, 2, served_models=("deepseek-flash", "deepseek-next"))
    assert server.requests == 4 and judged.calls == 0


def test_two_runs_at_once_are_refused(desk: Any) -> None:
    with TeacherServer() as server, exclusive(desk.files.judgements), pytest.raises(BusyError, match="The teacher of"):
        desk.judge(server)


def test_the_log_has_hashes_and_costs_and_no_text(desk: Any) -> None:
    with TeacherServer() as server:
        desk.judge(server, 3)
    text = next(desk.files.logs.glob("*.jsonl")).read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 3 and "head" not in text and "stress" not in text
    assert {"request", "judgement", "outcome", "latency_ms", "cost", "served_model", "attempt", "template_version"} <= rows[
        0
    ].keys()


def test_a_disk_that_cannot_be_written_ends_the_run_with_its_name(desk: Any) -> None:
    def broken(path: Path, rows: Any) -> int:
        raise NoSpaceError(f"No space left on the disk that holds {path}")

    with TeacherServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("medloop.teacher.cache.jsonl.append", broken)
        with pytest.raises(NoSpaceError, match="No space"):
            desk.judge(server, 30, in_flight=8)


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    with TeacherServer(latency_s=0.05) as server:
        process = child(server, tmp_path)
        while len(judgements(tmp_path)) < 10 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) != 0
        done = len(judgements(tmp_path))
        log = "".join(p.read_text() for p in (tmp_path / "logs").glob("*.jsonl"))
    assert 10 <= done < 120 and log.count('"outcome":"ok"') >= done
