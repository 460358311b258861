"""The one writer: acknowledged means stored, once, and one bad request harms nobody."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import event, func, insert, select

from medloop.contracts import AuditEvent, Feedback, Trace, utc_now
from medloop.errors import BusyError, InputError, NoSpaceError
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.records import crud, group_commit
from medloop.store.records.group_commit import BUSY_BATCH, LINGER_S, MAX_LINGERS, GroupCommitWriter
from medloop.store.records.write_request import (
    KeyReusedError,
    Lookup,
    LookupResults,
    NewRows,
    OverloadedError,
    StoreUnavailableError,
    WriteRequest,
)
from medloop.store.tables import idempotency_keys, incidents

CANARY = "canary-胸痛-5c1d"


def feedback(n: int = 0, **changes) -> Feedback:
    fields = {"session_id": f"s{n}", "agent_name": "a", "user_query": CANARY, "agent_response": "rest", "rating": 4}
    return Feedback(**fields | changes)


def adding(n: int = 0, *, key: str | None = None, caller: str = "usr_1", body: str = "same", **changes) -> WriteRequest:
    def build(known: LookupResults) -> NewRows:
        record = feedback(n, **changes)
        return NewRows({"feedback_id": record.feedback_id}, (record,))

    return WriteRequest(caller, build, key, body)


@pytest.fixture
def writer(store: Store):
    with GroupCommitWriter(store, wait_s=30).running() as running:
        yield running


def held_up(writer: GroupCommitWriter) -> threading.Event:
    """The writer waits inside a request until the event is set, so that others gather behind it."""
    go, there = threading.Event(), threading.Event()

    def build(known: LookupResults) -> NewRows:
        there.set()
        assert go.wait(10)
        return NewRows({})

    threading.Thread(target=writer.submit_and_wait, args=(WriteRequest("usr_0", build),), daemon=True).start()
    assert there.wait(10)
    return go


def test_acknowledged_is_stored_encrypted_and_audited(store: Store, writer: GroupCommitWriter) -> None:
    answer = writer.submit_and_wait(adding(1)).answer
    assert crud.get(store, Feedback, answer["feedback_id"]).user_query == CANARY
    lines = [(line["actor"], line["action"], line["subject"]) for line in audit.show(store, 9)]
    assert lines == [("usr_1", "rlhf_feedback.add", answer["feedback_id"])] and audit.verify(store).ok


def test_same_key_and_body_get_the_first_answer_and_one_record(store: Store, writer: GroupCommitWriter) -> None:
    first = writer.submit_and_wait(adding(key="k"))
    again = writer.submit_and_wait(adding(key="k"))
    assert (first.replayed, again.replayed) == (False, True) and first.answer == again.answer
    assert crud.count(store, Feedback) == 1


def test_the_first_answer_outlives_the_server(store: Store) -> None:
    with GroupCommitWriter(store).running() as writer:
        first = writer.submit_and_wait(adding(key="k"))
    with GroupCommitWriter(store).running() as second:
        assert second.submit_and_wait(adding(key="k")).answer == first.answer
    assert crud.count(store, Feedback) == 1


def test_many_at_once_with_one_key_store_one_record_in_one_transaction(
    store: Store, writer: GroupCommitWriter, monkeypatch
) -> None:
    go, write, begun = held_up(writer), store.write, []
    monkeypatch.setattr(store, "write", lambda: begun.append(1) or write())
    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(writer.submit_and_wait, adding(key="k")) for _ in range(40)]
        while writer.waiting < 40:
            time.sleep(0.01)
        go.set()
        answers = [future.result() for future in waiting]
    assert len({answer.answer["feedback_id"] for answer in answers}) == 1
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 39 and crud.count(store, Feedback) == 1
    assert len(begun) == 2  # that of the request in front, and one for all forty


def test_one_key_for_two_bodies_is_refused_also_within_one_batch(store: Store, writer: GroupCommitWriter) -> None:
    writer.submit_and_wait(adding(key="k"))
    with pytest.raises(KeyReusedError):
        writer.submit_and_wait(adding(key="k", body="other"))
    go = held_up(writer)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(writer.submit_and_wait, adding(key="j", body=body)) for body in ("x", "y")]
        while writer.waiting < 2:
            time.sleep(0.01)
        go.set()
        errors = [future.exception() for future in waiting]
    assert sum(isinstance(error, KeyReusedError) for error in errors) == 1
    assert crud.count(store, Feedback) == 2


def test_keys_belong_to_their_caller(store: Store, writer: GroupCommitWriter) -> None:
    mine, theirs = writer.submit_and_wait(adding(key="k")), writer.submit_and_wait(adding(key="k", caller="usr_2", body="other"))
    assert not theirs.replayed and mine.answer != theirs.answer and crud.count(store, Feedback) == 2


def _refused(known: LookupResults) -> NewRows:
    raise InputError("no")


def _broken(known: LookupResults) -> NewRows:
    return {}["nothing"]


def _against_the_schema(known: LookupResults) -> NewRows:
    row = {"incident_id": "i", "record_id": "r", "state": "half open", "key_id": "k", "timestamp": utc_now()}
    return NewRows({}, (feedback(99),), ((incidents, row),))


def _nul(known: LookupResults) -> NewRows:
    return NewRows({}, (feedback(99, session_id="a\0b"),))


@pytest.mark.parametrize("bad", [_refused, _broken, _against_the_schema, _nul])
def test_a_bad_request_fails_alone_and_leaves_nothing(store: Store, writer: GroupCommitWriter, bad) -> None:
    go = held_up(writer)
    with ThreadPoolExecutor(5) as pool:
        good = [pool.submit(writer.submit_and_wait, adding(n, key=f"k{n}")) for n in range(4)]
        worse = pool.submit(writer.submit_and_wait, WriteRequest("usr_1", bad, "bad", "x"))
        while writer.waiting < 5:
            time.sleep(0.01)
        go.set()
        assert len({future.result().answer["feedback_id"] for future in good}) == 4
        assert worse.exception() is not None
    assert crud.count(store, Feedback) == 4 and audit.verify(store).ok
    with store.read() as conn:
        assert conn.execute(select(func.count()).select_from(idempotency_keys)).scalar() == 4


def test_what_waits_together_is_one_transaction(store: Store, writer: GroupCommitWriter) -> None:
    go = held_up(writer)
    with ThreadPoolExecutor(30) as pool:
        waiting = [pool.submit(writer.submit_and_wait, adding(n)) for n in range(30)]
        while writer.waiting < 30:
            time.sleep(0.01)
        go.set()
        for future in waiting:
            future.result()
    assert writer.counts.batches == {1: 1, 30: 1} and writer.counts.records == {"rlhf_feedback": 30}


@pytest.mark.parametrize(
    ("last", "arrivals", "sleeps"), [(BUSY_BATCH, 2, 3), (BUSY_BATCH, 99, MAX_LINGERS), (BUSY_BATCH - 1, 99, 0)]
)
def test_under_load_a_batch_waits_for_those_that_are_on_their_way(store: Store, monkeypatch, last, arrivals, sleeps) -> None:
    """While more arrive, and no longer than a few rounds; a request that comes alone never waits."""
    writer, slept = GroupCommitWriter(store), []
    writer._open, writer._last_size = True, last
    writer._queue.append(object())

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        writer._queue.extend([object()] * (len(slept) <= arrivals))

    monkeypatch.setattr(group_commit.time, "sleep", sleep)
    writer._linger()
    monkeypatch.undo()
    assert slept == [LINGER_S] * sleeps and sum(slept) < 0.02


def test_a_full_queue_refuses_at_once_and_stores_what_it_took(store: Store) -> None:
    with GroupCommitWriter(store, max_waiting=3).running() as writer:
        go = held_up(writer)
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(writer.submit_and_wait, adding(n)) for n in range(3)]
            while not writer.full:
                time.sleep(0.01)
            started = time.monotonic()
            with pytest.raises(OverloadedError):
                writer.submit_and_wait(adding(9))
            assert time.monotonic() - started < 0.5
            go.set()
            for future in futures:
                future.result()
    assert sorted(feedback.session_id for feedback in crud.iterate(store, Feedback)) == ["s0", "s1", "s2"]


def test_the_end_stores_what_waits_and_takes_no_more(store: Store) -> None:
    writer = GroupCommitWriter(store)
    with ThreadPoolExecutor(5) as pool:
        with writer.running():
            go = held_up(writer)
            waiting = [pool.submit(writer.submit_and_wait, adding(n)) for n in range(5)]
            while writer.waiting < 5:
                time.sleep(0.01)
            threading.Timer(0.2, go.set).start()
        assert crud.count(store, Feedback) == 5  # at once
        for future in waiting:
            future.result()
    with pytest.raises(OverloadedError, match="shutting down"):
        writer.submit_and_wait(adding(9))


def test_a_commit_whose_answer_was_lost_is_not_repeated(store: Store, writer: GroupCommitWriter, monkeypatch) -> None:
    write, lost = store.write, []

    @contextmanager
    def losing():
        with write() as conn:
            yield conn
        if not lost:
            lost.append(1)
            raise BusyError("the connection broke after COMMIT")

    monkeypatch.setattr(store, "write", losing)
    answer = writer.submit_and_wait(adding(1)).answer  # without an idempotency key: the record's own id tells
    assert lost and [feedback.feedback_id for feedback in crud.iterate(store, Feedback)] == [answer["feedback_id"]]


@pytest.mark.parametrize(
    ("error", "seen"), [(NoSpaceError("full"), NoSpaceError), (BusyError("db at host"), StoreUnavailableError)]
)
def test_a_store_that_cannot_write_is_said_without_its_name_and_recovers(store: Store, monkeypatch, error, seen) -> None:
    @contextmanager
    def failing():
        raise error
        yield

    with GroupCommitWriter(store, wait_s=0.3).running() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(store, "write", failing)
            with pytest.raises(seen) as caught:
                writer.submit_and_wait(adding(1))
            assert "host" not in str(caught.value)
        writer.submit_and_wait(adding(2))
    assert [feedback.session_id for feedback in crud.iterate(store, Feedback)] == ["s2"]


def test_a_postgresql_that_goes_away_and_comes_back_loses_nothing(postgres, postgres_settings) -> None:
    with open_store(postgres_settings, wait_s=0.5) as store, GroupCommitWriter(store, wait_s=0.5).running() as writer:
        writer.submit_and_wait(adding(1))
        postgres.stop("immediate")
        try:
            started = time.monotonic()
            with pytest.raises(BusyError):
                writer.submit_and_wait(adding(2, key="k"))
            assert time.monotonic() - started < 8
        finally:
            postgres.start()
        writer.submit_and_wait(adding(2, key="k"))
        assert [feedback.session_id for feedback in crud.iterate(store, Feedback)] == ["s1", "s2"] and audit.verify(store).ok


def test_a_locked_store_answers_in_bounded_time(sqlite_settings) -> None:
    with open_store(sqlite_settings) as other, open_store(sqlite_settings, wait_s=0.2) as store:
        with GroupCommitWriter(store, wait_s=0.2).running() as writer:
            with other.write(), pytest.raises(StoreUnavailableError):
                writer.submit_and_wait(adding(1))
            writer.submit_and_wait(adding(2))
        assert [feedback.session_id for feedback in crud.iterate(store, Feedback)] == ["s2"]


def test_lookups_find_records_by_id_and_by_the_newest_of_a_column(store: Store, writer: GroupCommitWriter) -> None:
    fields = {"agent_name": "a", "model_version": "m", "conversation": {"messages": [{"role": "user", "content": CANARY}]}}
    old, new = (Trace.model_validate({**fields, "session_id": "s", "trace_id": name}) for name in ("t1", "t2"))
    crud.add(store, [old, new], actor="test")
    seen = []

    def build(known: LookupResults) -> NewRows:
        seen.extend(known.record(Trace, lookup) for lookup in lookups)
        return NewRows({})

    lookups = (Lookup(Trace, "t1"), Lookup(Trace, "s", "session_id"), Lookup(Trace, "t9"))
    writer.submit_and_wait(WriteRequest("usr_1", build, lookups=lookups))
    assert seen == [old, new, None]


def test_events_and_changes_are_part_of_the_transaction(store: Store, writer: GroupCommitWriter) -> None:
    event = AuditEvent(actor="usr_1", action="rlhf_feedback.read", subject="fb_1")
    writer.submit_and_wait(WriteRequest("usr_1", lambda known: NewRows({}, events=(event,))))

    def change(conn):
        raise InputError("too late")

    with pytest.raises(InputError, match="too late"):
        writer.submit_and_wait(WriteRequest("usr_1", lambda known: NewRows({}, (feedback(),), events=(event,), update=change)))
    assert audit.verify(store).rows == 1 and crud.count(store, Feedback) == 0


def test_looking_for_a_key_does_not_walk_all_keys(store: Store, writer: GroupCommitWriter) -> None:
    writer.submit_and_wait(adding(key="k"))
    statements = []
    if store.is_sqlite:
        event.listen(store.engine, "before_cursor_execute", lambda *seen: statements.append(seen[2:4]))
    writer.submit_and_wait(adding(key="k"))
    with store.read() as conn:
        looked = [(sql, values) for sql, values in statements if "FROM idempotency_keys" in sql and sql.startswith("SELECT")]
        plans = [str(row) for sql, values in looked for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert not store.is_sqlite or plans
    assert not [plan for plan in plans if "SCAN" in plan]


def test_old_keys_are_swept(store: Store) -> None:
    fields = {"caller": "usr_1", "fingerprint": "f", "status": 201, "answer": {}}
    with store.write() as conn:
        for key, days in (("old", 8), ("new", 6)):
            conn.execute(insert(idempotency_keys).values(**fields, key=key, created=utc_now() - timedelta(days=days)))
    with GroupCommitWriter(store).running() as writer:
        writer.submit_and_wait(adding(1))
    with store.read() as conn:
        assert conn.execute(select(idempotency_keys.c.key)).scalars().all() == ["new"]


def test_an_event_loop_is_woken_for_each_of_its_requests(store: Store, writer: GroupCommitWriter) -> None:
    async def many() -> list:
        return await asyncio.gather(*(writer.submit(adding(n)) for n in range(20)))

    assert len({answer.answer["feedback_id"] for answer in asyncio.run(many())}) == 20


def test_a_request_that_gave_up_does_not_disturb_the_others(store: Store, writer: GroupCommitWriter) -> None:
    async def cancel_first() -> str:
        go = held_up(writer)
        gone = asyncio.ensure_future(writer.submit(adding(1)))
        stays = asyncio.ensure_future(writer.submit(adding(2)))
        await asyncio.sleep(0.05)
        gone.cancel()
        go.set()
        return (await stays).answer["feedback_id"]

    assert crud.get(store, Feedback, asyncio.run(cancel_first())) is not None and crud.count(store, Feedback) == 2
