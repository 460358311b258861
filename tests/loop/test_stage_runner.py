"""The one runner of training: what it tells its caller, when it stops, and what it enters into the catalog."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from medloop.errors import BusyError, StoreError
from medloop.loop.train import STAGES, run_stage
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.catalog import newest
from medloop.store.db import open_store
from medloop.testing.models import tiny_model
from medloop.train.configs.sft_config import SFTConfig


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    init_workspace(tmp_path / "clinic")
    turns = [{"role": "user", "content": "Pain?"}, {"role": "assistant", "content": "Rest."}]
    (tmp_path / "clinic/data/processed/train.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 8)
    model = tiny_model(tmp_path / "base")
    return Settings(home=tmp_path / "clinic", model=str(model), device="cpu", threads=1, offline=True)


def config(settings: Settings) -> SFTConfig:
    return SFTConfig(model=settings.model, max_steps=2, batch_size=4, lora_r=2, save_every=1)


def test_the_table_of_stages_needs_no_torch():
    code = "import medloop.loop.train, sys; print({'torch', 'transformers', 'trl', 'peft', 'datasets'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"


def test_the_caller_hears_the_plan_its_cost_and_every_step(settings):
    plans, steps = [], []
    result = run_stage(
        STAGES["SFT"], config(settings), settings, on_plan=lambda plan, cost: plans.append((plan.steps, cost.device)),
        on_progress=lambda progress: steps.append((progress.step, progress.steps, progress.phase)),
    )  # fmt: skip
    assert plans == [(2, "cpu")] and steps == [(1, 2, "TRAINING"), (2, 2, "TRAINING")]
    assert result.run.target == settings.home / "models/lora/sft" and result.plan is not None
    again = run_stage(STAGES["SFT"], config(settings), settings, on_plan=lambda plan, cost: pytest.fail("trained again"))
    assert again.plan is None and again.card == result.card


def test_a_finished_run_and_a_taken_name_are_known_without_torch(settings):
    run_stage(STAGES["SFT"], config(settings), settings)
    code = (
        "import sys\nfrom medloop.cli import main\ndef run(*more):\n"
        f"    sys.argv = ['medloop', '--home', {str(settings.home)!r}, 'train', 'sft', '--model', {settings.model!r}, '--batch-size', '4',"
        f" '--seed', '{config(settings).seed}', '--set', 'max_steps=2', '--set', 'lora_r=2', '--set', 'save_every=1', *more]\n"
        "    try: main()\n    except SystemExit as end: print(end.code, 'torch' in sys.modules)\n"
        "run(); run('--epochs', '9')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Already trained" in done.stdout and done.stdout.splitlines()[-2:] == ["0 False", "2 False"], done.stdout + done.stderr
    assert "models/lora/sft is from another run (epochs" in done.stderr


def test_a_result_is_entered_once_also_after_a_kill_before_the_entry(settings, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr("medloop.loop.train.enter_result", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_stage(STAGES["SFT"], config(settings), settings)
    for _ in range(2):
        run_stage(STAGES["SFT"], config(settings), settings)
    with open_store(settings) as store:
        assert newest(store, "adapter") is not None
        assert len([row for row in audit.show(store, 20) if "models/lora/sft" in str(row)]) == 1


def test_a_guard_that_refuses_stops_the_run_before_it_writes(settings):
    def lost() -> None:
        raise BusyError("Another process has the run")

    with pytest.raises(BusyError):
        run_stage(STAGES["SFT"], config(settings), settings, guard=lost)
    assert not (settings.home / "models/lora/sft").exists() and not list((settings.home / "jobs").rglob("*.jsonl"))


def test_a_database_that_cannot_be_opened_stops_the_run_before_the_first_step(settings):
    (settings.home / "medloop.db").write_bytes(b"not a database")
    with pytest.raises(StoreError):
        run_stage(STAGES["SFT"], config(settings), settings, on_plan=lambda plan, cost: pytest.fail("planned"))
