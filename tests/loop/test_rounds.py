"""Rounds of RL: each starts from the last accepted one, the gate refuses with a reason, and SFT is one command away."""

from __future__ import annotations

import json

import pytest

from medloop.contracts.gate import GateCheck, GateResult
from medloop.errors import ConfigError, InputError
from medloop.loop.rounds import RoundRefusedError, accept, list_rounds, path_in_use, roll_back, start_of_round
from medloop.store.db import open_store
from medloop.store.records.gates import save_gate
from medloop.store.records.rounds import round_events
from medloop.testing.lineage import make_model


@pytest.fixture
def store(sqlite_settings):
    with open_store(sqlite_settings) as opened:
        make_model(opened, "models/lora/sft", inputs={})
        yield opened


def train(store, number: int):
    start = start_of_round(store.settings, store, number)
    return make_model(store, f"models/rl/round{number}", inputs={}, method="ppo", config={"adapter": start.adapter})


def gate(store, entry, outcome: str = "pass") -> None:
    check = GateCheck(name="undertriage", outcome=outcome, reason="3 emergencies were sent home")
    verdict = GateResult(
        artifact=entry.sha256, weights=entry.sha256, baseline_artifact="sha256:" + "4" * 64, base="sha256:" + "0" * 64, label="tiny+round", baseline="tiny+sft", report="sha256:" + "e" * 64,
        config="sha256:" + "c" * 64, outcome=outcome, checks=(check,),
    )  # fmt: skip
    save_gate(store, verdict, actor="test")


def test_a_round_starts_from_the_last_accepted_one_and_the_same_start_comes_again(store):
    assert start_of_round(store.settings, store, 1).adapter == "models/lora/sft"
    gate(store, train(store, 1))
    assert start_of_round(store.settings, store, 2).adapter == "models/lora/sft"  # trained and passed, but not accepted
    accept(store, 1, actor="test")
    assert start_of_round(store.settings, store, 2).adapter == "models/rl/round1"
    assert start_of_round(store.settings, store, 1).adapter == "models/lora/sft"  # repeated, it is the same run
    with pytest.raises(ConfigError, match="models/rl/round1"):
        start_of_round(store.settings, store, 2, adapter="sft")


@pytest.mark.parametrize("outcome", ["fail", "not_enough_evidence", None])
def test_a_round_that_the_gate_does_not_let_pass_leaves_the_earlier_one_with_the_reason(store, outcome):
    gate(store, train(store, 1))
    accept(store, 1, actor="test")
    second = train(store, 2)
    if outcome:
        gate(store, second, outcome)
    with pytest.raises(RoundRefusedError, match=r"Round 1 \(models/rl/round1\) stays in use"):
        accept(store, 2, actor="test")
    with pytest.raises(RoundRefusedError):
        accept(store, 2, actor="test")
    assert path_in_use(store.settings, store) == "models/rl/round1" and len(round_events(store)) == 2  # said twice, stored once
    listed = {row.number: row for row in list_rounds(store.settings, store)}
    assert listed[2].state == "refused" and listed[2].event.reason and listed[1].state == "in use"
    assert start_of_round(store.settings, store, 3).adapter == "models/rl/round1"


def test_going_back_to_sft_is_one_call_and_needs_no_gate(store):
    for number in (1, 2):
        gate(store, train(store, number))
        accept(store, number, actor="test")
    assert path_in_use(store.settings, store) == "models/rl/round2"
    roll_back(store, 1, actor="test")
    assert path_in_use(store.settings, store) == "models/rl/round1"
    roll_back(store, 0, actor="test", reason="more risk on the ward")
    assert path_in_use(store.settings, store) == "models/lora/sft"
    assert start_of_round(store.settings, store, 3).adapter == "models/lora/sft"
    assert [row.state for row in list_rounds(store.settings, store)] == ["in use", "accepted", "accepted"]
    with pytest.raises(InputError, match="never accepted"):
        roll_back(store, 5, actor="test")


def test_a_changed_round_is_refused_although_its_old_bytes_had_passed(store):
    gate(store, train(store, 1))
    make_model(
        store, "models/rl/round1", inputs={"prompts": "sha256:" + "1" * 64}, method="ppo", config={"adapter": "models/lora/sft"}
    )
    with pytest.raises(RoundRefusedError, match="The gate has not examined a model with these bytes"):
        accept(store, 1, actor="test")


def test_the_command_line_lists_accepts_and_goes_back(store, command_line):
    gate(store, train(store, 1))
    home = store.settings.home
    assert "undecided" in command_line("--home", home, "rounds", "list").out
    accepted = command_line("--home", home, "rounds", "accept", "1")
    assert accepted.code == 0 and "Round 1 is in use" in accepted.out
    assert command_line("--home", home, "rounds", "accept", "2").code == 3
    assert "SFT is in use again: models/lora/sft" in command_line("--home", home, "rounds", "rollback").out
    rows = json.loads(command_line("--home", home, "rounds", "list", "--json").out)
    assert [row["state"] for row in rows] == ["in use", "accepted"]
