"""Submitting, looking, cancelling, resuming; what cannot work is refused before there is a job."""

import json
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from job_runs import Dead, row, submit
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import TrainRequest
from medloop.errors import ConfigError, MedloopError, NoSpaceError
from medloop.jobs import job_row, preflight, queue, requests, supervisor
from medloop.jobs.job_row import StateError, UnknownJobError
from medloop.jobs.lease import claim
from medloop.jobs.submit import submit_training
from medloop.jobs.supervisor import Supervisor
from medloop.settings import Settings

NOON = datetime(2026, 2, 3, 12, 0, 0, tzinfo=UTC)
GRPO = TrainRequest(stage="GRPO")
SOMEWHERE = Settings(home=Path("somewhere"))


def test_a_job_has_the_folder_and_the_name_that_the_api_promises(settings):
    job_id = submit_training(GRPO, settings, now=NOON).job_id
    folder = settings.home / "jobs/train_20260203T120000Z"
    assert job_id == folder.name and {"config.json", "status.json", "request.json", "queue.json"} <= {
        p.name for p in folder.iterdir()
    }
    status = json.loads((folder / "status.json").read_text())
    assert (status["job_id"], status["stage"], status["state"]) == (job_id, "GRPO", "queued")


def test_jobs_of_one_second_have_names_of_their_own_and_come_newest_first(settings):
    job_ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: job_ids.append(submit_training(GRPO, settings, now=NOON).job_id)) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(job_ids)) == 12
    ids = queue.ids(settings)
    assert ids[0].endswith("-12") and ids[-2:] == ["train_20260203T120000Z-2", "train_20260203T120000Z"]
    assert sorted(ids) == sorted(job_ids) and not [p for p in (settings.home / "jobs").iterdir() if ".tmp-" in p.name]


def test_a_sweep_that_takes_the_folder_before_it_is_locked_costs_no_job(settings, monkeypatch):
    real, swept = queue.os.open, []

    def after_a_sweep(path, *args, **more):
        if ".tmp-" in str(path) and Path(path).is_dir() and not swept:
            swept.append(path)
            Path(path).rmdir()
        return real(path, *args, **more)

    monkeypatch.setattr(queue.os, "open", after_a_sweep)
    assert submit_training(GRPO, settings).job_id in queue.ids(settings) and swept


def test_pages_hold_every_job_once(settings):
    job_ids = [submit_training(GRPO, settings, now=NOON.replace(minute=n)).job_id for n in range(5)]
    first = queue.page(settings, limit=2)
    second = queue.page(settings, limit=2, after=first.after)
    third = queue.page(settings, limit=2, after=second.after)
    seen = [job.job_id for page in (first, second, third) for job in page.jobs]
    assert seen == job_ids[::-1] and third.after is None
    with pytest.raises(UnknownJobError):
        queue.page(settings, after="train_20990101T000000Z")


@pytest.mark.parametrize("name", ["../keys", "train_..", "", "train_20260203T120000Z/../../keys", "train_20260203T120000Z\n"])
def test_a_name_that_is_no_job_id_never_becomes_a_path(settings, name):
    submit_training(GRPO, settings, now=NOON)
    with pytest.raises(UnknownJobError):
        queue.folder_of(name, settings)


def test_a_torn_last_line_of_the_metrics_is_left_out(settings):
    job_id = submit(settings)
    (queue.folder_of(job_id, settings) / "metrics.jsonl").write_text('{"iter": 1}\n{"iter": 2}\n{"ite')
    assert [line["iter"] for line in queue.metrics_of(job_id, settings)] == [1, 2]


def test_states_change_only_as_they_may(settings):
    job_id = submit(settings)
    with pytest.raises(StateError, match="queued"):
        queue.resume(job_id, settings)
    assert queue.cancel(job_id, settings).state == "cancelled"
    assert queue.cancel(job_id, settings).state == "cancelled"
    assert queue.resume(job_id, settings).state == "queued"
    job_row.change(queue.folder_of(job_id, settings), lambda now: now.model_copy(update={"state": "succeeded"}))
    for change in (queue.cancel, queue.resume):
        with pytest.raises(StateError, match="succeeded"):
            change(job_id, settings)


def test_cancelling_a_job_whose_worker_is_dead_cancels_it_at_once(settings):
    job_id = submit(settings)
    with claim(queue.folder_of(job_id, settings)):
        pass
    assert row(settings, job_id).state == "running"
    assert queue.cancel(job_id, settings).state == "cancelled"


