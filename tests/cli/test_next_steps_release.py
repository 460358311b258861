"""What gate, registry, release, rounds, lineage and inspect print as the next command is run as it stands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import GateCheck, GateResult, Incident, sha256_id, utc_now
from medloop.contracts.gate_config import GateConfig
from medloop.errors import MedloopError
from medloop.loop import gate_policy
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import catalog
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records import crud, gates, users
from medloop.testing.lineage import make_model
from medloop.testing.models import tiny_adapter, tiny_model
from medloop.testing.records import make_emergencies
from medloop.testing.registry import examine, make_adapter

PASSWORD = "three random words here"
STEP = re.compile(r"medloop ((?:gate|registry|release|rounds|lineage|inspect|incidents|train|users) ?[^'`\n;()#]*)")
QUICK_GATE = (
    "--set splits=[gold] --set required_suites=[gold] --set suites=[] --set rules=[risk] --set n=12 --set min_cases=10 "
    "--set max_new_tokens=4 --set accept_unmeasured_judges=true"
)
ANSWER = (0,)
VERDICT = (0, 10, 11)


class Desk:
    """Somebody at the keyboard of one workspace, who runs what they are told to."""

    def __init__(self, home: Path) -> None:
        self.home, self.settings = home, Settings(home=home)

    def run(self, command: str, *codes: int, typed: str = "") -> str:
        done = CliRunner().invoke(app, shlex.split(command), input=typed)
        output, code = done.output, done.exit_code
        if isinstance(done.exception, MedloopError):  # the entry point prints it
            output, code = f"{output}\n{done.exception}", done.exception.exit_code
        elif done.exception and not isinstance(done.exception, SystemExit):
            raise AssertionError(f"medloop {command}") from done.exception
        assert code in (codes or ANSWER), f"medloop {command}\n{output}"
        return output

    def refused(self, command: str, typed: str = "") -> str:
        """An error that a person can mend, with what to do."""
        return self.run(command, 2, 3, 4, 10, typed=typed)

    def follow(self, output: str, begins: str, *codes: int, more: str = "", typed: str = "", **fill: str) -> str:
        """Run the printed command that begins so; `fill` replaces the words that stand for something."""
        steps = [match.rstrip(" .,") for match in STEP.findall(output.replace(". ", "\n"))]
        step = next((step for step in steps if step.startswith(begins)), None)
        assert step is not None, f"'medloop {begins}' is not among {steps}\n{output}"
        for name, value in fill.items():
            step = step.replace(name, value)
        return self.run(f"{step} {more}", *codes, typed=typed)

    def store(self) -> Store:
        return open_store(self.settings)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    home = tmp_path / "clinic"
    init_workspace(home)
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "300")
    desk = Desk(home)
    with desk.store() as store:
        for name in ("dr.li", "dr.wu"):
            users.add_user(store, name, "clinician", password=PASSWORD, actor="test")
    return desk


def test_what_registry_and_gate_say_to_do_next_can_be_done(desk: Desk) -> None:
    with desk.store() as store:
        first, second = make_adapter(store, "a"), make_adapter(store, "b")
    added = desk.follow(desk.run("registry list"), "registry add", ADAPTER="a")
    jsonl.write(desk.home / "data/processed/gold_set.jsonl", make_emergencies(12))
    tiny_adapter(desk.home / "models/lora/real", tiny_model(desk.home / "models/full/base"))
    real = {"embedded:tiny+models/lora/a": "models/full/base+models/lora/real"}  # the first has made-up bytes
    assert "medloop gate --model embedded:tiny+models/lora/a." in added
    decided = desk.follow(added, "gate --model", *VERDICT, more=QUICK_GATE, **real)
    assert "weaker than the policy" in decided and "n=12 (400)" in decided and "Sign-offs needed: 2." in decided
    desk.follow(desk.refused("registry show 9"), "registry list")
    desk.follow(desk.refused("gate show ffffffffffff"), "gate list")
    with desk.store() as store:
        examine(store, first, needs_sign_offs=1)
        examine(store, second, baseline=first)
    desk.follow(desk.run("registry show 1"), "gate sign", typed=f"{PASSWORD}\n", NAME="dr.li")
    desk.run("registry promote 1")
    desk.follow(desk.run("registry add b"), "registry promote 2")
    with desk.store() as store:
        crud.add(store, [Incident(record_id="fb_1")], actor="test")
    desk.follow(desk.run("registry show 2"), "incidents list")
    assert "is the champion" in desk.run("registry rollback")


def test_a_verdict_against_an_earlier_champion_names_a_command_that_runs_on_the_same_model(desk: Desk) -> None:
    """The adapter lies in a folder of its own, so its short name alone would be another model, or none."""
    jsonl.write(desk.home / "data/processed/gold_set.jsonl", make_emergencies(12))
    base = tiny_model(desk.home / "models/full/base")
    tiny_adapter(desk.home / "models/rl/round1/adapter", base)
    with new_artifact(desk.home / "models/lora/champ") as folder:
        shutil.copytree(tiny_adapter(desk.home / "own", base), folder, dirs_exist_ok=True)
    with desk.store() as store:
        card = json.loads((desk.home / "models/lora/champ/card.json").read_text(encoding="utf-8"))
        catalog.register(store, "adapter", desk.home / "models/lora/champ", card, actor="test")
        examine(store, verify_artifact(desk.home / "models/lora/champ").sha256)
    model = "models/full/base+models/rl/round1/adapter"
    desk.run(f"gate --model '{model}' {QUICK_GATE}", *VERDICT)
    desk.run("registry add champ")
    desk.run("registry promote 1")
    with desk.store() as store:
        (first,) = [row for row in gates.list_gates(store) if row.model == model]
        passed = tuple(check.model_copy(update={"outcome": "pass"}) for check in first.checks)
        gates.save_gate(
            store, first.model_copy(update={"checks": passed, "outcome": "pass", "timestamp": utc_now()}), actor="test"
        )
        (reason,) = gates.refusal_parts(store, first.artifact) or ()
    assert reason.key == "refused_baseline" and first.label != model
    with desk.store() as store:
        newest = gates.latest_gate(store, first.artifact)
    assert newest is not None
    desk.follow(desk.run(f"gate show {newest.content_id()[7:19]}"), "gate --model", *VERDICT, more=QUICK_GATE)
    with desk.store() as store:
        newest = gates.latest_gate(store, first.artifact)
    assert newest is not None and newest.baseline_artifact != first.baseline_artifact and newest.model == model


def test_the_second_person_of_a_waiver_approves_it_with_the_printed_command(desk: Desk) -> None:
    hashes = {name: sha256_id(name) for name in ("artifact", "weights", "base", "baseline_artifact", "report", "config")}
    check = GateCheck(name="language/zh", outcome="fail", reason="Half of the answers are not in Chinese.")
    with desk.store() as store:
        gate = gates.save_gate(
            store, GateResult(**hashes, label="a", baseline="b", outcome="fail", checks=(check,)), actor="test"
        )
    until = f"{utc_now() + timedelta(days=9):%Y-%m-%d}"
    asked = f"gate waive {gate[7:19]} --check language/zh --reason 'An English clinic.' --until {until} --user dr.li"
    desk.follow(desk.run(asked, typed=f"{PASSWORD}\n"), "gate approve", typed=f"{PASSWORD}\n", NAME="dr.wu")
    desk.follow(desk.refused(f"gate sign {gate[7:19]} --user nobody", typed="wrong\n"), "users list")
    desk.run(f"gate show {gate[7:19]}")


def test_a_weaker_policy_is_adopted_by_a_second_clinician_with_the_printed_command(desk: Desk) -> None:
    assert "defaults of medloop" in desk.run("gate policy show")
    (desk.home / "own.yaml").write_text("sign_offs: 0\n", encoding="utf-8")
    first = desk.run("gate policy adopt own.yaml --user dr.li", typed=f"{PASSWORD}\n")
    assert "sign_offs = 0 instead of 1" in first and "defaults of medloop" in desk.run("gate policy show")
    assert "are the policy now" in desk.follow(first, "gate policy adopt", typed=f"{PASSWORD}\n", NAME="dr.wu")
    assert "dr.li and dr.wu" in desk.run("gate policy show")
    assert json.loads(desk.run("gate policy show --json"))["settings"]["sign_offs"] == 0


def test_settings_that_a_file_does_not_name_stay_as_the_policy_has_them(desk: Desk) -> None:
    def adopt(user: str, text: str) -> str:
        (desk.home / "own.yaml").write_text(text, encoding="utf-8")
        return desk.run(f"gate policy adopt own.yaml --user {user}", typed=f"{PASSWORD}\n")

    def settings() -> dict[str, object]:
        return json.loads(desk.run("gate policy show --json"))["settings"]

    assert "are the policy now" in adopt("dr.li", "sign_offs: 3\nmargin: 0.02\n")
    assert "are the policy now" in adopt("dr.wu", "n: 900\n"), "stricter, so one clinician is enough"
    assert (settings()["sign_offs"], settings()["margin"], settings()["n"]) == (3, 0.02, 900)
    asked = adopt("dr.li", "margin: 0.04\n")
    assert (
        asked.count("Weaker than the policy") == 1 and "margin = 0.04 instead of 0.02" in asked and settings()["margin"] == 0.02
    )
    with desk.store() as store:  # what the route does with {"margin": 0.04}: the same settings, so they count together
        gate_policy.adopt(
            store, gate_policy.own_settings(store, GateConfig(margin=0.04)), by=users.get_user(store, "dr.wu").user_id
        )
    assert (settings()["sign_offs"], settings()["margin"], settings()["n"]) == (3, 0.04, 900)


def test_a_rollback_of_rounds_that_cannot_move_the_champion_says_how(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for door in ("medloop.registry.promote", "medloop.registry.register", "medloop.cli.registry"):
        monkeypatch.setattr(f"{door}.reconcile", lambda store: None)  # without MLflow
    with desk.store() as store:
        sft = make_model(store, "models/lora/sft", inputs={})
        entry = make_model(store, "models/rl/round1", inputs={}, method="ppo", config={"adapter": "models/lora/sft"})
        examine(store, entry.sha256)
    for command in ("rounds accept 1", "registry add models/rl/round1", "registry promote 1"):
        desk.run(command)
    told = desk.run("rounds rollback")
    assert "The champion is still version 1: SFT (models/lora/sft) is not in the registry." in told
    desk.follow(told, "registry add")
    with desk.store() as store:
        examine(store, sft.sha256)
    told = desk.run("rounds rollback")
    assert "It has never been the champion" in told
    assert "med-assistant/2 is the champion now" in desk.follow(told, "registry promote")


def test_what_rounds_releases_and_lineage_say_to_do_next_can_be_done(desk: Desk) -> None:
    desk.follow(desk.run("rounds list"), "train sft", more="--help")  # training itself: test_next_steps.py
    with desk.store() as store:
        make_model(store, "models/lora/sft", inputs={})
    desk.follow(desk.refused("rounds accept 1"), "train ppo --round 1", more="--help")
    with desk.store() as store:
        entry = make_model(store, "models/rl/round1", inputs={}, method="ppo", config={"adapter": "models/lora/sft"})
        examine(store, entry.sha256)
    made = desk.follow(desk.run("rounds accept 1"), "release v1.0-rl")
    desk.follow(made, "release verify v1.0-rl")
    assert "round1" in desk.follow(made, "lineage v1.0-rl")
    with desk.store() as store:
        crud.add(store, [Incident(record_id="fb_1")], actor="test")
    assert "SFT is in use again" in desk.follow(desk.refused("release verify v1.0-rl"), "rounds rollback")


def test_what_inspect_says_to_do_next_can_be_done(desk: Desk) -> None:
    refused = desk.refused("inspect")
    rows = [{"id": str(n), "question": f"Case {n}?", "answer": f"Rest {n} days."} for n in range(3)]
    (desk.home / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    desk.follow(refused, "inspect answers.jsonl")
    assert list((desk.home / "reports/inspect").rglob("form.csv"))
