"""The canary through every door and every stage, then an erasure: not one byte of it is left in the workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from medloop.cli import app
from medloop.jobs.worker import work
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.testing.canary import told, traces_of
from medloop.testing.feedback import make_question
from medloop.testing.models import tiny_model
from medloop.testing.teacher_server import TeacherServer
from medloop.web.app import create_app

WHO, YES = "patient 4711", ["training"]
PASSWORD = "ottercello violetmarsh 92kT"


def send(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    done = client.post(f"/api/v1/{path}", json=body)
    assert done.status_code in (200, 201, 202), done.text
    return done.json()


def send_records(settings: Settings) -> None:
    """A trace, a rating with a critical flag, a choice, a correction and an import, all about one person; and others' choices."""
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, "program", "engineer", actor="test"), actor="test")
        for name in ("ann", "ben"):
            users.add_user(store, name, "admin", password=PASSWORD, actor="test")
    with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {key}"
        turns = [{"role": "user", "content": told("back")}, {"role": "assistant", "content": "Rest a while."}]
        trace = send(
            client, "traces", {"session_id": "s", "agent_name": "a", "model_version": "m", "messages": turns, "subject": WHO}
        )
        mine = {"consent": YES, "subject": WHO}
        rated = send(
            client,
            "rlhf/feedback",
            {"trace_id": trace["trace_id"], "thumb": "down", "critical": True, "comments": told("comment"), **mine},
        )
        send(
            client,
            "rlhf/correction",
            {"feedback_id": rated["feedback_id"], "golden": "Come in: " + told("golden"), "reason": told("reason"), **mine},
        )
        send(
            client,
            "rlhf/preference",
            {"prompt": told("choice"), "response_a": "Sit.", "response_b": "Stand.", "preferred": "a", **mine},
        )
        line = {
            "kind": "feedback",
            "session_id": "s",
            "agent_name": "a",
            "user_query": told("import"),
            "agent_response": "Walk.",
            "rating": 5,
            **mine,
        }
        done = client.post(
            "/api/v1/rlhf/import", content=json.dumps(line) + "\n", headers={"content-type": "application/x-ndjson"}
        )
        assert done.status_code == 200 and done.json()["stored"] == 1, done.text
        for n in range(12):
            body = {
                "prompt": make_question(n),
                "response_a": f"Rest {n} days.",
                "response_b": f"Run {n} miles.",
                "preferred": "a",
                "consent": YES,
            }
            send(client, "rlhf/preference", body)
        filed = send(client, "data/build", {"hold_out_critical": False, "test_share": 0.1})
        assert work(filed["job_id"], settings).state == "succeeded"


def run(settings: Settings, *words: object, text: str = "") -> str:
    flags = [
        "--home",
        settings.home,
        "--set",
        f"model={settings.model}",
        "--set",
        "device=cpu",
        "--set",
        "threads=1",
        "--set",
        "offline=true",
    ]
    done = CliRunner().invoke(app, [str(word) for word in (*flags, *words)], env={"DEEPSEEK_API_KEY": "k"}, input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_after_erasure_no_byte_of_it_is_left_anywhere(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    home = tmp_path / "clinic"
    init_workspace(home)
    settings = Settings(home=home, model=str(tiny_model(tmp_path / "base")), device="cpu", threads=1, offline=True)
    send_records(settings)
    source = tmp_path / "visits.jsonl"
    rows = [
        {"question": told("back"), "answer": "Rest a while, and come again."},
        *({"question": make_question(n), "answer": f"Rest for {n} days, please."} for n in range(30)),
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(settings, "data", "import", source, "--name", "visits")
    run(settings, "data", "prepare", "--gold", "2", "--red", "2")
    answers = home / "reports/answers.jsonl"
    prepared = next(name for name in traces_of(home) if name.startswith("data/processed/"))
    golden = next(name for name in traces_of(home) if name.startswith("data/feedback/feedback/sft_"))
    for name, data in (("first", prepared), ("second", golden)):
        run(
            settings,
            "train",
            "sft",
            "--model",
            settings.model,
            "--name",
            name,
            "--data",
            home / data,
            "--set",
            "max_steps=1",
        )
    run(settings, "train", "reward", "--model", settings.model, "--name", "rm", "--set", "max_steps=1")
    run(
        settings,
        "predict",
        home / golden,
        "--output",
        answers,
        "--model",
        settings.model,
        "--max-new-tokens",
        8,
    )
    answers_file = home / "reports/asked.jsonl"
    answers_file.write_text(json.dumps({"id": "1", "question": told("back"), "answer": "Rest. " + told("golden")}) + "\n")
    with TeacherServer() as server:
        run(
            settings,
            "teacher",
            "judge",
            answers_file,
            "--base-url",
            server.url,
            "--set",
            "null_probes=0",
            "--set",
            "max_missing=1",
        )
    run(settings, "reward", "score", answers_file)
    run(settings, "inspect", answers_file, "--all")
    before = traces_of(home)
    for stage in ("data/raw", "data/processed", "data/feedback", "data/preferences", "data/rl", "reports/inspect"):
        assert any(name.startswith(stage) for name in before), (stage, before)
    asked = run(settings, "erase", "--subject", WHO, "--reason", "asked on 3 May", "--user", "ann", text=f"{PASSWORD}\n")
    request = next(word for word in asked.split() if word.startswith("ereq_"))
    output = run(settings, "erase", "--approve", request, "--user", "ben", text=f"{PASSWORD}\n")
    assert traces_of(home) == [] and ": complete" in output and ": 0 hits" in output
    for name in ("first", "second", "rm"):
        assert f"/{name}: trained on erased data" in output, output
    run(settings, "data", "prepare", "--gold", "2", "--red", "2")
    run(settings, "audit", "verify")
    run(settings, "db", "check")
    assert traces_of(home) == []
