"""The status of a job while it runs: what the current iteration is worth so far, and which phase it is in, from every door."""

import json
from typing import Any

import pytest
from job_runs import submit
from typer.testing import CliRunner

from medloop.cli import app
from medloop.jobs import job_row, queue, status, worker
from medloop.jobs.lease import Lease
from medloop.settings import Settings


@pytest.fixture
def seen(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], str]:
    """Every status that a job with dynamic weights had, as the training API answers; and the id of the job."""
    prompts = settings.home / "data/rl/training_prompts.jsonl"
    rows = [{**json.loads(line), "context": ["Rest and drink.", "See a doctor."]} for line in prompts.read_text().splitlines()]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(status, "REPORT_S", 0.0)
    monkeypatch.setattr("medloop.train.rl.rollout.SCORED_AT_ONCE", 3)
    job_id, reports, report = submit(settings, "IRS", threshold=-9.0, tolerance=9.0), list[dict[str, Any]](), Lease.report

    def recorded(lease: Lease, detail: Any) -> None:
        report(lease, detail)
        reports.append(job_row.status_json(queue.status_of(job_id, settings)))

    monkeypatch.setattr(Lease, "report", recorded)
    ended = worker.work(job_id, settings)
    assert ended.state == "succeeded", ended.reason
    return reports, job_id


def test_the_status_is_live_and_the_weights_of_the_run_are_data(seen: Any, settings: Settings) -> None:
    reports, job_id = seen
    lines = queue.metrics_of(job_id, settings)
    means = {
        line["iter"]: line["avg_reward"] for line in lines if line["phase"] == "METRICS" and line.get("avg_reward") is not None
    }
    scoring = [report["detail"] for report in reports if report["detail"]["current_phase"] == "SCORING"]
    # n of m inside SCORING, and the reward of this iteration grows with every part that is scored
    assert {detail["phase_progress"] for detail in scoring if detail["current_iteration"] == 1} == {0.0, 25.0, 50.0, 75.0, 100.0}
    for iteration, mean in means.items():
        last = [detail for detail in scoring if detail["current_iteration"] == iteration][-1]["metrics"]
        assert last["avg_reward"] == mean and set(last["current_weights"]) == {"rel", "faith", "conc"}
        assert {"rel", "faith", "conc", "risk"} <= set(last["reward_breakdown"])
    # the held-out check is a phase of its own, in the status and in the metrics, and its reward is never taken for the iteration's
    held_out = [report["detail"] for report in reports if report["detail"]["current_phase"] == "HELD_OUT"]
    assert {detail["current_iteration"] for detail in held_out} == {0, 1, 2}
    assert {line["iter"] for line in lines if line["phase"] == "HELD_OUT"} == {0, 1, 2}
    assert all(detail["metrics"]["avg_reward"] == means[1] for detail in held_out if detail["current_iteration"] == 1)
    # the weights of iteration 2 are those that iteration 1 led to, and the run has written them
    history = json.loads((settings.home / "models/rl" / job_id / "weights.json").read_text())
    second = [detail for detail in scoring if detail["current_iteration"] == 2][-1]["metrics"]["current_weights"]
    assert second == history["rounds"][0]["weights"] and len(history["rounds"]) == 2
    shown = CliRunner().invoke(app, ["--home", str(settings.home), "reward", "weights", job_id]).output
    assert all(f"{weight:.3f}" in shown for weight in history["rounds"][1]["weights"].values())
    said = CliRunner().invoke(app, ["--home", str(settings.home), "jobs", "status", job_id]).output
    assert "Weights" in said and f"rel {second['rel']:.3f}" in said