def test_a_state_is_written_even_when_the_disk_is_full(settings, monkeypatch):
    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    job_row.make_reserve(folder)
    write = job_row.atomic_write

    def full(path: Path, content: str) -> None:
        if (folder / ".reserve").exists():
            raise NoSpaceError("No space left")
        write(path, content)

    monkeypatch.setattr(job_row, "atomic_write", full)
    job_row.change(folder, lambda now: now.model_copy(update={"state": "paused"}))
    assert row(settings, job_id).state == "paused" and not (folder / ".reserve").exists()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"stage": "DPO"}, "preferences.jsonl"),
        ({"stage": "GRPO", "n_questions": 4}, "n_questions"),
        ({"stage": "GRPO", "config": {"model": "x"}}, "model_id"),
        ({"stage": "GRPO", "config": {"prompts": "none.jsonl"}}, "config.prompts"),
        ({"stage": "REWARD"}, "preferences.jsonl"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(settings, request_, words):
    with pytest.raises(MedloopError, match=words):
        submit_training(TrainRequest.model_validate(request_), settings)
    assert queue.ids(settings) == []


def test_too_little_room_for_checkpoints_is_refused_with_both_numbers(settings, monkeypatch):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(StateError, match=r"1 MB free.*need 2\d MB"):
        submit_training(GRPO, settings)


def test_too_little_memory_is_refused_or_warned_of(settings, monkeypatch):
    big = TrainRequest(stage="GRPO", config={"micro_batch_size": 64, "max_new_tokens": 400})
    need = preflight.memory_needed(preflight.size_of(settings.model, settings), big)
    monkeypatch.setattr(preflight, "machine_memory", lambda: (need + 1, need - 1))
    assert "micro_batch_size" in submit_training(big, settings).preflight.warnings[0]
    monkeypatch.setattr(preflight, "machine_memory", lambda: (need - 1, need - 1))
    with pytest.raises(ConfigError, match="GB"):
        submit_training(big, settings)
    fitted = big.model_copy(update={"config": {**big.config, "memory_gb": (need - 2) / 1e9}})
    assert submit_training(fitted, settings).preflight.memory_bytes < need, "the worker chooses pieces that fit into it"


def test_a_models_size_is_read_from_headers_as_torch_would_count_it(settings):
    import torch

    from medloop.train.runs import estimate

    shape = estimate.shape_of(Path(settings.model), torch.float32, 1)
    size = preflight.size_of(settings.model, settings)
    assert (size.parameters, size.layers, size.width, size.adapter) == (
        shape.parameters,
        shape.layers,
        shape.width,
        shape.trainable,
    )


STRANGE = [
    "../x", "/etc/passwd", "a/../../x", "~/x", "file:///etc/passwd", "http://127.0.0.1/x", "x\0y", "a\\..\\b", "x#y", "x?y", "%2e%2e/x",
    "..", "x\ny", "\uff0e\uff0e/x",
]  # fmt: skip


@pytest.mark.parametrize("text", STRANGE)
@pytest.mark.parametrize("field", ["prompts", "adapter", "reward", "dw", "name", "replay_data"])
def test_a_stranger_cannot_name_a_path_outside_the_workspace(field, text):
    request = TrainRequest(stage="IRS", config={field: text})
    with pytest.raises(ConfigError, match=f"config.{field}") as caught:
        requests.check_remote(request, SOMEWHERE)
    assert text.strip("./") not in str(caught.value) or len(text.strip("./")) < 2


@pytest.mark.parametrize("text", STRANGE)
def test_a_stranger_cannot_name_a_model_outside_the_workspace(text):
    with pytest.raises(ConfigError, match="model_id"):
        requests.check_remote(TrainRequest(stage="IRS", model_id=text), SOMEWHERE)


def test_a_stranger_cannot_name_code(settings):
    with pytest.raises(ConfigError, match=r"config.given"):
        requests.check_remote(TrainRequest(stage="GRPO", config={"given": {"mine": "os:system"}}), settings)


def test_a_stranger_may_name_what_is_usual(settings):
    for model in (None, "embedded:tiny", "Qwen/Qwen2.5-1.5B-Instruct", "models/full/first", settings.model):
        config = {"adapter": "models/lora/sft", "prompts": "data/rl/q.jsonl", "given": {"teacher": ""}}
        requests.check_remote(TrainRequest(stage="GRPO", model_id=model, config=config), settings)


def test_the_supervisor_fills_its_slots_oldest_first_and_is_alone(settings):
    job_ids = [submit_training(GRPO, settings, now=NOON.replace(minute=n)).job_id for n in range(3)]
    started: list[str] = []
    held = Supervisor(settings, slots=2, start=lambda job_id, _: started.append(job_id) or Alive())
    held.poll()
    held.poll()
    assert started == job_ids[:2]
    with supervisor.single_supervisor(settings), pytest.raises(MedloopError), supervisor.single_supervisor(settings):
        pass


def test_a_damaged_row_does_not_keep_others_from_running_or_being_seen(settings):
    job_ids = [submit_training(GRPO, settings, now=NOON.replace(minute=n)).job_id for n in range(3)]
    (queue.folder_of(job_ids[1], settings) / "queue.json").write_text("{")
    started: list[str] = []
    Supervisor(settings, slots=9, start=lambda job_id, _: started.append(job_id) or Alive()).poll()
    assert started == [job_ids[0], job_ids[2]]
    assert [job.job_id for job in queue.page(settings).jobs] == [job_ids[2], job_ids[0]]


def test_a_job_without_room_for_its_checkpoints_waits_for_it(settings, monkeypatch):
    job_id, started = submit_training(GRPO, settings).job_id, []
    watcher = Supervisor(settings, start=lambda job_id, _: started.append(job_id) or Alive())
    with monkeypatch.context() as full:
        full.setattr(supervisor.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
        watcher.poll()
        assert row(settings, job_id).waits_for == "space" and "1 MB free" in (row(settings, job_id).reason or "")
    watcher.poll()
    assert started == [job_id]


def test_a_job_that_keeps_filling_the_disk_is_not_tried_all_the_time(settings):
    job_id, started = submit_training(GRPO, settings).job_id, []

    def fills_it_again(job_id, settings):
        started.append(job_id)
        with claim(queue.folder_of(job_id, settings)) as held:
            held.end("paused", "No space left", waits_for_space=True)
        return Dead()

    watcher = Supervisor(settings, backoff_s=100.0, start=fills_it_again)
    for _ in range(6):
        watcher.poll()
    assert len(started) == 2 and row(settings, job_id).ready_at > time.monotonic() + 300
    queue.cancel(job_id, settings)
    queue.resume(job_id, settings)
    for _ in range(6):
        watcher.poll()
    assert len(started) == 4  # somebody has seen to it: it is as at the beginning


class Alive(Dead):
    def poll(self):
        return None


def test_a_worker_that_cannot_start_is_not_started_for_ever(settings):
    job_id, started = submit_training(GRPO, settings).job_id, []
    broken = type("Broken", (Dead,), {"returncode": 1})
    watcher = Supervisor(settings, backoff_s=0.0, start=lambda job_id, _: started.append(job_id) or broken())
    for _ in range(8):
        watcher.poll()
    assert len(started) == 4 and row(settings, job_id).state == "failed"


def test_workers_get_the_settings_that_were_resolved_here(settings):
    environment = supervisor.environment(settings)
    assert (
        environment["MEDLOOP_MODEL"] == settings.model
        and environment["MEDLOOP_DEVICE"] == "cpu"
        and "MEDLOOP_HOME" not in environment
    )


def cli(settings, *args: str):
    return CliRunner().invoke(app, ["--home", str(settings.home), "--set", f"model={settings.model}", "jobs", *args])


def queued_id(output: str) -> str:
    match = re.search(r"^(train_\S+) waits\.", output, re.MULTILINE)
    assert match is not None, output
    return match[1]


def test_the_commands_tell_the_story_of_a_job(settings):
    result = cli(settings, "submit", "grpo", "--set", "steps=3")
    job_id = queued_id(result.output)
    assert result.exit_code == 0 and row(settings, job_id).state == "queued"
    assert queue.request_of(queue.folder_of(job_id, settings)).config == {"steps": 3}
    assert job_id in cli(settings, "list").output and "queued" in cli(settings, "status", job_id).output
    assert json.loads(cli(settings, "status", job_id, "--json").output)["job_id"] == job_id
    assert json.loads(cli(settings, "metrics", job_id).output) == []
    assert "cancelled" in cli(settings, "cancel", job_id).output
    assert cli(settings, "resume", job_id).exit_code == 0 and row(settings, job_id).state == "queued"


def test_a_check_says_what_a_job_would_take_and_queues_nothing(settings):
    result = cli(settings, "submit", "grpo", "--set", "steps=3", "--set", "held_out_n=2", "--check")
    assert result.exit_code == 0 and re.search(r"Roughly .* of memory and .* MB of disk", result.output)
    wrong = cli(settings, "submit", "grpo", "--set", "stepz=3", "--check")
    assert isinstance(wrong.exception, ConfigError) and "stepz" in str(wrong.exception)
    assert queue.ids(settings) == [] and not (settings.home / "jobs/check").exists()


def test_a_job_without_its_worker_says_so(settings):
    job_id = submit(settings)
    with claim(queue.folder_of(job_id, settings)):
        assert queue.status_of(job_id, settings).detail.message is None
    assert "worker is gone" in (queue.status_of(job_id, settings).detail.message or "")


def test_a_file_with_the_body_of_a_request_can_be_submitted(settings, tmp_path):
    (tmp_path / "r.json").write_text('{"stage": "IRS", "model_id": "embedded:tiny", "n_iterations": 1, "n_questions": 8}')
    result = cli(settings, "submit", str(tmp_path / "r.json"))
    request = queue.request_of(queue.folder_of(queued_id(result.output), settings))
    config = requests.config_values(request, "x", settings)
    assert (config["n_iterations"], config["n_questions"], config["load_in_4bit"]) == (1, 8, False)
    (tmp_path / "r.json").write_text('{"stage": "IRS", "n_iterations": 0}')
    refused = cli(settings, "submit", str(tmp_path / "r.json"))
    assert isinstance(refused.exception, ConfigError) and "n_iterations" in str(refused.exception)
