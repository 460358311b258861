"""Requests whose work in another process comes first: on to the writer as soon as that is done, never without it."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from medloop.contracts import Feedback
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.write_request import LookupResults, NewRows, OverloadedError, WriteRequest


class Begun:
    """A request, the future of its work elsewhere, and whether its rows were built."""

    def __init__(self) -> None:
        self.work: Future[None] = Future()
        self.built = threading.Event()
        self.request = WriteRequest("usr_1", self.build, begin=lambda: self.work)

    def build(self, known: LookupResults) -> NewRows:
        assert self.work.done()
        self.built.set()
        record = Feedback(session_id="s", agent_name="a", user_query="q", agent_response="a", rating=4)
        return NewRows({"feedback_id": record.feedback_id}, (record,))


def test_it_is_stored_when_the_work_is_done_also_while_the_event_loop_is_busy(store: Store) -> None:
    async def send(writer: GroupCommitWriter) -> str:
        begun = Begun()
        task = asyncio.create_task(writer.submit(begun.request))
        await asyncio.sleep(0.05)
        assert not begun.built.is_set()
        begun.work.set_running_or_notify_cancel()
        begun.work.set_result(None)
        assert begun.built.wait(30), "the event loop does nothing meanwhile"
        return (await task).answer["feedback_id"]

    with GroupCommitWriter(store).running() as writer:
        assert crud.get(store, Feedback, asyncio.run(send(writer))) is not None


def test_failed_work_and_a_full_queue_are_told_and_nothing_is_stored(store: Store) -> None:
    async def send(writer: GroupCommitWriter, error: Exception | None) -> None:
        begun = Begun()
        task = asyncio.create_task(writer.submit(begun.request))
        await asyncio.sleep(0)
        begun.work.set_running_or_notify_cancel()
        begun.work.set_result(None) if error is None else begun.work.set_exception(error)
        await asyncio.wait_for(task, 30)

    with GroupCommitWriter(store, max_waiting=0).running() as writer:
        with pytest.raises(InputError, match="broken"):
            asyncio.run(send(writer, InputError("broken")))
        with pytest.raises(OverloadedError):
            asyncio.run(send(writer, None))
    assert crud.count(store, Feedback) == 0


def test_work_that_nobody_waits_for_is_cancelled(store: Store) -> None:
    async def send(writer: GroupCommitWriter) -> bool:
        begun = Begun()
        task = asyncio.create_task(writer.submit(begun.request))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return begun.work.cancelled() and not begun.built.is_set()

    with GroupCommitWriter(store).running() as writer:
        assert asyncio.run(send(writer))
    assert crud.count(store, Feedback) == 0
