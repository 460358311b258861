"""One cycle of the loop on the embedded model, through the stages that exist: what people said becomes a measured candidate."""

from __future__ import annotations

import pytest

from medloop.contracts import ModelRef
from medloop.data.prepare.prepare import PrepareConfig, prepare
from medloop.data.sources.import_files import ImportOptions, import_files
from medloop.embedded.corpus import generate
from medloop.evaluate.predictions import EvalConfig
from medloop.loop.cycle import CycleConfig, CycleResult, TrainStep, run_cycle
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import crud
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
def cycle(clinic: Settings) -> tuple[CycleResult, list[str]]:
    stages: list[str] = []
    return run_cycle(clinic, CONFIG, on_stage=stages.append), stages


def test_a_cycle_goes_through_the_stages_in_the_order_of_the_loop(cycle: tuple[CycleResult, list[str]]) -> None:
    assert cycle[1] == ["feedback", "data", "train SFT", "train DPO", "train IRS", "evaluate"]


def test_what_people_said_is_counted_and_in_the_dataset(cycle: tuple[CycleResult, list[str]]) -> None:
    result = cycle[0]
    assert (result.feedback.feedback, result.feedback.preferences, result.feedback.corrections) == (24, 12, 12)
    pairs = list(jsonl.read(result.dataset / "preferences.jsonl"))
    assert pairs and all("Rest" in pair["chosen"] and "Run" in pair["rejected"] for pair in pairs)


def test_each_training_starts_from_the_one_before(cycle: tuple[CycleResult, list[str]]) -> None:
    sft, dpo, irs = cycle[0].trained
    assert dpo.card.config["adapter"] == str(sft.run.target) and irs.card.config["adapter"] == str(dpo.run.target)
    assert cycle[0].candidate == irs.run.target and (cycle[0].candidate / "adapter_model.safetensors").is_file()


def test_the_candidate_is_measured_beside_the_base_model(clinic: Settings, cycle: tuple[CycleResult, list[str]]) -> None:
    report = cycle[0].evaluation.report
    candidate = ModelRef(base=clinic.model, adapter=str(cycle[0].candidate))
    assert [result.label for result in report.results][:2] == [clinic.model, candidate.label]
    assert cycle[0].evaluation.markdown.is_file()


def test_the_cycle_is_in_the_audit_log(clinic: Settings, cycle: tuple[CycleResult, list[str]]) -> None:
    with open_store(clinic) as store:
        actions = [line["action"] for line in audit.show(store, 50)]
    assert "loop.cycle" in actions


def test_a_second_cycle_with_nothing_new_trains_nothing(clinic: Settings, cycle: tuple[CycleResult, list[str]]) -> None:
    weights = cycle[0].candidate / "adapter_model.safetensors"
    before = weights.stat().st_mtime_ns
    again = run_cycle(clinic, CONFIG)
    assert [result.plan for result in again.trained] == [None, None, None]
    assert weights.stat().st_mtime_ns == before and again.evaluation.report.results == cycle[0].evaluation.report.results
