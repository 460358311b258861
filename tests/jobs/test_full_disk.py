"""A disk that fills up under a run: paused with a sentence, on again by itself when there is room, and the same bytes in the end."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from job_runs import RUNS, SHARED, make_workspace, outcome, row, start, submit, wait_for, work
from typer.testing import CliRunner

from medloop.cli import app
from medloop.jobs import job_row, queue, worker
from medloop.jobs.supervisor import Supervisor
from medloop.train.runs.checkpoint import load_newest

TICKS = {"GRPO": 34, "PPO": 52, "IRS": 27}  # of these runs, from the first held-out question to the result


def fill_the_disk(settings, job_id, at_tick):
    """Somebody else takes all the space while the job is at this tick of its progress."""
    from medloop.jobs.status import StatusWriter

    was, ticks = StatusWriter.on_progress, 0

    def hungry(self, progress):
        nonlocal ticks
        ticks += 1
        if ticks == at_tick:
            with (settings.home / "filler").open("wb", buffering=0) as file:
                for size in (65536, 4096, 1):
                    while True:
                        try:
                            file.write(b"x" * size)
                        except OSError:
                            break
        was(self, progress)

    StatusWriter.on_progress = hungry
    worker.work(job_id, settings)


class Child:
    """A worker of the supervisor, forked instead of started afresh."""

    def __init__(self, children, *args):
        self.process = start(children, *args)

    def poll(self):
        return self.process.exitcode

    @property
    def returncode(self):
        return self.process.exitcode


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("disk")
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk could not be mounted")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def settings(small_disk: Path, small_base: Path):
    return make_workspace(small_disk / "clinic", small_base)


def supervised(settings, children, target, *args):
    return Supervisor(settings, start=lambda job_id, _: Child(children, target, settings, job_id, *args))


def until(supervisor, job_id, *states):
    wait_for(
        lambda: supervisor.poll() is not None and row(supervisor.settings, job_id).state in states and not supervisor.children
    )
    return row(supervisor.settings, job_id)


def fill_pause_and_go_on(settings, children, stage, at_tick):
    """What `job_id` left after its disk was full and had room again; nobody asked it to go on."""
    job_id = submit(settings, stage)
    status = until(supervised(settings, children, fill_the_disk, at_tick), job_id, "paused", "succeeded")
    full = Supervisor(settings, start=lambda *_: pytest.fail("the disk is still full"))
    full.poll()
    (settings.home / "filler").unlink()
    assert (status.state, status.waits_for) == ("paused", "space"), status
    assert until(supervised(settings, children, work), job_id, "succeeded", "failed").state == "succeeded"
    return job_id


@pytest.mark.parametrize("stage", SHARED)
def test_a_full_disk_pauses_the_job_and_it_goes_on_by_itself_when_there_is_room(stage, settings, golden, children):
    job_id = fill_pause_and_go_on(settings, children, stage, TICKS[stage] // 2)
    assert outcome(settings, job_id) == golden(stage)
    assert row(settings, job_id).restarts == 0 and not list(settings.home.rglob("*.tmp-*"))


def test_a_paused_job_says_why_and_keeps_its_checkpoint(settings, children):
    job_id = submit(settings)
    assert until(supervised(settings, children, fill_the_disk, 20), job_id, "paused").restarts == 0
    status = json.loads(CliRunner().invoke(app, ["--home", str(settings.home), "jobs", "status", job_id, "--json"]).output)
    assert status["state"] == "paused" and "No space left" in status["detail"]["message"]
    assert (
        "continues by itself when there is room" in status["detail"]["message"]
        and str(settings.home) not in status["detail"]["message"]
    )
    checkpoint = load_newest(queue.folder_of(job_id, settings) / "checkpoints")
    assert checkpoint is not None and checkpoint.step == 2 and not list(settings.home.rglob("*.tmp-*"))
    (settings.home / "filler").unlink()
    assert queue.resume(job_id, settings).state == "queued"  # whoever does not want to wait
    assert job_row.read(queue.folder_of(job_id, settings)).waits_for is None
    queue.cancel(job_id, settings)


@pytest.mark.slow
@pytest.mark.parametrize("stage", RUNS)
def test_whenever_the_disk_fills_up_the_job_ends_with_the_same_bytes(stage, settings, golden, children):
    """At every third tick, and at the first and the last ones."""
    for at_tick in sorted({1, 2, *range(3, TICKS[stage], 3), TICKS[stage] - 1, TICKS[stage]}):
        job_id = fill_pause_and_go_on(settings, children, stage, at_tick)
        assert outcome(settings, job_id) == golden(stage), at_tick
        shutil.rmtree(queue.folder_of(job_id, settings))
        shutil.rmtree(settings.home / "models/rl" / job_id)
