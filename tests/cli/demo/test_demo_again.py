"""The demo's invented traffic, and a demo that ran already: it shows what it made and runs nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from medloop.cli.demo import compare, demo
from medloop.cli.demo.clinicians import LOGINS, MODEL, demo_store
from medloop.experiment.plan import PlanConfig, make_plan
from medloop.loop.experiment import plan_experiment, start
from medloop.loop.workspace import init_workspace
from medloop.store.records import crud, experiments


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "demo")
    return tmp_path / "demo"


def test_a_second_demo_shows_the_table_and_the_logins_and_runs_nothing(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("medloop.store.passwords.COST", 2**4)
    monkeypatch.setattr(demo, "run_step", lambda *_, **__: pytest.fail("nothing is run again"))
    (folder / demo.DONE).write_text("on 2026-11-18, in 300 s.\n", encoding="utf-8")
    demo.demo(folder)
    shown = capsys.readouterr().out
    assert "This demo ran already, on 2026-11-18, in 300 s." in shown and "/web/lineage" in shown
    assert all(f"\n{name} " in shown for name in LOGINS)


def test_invented_users_get_real_answers_of_the_version_of_their_arm(folder: Path) -> None:
    rows = [
        {"iter": number, "question": f"Q{n}?", "answer": f"{kind} {n}"}
        for n in range(5)
        for number, kind in ((0, "old"), (2, "new"))
    ]
    (folder / MODEL).mkdir(parents=True)
    (folder / MODEL / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answers = compare.read_answers(folder)
    with demo_store(folder) as store:
        config = PlanConfig(primary="quality", window_hours=0)
        plan = make_plan(config, name="x", champion="med-assistant@1", challenger="med-assistant@2", by="demo")
        plan_experiment(store, plan)
        start(store, plan.experiment_id, enrolled=1.0, by="demo")
        experiment = experiments.get(store, plan.experiment_id)
        traces = list(compare.traffic(store, experiment, answers, range(40), random.Random(1)))
        crud.add(store, traces, actor="demo")
    said = {(trace.model_version, str(trace.conversation.answer).split()[0]) for trace in traces}
    assert said == {("med-assistant@1", "old"), ("med-assistant@2", "new")}
    assert all(trace.meta["simulated"] for trace in traces)
