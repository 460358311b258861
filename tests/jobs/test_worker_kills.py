"""Killed at any moment and worked on again, a job ends with the same bytes as one that was never killed."""

import errno
import random
import signal

import pytest
from job_runs import RUNS, SHARED, finish, outcome, row, start, submit, work, work_until_call

from medloop.jobs import queue

IN_A_CHECKPOINT = "medloop.train.runs.checkpoint.save_file"
BETWEEN_RENAMES = "medloop.store.files.artifacts._publish"
AT_THE_END = "medloop.loop.train.enter_result"


@pytest.mark.parametrize("stage", SHARED)
def test_killed_three_times_a_job_ends_with_the_same_bytes(stage, settings, children, golden):
    job_id, rng = submit(settings, stage), random.Random(stage)
    assert finish(children, work, settings, job_id, rng.randint(8, 30)) == -signal.SIGKILL
    for place in (IN_A_CHECKPOINT, AT_THE_END):
        assert finish(children, work, settings, job_id, None, place) == -signal.SIGKILL
        assert row(settings, job_id).state == "running"
    assert finish(children, work, settings, job_id) == 0
    assert row(settings, job_id).state == "succeeded"
    assert outcome(settings, job_id) == golden(stage)
    assert not list(queue.folder_of(job_id, settings).rglob("*.tmp-*"))


@pytest.mark.slow
@pytest.mark.parametrize("stage", RUNS)
def test_killed_fifty_times_at_any_moment_jobs_end_with_the_same_bytes(stage, settings, children, golden):
    """From outside at a random time, and every fifth time inside a checkpoint or a rename; finished jobs begin anew."""
    rng, kills, finished = random.Random(f"fifty {stage}"), 0, 0
    expected = golden(stage)
    job_id = submit(settings, stage)
    while kills < 50 or row(settings, job_id).state != "succeeded":
        if row(settings, job_id).state == "succeeded":
            job_id = submit(settings, stage)
        if kills < 50 and kills % 5 == 4:
            code = finish(children, work, settings, job_id, None, rng.choice([IN_A_CHECKPOINT, BETWEEN_RENAMES]))
        else:
            child = start(children, work, settings, job_id)
            child.join(timeout=rng.uniform(0.1, 2.5) if kills < 50 else None)
            if child.exitcode is None:
                child.kill()
            child.join()
            code = child.exitcode
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        if code == 0:
            finished += 1
            assert outcome(settings, job_id) == expected
    assert kills >= 50 and finished >= 1


@pytest.mark.slow
@pytest.mark.parametrize("failure", [None, errno.ENOSPC, errno.EIO], ids=["kill", "full disk", "damaged disk"])
@pytest.mark.parametrize("stage", RUNS)
def test_whichever_durable_call_dies_or_fails_the_job_ends_with_the_same_bytes(stage, failure, settings, children, golden):
    """Every fsync, rename and replace of a run in turn, some left out: the first ones, which make the claim, must all hold."""
    number, met, struck = 1, 0, settings.home / "struck"
    while True:
        job_id = submit(settings, stage)
        assert finish(children, work_until_call, settings, job_id, number, failure) in (-signal.SIGKILL, 0, 1)
        if not struck.exists():
            break
        struck.unlink()
        met += 1
        if row(settings, job_id).state in ("paused", "failed"):
            queue.resume(job_id, settings)
        if row(settings, job_id).state != "succeeded":  # a full disk may cost the reserve, and nothing else
            assert finish(children, work, settings, job_id) == 0
        assert outcome(settings, job_id) == golden(stage)
        number += 1 if number < 12 else 11
    assert met >= 12
