"""Drift of a judge: an alert that is raised once, stands on every list in both languages, and ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trust_workspace import BAD, GOOD, QUESTION, medloop

from medloop.contracts import Conversation, Message, Trace
from medloop.errors import ConfigError, ResultError
from medloop.feedback.insight.alerts import sentence, standing_alerts
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import crud


def cases(name: str, chosen: str, rejected: str) -> str:
    rows = [{"id": f"{name}{n}", "question": f"{QUESTION} {n}", "chosen": chosen, "rejected": rejected} for n in range(60)]
    jsonl.write(Path(name), rows)
    return name


def served(store: Store, question: str, answer: str) -> None:
    def trace(n: int) -> Trace:
        messages = (Message(role="user", content=f"{question} {n}"), Message(role="assistant", content=answer))
        return Trace(session_id="s", agent_name="a", model_version="m", conversation=Conversation(messages=messages))

    crud.add(store, [trace(n) for n in range(60)], actor="test")


def test_a_judge_that_agrees_less_than_on_the_card_before_is_an_alert_once(store: Store) -> None:
    assert "ALERT" not in medloop("reward", "validate", cases("first.jsonl", GOOD, BAD))
    output = medloop("reward", "validate", cases("second.jsonl", BAD, GOOD))
    assert (
        "ALERT  the judge “whole reward” agrees less with people than on the card before: agreement 1.00 → 0.00 (n = 60)"
        in output
    )
    again = medloop("reward", "drift")
    assert "ALERT" not in again and "still  the judge “whole reward” agrees less" in again
    lines = (store.settings.workspace.reports / "trust/alerts.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines)) and sum('"quantity":"agreement"' in line for line in lines) == len(lines)
    with pytest.raises(ResultError, match="alerts stand"):
        medloop("reward", "drift", "--fail-on-alert")


def test_fresh_traffic_that_is_judged_otherwise_is_an_alert_until_it_is_measured_again(store: Store) -> None:
    served(store, QUESTION, GOOD)
    medloop("reward", "validate", cases("cases.jsonl", GOOD, BAD))
    assert "nothing to compare" in medloop("reward", "drift")  # no exchange since the card
    served(store, QUESTION, BAD)
    raised = json.loads(medloop("reward", "drift", "--json"))["raised"]
    assert {alert["code"] for alert in raised} == {"judge_shift"} and {"false_reassurance"} <= {
        a["values"]["judge"] for a in raised
    }
    assert "ALERT  judge: the judge “false reassurance” treats recent exchanges differently" in medloop(
        "feedback", "metrics", "--traces", "0"
    )
    assert "对近期对话的评判与其测量时不同" in sentence(standing_alerts(store.settings.workspace)[0], "zh")
    assert json.loads(medloop("reward", "drift", "--json"))["raised"] == []
    medloop("reward", "validate", cases("other.jsonl", GOOD, BAD))
    assert standing_alerts(store.settings.workspace) == []


def test_bounds_can_be_set_and_a_reward_without_a_card_is_named(store: Store) -> None:
    with pytest.raises(ConfigError, match="has no card to compare with"):
        medloop("reward", "drift")
    served(store, QUESTION, GOOD)
    medloop("reward", "validate", cases("cases.jsonl", GOOD, BAD))
    served(store, QUESTION, BAD)
    assert "nothing to compare" in medloop("reward", "drift", "--set", "min_cases=200")
    assert "nothing to compare" in medloop("reward", "drift", "--set", "traces=0")
    with pytest.raises(ConfigError, match="shift"):
        medloop("reward", "drift", "--set", "shift=2")
