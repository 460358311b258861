"""Training jobs on data that an erasure changes: cancelled with the reason, kept on request, found by hash and by path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.cli import erase as command
from medloop.contracts import TrainRequest
from medloop.data.feedback.build import FeedbackConfig
from medloop.errors import ResultError
from medloop.jobs import job_row, queue
from medloop.jobs.affected import QueuedJobs
from medloop.jobs.submit import submit_training
from medloop.loop.erasure import erase_records
from medloop.loop.feedback import build_from_feedback
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureProof, ErasureRequest
from medloop.privacy.erasure.erase import preview
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records import crud
from medloop.testing.canary import told, traces_of
from medloop.testing.feedback import make_preference, make_thumb

WHO = "patient 4711"
WORKER = """
import sys, time
from pathlib import Path
from medloop.jobs.lease import claim
from medloop.jobs.worker import listening, end_of_stopped
with claim(Path(sys.argv[1])) as lease, listening(lease) as stopped:
    (lease.folder / "listens").touch()
    while not stopped():
        time.sleep(0.05)
    with (lease.folder / "samples.jsonl").open("a") as file:
        file.write(sys.argv[2])
    end = end_of_stopped(lease)
    lease.end(end.state, end.reason)
"""

STUBBORN = """
import signal, sys, time
from pathlib import Path
from medloop.jobs.lease import claim
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with claim(Path(sys.argv[1])) as lease:
    (lease.folder / "listens").touch()
    time.sleep(100)
"""


@contextmanager
def at_work(settings: Settings, job_id: str, code: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = os.environ | {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}  # threads that know nothing of our signals
    child = subprocess.Popen([sys.executable, "-c", code, str(queue.folder_of(job_id, settings)), *words], env=environ)
    try:
        while not (queue.folder_of(job_id, settings) / "listens").exists():
            assert child.poll() is None
            time.sleep(0.05)
        yield child
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def settings(sqlite_settings: Settings) -> Settings:
    """A dataset with one person's words in it, and prompts without."""
    (sqlite_settings.workspace.rl / "training_prompts.jsonl").write_text('{"id": "q", "question": "Pain?"}\n')
    with open_store(sqlite_settings) as store:
        given = [make_preference(n, f"rest {n}", f"run {n}", "a") for n in range(6)]
        mine = [
            make_thumb(9, answer, up, query=told("back"), subject=subject_of(store, WHO))
            for answer, up in (("a", True), ("b", False))
        ]
        crud.add(store, [*given, *mine], actor="test")
        build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    return sqlite_settings


def filed(settings: Settings, stage: Any, **config: Any) -> str:
    return submit_training(TrainRequest(stage=stage, model_id="embedded:tiny", config=config), settings).job_id


def erased(settings: Settings, **more: Any) -> ErasureProof:
    with open_store(settings) as store:
        return erase_records(store, ErasureRequest("asked", WHO, **more), actor="test", jobs=QueuedJobs(settings))


def row(settings: Settings, job_id: str) -> job_row.JobRow:
    return job_row.read(queue.folder_of(job_id, settings))


def test_jobs_that_wait_on_changed_data_are_cancelled_and_others_are_not(settings: Settings) -> None:
    jobs = [filed(settings, "DPO"), filed(settings, "SFT", data="data/feedback/feedback/sft_train.jsonl")]
    other = filed(settings, "GRPO")
    proof = erased(settings)
    assert [entry["job"] for entry in proof.cancelled] == sorted(jobs, reverse=True) and proof.complete
    for job_id in jobs:
        job = row(settings, job_id)
        assert job.state == "cancelled" and proof.erasure_id in str(job.reason)
    assert row(settings, other).state == "queued"


def test_a_job_that_runs_has_ended_before_the_last_look(settings: Settings) -> None:
    job_id = filed(settings, "DPO")
    line = json.dumps({"id": "1", "answer": told("back")}) + "\n"
    with at_work(settings, job_id, WORKER, line) as child:
        proof = erased(settings)
        assert child.wait(10) == 0
    assert proof.cancelled[0]["job"] == job_id and proof.cancelled[0]["state"] == "cancelled"
    assert proof.erasure_id in str(row(settings, job_id).reason)
    assert proof.complete and traces_of(settings.home) == []  # also what it wrote down at its end


def test_a_job_on_top_of_a_model_that_learnt_it_is_cancelled_too(settings: Settings) -> None:
    learnt = verify_artifact(settings.home / "data/feedback/feedback").sha256
    with new_artifact(settings.home / "models/lora/first") as folder:
        (folder / "card.json").write_text(json.dumps({"inputs": {"preference": learnt}}))
    model = verify_artifact(settings.home / "models/lora/first").sha256
    job_id = filed(settings, "GRPO")
    begun = {"identity": {"config": {}, "base_sha256": "sha256:" + "0" * 64, "inputs": {"adapter": model}}, "started": "now"}
    (queue.folder_of(job_id, settings) / "config.json").write_text(json.dumps(begun))
    assert [entry["job"] for entry in erased(settings).cancelled] == [job_id]


