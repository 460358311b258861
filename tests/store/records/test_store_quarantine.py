"""The quarantine in the store, on both databases: pages, counts, whose records, and of many decisions at once exactly one."""

from __future__ import annotations

import threading

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Conversation, Feedback, Message, Trace
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.records import crud, quarantine


def held(store: Store, by: str, n: int = 1) -> list[str]:
    records = [
        Feedback(session_id="s", agent_name="x", user_query=f"q{index}", agent_response="a", rating=3, recorded_by=by)
        for index in range(n)
    ]
    crud.add(store, records, actor="test")
    with store.write() as conn:
        for record in records:
            quarantine.hold(conn, record.feedback_id, "rlhf_feedback", doubt=1.0, reasons=["a number"], actor="test")
    return [record.feedback_id for record in records]


def test_pages_follow_one_another_without_what_somebody_sent_themselves(store: Store) -> None:
    mine, theirs = held(store, "usr_1", 3), held(store, "usr_2", 5)
    record_ids: list[str] = []
    for _ in range(4):
        after = record_ids[-1] if record_ids else None
        record_ids += [record.record_id for record in quarantine.page(store, after=after, limit=2, not_by="usr_1")]
    assert record_ids == theirs and quarantine.count(store, not_by="usr_1") == 5 and quarantine.count(store) == 8
    quarantine.decide(store, mine[0], "refused", actor="usr_2", was="waiting")
    assert quarantine.count(store) == 7 and [record.record_id for record in quarantine.page(store, state="refused")] == mine[:1]
    with pytest.raises(InputError, match="'after' names an unknown record"):
        quarantine.page(store, after="none")


def test_of_many_decisions_at_once_one_counts(store: Store) -> None:
    (record_id,) = held(store, "usr_1")
    start, winners = threading.Barrier(6), []

    def decide(n: int) -> None:
        start.wait()
        try:
            quarantine.decide(store, record_id, ("released", "refused")[n % 2], actor=f"usr_{n}", was="waiting")
            winners.append(f"usr_{n}")
        except quarantine.AlreadyDecidedError:
            pass

    threads = [threading.Thread(target=decide, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [row["actor"] for row in audit.page(store) if row["action"] in ("quarantine.released", "quarantine.refused")]
    assert len(winners) == 1 and lines == winners and quarantine.get(store, record_id).decided_by == winners[0]


def test_every_text_of_a_conversation_is_opened_under_its_own_name(store: Store) -> None:
    talk = Conversation(messages=(Message(role="user", content="q"), Message(role="assistant", content="a")))
    trace = Trace(session_id="s", agent_name="x", model_version="m", conversation=talk, contexts=("c1", "c2"))
    crud.add(store, [trace], actor="test")
    with store.write() as conn:
        quarantine.hold(conn, trace.trace_id, "traces", doubt=1.0, reasons=[], actor="test")
    record = quarantine.open_held(store, trace.trace_id, actor="usr_1")
    assert record.texts == (("user", "q"), ("assistant", "a"), ("contexts", "c1"), ("contexts", "c2"))
    assert quarantine.sent_by(store, record.held) == "test"  # as the audit log says


def held_trace(store: Store, by: str) -> str:
    talk = Conversation(messages=(Message(role="user", content="q"), Message(role="assistant", content="a")))
    trace = Trace(session_id="s", agent_name="x", model_version="m", conversation=talk)
    crud.add(store, [trace], actor=by)
    with store.write() as conn:
        quarantine.hold(conn, trace.trace_id, "traces", doubt=1.0, reasons=["a name"], actor="test")
    return trace.trace_id


def test_a_trace_is_not_among_what_its_sender_can_decide(store: Store) -> None:
    mine, theirs = held_trace(store, "usr_1"), held_trace(store, "usr_2")
    assert [record.record_id for record in quarantine.page(store, not_by="usr_1")] == [theirs] and mine != theirs
    assert quarantine.count(store, not_by="usr_1") == 1 and quarantine.count(store, not_by="usr_3") == 2


def test_what_repeats_a_trace_is_released_after_it(store: Store) -> None:
    trace = held_trace(store, "usr_1")
    feedback = Feedback(session_id="s", agent_name="x", user_query="q", agent_response="a", rating=3, trace_id=trace)
    crud.add(store, [feedback], actor="test")
    with store.write() as conn:
        quarantine.hold(conn, feedback.feedback_id, "rlhf_feedback", doubt=1.0, reasons=["a name"], actor="test")
    for state in ("waiting", "refused"):
        if state == "refused":
            quarantine.decide(store, trace, "refused", actor="usr_2")
        with pytest.raises(quarantine.TraceFirstError, match=f"which is {state}"):
            quarantine.decide(store, feedback.feedback_id, "released", actor="usr_2")
        assert quarantine.get(store, feedback.feedback_id).state == "waiting"
    quarantine.decide(store, trace, "released", actor="usr_2")
    assert quarantine.trace_to_decide_first(store, quarantine.get(store, feedback.feedback_id)) is None
    assert quarantine.decide(store, feedback.feedback_id, "released", actor="usr_2").state == "released"


def test_the_command_line_keeps_the_reason_and_takes_none_that_is_not_on_the_list(sqlite_settings) -> None:
    with open_store(sqlite_settings) as store:
        (record_id,) = held(store, "usr_1")
    run, home = CliRunner().invoke, ["--home", str(sqlite_settings.home), "quarantine"]
    assert run(app, [*home, "release", record_id, "--reason", "name"]).exit_code != 0
    assert "released by" in run(app, [*home, "release", record_id, "--reason", "medical_term"]).output
    with open_store(sqlite_settings) as store:
        assert [row["detail"] for row in audit.page(store, audit.AuditFilter(action="quarantine.released"))] == [
            {"reason": "medical_term"}
        ]
