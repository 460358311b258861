"""One cycle of the loop on the embedded model: what people said becomes a measured candidate, and a version when it may."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from medloop.contracts import EvalReport, ModelRef
from medloop.contracts.gate_config import GateConfig
from medloop.data.prepare.prepare import PrepareConfig, prepare
from medloop.data.sources.import_files import ImportOptions, import_files
from medloop.embedded.corpus import generate
from medloop.evaluate.predictions import EvalConfig
from medloop.loop import cycle as cycle_module
from medloop.loop.cycle import CycleConfig, TrainStep, run_cycle
from medloop.loop.cycle_config import OnlineConfig
from medloop.loop.workflow import CycleProgress, progress_of
from medloop.loop.workspace import init_workspace
from medloop.registry.promote import holder
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import crud, gates
from medloop.store.records.cycles import cycle_events
from medloop.testing import registry as testing_registry
from medloop.testing.feedback import make_correction, make_preference, make_thumb

SMALL_RL = {"n_iterations": 1, "n_questions": 6, "n_candidates": 2, "max_new_tokens": 24, "held_out_n": 4}
CONFIG = CycleConfig(
    name="cycle",
    prompts=12,
    train=(
        TrainStep(stage="SFT", settings={"max_steps": 2, "dev_rows": 4, "max_length": 192}),
        TrainStep(stage="DPO", settings={"max_steps": 1, "batch_size": 4, "max_length": 192}),
        TrainStep(stage="IRS", settings=SMALL_RL),
    ),
    evaluate=EvalConfig(splits=("red",), n=3, max_new_tokens=24, resamples=100),
    gate=GateConfig(splits=("red",), suites=(), required_suites=("red",), n=3, max_new_tokens=24, accept_unmeasured_judges=True),
)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A clinic with prepared data, and with people who rated, compared and corrected answers."""
    home = tmp_path_factory.mktemp("loop") / "clinic"
    init_workspace(home)
    settings = Settings(home=home, device="cpu", threads=1, offline=True)
    jsonl.write(home / "log.jsonl", generate(300, seed=3))
    import_files([home / "log.jsonl"], settings.workspace.raw, name="log", options=ImportOptions())
    prepare(settings.workspace, PrepareConfig(scrub=False), seed=42)
    with open_store(settings) as store:
        for n in range(12):
            bad, good = f"Run {n} miles.", f"Rest {n} days and see a doctor."
            records = [
                make_preference(n, good, bad, "a"),
                make_correction(n, bad, good),
                make_thumb(n, good, True),
                make_thumb(n, bad, False),
            ]
            crud.add(store, records, actor="test")
    return settings


@pytest.fixture(scope="module")
def cycle(clinic: Settings) -> tuple[CycleProgress, list[str]]:
    stages: list[str] = []
    return run_cycle(clinic, CONFIG, on_stage=stages.append), stages


def outputs(progress: CycleProgress, step: str) -> dict[str, object]:
    return next(dict(row.outputs) for row in progress.steps if row.name == step)


def test_a_cycle_goes_through_the_stages_in_the_order_of_the_loop(cycle: tuple[CycleProgress, list[str]]) -> None:
    assert cycle[1] == ["data", "train-sft", "train-dpo", "train-irs", "evaluate", "gate"]
    assert [row.name for row in cycle[0].steps] == [*cycle[1], "sign-off", "register", "promote"]


def test_what_people_said_is_counted_and_in_the_dataset(clinic: Settings, cycle: tuple[CycleProgress, list[str]]) -> None:
    data = outputs(cycle[0], "data")
    assert (data["feedback"], data["preferences"], data["corrections"]) == (24, 12, 12)
    pairs = list(jsonl.read(clinic.home / str(data["dataset"]) / "preferences.jsonl"))
    assert pairs and all("Rest" in pair["chosen"] and "Run" in pair["rejected"] for pair in pairs)


