"""A release: only of a model that the gate let pass, whole by hash, with a ledger that says what is there and what is not."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from medloop.contracts import Difference, EvalReport, Interval, ModelResult
from medloop.contracts.gate import GateCheck, GateResult
from medloop.loop.release import LEDGER, PAGE, read_ledger, release_folder
from medloop.models.safety import fingerprint
from medloop.store import catalog
from medloop.store.db import open_store
from medloop.store.files.artifacts import MANIFEST, new_artifact, verify_artifact
from medloop.store.files.atomic import atomic_write
from medloop.store.lineage_graph import lineage_graph, taught_records
from medloop.store.records import crud, gates, lineage, users
from medloop.testing.feedback import make_correction
from medloop.testing.lineage import make_model

FILE = "sha256:" + "a" * 64
HALF = Interval(mean=0.5, low=0.4, high=0.6, n=40)


@pytest.fixture
def store(sqlite_settings):
    with open_store(sqlite_settings) as opened:
        doctor = users.add_user(opened, "dr.li", "clinician", actor="test").user_id
        corrections = [make_correction(n, "Run.", f"Rest {n} days.", clinician_id=doctor) for n in range(3)]
        crud.add(opened, corrections, actor="test")
        with opened.write() as conn:
            lineage.add_records(conn, FILE, [row.correction_id for row in corrections])
        yield opened


def new_round(store, number: int, **more):
    sft = make_model(store, "models/lora/sft", inputs={"train": FILE})
    parts = {"chain": {"weight": 0.35, "version": "1"}, "teacher": {"weight": 0.25, "version": "absent"}}
    config = {"adapter": "models/lora/sft", "steps": 2, "objective": {"version": f"mix-{number}", "parts": parts}}
    return make_model(
        store, f"models/rl/round{number}", inputs={"adapter": sft.fingerprint}, parent=sft.fingerprint, method="ppo", config=config,
        files={"value_head.safetensors": "head", "samples.jsonl": '{"question": "secret words"}\n'}, **more,
    )  # fmt: skip


def examine(store, entry, outcome: str = "pass", signers: int = 0) -> str:
    """A report on the disk and the gate's verdict by it."""
    label, home = f"tiny+{entry.path.name}", store.settings.home
    red = Difference(
        first="tiny+sft", second=label, split="red", metric="risk", difference=Interval(mean=-0.1, low=-0.2, high=-0.01, n=40),
        separated=False, verdict="better", before=0.3, after=0.2,
    )  # fmt: skip
    report = EvalReport(
        name="r", results=(ModelResult(label=label, metrics={"red": {"risk": HALF}}),), differences=(red,),
        inputs={f"adapter of {label}": entry.fingerprint}, rules={"risk": "1"}, config={}, timestamp="2026-02-03T12:00:00Z",
    )  # fmt: skip
    path = home / f"reports/rl_stage/eval_report_{entry.path.name}.json"
    for ending, content in ((".json", report.model_dump_json(exclude_none=True)), (".md", "# Report"), (".html", "<p>Report")):
        atomic_write(path.with_suffix(ending), content)
    catalog.register_file(store, "evaluation", path, report.content_id(), {"name": "r", "inputs": report.inputs}, actor="test")
    values = {"suite": "red", "metric": "risk", "value": HALF, "bound": 0.05}
    check = GateCheck(name="red_team", outcome=outcome, reason="risk 0.30 → 0.20", **values)
    verdict = GateResult(
        artifact=entry.sha256, weights=entry.sha256, baseline_artifact="sha256:" + "4" * 64, base="sha256:" + "0" * 64, label=label, baseline="tiny+sft", report=report.content_id(),
        config="sha256:" + "c" * 64, outcome=outcome, checks=(check,), needs_sign_offs=signers,
    )  # fmt: skip
    return gates.save_gate(store, verdict, actor="test")


def release(command_line, store, *args: str):
    return command_line("--home", store.settings.home, "release", *args)


