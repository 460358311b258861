"""How a worker ends: with the state and the sentence that fit, whatever happened to it."""

import json
import os
import shutil
import signal
import time

import pytest
from job_runs import finish, outcome, row, start, submit, wait_for, work, work_slowly

from medloop.contracts import TrainRequest
from medloop.errors import InputError
from medloop.jobs import job_row, queue, worker
from medloop.jobs.submit import submit_training
from medloop.train.runs.checkpoint import load_newest


def stuck(settings, job_id):
    """A step that never ends."""
    from medloop.train import grpo

    def hang(state):
        while True:
            time.sleep(0.5)

    grpo._step = hang
    worker.DRAIN_S = 1.0
    worker.work(job_id, settings)


def at_work(settings, children, *args):
    job_id = args[0]
    child = start(children, args[1], settings, job_id, *args[2:])
    wait_for(lambda: row(settings, job_id).state == "running" and row(settings, job_id).reason)
    return child


def test_cancelled_it_ends_with_a_checkpoint_and_can_be_resumed_to_the_same_bytes(settings, golden, children):
    job_id = submit(settings, save_every=100)
    child = at_work(settings, children, job_id, work_slowly, 0.05)
    folder = queue.folder_of(job_id, settings)
    wait_for(lambda: (folder / "metrics.jsonl").is_file())
    began = time.monotonic()
    queue.cancel(job_id, settings)
    child.join(timeout=10)
    assert child.exitcode == 0 and time.monotonic() - began < 10
    assert row(settings, job_id).state == "cancelled" and load_newest(folder / "checkpoints") is not None
    queue.resume(job_id, settings)
    assert finish(children, work, settings, job_id) == 0
    assert outcome(settings, job_id) == golden("GRPO")


def test_sigterm_puts_the_job_back_into_the_queue(settings, children):
    job_id = submit(settings)
    child = at_work(settings, children, job_id, work_slowly, 0.05)
    os.kill(child.pid, signal.SIGTERM)
    child.join(timeout=10)
    job = row(settings, job_id)
    assert child.exitcode == 0 and job.state == "queued" and "signal" in (job.reason or "")


def test_a_step_that_does_not_end_is_ended_within_ten_seconds(settings, children):
    """Here one second is waited for it, instead of eight."""
    job_id = submit(settings)
    child = at_work(settings, children, job_id, stuck)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    child.join(timeout=10)
    assert child.exitcode == 0 and row(settings, job_id).state == "queued"
    assert 1 < time.monotonic() - began < 1 + (10 - worker.DRAIN_S)


def test_a_setting_that_does_not_exist_any_more_fails_the_job_with_its_name(settings):
    """A job can outlive the version that took it."""
    job_id = submit(settings)
    request_file = queue.folder_of(job_id, settings) / job_row.REQUEST
    request_file.write_text(request_file.read_text().replace('"steps"', '"stepz"'))
    outcome = worker.work(job_id, settings)
    assert outcome.state == "failed" and "stepz" in (outcome.reason or "")


def test_an_error_of_our_own_never_quotes_what_it_met(settings, monkeypatch):
    from medloop.train import grpo

    def broken(*_, **__):
        raise KeyError("the patient Li Wei")

    monkeypatch.setattr(grpo, "create_train_state", broken)
    job_id = submit(settings)
    outcome = worker.work(job_id, settings)
    folder = queue.folder_of(job_id, settings)
    assert outcome.state == "failed" and "KeyError" in (outcome.reason or "")
    assert "broken" in (folder / "train.log").read_text() and not [
        p for p in folder.rglob("*") if p.is_file() and b"Li Wei" in p.read_bytes()
    ]


def test_a_run_that_was_published_before_the_kill_is_not_repeated(settings, children):
    job_id = submit(settings)
    finish(children, work, settings, job_id, None, "medloop.loop.train.enter_result")
    result = settings.home / "models/rl" / job_id
    before = (result / "card.json").stat().st_mtime_ns
    assert finish(children, work, settings, job_id) == 0
    assert (result / "card.json").stat().st_mtime_ns == before and row(settings, job_id).state == "succeeded"


def test_the_status_has_every_field_of_the_training_api(settings):
    job_id = submit(settings, steps=2)
    worker.work(job_id, settings)
    status = job_row.status_json(queue.status_of(job_id, settings))
    detail = status["detail"]
    assert list(status) == ["job_id", "stage", "state", "detail", "objective"] and status["state"] == "succeeded"
    assert {*detail} - {"message"} == {
        "current_iteration", "total_iterations", "current_phase", "phase_progress", "metrics", "runtime",
    }  # fmt: skip
    assert (detail["current_iteration"], detail["total_iterations"]) == (2, 2)
    assert set(detail["metrics"]) == {"avg_reward", "reward_breakdown", "current_weights"}
    assert detail["metrics"]["avg_reward"] is not None and detail["metrics"]["reward_breakdown"]
    assert detail["runtime"] == {"device": "cpu", "unsloth_available": False, "gpu_mem_used": 0}


@pytest.mark.parametrize("stage", ["SFT", "REWARD", "DPO", "KTO"])
def test_other_stages_run_in_a_folder_of_their_own(stage, settings):
    pairs = [{"prompt": f"Case {n}", "chosen": "Rest well.", "rejected": "No."} for n in range(20)]
    path = settings.home / "data/preferences/preferences.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    more = {"dev_rows": 0} if stage == "SFT" else {}
    config = {**more, "max_steps": 2, "batch_size": 2, "lora_r": 2, "lora_alpha": 4, "max_length": 128}
    job_id = submit_training(TrainRequest(stage=stage, config=config), settings).job_id
    outcome = worker.work(job_id, settings)
    assert outcome.state == "succeeded", outcome.reason
    assert queue.metrics_of(job_id, settings) and queue.status_of(job_id, settings).detail.current_iteration == 2


def test_a_removed_job_is_one_sentence(settings):
    job_id = submit(settings)
    shutil.rmtree(queue.folder_of(job_id, settings))
    with pytest.raises(InputError, match="no job"):
        worker.work(job_id, settings)
