"""Drift of a judge: an alert that is raised once, stands on every list in both languages, and ends."""

from __future__ import annotations

import json
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from trust_workspace import BAD, GOOD, QUESTION, medloop

from medloop.contracts import Conversation, Message, Trace, utc_now
from medloop.contracts.validity import DriftRecord
from medloop.errors import ConfigError, ResultError
from medloop.feedback.insight.alerts import sentence, standing_alerts
from medloop.jobs.drift_watch import DriftWatch
from medloop.loop.judge_drift import write_record
from medloop.loop.trust import CARD, card_folder
from medloop.loop.trust import cards as trust_cards
from medloop.settings import RewardSettings
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write
from medloop.store.records import crud

ROOT = Path(__file__).parents[2]


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


def test_a_judge_of_another_version_is_said_to_be_changed_not_to_drift(store: Store) -> None:
    medloop("reward", "validate", cases("first.jsonl", GOOD, BAD))
    (first,) = trust_cards(store.settings)
    other = tuple(row.model_copy(update={"version": "0"}) if row.judge == "reward" else row for row in first.judges)
    older = first.model_copy(update={"reward_version": "0+old", "judges": other, "created": first.created - timedelta(days=1)})
    atomic_write(card_folder(store.settings, "0+old") / CARD, older.model_dump_json())
    shutil.rmtree(card_folder(store.settings, first.reward_version))
    output = medloop("reward", "validate", cases("second.jsonl", BAD, GOOD))
    assert "the judge “whole reward” was changed and agrees less with people than its version on the card before" in output
    assert "the judge “whole reward” agrees less" not in output
    assert "still  the judge “whole reward” was changed" in medloop("reward", "drift")
    (alert,) = [row for row in standing_alerts(store.settings.workspace) if row.values["judge"] == "reward"]
    assert "这不是漂移" in sentence(alert, "zh")


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
    assert "对近期对话的评判与此前不同" in sentence(standing_alerts(store.settings.workspace)[0], "zh")
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


def test_chosen_cases_are_no_baseline_of_traffic_but_the_first_exchanges_are(store: Store) -> None:
    medloop("reward", "validate", cases("cases.jsonl", GOOD, BAD))  # no exchange yet, and half of the answers are bad
    served(store, QUESTION, GOOD)
    first = medloop("reward", "drift")
    assert "60 exchanges are the baseline from now on" in first and "ALERT" not in first
    served(store, QUESTION, BAD)
    assert "60 exchanges with the 60 of the baseline" in (output := medloop("reward", "drift")) and "ALERT" in output


def test_all_rewards_with_a_card_are_checked_and_what_has_changed_is_named(store: Store, workspace: Path) -> None:
    served(store, QUESTION, GOOD)
    mix = workspace / "mine.yaml"
    mix.write_text("version: mine\nparts: {risk: {weight: -1.0, gate: true}, emergency: {weight: 1.0}}\n")
    medloop("reward", "validate", cases("cases.jsonl", GOOD, BAD))
    medloop("reward", "validate", cases("cases.jsonl", GOOD, BAD), "--config", str(mix))
    served(store, QUESTION, BAD)
    raised = json.loads(medloop("reward", "drift", "--all", "--json"))["raised"]
    assert {alert["values"]["reward"].partition("+")[0] for alert in raised} == {"3", "mine"}
    cron = next(
        line for line in (ROOT / "docs/stages/trust.md").read_text().splitlines() if line.startswith("0 6 * * * medloop ")
    )
    with pytest.raises(ResultError, match="alerts stand"):
        medloop(*cron.replace("/srv/clinic", str(workspace)).split()[6:])
    mix.write_text("version: mine\nparts: {risk: {weight: -0.5, gate: true}, emergency: {weight: 1.0}}\n")
    assert "Not checked: what it was made of has changed since" in medloop("reward", "drift", "--all")
    mix.unlink()
    assert "Not checked: it cannot be read again" in medloop("reward", "drift", "--all")
    with pytest.raises(ConfigError, match="one is named as well"):
        medloop("reward", "drift", "--all", "--dw", "")


def test_beside_the_api_drift_is_looked_for_by_itself_logged_and_can_be_switched_off(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    off = store.settings.model_copy(update={"reward": RewardSettings(drift_hours=0)})
    assert not DriftWatch(store, store.settings).is_due()  # no card, nothing to compare
    served(store, QUESTION, GOOD)
    medloop("reward", "validate", cases("cases.jsonl", GOOD, BAD))
    served(store, QUESTION, BAD)
    assert not DriftWatch(store, store.settings).is_due()  # the card is new
    version = trust_cards(store.settings)[0].reward_version
    write_record(store.settings, version, DriftRecord(checked=utc_now() - timedelta(hours=25)))
    assert not DriftWatch(store, off).is_due()
    with DriftWatch(store, store.settings, every_s=0.05).running():
        deadline = time.monotonic() + 60
        while "the judge “false reassurance” treats" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert not DriftWatch(store, store.settings).is_due()
