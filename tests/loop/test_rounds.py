"""Rounds of RL: each starts from the last accepted one, the gate refuses with a reason, and SFT is one command away."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from medloop.contracts import Incident, ModelVersion
from medloop.contracts.gate import GateCheck, GateResult
from medloop.errors import ConfigError, InputError, IntegrityError
from medloop.loop.rounds import RoundRefusedError, accept, list_rounds, path_in_use, roll_back, start_of_round
from medloop.store import audit, catalog
from medloop.store.db import Store, open_store
from medloop.store.records import crud, lineage, registry
from medloop.store.records.gates import save_gate
from medloop.store.records.rounds import add_rollback, round_events
from medloop.testing.lineage import make_model
from medloop.testing.registry import examine


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


def accepted_round(store, number: int = 1):
    entry = train(store, number)
    gate(store, entry)
    accept(store, number, actor="test")
    return entry


def test_other_bytes_under_the_name_of_an_accepted_round_are_not_that_round(store, command_line):
    accepted_round(store)
    make_model(store, "models/rl/round1", inputs={"prompts": "sha256:" + "1" * 64}, config={"adapter": "models/lora/sft"})
    home = store.settings.home
    for words in (("rounds", "rollback", "--to", "1"), ("release", "v1.0-rl"), ("train", "ppo", "--round", "2")):
        refused = command_line("--home", home, *words)
        assert refused.code == 6 and "models/rl/round1 has other bytes" in refused.err, words
    assert command_line("--home", home, "rounds", "rollback").code == 0  # the way back to SFT stays open


def test_a_decision_that_was_changed_past_medloop_puts_nothing_into_use(store, command_line):
    accepted_round(store)
    with store.transaction() as conn:
        conn.execute(text("UPDATE round_events SET reason = 'changed'"))
    assert command_line("--home", store.settings.home, "rounds", "list").code == 6
    with pytest.raises(IntegrityError, match="round_events was changed"):
        path_in_use(store.settings, store)


def test_no_way_back_to_a_round_that_an_erasure_tainted(store, command_line):
    first = accepted_round(store)
    accepted_round(store, 2)
    with store.write() as conn:
        lineage.flag_artifact(conn, first.sha256, "tainted", "trained on data erased in er_1", actor="test")
    refused = command_line("--home", store.settings.home, "rounds", "rollback", "--to", "1")
    assert refused.code == 10 and "tainted by an erasure" in refused.err and "Round 2 (models/rl/round2) stays" in refused.err
    assert path_in_use(store.settings, store) == "models/rl/round2"


@pytest.mark.parametrize("named", [("--round", "1"), ("--name", "round1", "--adapter", "sft")])
def test_an_accepted_round_is_not_trained_over(store, command_line, named):
    entry = accepted_round(store)
    refused = command_line("--home", store.settings.home, "train", "ppo", *named, "--replace")
    assert refused.code == 2 and "Round 1 was accepted" in refused.err and entry.path.is_dir()


def test_an_incident_that_comes_just_before_the_decision_refuses_the_round(store, monkeypatch):
    gate(store, train(store, 1))
    write = Store.write

    def write_after_an_incident(self):
        monkeypatch.setattr(Store, "write", write)
        crud.add(self, [Incident(record_id="fb_1")], actor="test")
        return write(self)

    monkeypatch.setattr(Store, "write", write_after_an_incident)
    with pytest.raises(RoundRefusedError, match="open safety incidents"):
        accept(store, 1, actor="test")


def test_the_reason_of_a_rollback_is_in_the_audit_log_unless_it_may_name_a_person(store, command_line):
    accepted_round(store)
    home = store.settings.home
    refused = command_line("--home", home, "rounds", "rollback", "--reason", "Mr. John Smith, born 3 May 1961, complained")
    assert refused.code == 3 and "may name a person" in refused.err and "Smith" not in refused.err
    assert path_in_use(store.settings, store) == "models/rl/round1"
    assert command_line("--home", home, "rounds", "rollback", "--reason", "worse in triage").code == 0
    line = next(row for row in audit.show(store, 5) if row["action"] == "rounds.rolled_back")
    assert line["detail"]["reason"] == "worse in triage" == round_events(store)[-1].reason


def test_going_back_moves_the_champion_in_the_same_act(store, monkeypatch):
    monkeypatch.setattr("medloop.loop.rounds.reconcile", lambda store: None)
    sft = next(row for row in catalog.genuine_entries_at(store, "adapter", store.settings.home / "models/lora/sft"))
    examine(store, sft.sha256)
    model = store.settings.registry.model
    for number, name in ((1, "lora/sft"), (2, "rl/round1")):
        entry = sft if number == 1 else train(store, 1)
        if number == 2:
            examine(store, entry.sha256, baseline=sft.sha256)
            accept(store, 1, actor="test")
        draft = ModelVersion(model=model, version=1, artifact=entry.sha256, name=name, method="sft", base="embedded:tiny",
                             base_sha256="sha256:" + "0" * 64, inputs={}, registered_by="test")  # fmt: skip
        registry.add_version(store, draft, f"models/{name}", actor="test")
        registry.change_alias(store, model, "champion", number, action="promote", actor="test")
    done = roll_back(store, 0, actor="usr_1", reason="more risk on the ward")
    change = registry.current(store, model)["champion"]
    assert (done.champion, done.kept, change.version, change.action, change.reason) == (
        1, "", 1, "rollback", "more risk on the ward",
    )  # fmt: skip
    assert path_in_use(store.settings, store) == "models/lora/sft"
    assert [row["action"] for row in audit.show(store, 2)] == ["registry.rollback", "rounds.rolled_back"]
    assert roll_back(store, 0, actor="usr_1").champion is None, "it is the champion already"
    registry.change_alias(store, model, "champion", None, action="demote", actor="test")
    empty = roll_back(store, 0, actor="usr_1")
    assert (
        empty.champion is None and empty.kept.startswith("No version is the champion") and empty.command == "registry promote 1"
    )
    registry.change_alias(store, model, "champion", 1, action="promote", actor="test")  # what the command does
    registry.change_alias(store, model, "champion", 2, action="rollback", actor="test")
    monkeypatch.setattr("medloop.loop.rounds.reconcile", lambda store: "no MLflow there")
    assert roll_back(store, 0, actor="usr_1").lag == "no MLflow there"


def test_an_erasure_that_comes_between_stops_the_way_back_to_a_round(store, monkeypatch):
    first = accepted_round(store)
    accepted_round(store, 2)

    def meanwhile(*args, **more):
        with store.write() as conn:
            lineage.flag_artifact(conn, first.sha256, "tainted", "trained on data erased in er_1", actor="test")
        return add_rollback(*args, **more)

    monkeypatch.setattr("medloop.loop.rounds.add_rollback", meanwhile)
    with pytest.raises(RoundRefusedError, match="tainted by an erasure"):
        roll_back(store, 1, actor="test")
    assert path_in_use(store.settings, store) == "models/rl/round2"