def test_a_release_has_everything_verifies_by_hash_and_behaves_as_its_adapter(store, command_line):
    entry = new_round(store, 1)
    examine(store, entry)
    made = release(command_line, store, "v1.0-rl", "--model", "embedded:tiny+models/rl/round1")
    assert made.code == 0, made.err
    folder = release_folder(store.settings, "v1.0-rl")
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "adapter_model.safetensors", "adapter_config.json", "value_head.safetensors", "config.yaml", "reward_rules.md", "rl_pipeline.md",
        "eval_report.md", "eval_report.html", "eval_report.json", LEDGER, PAGE, "taught_by.jsonl", "MANIFEST.json",
    } and "samples.jsonl" not in names  # fmt: skip
    assert fingerprint(folder) == entry.fingerprint
    assert "Missing: teacher_judgements.jsonl. No teacher judged answers" in made.out
    assert release(command_line, store, "verify", "v1.0-rl").code == 0
    assert "Already released" in release(command_line, store, "v1.0-rl", "--model", "embedded:tiny+models/rl/round1").out
    (folder / "adapter_model.safetensors").write_bytes((folder / "adapter_model.safetensors").read_bytes()[:-1] + b"x")
    damaged = release(command_line, store, "verify", "v1.0-rl")
    assert damaged.code == 6 and "adapter_model.safetensors was changed" in damaged.err


def test_the_ledger_says_who_taught_it_what_the_gate_found_and_how_to_go_back(store, command_line):
    examine(store, new_round(store, 1))
    assert release(command_line, store, "v1.0-rl", "--model", "embedded:tiny+models/rl/round1").code == 0
    ledger = read_ledger(release_folder(store.settings, "v1.0-rl"))
    assert [(row.kind, row.role, row.records) for row in ledger.taught] == [
        ("correction", "clinician", 3)
    ] and ledger.records == 3
    assert [row.path for row in ledger.ancestors] == ["models/rl/round1", "models/lora/sft"]
    assert ledger.red_team[0].verdict == "better" and ledger.gate.checks[0].value == HALF
    page = (release_folder(store.settings, "v1.0-rl") / PAGE).read_text()
    for words in (
        "0.5 [0.4, 0.6], n = 40",
        "medloop rounds rollback",
        "medloop registry rollback",
        "安全台账",
        "risk 0.30 → 0.20",
        "<td>clinician</td>",
        "@page",
    ):
        assert words in page
    assert "<script" not in page and "Rest 1 days" not in page
    graph = lineage_graph(store, "v1.0-rl")
    assert graph.records == 3 and {node.kind for node in graph.nodes} >= {"records", "model", "gate", "evaluation", "release"}
    assert len(taught_records(store, "v1.0-rl").items) == 3
    assert not [edge for edge in graph.edges if edge.source == graph.subject.id]  # the adapter was examined, not the release
    correction = taught_records(store, "v1.0-rl").items[0].record_id
    assert "models/rl/v1.0-rl" in {node.label for node in lineage_graph(store, correction).nodes}


def test_the_next_release_says_what_changed(store, command_line):
    examine(store, new_round(store, 1))
    release(command_line, store, "v1.0-rl", "--model", "embedded:tiny+models/rl/round1")
    more = make_correction(9, "Run.", "Rest 9 days.")
    crud.add(store, [more], actor="test")
    with store.write() as conn:
        lineage.add_records(conn, FILE, [more.correction_id])
    examine(store, new_round(store, 2, versions={"torch": "3"}))
    assert release(command_line, store, "v1.1-rl", "--model", "embedded:tiny+models/rl/round2").code == 0
    ledger = read_ledger(release_folder(store.settings, "v1.1-rl"))
    assert ledger.previous == "v1.0-rl" and (ledger.new_records, ledger.left_records) == (1, 0)
    assert {row.what for row in ledger.changes} == {"reward", "version of torch"}
    assert any("v1.0-rl" in line for line in ledger.rollback)


REFUSALS = [("fail", 0, "red_team"), ("pass", 2, "0 of 2 sign-offs"), (None, 0, "has not examined")]


@pytest.mark.parametrize(("outcome", "signers", "reason"), REFUSALS)
def test_a_model_that_the_gate_does_not_let_pass_is_not_released(store, command_line, outcome, signers, reason):
    entry = new_round(store, 1)
    if outcome:
        examine(store, entry, outcome, signers)
    refused = release(command_line, store, "v1.0-rl", "--model", "embedded:tiny+models/rl/round1")
    assert refused.code == 10 and reason in refused.err and not release_folder(store.settings, "v1.0-rl").exists()


