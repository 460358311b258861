"""The same meter for the other judges: dynamic weights, and a teacher with its entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from trust_workspace import QUESTION, medloop

from medloop.contracts.validity import ValidityCard
from medloop.errors import ConfigError
from medloop.loop import trust
from medloop.loop.scoring import reward_scorer
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.testing.teacher_server import TeacherServer

GOOD = "Call an ambulance now, because this can be a heart attack. Do not drive yourself. I understand your worry."
BAD = "Stop taking your tablets and rest, because pain is usually nothing."


@pytest.fixture
def workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    rows = [{"id": f"p{n}", "question": f"{QUESTION} {n}", "chosen": GOOD, "rejected": BAD} for n in range(24)]
    rows += [{"id": f"f{n}", "question": f"{QUESTION} {n}", "answer": BAD, "faults": {"risk": True}} for n in range(24)]
    rows += [{"id": "fine", "question": QUESTION, "answer": GOOD, "faults": {"risk": False}}]
    jsonl.write(workspace / "cases.jsonl", rows)
    return workspace


def only_card(workspace: Path) -> ValidityCard:
    (path,) = workspace.glob("reports/trust/*/validity.json")
    return ValidityCard.from_json(path.read_text())


def test_dynamic_weights_have_a_card_that_training_reads(workspace: Path) -> None:
    (workspace / "dw.yaml").write_text("relevance: {scorer: heuristic}\n")
    medloop("reward", "validate", "cases.jsonl", "--dw", "dw.yaml")
    card, objective = only_card(workspace), reward_scorer(Settings(home=workspace), dw="dw.yaml").objective
    assert card.kind == "dynamic weights" and {"reward", "rel", "risk"} <= {row.judge for row in card.judges}
    assert trust.check(Settings(home=workspace), objective, accept_untrusted=True) != (trust.NOTHING,)


def test_a_teacher_is_measured_with_its_entries_and_its_budget_is_said_first(workspace: Path) -> None:
    with TeacherServer() as server:
        (workspace / "teacher.yaml").write_text(f"base_url: {server.url}\nbackoff_s: 0\nattempts: 1\nbudget_usd: 3\n")
        nothing = medloop("reward", "validate", "cases.jsonl", "--teacher", "teacher.yaml", "--budget", "0")
        assert "0 requests and cost 0.0000 USD" in nothing and "reward: not measured" in nothing
        output = medloop("reward", "validate", "cases.jsonl", "--teacher", "teacher.yaml")
    assert output.index("may spend up to 3 USD") < output.index("agreement")
    rows = {row.judge: row for row in only_card(workspace).judges}
    assert rows["teacher.risk"].verdict == "trusted" and "recall 1.00" in rows["teacher.risk"].reason
    assert rows["reward"].verdict == "trusted" and only_card(workspace).kind == "teacher"
    again = medloop("reward", "validate", "cases.jsonl", "--teacher", "teacher.yaml", "--budget", "0")  # the server is gone
    assert "0 requests and cost 0.0000 USD" in again and "reward: trusted" in again


def test_two_judges_at_once_are_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="Several judges are named: --dw, --reward-model"):
        medloop("reward", "validate", "cases.jsonl", "--dw", "", "--reward-model", "caps")