def test_each_training_starts_from_the_one_before(clinic: Settings, cycle: tuple[CycleProgress, list[str]]) -> None:
    sft, dpo, irs = (str(outputs(cycle[0], f"train-{name}")["adapter"]) for name in ("sft", "dpo", "irs"))
    cards = [json.loads((clinic.home / folder / "card.json").read_text()) for folder in (dpo, irs)]
    assert [card["config"]["adapter"] for card in cards] == [sft, dpo]
    assert (clinic.home / irs / "adapter_model.safetensors").is_file()


def test_the_candidate_is_measured_beside_the_base_model(clinic: Settings, cycle: tuple[CycleProgress, list[str]]) -> None:
    markdown = clinic.home / str(outputs(cycle[0], "evaluate")["report"])
    report = EvalReport.model_validate_json(markdown.with_suffix(".json").read_text())
    candidate = ModelRef(base=clinic.model, adapter=str(outputs(cycle[0], "train-irs")["adapter"]))
    assert [result.label for result in report.results][:2] == [clinic.model, candidate.label]


def test_the_gate_refuses_answers_that_are_cut_off_and_that_ends_the_cycle(cycle: tuple[CycleProgress, list[str]]) -> None:
    assert outputs(cycle[0], "gate")["outcome"] == "fail"
    assert cycle[0].state == "ended" and "The gate refused the model: " in cycle[0].reason


def test_the_cycle_is_in_the_audit_log(clinic: Settings, cycle: tuple[CycleProgress, list[str]]) -> None:
    with open_store(clinic) as store:
        actions = [line["action"] for line in audit.show(store, 80)]
    assert {"loop.started", "loop.done", "loop.ended"} <= set(actions)


def test_a_cycle_that_is_over_does_nothing_more(clinic: Settings, cycle: tuple[CycleProgress, list[str]]) -> None:
    assert run_cycle(clinic, CONFIG, on_stage=pytest.fail) == cycle[0]


def test_status_and_dry_run_say_where_it_stands(command_line, clinic: Settings, cycle: tuple[CycleProgress, list[str]]) -> None:
    code, out, _ = command_line("--home", clinic.home, "loop", "status", "--json")
    shown = json.loads(out)
    assert code == 0 and (shown["cycle"], shown["state"], shown["reason"]) == ("cycle", "ended", cycle[0].reason)
    code, out, _ = command_line("--home", clinic.home, "loop", "status")
    assert code == 0 and "cycle is ended." in out and cycle[0].reason in out
    code, out, _ = command_line("--home", clinic.home, "loop", "run", "--dry-run")
    assert code == 0 and "cycle1: what a run would do" in out and "Nothing was done." in out and "training: GRPO" in out
    assert command_line("--home", clinic.home, "loop", "status", "--name", "nonsense").code == 3
    code, out, _ = command_line("--home", clinic.home, "loop", "watch", "--once")
    assert code == 0 and "no reason for a cycle" in out


