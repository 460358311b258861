"""The table of job kinds: a new kind is one entry, and each is treated as its entry says."""

from dataclasses import replace
from subprocess import Popen
from typing import get_args

import pytest
from job_runs import row

from medloop.contracts.job import StageName, TaskRequest
from medloop.errors import BusyError, ConfigError
from medloop.jobs import kinds, queue, worker
from medloop.jobs.job_row import StateError
from medloop.jobs.kinds import DATA, KINDS, Kind, Pool
from medloop.jobs.submit import submit_task
from medloop.jobs.supervisor import Supervisor
from medloop.loop.train import STAGES
from medloop.teacher import usage

REPORT = Kind("REPORT", lambda work: f"{work.request.config['n']} pages.", TaskRequest, DATA, frozenset(("keyboard",)))


def file(settings, kind: Kind, monkeypatch, **config) -> str:
    monkeypatch.setitem(kinds.KINDS, kind.name, kind)
    return submit_task(TaskRequest(stage=kind.name, actor="ann", config=config), settings, channel="keyboard")


def test_every_stage_can_be_requested_and_is_a_kind():
    assert list(STAGES) == list(get_args(StageName)) and set(KINDS) == {*STAGES, "BUILD", "ERASE", "GATE", "INSPECT"}
    assert all(kind.name == name for name, kind in KINDS.items())


def test_a_new_kind_is_one_entry_of_the_table(settings, monkeypatch):
    job_id = file(settings, REPORT, monkeypatch, n=3)
    assert job_id.startswith("data_") and queue.status_of(job_id, settings).stage == "REPORT"
    ended = worker.work(job_id, settings)
    assert (ended.state, ended.reason) == ("succeeded", "3 pages.")


def test_what_a_job_asks_the_teacher_is_booked_to_the_job(settings, monkeypatch):
    job_id = file(settings, replace(REPORT, run=lambda work: usage.current_job().get("job")), monkeypatch)
    assert worker.work(job_id, settings).reason == job_id and usage.current_job() == {}


def test_a_new_pool_is_one_entry_and_does_not_wait_for_the_others(settings, monkeypatch):
    """Its jobs are listed, started up to its slots whatever else is running, and fail by name where nobody knows the kind."""
    started: list[str] = []
    supervisor = Supervisor(settings, start=lambda job_id, settings: started.append(job_id) or Popen(["sleep", "60"]))
    page = replace(REPORT, name="PAGE", pool=Pool("print", slots=2))
    data = [file(settings, REPORT, monkeypatch, n=n) for n in range(2)]
    pages = [file(settings, page, monkeypatch, n=n) for n in range(3)]
    lost = file(settings, replace(page, name="LOST", pool=Pool("lost", slots=1)), monkeypatch)
    monkeypatch.delitem(kinds.KINDS, "LOST")
    assert all(job_id.startswith("print_") for job_id in pages) and len(queue.page(settings).jobs) == 6
    try:
        supervisor.poll()
    finally:
        for child in supervisor.children.values():
            child.kill()
            child.wait()
    assert sorted(started) == sorted([data[0], *pages[:2], lost]) and worker.work(lost, settings).state == "failed"
    assert queue.cancel(pages[2], settings).state == "cancelled"


def test_only_the_doors_of_a_kind_may_submit_it(settings, monkeypatch):
    monkeypatch.setitem(kinds.KINDS, "REPORT", REPORT)
    for stage, channel in (("REPORT", "http"), ("ERASE", "keyboard"), ("BUILD", "trigger"), ("NONE", "http")):
        with pytest.raises(ConfigError, match=stage):
            submit_task(TaskRequest(stage=stage, actor="ann"), settings, channel=channel)
    assert queue.ids(settings, ("data",)) == []


def test_a_job_is_treated_as_its_kind_says(settings, monkeypatch):
    fixed = file(settings, replace(REPORT, cancellable=False, checkpointed=False, urgent=True), monkeypatch, n=1)
    with pytest.raises(StateError, match="REPORT cannot be cancelled"):
        queue.cancel(fixed, settings)
    assert row(settings, fixed).urgent and "nothing was published" in row(settings, fixed).cancelled_message


@pytest.mark.parametrize(("retries", "state"), [(True, "queued"), (False, "failed")])
def test_what_finds_something_in_use_is_tried_again_where_its_kind_says_so(settings, monkeypatch, retries, state):
    def busy(work):
        raise BusyError("The printer is in use")

    job_id = file(settings, replace(REPORT, run=busy, retries_when_busy=retries), monkeypatch)
    ended = worker.work(job_id, settings)
    assert ended.state == state and "in use" in str(ended.reason)


def test_a_kind_that_this_version_does_not_know_fails_with_its_name(settings, monkeypatch):
    job_id = file(settings, REPORT, monkeypatch, n=1)
    monkeypatch.delitem(kinds.KINDS, "REPORT")
    ended = worker.work(job_id, settings)
    assert ended.state == "failed" and "REPORT" in str(ended.reason)
