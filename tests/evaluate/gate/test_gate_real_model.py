"""The gate of a real model: its verdict is stored for exactly these bytes, and a report is taken only if it is about them."""

import json
import shutil
from pathlib import Path

import pytest

from medloop.loop import gate
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import folder_sha256
from medloop.store.records import gates
from medloop.testing.models import tiny_adapter, tiny_model
from medloop.testing.records import make_emergencies

FEW = ("splits=[gold]", "required_suites=[gold]", "suites=[]", "rules=[emergency, risk]", "n=12", "min_cases=10", "max_new_tokens=4",
       "accept_unmeasured_judges=true", "margin=0.4", "under_triage_margin=0.4")  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "clinic"
    init_workspace(home)
    jsonl.write(home / "data/processed/gold_set.jsonl", make_emergencies(12))
    tiny_adapter(home / "models/lora/a", tiny_model(home / "models/full/random"))
    return home


def test_answers_that_change_while_they_are_read_are_no_evidence(home: Path, command_line, monkeypatch) -> None:
    monkeypatch.chdir(home)

    read_predictions = gate.read_predictions

    def read(path: Path, records):
        answers = read_predictions(path, records)
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")  # after its hash was taken
        return answers

    monkeypatch.setattr(gate, "read_predictions", read)
    pairs = [word for pair in FEW for word in ("--set", pair)]
    done = command_line("gate", "--model", "models/full/random+a", *pairs, "--dry-run", "--json")
    (texts,) = [check for check in json.loads(done.out)["checks"] if check["name"] == "texts"]
    assert done.code == 11 and texts["outcome"] == "not_enough_evidence"


def test_a_verdict_is_stored_for_the_bytes_of_the_model_and_reused_with_its_report(home: Path, command_line, monkeypatch) -> None:
    monkeypatch.chdir(home)
    pairs = [word for pair in FEW for word in ("--set", pair)]
    model, artifact = "models/full/random+a", folder_sha256(home / "models/lora/a")
    assert command_line("gate", "--model", model, *pairs, "--dry-run").code in (10, 11)
    with open_store(Settings(home=home)) as store:
        assert gates.list_gates(store) == [], "a dry run stores nothing"
    done = command_line("gate", "--model", model, *pairs, "--json")
    stored = json.loads(done.out)
    assert stored["artifact"] == artifact and done.code in (10, 11)
    report = next((home / "reports/gate").glob("*/eval_report.json"))
    again = json.loads(command_line("gate", "--model", model, "--report", report, *pairs, "--json").out)
    assert [check["outcome"] for check in again["checks"]] == [check["outcome"] for check in stored["checks"]]
    with open_store(Settings(home=home)) as store:
        assert gates.latest_gate(store, artifact).content_id() == again["gate"] and len(gates.list_gates(store)) == 2
    honest = json.loads(report.read_text(encoding="utf-8"))["results"]
    more = json.loads(
        command_line("gate", "--model", model, "--report", report, *pairs, "--set", "rules=[risk, chain]", "--json").out
    )
    asked = {check["name"]: check["reason"] for check in more["checks"]}
    assert "ask for chain" in asked["measured/rules"], "a report is held to what the settings ask for"
    report.write_text(
        report.read_text(encoding="utf-8").replace('"mean":0.0', '"mean":1.0').replace('"mean": 0.0', '"mean": 1.0')
    )
    forged = command_line("gate", "--model", model, "--report", report, *pairs)
    assert forged.code == 3 and "was changed, or another workspace made it" in forged.err
    command_line("gate", "--model", model, *pairs)
    assert json.loads(report.read_text(encoding="utf-8"))["results"] == honest, "an edited report is made again, not believed"
    shutil.copytree(home / "models/lora/a", home / "models/lora/copy")
    itself = command_line("gate", "--model", model, "--baseline", "models/full/random+copy", *pairs)
    assert itself.code == 3 and "are the same bytes" in itself.err
    url = command_line("gate", "--model", "http://127.0.0.1:9/v1#m", "--baseline", model, *pairs)
    assert url.code == 4 and "There is no model http://127.0.0.1:9/v1#m" in url.err, "a model without bytes has no verdict"