def test_it_waits_for_signatures_then_registers_and_promotes(
    command_line, clinic: Settings, cycle: tuple[CycleProgress, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same candidate under another gate, which passes it and asks for a signature."""
    artifact = str(outputs(cycle[0], "gate")["artifact"])

    def passing(_: Settings, store: Store, **__: object) -> SimpleNamespace:
        testing_registry.examine(store, artifact, needs_sign_offs=1)
        return SimpleNamespace(result=gates.latest_gate(store, artifact))

    monkeypatch.setattr(cycle_module, "examine", passing)
    other = CONFIG.model_copy(update={"gate": CONFIG.gate.model_copy(update={"n": 4})})
    stages: list[str] = []
    waiting = run_cycle(clinic, other, on_stage=stages.append)
    assert stages == ["gate", "sign-off"] and waiting.state == "waiting" and "sign-off" in waiting.reason
    code, out, _ = command_line("--home", clinic.home, *waiting.command.split())  # the next step that it prints
    assert code == 0 and "candidate" in out
    with open_store(clinic) as store:
        testing_registry.examine(store, artifact)  # a later verdict on the same bytes that needs nobody
    done = run_cycle(clinic, other)
    assert done.state == "done" and outputs(done, "promote") == {"version": 1, "alias": "champion"}
    with open_store(clinic) as store:
        assert holder(store, "champion").record.artifact == artifact


ONLINE = CycleConfig(
    name="online1",
    online=OnlineConfig(
        rows=20, replay=0.6, train=(TrainStep(stage="SFT", settings={"max_steps": 1, "max_length": 192, "dev_rows": 0}),)
    ),
    evaluate=CONFIG.evaluate,
    gate=CONFIG.gate,
)


def passing(_: Settings, store: Store, *, candidate: ModelRef, **__: object) -> SimpleNamespace:
    """A gate that lets every candidate pass."""
    artifact = verify_artifact(store.settings.home / str(candidate.adapter)).sha256
    testing_registry.examine(store, artifact)
    return SimpleNamespace(result=gates.latest_gate(store, artifact))


def test_a_round_of_online_learning_goes_on_from_what_serves_with_a_replay(
    clinic: Settings, cycle: tuple[CycleProgress, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the test before: the RL model of the cycle is the champion."""
    with open_store(clinic) as store:
        serving = holder(store, "champion").path
        crud.add(store, [make_correction(n, f"Run {n} miles.", f"Keep it warm {n} days.") for n in range(40, 46)], actor="test")
    monkeypatch.setattr(cycle_module, "examine", passing)
    done = run_cycle(clinic, ONLINE)
    assert done.state == "done" and [row.name for row in done.steps][:2] == ["data", "train-sft"]
    data = outputs(done, "data")
    rows = list(jsonl.read(clinic.home / str(data["mix"])))
    new = [row for row in rows if "Keep it warm" in str(row)]
    assert 1 <= len(new) == data["new"] and data["replayed"] == len(rows) - len(new) == round(len(new) * 0.6 / 0.4)
    assert any("Rest" in str(row) for row in rows) and any("Rest" not in str(row) for row in rows if row not in new)
    card = json.loads((clinic.home / str(outputs(done, "train-sft")["adapter"]) / "card.json").read_text())
    assert card["config"]["adapter"] == serving and card["parent"] is not None
    with open_store(clinic) as store:
        assert holder(store, "champion").record.version == 2
    again = run_cycle(clinic, ONLINE.model_copy(update={"name": "online2"}))
    assert (again.state, again.reason) == ("ended", "There are no new answers to learn from.")


def test_a_cycle_that_an_erasure_has_touched_begins_again_without_the_erased_rows(
    command_line, clinic: Settings, cycle: tuple[CycleProgress, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the test before: the round of online learning is done, and its model is the champion."""
    monkeypatch.setattr(cycle_module, "examine", passing)
    with open_store(clinic) as store:
        before = progress_of("online1", cycle_events(store, "online1"))
    mix = clinic.home / str(outputs(before, "data")["mix"])
    row = next(row for row in jsonl.read(mix) if "Keep it warm" in str(row))
    [record] = (row.get("metadata") or row.get("meta"))["records"]
    assert command_line("--home", clinic.home, "erase", "--record", record, "--reason", "asked for it").code == 0
    code, out, _ = command_line("--home", clinic.home, "loop", "status", "--name", "online1")
    assert code == 0 and "An erasure has reached what it learnt from" in out and "loop run --name online1" in out
    stages: list[str] = []
    done = run_cycle(clinic, ONLINE, on_stage=stages.append)
    assert done.state == "done" and stages[:2] == ["data", "train-sft"] and outputs(done, "data")["redo"] == 1
    assert outputs(done, "train-sft")["adapter"] == "models/lora/online1-sft-redo1"
    assert record not in mix.read_text(encoding="utf-8") and outputs(done, "promote")["version"] == 3
    assert run_cycle(clinic, ONLINE, on_stage=pytest.fail) == done
    assert "An erasure" not in command_line("--home", clinic.home, "loop", "status", "--name", "online1").out
