"""One worker per job, whoever tries; who lost the job cannot write."""

import os
import signal
import time
from collections import Counter

import pytest
from job_runs import Dead, claim_and_die, finish, outcome, row, start, submit, wait_for, work, work_slowly

from medloop.contracts import JobDetail
from medloop.errors import BusyError
from medloop.jobs import job_row, lease, queue
from medloop.jobs.job_row import LostLeaseError, StateError
from medloop.jobs.lease import LOST, claim
from medloop.jobs.supervisor import Supervisor


def nobody(job_id, settings):
    raise AssertionError("no worker was to be started")


def test_a_second_worker_leaves_at_once_and_changes_nothing(settings):
    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    with claim(folder):
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        began = time.monotonic()
        with pytest.raises(BusyError), claim(folder):
            pass
        assert time.monotonic() - began < 1
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_job_that_is_over_is_not_worked_on(settings):
    job_id = submit(settings)
    queue.cancel(job_id, settings)
    with pytest.raises(StateError, match="resume"), claim(queue.folder_of(job_id, settings)):
        pass


def test_who_lost_the_job_cannot_report_nor_end_it(settings):
    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    with claim(folder) as held:
        job_row.change(folder, lambda now: now.model_copy(update={"token": now.token + 1}))
        before = (folder / "status.json").read_bytes()
        for write in (held.check, held.beat, lambda: held.report(JobDetail()), lambda: held.end("succeeded")):
            with pytest.raises(LostLeaseError):
                write()
        assert (folder / "status.json").read_bytes() == before and row(settings, job_id).state == "running"


def test_a_lost_lease_closes_the_folder_to_the_trainer(settings):
    from medloop.train.runs.run import TrainingRun

    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    with claim(folder) as held:
        job = TrainingRun(folder, settings.home / "models/rl/x", {}, held.check)
        assert job.metrics.name == "metrics.jsonl" and job.checkpoints.name == "checkpoints"
        job_row.change(folder, lambda now: now.model_copy(update={"token": now.token + 1}))
        for path in ("metrics", "checkpoints"):
            with pytest.raises(LostLeaseError):
                getattr(job, path)


def stopped_holder(settings, children, job_id):
    child = start(children, work_slowly, settings, job_id, 0.1, 20)
    folder = queue.folder_of(job_id, settings)
    wait_for(lambda: (folder / "metrics.jsonl").is_file())
    os.kill(child.pid, signal.SIGSTOP)
    return child


def test_a_pause_is_not_a_death(settings, children):
    job_id = submit(settings, steps=2)
    child = stopped_holder(settings, children, job_id)
    time.sleep(1.0)
    Supervisor(settings, start=nobody).poll()
    assert row(settings, job_id).state == "running" and row(settings, job_id).token == 1
    os.kill(child.pid, signal.SIGCONT)
    child.join()
    assert child.exitcode == 0 and row(settings, job_id).state == "succeeded"


def test_a_holder_stopped_past_its_lease_is_ended_and_the_next_one_finishes(settings, golden, children):
    job_id = submit(settings)
    child = stopped_holder(settings, children, job_id)
    time.sleep(1.0)
    Supervisor(settings, lease_s=0.5, start=nobody).poll()
    child.join(timeout=5)
    assert child.exitcode == -signal.SIGKILL
    assert (row(settings, job_id).state, row(settings, job_id).restarts, row(settings, job_id).token) == ("queued", 1, 2)
    assert finish(children, work, settings, job_id) == 0
    assert outcome(settings, job_id) == golden("GRPO")


def test_a_holder_that_could_not_be_killed_may_not_write_when_it_wakes(settings, children, monkeypatch):
    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    child = stopped_holder(settings, children, job_id)
    time.sleep(1.0)
    monkeypatch.setattr(lease, "send_signal", lambda row, number: False)
    Supervisor(settings, lease_s=0.5, start=nobody).poll()
    seen = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "train.log"}
    os.kill(child.pid, signal.SIGCONT)
    child.join(timeout=10)
    assert child.exitcode in (1, LOST)
    assert {p: p.read_bytes() for p in seen} == seen and row(settings, job_id).state == "queued"


