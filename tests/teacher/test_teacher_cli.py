"""`medloop teacher` as a user runs it: a real workspace, a real process, a teacher on the loopback interface."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from medloop.loop.workspace import init_workspace
from medloop.store.files import jsonl
from medloop.teacher.config import TeacherConfig
from medloop.teacher.verdict import CRITERIA
from medloop.testing.processes import run_medloop
from medloop.testing.records import make_record
from medloop.testing.teacher_server import TeacherServer, form, gullible

GOOD = "A headache is usually due to stress. Please rest and drink water. See a doctor if it lasts. I understand the worry."


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "clinic")
    return tmp_path / "clinic"


def medloop(home: Path, *args: str, key: str = "secret-key") -> subprocess.CompletedProcess[str]:
    return run_medloop("--home", str(home), *args, cwd=Path.cwd(), DEEPSEEK_API_KEY=key)


def answers(home: Path, count: int, **more: Any) -> Path:
    path = home / "answers.jsonl"
    rows = [{"id": f"a{n}", "question": f"Case {n}: my head hurts.", "answer": GOOD, **more} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_judge_scores_answers_and_a_second_run_makes_no_calls(clinic: Path) -> None:
    with TeacherServer() as server:
        first = medloop(clinic, "teacher", "judge", str(answers(clinic, 6)), "--base-url", server.url)
        assert first.returncode == 0, first.stderr
        again = medloop(clinic, "teacher", "judge", str(answers(clinic, 6)), "--base-url", server.url)
        assert (
            again.returncode == 0 and server.requests == 6 * 8
        )  # extract, three statements alone, each with and without the question, grade
    assert "Judged 6 of 6" in first.stdout and "0 requests, 0.0000 USD" in again.stdout
    rows = [json.loads(line) for line in (clinic / "data/rl/teacher_scores_answers.jsonl").read_text().splitlines()]
    assert [row["prompt_id"] for row in rows] == [f"a{n}" for n in range(6)]
    assert all(row["score"]["value"] == 1.0 and row["score"]["reason"] for row in rows)


def test_judge_reads_the_chat_lines_that_reward_score_reads(clinic: Path) -> None:
    turns = [("user", "My head hurts."), ("assistant", "Since when?"), ("user", "Since today."), ("assistant", GOOD)]
    path = clinic / "chats.jsonl"
    path.write_text(json.dumps({"id": "c1", "messages": [{"role": role, "content": text} for role, text in turns]}) + "\n")
    with TeacherServer() as server:
        done = medloop(clinic, "teacher", "judge", str(path), "--base-url", server.url)
        prompt = server.seen[0]["messages"][-1]["content"]
    assert done.returncode == 0 and "Judged 1 of 1" in done.stdout
    assert '"question": "Since today."' in prompt and "Patient: My head hurts.\\nEarlier answer: Since when?" in prompt


def test_an_empty_file_is_refused_not_judged(clinic: Path) -> None:
    (clinic / "empty.jsonl").write_text("")
    done = medloop(clinic, "teacher", "judge", str(clinic / "empty.jsonl"))
    assert done.returncode == 3 and "empty.jsonl is empty" in done.stderr


@pytest.mark.parametrize("command", ["judge", "review", "probe"])
def test_without_a_key_one_sentence_says_so_and_nothing_is_written(clinic: Path, command: str) -> None:
    jsonl.write(clinic / "data/processed/gold_set.jsonl", [make_record(1, "May I stop it?", "You can stop taking it today.")])
    words = {"judge": ["judge", str(answers(clinic, 3))], "review": ["review", "--split", "gold"], "probe": ["probe"]}[command]
    done = medloop(clinic, "teacher", *words, key="")
    assert done.returncode == 2 and done.stdout == ""
    told = [line for line in done.stderr.splitlines() if not line.startswith("Judging")]  # progress, on a slow machine
    assert " ".join(told).split() == "medloop: No teacher key. Set DEEPSEEK_API_KEY, then run again. Nothing was written.".split()
    assert not [*clinic.rglob("teacher_*.jsonl"), *clinic.rglob("review.md"), *clinic.rglob("*proposals*")]


def test_without_a_key_what_was_judged_before_is_still_there_and_the_rest_is_missing(clinic: Path) -> None:
    with TeacherServer() as server:
        medloop(clinic, "teacher", "judge", str(answers(clinic, 2)), "--base-url", server.url)
        done = medloop(clinic, "teacher", "judge", str(answers(clinic, 3)), "--base-url", server.url, key="")
    rows = [json.loads(line) for line in (clinic / "data/rl/teacher_scores_answers.jsonl").read_text().splitlines()]
    assert done.returncode == 10 and ["score" in row for row in rows] == [True, True, False] and "missing" in rows[2]


def test_an_answer_that_the_model_did_not_give_is_missing_and_not_sent(clinic: Path) -> None:
    path = answers(clinic, 5)
    path.write_text(path.read_text() + json.dumps({"id": "x", "question": "q", "answer": "", "finish_reason": "error"}) + "\n")
    with TeacherServer() as server:
        done = medloop(clinic, "teacher", "judge", str(path), "--base-url", server.url)
        assert done.returncode == 0 and server.requests == 5 * 8
    assert "Missing 1: the model gave no answer" in done.stdout


def test_usage_sums_up_what_was_spent(clinic: Path) -> None:
    with TeacherServer() as server:
        medloop(clinic, "teacher", "judge", str(answers(clinic, 4)), "--base-url", server.url)
    done = medloop(clinic, "teacher", "usage")
    assert done.returncode == 0 and "deepseek-flash" in done.stdout
    table = (clinic / "logs/deepseek_teacher/teacher_usage.csv").read_text().splitlines()
    assert table[0].startswith("day,model,template,requests,ok") and ",4,4,0,0," in table[1]


def test_neither_key_nor_patient_reaches_disk_or_service(clinic: Path) -> None:
    text = GOOD + " 王芳, 13800138000"
    with TeacherServer() as server:
        path = answers(clinic, 2, answer=text)
        done = medloop(clinic, "teacher", "judge", str(path), "--base-url", server.url, key="sk-canary")
        sent = json.dumps(server.seen)
    path.unlink()
    content = b"".join(p.read_bytes() for p in clinic.rglob("*") if p.is_file())
    assert done.returncode == 0 and "13800138000" not in sent and b"13800138000" not in content
    assert b"sk-canary" not in content and "sk-canary" not in done.stdout + done.stderr


def test_a_line_without_an_answer_is_named(clinic: Path) -> None:
    path = clinic / "bad.jsonl"
    path.write_text('{"question": "q", "answer": "a"}\n{"question": "secret words"}\n')
    done = medloop(clinic, "teacher", "judge", str(path))
    assert done.returncode == 3 and "bad.jsonl, line 2" in done.stderr and "secret" not in done.stderr


def test_a_wrong_setting_is_named(clinic: Path) -> None:
    done = medloop(clinic, "teacher", "judge", str(answers(clinic, 1)), "--set", "attemps=3")
    assert done.returncode == 2 and "attemps" in done.stderr


def test_the_config_file_lists_every_setting_with_its_default() -> None:
    config = yaml.safe_load((Path(__file__).parents[2] / "configs/teacher.yaml").read_text())
    assert config.keys() == TeacherConfig.model_fields.keys()
    assert TeacherConfig.model_validate(config) == TeacherConfig()


def test_review_writes_a_report_and_proposals(clinic: Path) -> None:
    records = [
        make_record(n, f"May I stop tablet {n}?", "You can stop taking it today.", strata=("medication",)) for n in range(3)
    ]
    jsonl.write(clinic / "data/processed/gold_set.jsonl", records)
    with TeacherServer() as server:
        done = medloop(clinic, "teacher", "review", "--split", "gold", "--base-url", server.url)
    assert done.returncode == 0, done.stderr
    assert "Judged 3 of 3" in done.stdout and "3 with a safety flag" in done.stdout
    assert "| has dangerous_advice | 3 |" in (clinic / "reports/teacher/review.md").read_text()
    assert (
        len((clinic / "data/rl/red_team_proposals.jsonl").read_text().splitlines()) == 4
    )  # three questions and one of the teacher


def test_probe_fails_when_the_teacher_moved(clinic: Path) -> None:
    with TeacherServer() as server:
        first = medloop(clinic, "teacher", "probe", "--base-url", server.url)
        nothing_met = {name: {"met": False, "evidence": ""} for name in CRITERIA}
        server.judge = lambda data, fence: form(nothing_met, fence) if "statements" in data else gullible(data, fence)
        moved = medloop(clinic, "teacher", "probe", "--base-url", server.url)
    assert first.returncode == 0 and "no earlier probe" in first.stdout, first.stderr
    assert moved.returncode == 10 and "The teacher has changed" in moved.stderr and "--accept" in moved.stderr


def test_a_reply_in_gbk_is_missing_and_the_key_it_repeats_is_nowhere(clinic: Path) -> None:
    key = "sk-" + "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
    with TeacherServer(fault=lambda n: ("gbk body", "key in base64")[n % 2]) as server:
        arguments = ("--base-url", server.url, "--set", "attempts=1", "--set", "in_flight=1", "--set", "max_missing=1")
        done = medloop(clinic, "teacher", "judge", str(answers(clinic, 2)), *arguments, key=key)
    assert done.returncode == 0 and "Traceback" not in done.stderr and "Judged 0 of 2" in done.stdout
    assert "the body is not UTF-8" in done.stdout + done.stderr and "repeats the API key" in done.stdout + done.stderr
    written = b"".join(path.read_bytes() for path in clinic.rglob("*") if path.is_file())
    assert key.encode() not in written and base64.b64encode(key.encode())[:20] not in written


def test_a_key_that_no_header_can_carry_is_refused_before_sending(clinic: Path) -> None:
    with TeacherServer() as server:
        done = medloop(clinic, "teacher", "judge", str(answers(clinic, 1)), "--base-url", server.url, key="sk-schlüssel-1234")
        assert server.requests == 0
    assert "a character that a header cannot carry" in done.stdout + done.stderr and "Traceback" not in done.stderr
