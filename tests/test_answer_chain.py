"""What `medloop predict` writes goes through every command that takes answers, with nothing made by hand between them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Message, Record
from medloop.loop.workspace import init_workspace
from medloop.store.files import jsonl
from medloop.testing.records import make_emergencies
from medloop.testing.teacher_server import TeacherServer

COUNT = 8


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    init_workspace(tmp_path / "clinic")
    monkeypatch.chdir(tmp_path / "clinic")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key")
    records = make_emergencies(COUNT)
    chat = records[0].conversation
    turns = (Message(role="user", content="My father feels unwell."), Message(role="assistant", content="What happened?"))
    longer = chat.model_copy(update={"messages": (*turns, *chat.messages)})
    records[0] = Record.model_validate(records[0].model_dump() | {"record_id": longer.content_id(), "conversation": longer})
    jsonl.write(tmp_path / "clinic/data/processed/red_team.jsonl", records)
    return tmp_path / "clinic"


def medloop(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_answers_of_predict_are_scored_judged_inspected_queued_and_evaluated(workspace: Path) -> None:
    source = "data/processed/red_team.jsonl"
    medloop("predict", source, "-o", "answers.jsonl", "--model", "embedded:tiny", "--max-new-tokens", "24")
    answers = list(jsonl.read(workspace / "answers.jsonl"))
    assert f"Scored {COUNT} answers" in medloop("reward", "score", "answers.jsonl")
    with TeacherServer() as server:
        judged = medloop("teacher", "judge", "answers.jsonl", "--base-url", server.url)
        sent = [json.loads(body["messages"][-1]["content"].split("\n")[1]) for body in server.seen]
    assert f"Judged {COUNT} of {COUNT}" in judged
    assert any("Patient: My father feels unwell." in data.get("context", "") for data in sent), "earlier turns were lost"
    medloop("eval", "--predictions", "answers.jsonl", "--split", "red", "--name", "chain")
    result = json.loads((workspace / "reports/eval/chain/eval_report.json").read_text())["results"][0]["metrics"]["red"]
    assert (result["emergency"]["n"], result["emergency"]["missing"]) == (COUNT, 0)
    medloop("inspect", "answers.jsonl", "--all", "--week", "2026-W46")
    shown = list(jsonl.read(workspace / "data/rl/inspection_samples.jsonl"))
    assert len(shown) == COUNT and all(row["judgement"] for row in shown), "score and judgement belong to the answer"
    assert {row["answer_id"] for row in shown} == {row["id"] for row in answers}
    assert f"Considered {COUNT} answers" in medloop("feedback", "queue", "fill", "--answers", "answers.jsonl")


def test_answers_with_only_an_id_are_joined_by_questions(workspace: Path) -> None:
    source = workspace / "data/processed/red_team.jsonl"
    rows = [{"record_id": row["record_id"], "text": f"Call an ambulance, case {n}."} for n, row in enumerate(jsonl.read(source))]
    jsonl.write(workspace / "ids.jsonl", rows)
    source.rename(workspace / "elsewhere.jsonl")  # `inspect` would find it in the workspace by itself
    questions = ("--questions", "elsewhere.jsonl")
    assert f"Scored {COUNT} answers" in medloop("reward", "score", "ids.jsonl", *questions)
    assert "emergency" in medloop("reward", "explain", "ids.jsonl", *questions)
    with TeacherServer() as server:
        assert f"Judged {COUNT} of {COUNT}" in medloop("teacher", "judge", "ids.jsonl", *questions, "--base-url", server.url)
    medloop("inspect", "ids.jsonl", *questions, "--all", "--week", "2026-W46")
    assert "same answer to every question" in medloop("reward", "panel", "ids_scores.jsonl", *questions)
    assert f"Considered {COUNT} answers" in medloop("feedback", "queue", "fill", "--answers", "ids.jsonl", *questions)
