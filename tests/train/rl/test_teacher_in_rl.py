"""`medloop train grpo --with teacher`: a teacher that is away is declared, one that is there leaves its critiques."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from medloop.cli import main
from medloop.contracts import Score
from medloop.store.files import jsonl
from medloop.testing.teacher_server import TeacherServer

STEPS = 2  # of two questions with four answers


class Praise:
    """A rule that likes everything, so that a strict teacher disagrees with it."""

    name, version, penalty = "praise", "1", False

    def score(self, question: str, answer: str) -> Score:
        return Score(name="praise", value=1.0, reason="always", author="test", version="1")


def train(settings: Any, monkeypatch: pytest.MonkeyPatch, url: str, method: str = "grpo", **teacher: Any) -> Path:
    """Run it with the teacher at this address; returns the folder of the result."""
    quick = {"base_url": url, "attempts": 1, "backoff_s": 0, "circuit_open_s": 0.05, "null_probes": 0, "peak_factor": 1}
    (settings.home / "teacher.yaml").write_text(json.dumps({**quick, **teacher}))
    parts = {"praise": {"weight": 0.5, "rule": f"{__name__}:Praise"}, "teacher": {"weight": 0.5, "given": True}}
    (settings.home / "mix.yaml").write_text(json.dumps({"parts": parts}))
    shape = {"grpo": ("steps=2", "prompts_per_step=2", "samples=4", "eval_every=9"),
             "irs": ("n_iterations=2", "n_questions=2", "n_candidates=4", "tolerance=1.0")}[method]  # fmt: skip
    pairs = (*shape, "max_new_tokens=12", "held_out_n=3", "lora_r=4", "prompts=data/processed/train.jsonl")
    words = [
        "--home",
        str(settings.home),
        "train",
        method,
        "--model",
        settings.model,
        "--with",
        f"teacher={settings.home}/teacher.yaml",
    ]
    words += ["--reward", str(settings.home / "mix.yaml"), *(word for pair in pairs for word in ("--set", pair))]
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    monkeypatch.setattr("medloop.privacy.phi.scrub.QUARANTINE", 1.0)  # letters of an untrained model look like names
    monkeypatch.setattr(sys, "argv", ["medloop", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return Path(settings.home) / "models/rl/round1"


def usage(folder: Path) -> list[float]:
    """Calls, tokens and USD of the whole run."""
    rows = [line.split(",")[1:] for line in (folder / "teacher_usage.csv").read_text().splitlines()[1:]]
    return [sum(float(cell) for cell in column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("method", ["grpo", "irs"])
def test_a_run_without_its_teacher_says_so_everywhere_and_pays_nothing(settings, monkeypatch, capsys, method) -> None:
    with TeacherServer() as server:
        pass
    folder = train(settings, monkeypatch, server.url, method)
    card, output = json.loads((folder / "card.json").read_text()), capsys.readouterr().out
    held_out = list(jsonl.read(folder / "held_out.jsonl"))
    answers = STEPS * 8 + len(held_out)
    sentence = f"Degraded: {answers} of {answers} answers have no score from teacher ("
    assert output.index(sentence) < output.index("held-out reward") < output.index("Trained in")
    assert card["degraded"].startswith(sentence) and "unreachable" in card["degraded"]
    assert card["metrics"]["missing_teacher"] == card["metrics"]["scored_answers"] == answers
    assert all(sentence in (folder / name).read_text() for name in ("README.md", "report.html"))
    lines = [row["extra"] for row in jsonl.read(folder / "metrics.jsonl") if row["phase"] == "METRICS"]
    assert [line["missing_parts"] for line in lines] == [{"teacher": 8}] * STEPS
    assert "missing_teacher" in (folder / "rewards.csv").read_text() and usage(folder) == [0, 0, 0]
    samples = list(jsonl.read(folder / "samples.jsonl"))
    assert all(row["missing"]["teacher"] and "critique" not in row for row in samples)


def test_a_teacher_that_dies_is_counted_from_then_on(settings, monkeypatch, capsys) -> None:
    with TeacherServer(fault=lambda n: "ok" if n < 5 else "reset") as server:
        folder = train(settings, monkeypatch, server.url, in_flight=1)
        sent = server.requests
    card = json.loads((folder / "card.json").read_text())
    assert 0 < card["metrics"]["missing_teacher"] < card["metrics"]["scored_answers"] and "connection" in card["degraded"]
    calls, tokens, usd = usage(folder)
    assert calls == sent and tokens > 0 and usd > 0


@pytest.mark.parametrize("method", ["grpo", "irs"])
def test_the_group_judge_ranks_the_answers_of_each_question_in_one_call(settings, monkeypatch, capsys, method) -> None:
    with TeacherServer() as server:
        folder = train(settings, monkeypatch, server.url, method, mode="group", position_check=1.0)
        shown = [json.loads(body["messages"][-1]["content"].split("\n")[1])["answers"] for body in server.seen]
    card = json.loads((folder / "card.json").read_text())
    assert len(shown) == 2 * 2 * STEPS and all(1 < len(answers) <= 4 for answers in shown)  # two questions, both orders
    assert (card["metrics"]["teacher_agreement"], card["metrics"]["teacher_groups_checked"]) == (1.0, 4)
    assert card["degraded"] is None and card["metrics"]["missing_teacher"] == 0
    held_out = [
        part for row in jsonl.read(folder / "held_out.jsonl") for part in row["scored"]["parts"] if part["name"] == "teacher"
    ]
    assert held_out and not any(part["applies"] for part in held_out)  # ranks of two checks cannot be compared
    assert "Note: The teacher ranks the answers to each question" in capsys.readouterr().out
    assert "100% (4 groups)" in (folder / "README.md").read_text()


def test_training_keeps_critiques_and_writes_conflicts_with_the_suggested_answer(settings, monkeypatch, capsys) -> None:
    with TeacherServer() as server:
        folder = train(settings, monkeypatch, server.url, passes=1)  # random letters have no statements to extract
    card = json.loads((folder / "card.json").read_text())
    assert card["degraded"] is None and card["metrics"]["missing_teacher"] == 0 and "Degraded" not in capsys.readouterr().out
    samples = list(jsonl.read(folder / "samples.jsonl"))
    assert all("of the criteria are met" in row["critique"] for row in samples)
    conflicts = list(jsonl.read(settings.home / "data/rl/teacher_conflicts.jsonl"))
    assert conflicts and {row["suggested_answer"] for row in conflicts} == {"See a doctor today."}
    assert {row["answer"] for row in samples} <= {row["answer"] for row in conflicts} and conflicts[0]["critique"]