def test_kept_jobs_go_on_and_the_proof_says_that_they_were_kept(settings: Settings) -> None:
    job_id = filed(settings, "DPO")
    proof = erased(settings, keep_jobs=True)
    assert proof.keep_jobs and proof.cancelled == () and row(settings, job_id).state == "queued"
    assert proof.jobs == (f"jobs/{job_id}",)


def test_who_sits_at_a_terminal_is_asked_first(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = filed(settings, "DPO")
    words = ["--home", str(settings.home), "erase", "--subject", WHO, "--reason", "asked"]
    dry = CliRunner().invoke(app, [*words, "--dry-run"])
    assert f"{job_id}: uses them and would be cancelled" in dry.output
    monkeypatch.setattr(command, "_on_a_terminal", lambda: True)
    refused = CliRunner().invoke(app, words, input="n\n")
    assert refused.exit_code == 1 and "Nothing was changed" in refused.output and traces_of(settings.home)
    done = CliRunner().invoke(app, words, input="y\n")
    assert done.exit_code == 0 and f"cancelled  {job_id}" in done.output and traces_of(settings.home) == []


def test_an_erasure_that_is_taken_up_again_still_names_what_it_cancelled(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from medloop.privacy.erasure import erase

    job_id = filed(settings, "DPO")
    with monkeypatch.context() as patch:
        patch.setattr(erase, "update_catalog", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            erased(settings)
    assert row(settings, job_id).state == "cancelled"
    assert [entry["job"] for entry in erased(settings).cancelled] == [job_id]


@pytest.mark.parametrize("named", ["model_id", "setting", "path", "name", "deep"])
def test_a_job_that_waits_for_its_turn_on_such_a_model_is_cancelled(settings: Settings, named: str) -> None:
    learnt = verify_artifact(settings.home / "data/feedback/feedback").sha256
    with new_artifact(settings.home / "models/lora/first") as folder:
        (folder / "card.json").write_text(json.dumps({"inputs": {"preference": learnt}}))
        (folder / "adapter_config.json").write_text("{}")
    path = "models/lora/first"
    (settings.home / "reward.yaml").write_text("parts: {chain: {weight: 0.5}, model: {weight: 0.5, given: true}}\n")
    if named == "setting":
        settings = settings.model_copy(update={"model": path})
    model = {"model_id": path, "setting": None}.get(named, "embedded:tiny")
    config = {
        "path": {"adapter": path},
        "name": {"adapter": "first"},
        "deep": {"reward": "reward.yaml", "given": {"model": path}},
    }.get(named, {})
    request = TrainRequest(stage="GRPO", model_id=model, config=config)
    job_id = submit_training(request, settings).job_id
    other = filed(settings, "GRPO", given={"teacher": ""})
    assert [entry["job"] for entry in erased(settings).cancelled] == [job_id] and row(settings, other).state == "queued"


@pytest.mark.parametrize("file", ["request.json", "queue.json"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b'{"stage": "NONE"}'])
def test_a_damaged_job_holds_up_no_erasure_and_is_named(settings: Settings, file: str, content: bytes) -> None:
    damaged, job_id = filed(settings, "DPO"), filed(settings, "DPO")
    (queue.folder_of(damaged, settings) / file).write_bytes(content)
    with open_store(settings) as store:
        assert (
            f"jobs/{damaged}" in preview(store, ErasureRequest("asked", WHO), actor="test", jobs=QueuedJobs(settings)).unsearched
        )
    proof = erased(settings)
    assert proof.complete and [entry["job"] for entry in proof.cancelled] == [job_id] and f"jobs/{damaged}" in proof.unsearched
    assert traces_of(settings.home) == []


def test_a_job_that_does_not_end_is_named_and_the_erasure_is_not_complete(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "STOP_S", 0.5)
    job_id = filed(settings, "DPO")
    with at_work(settings, job_id, STUBBORN):
        proof = erased(settings)
        assert not proof.complete and proof.left == () and proof.cancelled == ()
        assert proof.alive == (job_id,) and proof.jobs == (f"jobs/{job_id}",)
        page = (settings.workspace.reports / f"erasure/{proof.erasure_id}.md").read_text()
        assert "**NOT complete**: training jobs on erased data have not ended" in page
        assert f"job `{job_id}` uses erased data and was told to stop" in page
        result = CliRunner().invoke(app, ["--home", str(settings.home), "erase", "--subject", WHO, "--reason", "asked"])
        assert isinstance(result.exception, ResultError) and job_id in str(result.exception)
    again = erased(settings)
    assert again.complete and again.erasure_id == proof.erasure_id and [entry["job"] for entry in again.cancelled] == [job_id]


def test_a_kill_after_the_wish_to_cancel_does_not_lose_its_reason(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = filed(settings, "DPO")
    with at_work(settings, job_id, WORKER, "") as child, monkeypatch.context() as patch:
        patch.setattr(queue.lease, "send_signal", lambda *args: 1 / 0)  # the wish is written down, and nothing after it
        with pytest.raises(ZeroDivisionError):
            erased(settings)
        assert child.wait(20) == 0
    assert row(settings, job_id).state == "cancelled" and "by the erasure er_" in str(row(settings, job_id).reason)
    assert [entry["job"] for entry in erased(settings).cancelled] == [job_id]
