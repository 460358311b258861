"""One worker per job, whoever tries; who lost the job cannot write."""

import os
import signal
import threading
import time

import pytest
from job_runs import Dead, claim_and_die, finish, outcome, row, start, submit, wait_for, work, work_slowly

from medloop.contracts import JobDetail
from medloop.errors import BusyError
from medloop.jobs import entry, lease, queue
from medloop.jobs.entry import LostLeaseError, StateError
from medloop.jobs.lease import LOST, claim
from medloop.jobs.supervisor import Supervisor


def nobody(job_id, settings):
    raise AssertionError("no worker was to be started")


def test_of_eight_who_try_at_once_one_gets_the_job(settings):
    for _ in range(10):
        folder = queue.folder_of(submit(settings), settings)
        gate, got, busy = threading.Barrier(8), [], []
        done = threading.Event()

        def contend(folder=folder, gate=gate, got=got, busy=busy, done=done):
            gate.wait()
            try:
                with claim(folder) as held:
                    got.append(held.token)
                    done.wait(5)
            except BusyError:
                busy.append(1)
            if len(busy) == 7:
                done.set()

        threads = [threading.Thread(target=contend) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [1] and len(busy) == 7


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
        entry.change(folder, lambda now: now.model_copy(update={"token": now.token + 1}))
        before = (folder / "status.json").read_bytes()
        for write in (held.check, held.beat, lambda: held.report(JobDetail()), lambda: held.end("succeeded")):
            with pytest.raises(LostLeaseError):
                write()
        assert (folder / "status.json").read_bytes() == before and row(settings, job_id).state == "running"


def test_a_lost_lease_closes_the_folder_to_the_trainer(settings):
    from medloop.jobs.stages import HeldJob

    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    with claim(folder) as held:
        job = HeldJob(folder, settings.home / "models/rl/x", {}, held)
        assert job.metrics.name == "metrics.jsonl" and job.checkpoints.name == "checkpoints"
        entry.change(folder, lambda now: now.model_copy(update={"token": now.token + 1}))
        for path in ("metrics", "checkpoints"):
            with pytest.raises(LostLeaseError):
                getattr(job, path)


def stopped_holder(settings, children, job_id):
    child = start(children, work_slowly, settings, job_id, 0.1)
    folder = queue.folder_of(job_id, settings)
    wait_for(lambda: (folder / "metrics.jsonl").is_file())
    os.kill(child.pid, signal.SIGSTOP)
    return child


def test_a_pause_is_not_a_death(settings, children):
    job_id = submit(settings, steps=2)
    child = stopped_holder(settings, children, job_id)
    time.sleep(1.0)
    Supervisor(settings, start=nobody).look()
    assert row(settings, job_id).state == "running" and row(settings, job_id).token == 1
    os.kill(child.pid, signal.SIGCONT)
    child.join()
    assert child.exitcode == 0 and row(settings, job_id).state == "succeeded"


def test_a_holder_stopped_past_its_lease_is_ended_and_the_next_one_finishes(settings, untouched, children):
    job_id = submit(settings)
    child = stopped_holder(settings, children, job_id)
    time.sleep(1.0)
    Supervisor(settings, lease_s=0.5, start=nobody).look()
    child.join(timeout=5)
    assert child.exitcode == -signal.SIGKILL
    assert (row(settings, job_id).state, row(settings, job_id).restarts, row(settings, job_id).token) == ("queued", 1, 2)
    assert finish(children, work, settings, job_id) == 0
    other = submit(untouched)
    assert finish(children, work, untouched, other) == 0
    assert outcome(settings, job_id) == outcome(untouched, other)


def test_a_holder_that_could_not_be_killed_may_not_write_when_it_wakes(settings, children, monkeypatch):
    job_id = submit(settings)
    folder = queue.folder_of(job_id, settings)
    child = stopped_holder(settings, children, job_id)
    time.sleep(1.0)
    monkeypatch.setattr(lease, "send", lambda row, number: False)
    Supervisor(settings, lease_s=0.5, start=nobody).look()
    seen = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "train.log"}
    os.kill(child.pid, signal.SIGCONT)
    child.join(timeout=10)
    assert child.exitcode in (1, LOST)
    assert {p: p.read_bytes() for p in seen} == seen and row(settings, job_id).state == "queued"


def stop_with_the_row(settings, job_id):
    folder = queue.folder_of(job_id, settings)
    with claim(folder), entry.row_lock(folder):
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_holder_stopped_while_it_holds_its_row_is_ended_too(settings, children, monkeypatch):
    monkeypatch.setattr(entry, "ROW_WAIT_S", 0.3)
    job_id = submit(settings)
    child = start(children, stop_with_the_row, settings, job_id)
    wait_for(lambda: row(settings, job_id).state == "running")
    time.sleep(0.7)
    supervisor = Supervisor(settings, lease_s=0.5, start=nobody)
    supervisor.look()
    child.join(timeout=5)
    supervisor.look()
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
        stranger = row(settings, job_id).model_copy(update={"pid_born": 1})
        assert lease.send(stranger, signal.SIGTERM) is False


def test_a_silent_death_is_seen_restarted_three_times_and_then_failed(settings, children):
    job_id, started = submit(settings), []
    supervisor = Supervisor(settings, backoff_s=0.0, start=lambda job_id, _: started.append(job_id) or Dead())
    for death in range(4):
        assert finish(children, claim_and_die, settings, job_id) == -signal.SIGKILL
        supervisor.look()
        if death < 3:
            assert (row(settings, job_id).state, row(settings, job_id).restarts) == ("queued", death + 1)
    assert len(started) == 3
    found = row(settings, job_id)
    assert found.state == "failed" and "4 times" in (found.reason or "")
    assert queue.resume(job_id, settings).state == "queued" and row(settings, job_id).restarts == 0


def test_the_pause_before_a_restart_grows(settings, children):
    job_id = submit(settings)
    supervisor = Supervisor(settings, backoff_s=100.0, start=nobody)
    waits = []
    for _ in range(3):
        finish(children, claim_and_die, settings, job_id)
        supervisor.look()
        waits.append(row(settings, job_id).ready_at - time.monotonic())
        entry.change(queue.folder_of(job_id, settings), lambda now: now.model_copy(update={"ready_at": 0.0}))
    assert waits[0] > 50 and waits[1] > 2 * waits[0] and waits[2] > 2 * waits[1]


def hold(settings, job_id, got):
    """One of several processes that want a job: the one that gets it keeps it for a while."""
    try:
        with claim(queue.folder_of(job_id, settings)):
            got.put("got")
            time.sleep(1.0)
    except BusyError:
        got.put("busy")


@pytest.mark.slow
def test_of_eight_processes_one_gets_the_job_a_hundred_times(settings, children):
    for _ in range(100):
        job_id, got = submit(settings), children.Queue()
        everyone = [start(children, hold, settings, job_id, got) for _ in range(8)]
        said = sorted(got.get(timeout=60) for _ in everyone)
        for child in everyone:
            child.join()
        assert said == ["busy"] * 7 + ["got"] and row(settings, job_id).token == 1


@pytest.mark.slow
def test_fifty_pauses_of_a_worker_are_no_death(settings, children):
    job_id = submit(settings, steps=4)
    child = start(children, work_slowly, settings, job_id, 5.0)
    wait_for(lambda: row(settings, job_id).state == "running")
    for _ in range(50):
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(2.5)
        Supervisor(settings, start=nobody).look()
        os.kill(child.pid, signal.SIGCONT)
        assert row(settings, job_id).token == 1 and row(settings, job_id).state == "running"
        time.sleep(0.2)
    child.kill()
    child.join()
