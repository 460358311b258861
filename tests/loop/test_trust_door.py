"""`medloop reward validate` and what training makes of its card: an untrusted reward is refused unless it is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from trust_workspace import BAD, GOOD, QUESTION, medloop

from medloop.contracts.validity import ValidityCard
from medloop.errors import ConfigError, InputError, ResultError
from medloop.loop import trust
from medloop.loop.cycle import CycleConfig, run_cycle
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.trust_page import READ_NOTE
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.testing.records import make_emergencies


def pairs(path: Path, chosen: str, rejected: str) -> str:
    jsonl.append(path, [{"id": str(n), "question": QUESTION, "chosen": chosen, "rejected": rejected} for n in range(30)])
    return str(path)


def test_the_command_measures_writes_a_card_and_says_it_in_json(workspace: Path) -> None:
    triage = [{"id": f"t{n}", "question": f"{QUESTION} {n}", "urgency": "emergent"} for n in range(24)]
    jsonl.append(workspace / "triage.jsonl", [*triage, {"id": "t24", "question": "Which tea is best?", "urgency": "routine"}])
    output = medloop("reward", "validate", "triage.jsonl", pairs(workspace / "votes.jsonl", GOOD, BAD))
    assert READ_NOTE not in output and "earlier readings of these parts on real answers" in output and "--verbose" in output
    assert READ_NOTE in medloop("reward", "validate", "votes.jsonl", "--verbose")
    assert "reward: trusted (agreement 1.00" in output and "urgency: trusted (recall 1.00" in output
    (path,) = workspace.glob("reports/trust/*/validity.json")
    assert "| reward | trusted |" in (path.parent / "validity.md").read_text()
    card = ValidityCard.model_validate(json.loads(medloop("reward", "validate", "triage.jsonl", "votes.jsonl", "--json")))
    assert card.n_cases == 55 and card.sources == {"triage": 25, "votes": 30}


def test_an_unknown_fault_is_named_with_its_file_and_line(workspace: Path) -> None:
    rows = [{"id": "a", "question": QUESTION, "answer": GOOD, "faults": {"risk": False}}]
    jsonl.append(workspace / "first.jsonl", rows)
    jsonl.append(workspace / "cases.jsonl", [{**rows[0], "id": "b"}, {**rows[0], "id": "c", "faults": {"riskk": True}}])
    with pytest.raises(InputError, match=r"cases\.jsonl, line 2: 'riskk' is no part of the reward"):
        medloop("reward", "validate", "first.jsonl", "cases.jsonl")


def test_a_reward_that_people_disagree_with_is_refused_before_training_and_accepted_on_demand(workspace: Path) -> None:
    with pytest.raises(ResultError, match=r"Untrusted: .*reward"):
        medloop("reward", "validate", pairs(workspace / "votes.jsonl", BAD, GOOD), "--fail-on-untrusted")
    settings, objective = Settings(home=workspace), build_mix(MixConfig()).objective
    notes = trust.check(settings, objective, accept_untrusted=True)
    assert notes[0].startswith("UNTRUSTED, and accepted: the whole reward (agreement 0.00")
    jsonl.append(workspace / "data/rl/training_prompts.jsonl", {"id": "1", "question": QUESTION})
    for method in ("ppo", "grpo", "irs"):
        with pytest.raises(ConfigError, match="People's labels do not support this reward: the whole reward"):
            medloop("train", method, "--name", "x", "--set", "held_out_n=0")
    with pytest.raises(ConfigError, match="People's labels do not support this reward: the whole reward"):
        medloop("jobs", "submit", "GRPO", "--set", "held_out_n=0")
    assert not list((workspace / "jobs").glob("train_*"))


def test_a_small_file_does_not_undo_a_refusal_and_a_damaged_card_is_named(workspace: Path) -> None:
    medloop("reward", "validate", pairs(workspace / "votes.jsonl", BAD, GOOD))
    jsonl.append(workspace / "one.jsonl", {"id": "1", "question": QUESTION, "chosen": GOOD, "rejected": BAD})
    for _ in range(2):
        output = medloop("reward", "validate", "one.jsonl")
        assert "1 case: one 1." in output and "reward: UNTRUSTED (agreement 0.00" in output and "; measured on 2" in output
    settings, objective = Settings(home=workspace), build_mix(MixConfig()).objective
    with pytest.raises(ConfigError, match="do not support this reward"):
        trust.check(settings, objective)
    (path,) = workspace.glob("reports/trust/*/validity.json")
    path.write_text('{"half": ')
    for command in (("reward", "drift"), ("reward", "drift", "--all")):
        with pytest.raises(InputError, match="is damaged"):
            medloop(*command)
    with pytest.raises(InputError, match="is damaged"):
        trust.check(settings, objective)
    assert "reward: trusted" in medloop("reward", "validate", pairs(workspace / "good.jsonl", GOOD, BAD))
    jsonl.append(workspace / "mine.jsonl", {"id": "1", "question": QUESTION, "urgency": "emergent", "source": "bundled: ward"})
    with pytest.raises(InputError, match="kept for the cases in the package"):
        medloop("reward", "validate", "mine.jsonl")


def test_another_version_of_the_reward_has_no_card(workspace: Path) -> None:
    medloop("reward", "validate", pairs(workspace / "votes.jsonl", GOOD, BAD))
    settings, other = Settings(home=workspace), build_mix(MixConfig(version="9")).objective
    assert trust.check(settings, other) == (trust.NOTHING,)


def test_eval_says_what_judged_and_refuses_a_rule_that_people_disagree_with(workspace: Path, tmp_path: Path) -> None:
    jsonl.append(workspace / "data/processed/red_team.jsonl", make_emergencies(3))
    ids = [record.record_id for record in make_emergencies(3)]
    jsonl.append(workspace / "answers.jsonl", [{"record_id": name, "text": GOOD} for name in ids])
    command = ("eval", "--predictions", "answers.jsonl", "--split", "red", "--rule", "risk", "--rule", "emergency", "--name", "e")
    assert re.search(r"Judged by risk \S+ \(not measured\), emergency \S+ \(not measured\)", medloop(*command).replace("\n", " "))
    faults = [{"id": f"f{n}", "question": QUESTION, "answer": GOOD, "faults": {"risk": True}} for n in range(30)]
    jsonl.append(workspace / "faults.jsonl", faults)
    medloop("reward", "validate", "faults.jsonl")
    with pytest.raises(ConfigError, match=r"People's labels do not support the rules that would judge here: risk \(recall 0.00"):
        medloop(*command)
    with pytest.raises(ConfigError, match="labels do not support the rules"):  # before anything is trained
        run_cycle(Settings(home=workspace), CycleConfig(), on_stage=pytest.fail)
    output = medloop(*command, "--accept-untrusted")
    assert "UNTRUSTED, and accepted: recall 0.00" in output
    report = (workspace / "reports/eval/e/eval_report.md").read_text()
    assert (
        "UNTRUSTED, and accepted: recall 0.00" in report
        and "accepted" in (workspace / "reports/eval/e/eval_report.html").read_text()
    )
    assert json.loads((workspace / "reports/eval/e/eval_report.json").read_text())["config"]["accept_untrusted"] is True