def stop_with_the_row(settings, job_id):
    folder = queue.folder_of(job_id, settings)
    with claim(folder), job_row.row_lock(folder):
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_holder_stopped_while_it_holds_its_row_is_ended_too(settings, children, monkeypatch):
    monkeypatch.setattr(job_row, "ROW_WAIT_S", 0.3)
    job_id = submit(settings)
    child = start(children, stop_with_the_row, settings, job_id)
    wait_for(lambda: row(settings, job_id).state == "running")
    time.sleep(0.7)
    supervisor = Supervisor(settings, lease_s=0.5, start=nobody)
    supervisor.poll()
    child.join(timeout=5)
    supervisor.poll()
    assert child.exitcode == -signal.SIGKILL and row(settings, job_id).state == "queued"


def test_clocks_that_are_set_do_not_end_a_lease(settings, monkeypatch):
    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    with claim(folder):
        for jump in (-3600, 3600):
            now = time.time()
            monkeypatch.setattr(time, "time", lambda now=now, jump=jump: now + jump)
            monkeypatch.setattr(time, "time_ns", lambda now=now, jump=jump: int((now + jump) * 1e9))
            assert lease.silent_for(folder, row(settings, job_id)) < 5
    assert lease.silent_for(folder, row(settings, job_id).model_copy(update={"boot": "another"})) == float("inf")


def test_a_process_number_that_another_has_now_gets_no_signal(settings):
    job_id = submit(settings)
    with claim(queue.folder_of(job_id, settings)):
        stranger = row(settings, job_id).model_copy(update={"pid_created": 1})
        assert lease.send_signal(stranger, signal.SIGTERM) is False


def test_a_silent_death_is_seen_restarted_three_times_and_then_failed(settings, children):
    job_id, started = submit(settings), []
    supervisor = Supervisor(settings, backoff_s=0.0, start=lambda job_id, _: started.append(job_id) or Dead())
    for death in range(4):
        assert finish(children, claim_and_die, settings, job_id) == -signal.SIGKILL
        supervisor.poll()
        if death < 3:
            assert (row(settings, job_id).state, row(settings, job_id).restarts) == ("queued", death + 1)
    assert len(started) == 3
    job = row(settings, job_id)
    assert job.state == "failed" and "4 times" in (job.reason or "")
    assert queue.resume(job_id, settings).state == "queued" and row(settings, job_id).restarts == 0


def test_the_pause_before_a_restart_grows(settings, children):
    job_id = submit(settings)
    supervisor = Supervisor(settings, backoff_s=100.0, start=nobody)
    waits = []
    for _ in range(3):
        finish(children, claim_and_die, settings, job_id)
        supervisor.poll()
        waits.append(row(settings, job_id).ready_at - time.monotonic())
        job_row.change(queue.folder_of(job_id, settings), lambda now: now.model_copy(update={"ready_at": 0.0}))
    assert waits[0] > 50 and waits[1] > 2 * waits[0] and waits[2] > 2 * waits[1]


def contend(settings, job_ids, ready, over, got):
    """One of several processes that want the same jobs at the same moment; who gets one keeps it until all have tried."""
    for job_id in job_ids:
        ready.wait()
        try:
            with claim(queue.folder_of(job_id, settings)):
                got.put((job_id, "got"))
                over.wait()
        except BusyError:
            got.put((job_id, "busy"))
            over.wait()


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_of_eight_processes_one_gets_the_job_every_time(settings, children, times):
    job_ids = [submit(settings) for _ in range(times)]
    ready, over, got = children.Barrier(8), children.Barrier(8), children.Queue()
    everyone = [start(children, contend, settings, job_ids, ready, over, got) for _ in range(8)]
    outcomes = Counter(got.get(timeout=60) for _ in range(8 * times))
    assert [child.join() or child.exitcode for child in everyone] == [0] * 8
    assert outcomes == {(job_id, word): count for job_id in job_ids for word, count in (("got", 1), ("busy", 7))}
    assert {row(settings, job_id).token for job_id in job_ids} == {1}


@pytest.mark.slow
def test_fifty_pauses_of_a_worker_are_no_death(settings, children):
    job_id = submit(settings, steps=4)
    child = start(children, work_slowly, settings, job_id, 5.0)
    wait_for(lambda: row(settings, job_id).state == "running")
    for _ in range(50):
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(2.5)
        Supervisor(settings, start=nobody).poll()
        os.kill(child.pid, signal.SIGCONT)
        assert row(settings, job_id).token == 1 and row(settings, job_id).state == "running"
        time.sleep(0.2)
    child.kill()
    child.join()
