"""`medloop annotate` when something happens in between: a kill, an erasure, a 403, a quarantine, a second push."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from annotation_desk import corrected, stars, text
from test_annotate import Desk
from test_annotate import desk as desk  # the fixture

from medloop.annotate.label_studio_api import open_label_studio
from medloop.contracts import Correction, Message, utc_now
from medloop.contracts.base import iso_utc
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.errors import BusyError
from medloop.loop import annotate_pull
from medloop.loop.annotate_push import push_negatives
from medloop.loop.annotate_server import exclusive
from medloop.loop.annotate_status import annotation_status
from medloop.loop.erasure import erase_records
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.service import ServiceError
from medloop.store.records import annotation_tasks, outbox, quarantine, review_queue


class Killed(BaseException):
    pass


def kill(*args: Any, **more: Any) -> None:
    raise Killed


@pytest.mark.parametrize("by", ["push", "pull"])
def test_a_task_that_was_not_noted_before_its_patient_was_erased_is_deleted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    desk.negatives(2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(outbox, "mark_sent", lambda store, to, sent, kind: kill() if sent else None)
        desk.push()
    assert len(desk.server.tasks) == 2
    erase_records(desk.store, ErasureRequest(records=("trace-0",), reason="asked for it"), actor="t")
    counts = desk.push() if by == "push" else desk.pull()
    assert (counts.deleted, len(desk.server.tasks)) == (1, 1)


def test_a_403_makes_no_second_project(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.negatives(1)
    desk.push()
    [project] = desk.server.projects
    route = desk.server._route
    with monkeypatch.context() as patch, pytest.raises(ServiceError) as refused:
        patch.setattr(
            desk.server,
            "_route",
            lambda m, path, q, b: (403, {}) if path == f"/api/projects/{project}/" else route(m, path, q, b),
        )
        desk.server.projects[project]["title"] = "another title"
        desk.push()
    assert refused.value.status == 403 and set(desk.server.projects) == {project} and len(desk.server.tasks) == 1


def test_what_was_erased_is_deleted_in_the_projects_of_before_too(desk: Desk) -> None:
    desk.negatives(1)
    desk.push()
    [old] = desk.server.tasks
    settings = desk.settings(project="second")
    assert push_negatives(settings, desk.store, actor="t").pushed == 1 and len(desk.server.projects) == 2
    assert [project.sent for project in annotation_status(settings, desk.store).projects] == [1, 1]
    erase_records(desk.store, ErasureRequest(records=("trace-0",), reason="asked for it"), actor="t")
    assert push_negatives(settings, desk.store, actor="t").deleted == 2 and old not in desk.server.tasks


def test_an_annotation_waits_while_its_answer_waits_in_quarantine(desk: Desk) -> None:
    desk.negatives(1)
    desk.push()
    [task] = desk.server.tasks
    desk.server.annotate(task, corrected(1))
    with desk.store.write() as conn:
        quarantine.hold(conn, "trace-0", "traces", doubt=1.0, reasons=["a name"], actor="t")
    counts = desk.pull()
    assert (counts.deleted, counts.hidden, counts.new, counts.problems.total()) == (0, 1, 0, 0) and task in desk.server.tasks
    desk.server.now += timedelta(minutes=30)  # later than the overlap
    desk.negatives(1, first=1)
    desk.push()
    desk.pull()
    quarantine.decide(desk.store, "trace-0", "released", actor="t", reason="nobody", was="waiting")
    assert desk.pull().corrections == 1
    quarantine.decide(desk.store, "trace-0", "refused", actor="t", reason="name", was="released")
    assert desk.pull().deleted == 1 and task not in desk.server.tasks


def test_a_comparison_is_deleted_when_its_second_trace_is_refused(desk: Desk) -> None:
    desk.negatives(2)
    prompt = (Message(role="user", content="My knee hurts after running."),)
    content = QueueContent(prompt=prompt, answers=("Run.", "Rest it."), traces=("trace-0", "trace-1"))
    item = QueueItem(
        kind="compare", content=content, trace_id="trace-0", priority=0.5, reasons={"disagreement": 1.0}, raters=1
    )  # fmt: skip
    review_queue.add_items(desk.store, [item], actor="t")
    desk.push()
    with desk.store.write() as conn:
        quarantine.hold(conn, "trace-1", "traces", doubt=1.0, reasons=["a name"], actor="t")
    assert desk.pull().deleted == 0
    quarantine.decide(desk.store, "trace-1", "refused", actor="t", reason="name", was="waiting")
    assert annotation_tasks.count_tasks(desk.store)["to_delete"] == 2  # the comparison, and the complaint about trace-1
    assert desk.pull().deleted == 2


def test_a_pull_that_was_killed_before_the_verdict_gives_it_the_next_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.negatives(2)
    desk.push()
    first = min(desk.server.tasks)
    annotation = desk.server.annotate(first, corrected(1))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(annotate_pull.queue, "finish", kill)
        desk.pull()
    assert len(desk.all(Correction)) == 1 and review_queue.stats(desk.store).states == {"open": 2}
    assert (desk.pull().known, review_queue.stats(desk.store).states) == (1, {"open": 1, "done": 1})
    desk.server.change(first, annotation, [stars(1), text("golden", "Call an ambulance now.")])
    counts = desk.pull()
    assert (counts.changed, counts.unsettled) == (2, 0)


def test_one_time_in_the_future_hides_no_later_change(desk: Desk) -> None:
    desk.negatives(2)
    desk.push()
    first, second = desk.server.tasks
    desk.server.annotate(first, corrected(1))
    desk.server.tasks[first]["updated_at"] = iso_utc(utc_now() + timedelta(days=400))
    desk.pull()
    desk.server.now = utc_now()
    desk.server.annotate(second, corrected(2))
    assert desk.pull().corrections == 1


def test_a_second_push_at_the_same_time_is_refused(desk: Desk) -> None:
    desk.negatives(1)
    with exclusive(desk.settings()), pytest.raises(BusyError, match="The exchange with Label Studio is in use"):
        desk.push()
    assert desk.server.tasks == {} and desk.push().pushed == 1
    with exclusive(desk.settings()), pytest.raises(BusyError):
        desk.pull()


def test_a_large_push_reads_each_item_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.negatives(5)
    asked: list[int] = []
    waiting = annotation_tasks.waiting
    monkeypatch.setattr("medloop.loop.annotate_push.BATCH", 2)
    monkeypatch.setattr(
        annotation_tasks, "waiting", lambda *a, most, **more: asked.append(most) or waiting(*a, most=most, **more)
    )
    assert desk.push().pushed == 5 and set(asked) == {2}


def test_the_token_is_not_in_what_is_printed(desk: Desk) -> None:
    with open_label_studio(desk.settings().label_studio) as api:
        assert api.token not in repr(api)