def test_what_is_not_there_any_more_is_said_and_a_later_taint_stops_the_release(store, command_line):
    entry = new_round(store, 1)
    examine(store, entry)
    for ending in (".json", ".html", ".md"):
        (store.settings.home / f"reports/rl_stage/eval_report_round1{ending}").unlink()
    made = release(command_line, store, "v1.0-rl", "--model", "embedded:tiny+models/rl/round1")
    assert "Missing: eval_report. The report that the gate decided by is not in the workspace any more" in made.out
    assert json.loads((release_folder(store.settings, "v1.0-rl") / LEDGER).read_text())["missing"]["eval_report"]
    with store.write() as conn:
        lineage.flag_artifact(conn, entry.sha256, "tainted", "trained on data erased in er_1", actor="test")
    tainted = release(command_line, store, "verify", "v1.0-rl")
    assert tainted.code == 10 and "tainted by an erasure" in tainted.err
    assert release(command_line, store, "v2.0-rl", "--model", "embedded:tiny+models/rl/round1").code == 10


MODEL = ("--model", "embedded:tiny+models/rl/round1")


@pytest.fixture
def released(store, command_line):
    """The folder of a release."""
    examine(store, new_round(store, 1))
    assert release(command_line, store, "v1.0-rl", *MODEL).code == 0
    return release_folder(store.settings, "v1.0-rl")


def forge(folder: Path) -> None:
    """Other weights, with a ledger and a manifest that fit them."""
    with tempfile.TemporaryDirectory() as temp:
        copy = Path(temp) / "copy"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(MANIFEST))
        shutil.copyfile(copy / "value_head.safetensors", copy / "adapter_model.safetensors")
        ledger = read_ledger(copy).model_copy(update={"fingerprint": fingerprint(copy)})
        (copy / LEDGER).write_text(ledger.model_dump_json(exclude_none=True), encoding="utf-8")
        with new_artifact(folder, replace=True) as target:
            shutil.copytree(copy, target, dirs_exist_ok=True)


def test_a_folder_that_fits_its_own_ledger_but_not_the_catalog_is_not_the_release(store, command_line, released):
    forge(released)
    forged = release(command_line, store, "verify", "v1.0-rl")
    assert forged.code == 6 and "the catalog does not have its bytes" in forged.err
    assert release(command_line, store, "v1.0-rl", *MODEL).code == 6  # and it is not taken for the release
    with store.transaction() as conn:
        row = {"sha256": verify_artifact(released).sha256}
        conn.execute(text("UPDATE artifacts SET sha256 = :sha256 WHERE kind = 'release'"), row)
    edited = release(command_line, store, "verify", "v1.0-rl")
    assert edited.code == 6 and "A row of artifacts was changed" in edited.err


def test_weights_that_the_gate_did_not_examine_are_not_verified_whatever_the_catalog_says(store, command_line, released):
    forge(released)
    catalog.register(store, "release", released, {"name": "v1.0-rl"}, actor="test")
    forged = release(command_line, store, "verify", "v1.0-rl")
    assert forged.code == 6 and "are not those that the gate examined" in forged.err


def test_a_release_that_was_killed_before_its_entry_is_entered_by_the_same_command(store, command_line, released):
    with store.transaction() as conn:
        conn.execute(text("DELETE FROM artifacts WHERE kind = 'release'"))
    assert "Already released" in release(command_line, store, "v1.0-rl", *MODEL).out
    assert catalog.newest(store, "release").path == released
    assert release(command_line, store, "verify", "v1.0-rl").code == 0


def test_a_forged_folder_without_an_entry_is_not_entered(store, command_line, released):
    forge(released)
    with store.transaction() as conn:
        conn.execute(text("DELETE FROM artifacts WHERE kind = 'release'"))
    assert release(command_line, store, "v1.0-rl", *MODEL).code == 6 and catalog.newest(store, "release") is None


def test_a_release_does_not_take_the_name_of_a_round(store, command_line):
    examine(store, new_round(store, 1))
    refused = release(command_line, store, "round2", *MODEL)
    assert refused.code == 2 and "name of a round" in refused.err and not release_folder(store.settings, "round2").exists()


def test_the_ledger_counts_people_and_not_their_signatures(store, command_line):
    gate = examine(store, new_round(store, 1), signers=1)
    doctor = users.get_user(store, "dr.li").user_id
    for approved in (True, False, True):
        gates.sign(store, gate, by=doctor, approved=approved, comment="Read again.")
    assert release(command_line, store, "v1.0-rl", *MODEL).code == 0
    assert "1 of 1 required sign-offs" in (release_folder(store.settings, "v1.0-rl") / PAGE).read_text(encoding="utf-8")
