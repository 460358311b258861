"""Traces and feedback out: to a loopback Langfuse, and to a loopback collector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Conversation, Feedback, Message, Trace, utc_now
from medloop.contracts.base import uuid7
from medloop.loop.erasure import erase_records
from medloop.loop.langfuse_import import ImportWish, import_langfuse
from medloop.loop.send_telemetry import BATCH, send_pending, statuses
from medloop.loop.workspace import init_workspace
from medloop.privacy import consent
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.sections import TelemetrySettings
from medloop.service import ServiceError
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, quarantine
from medloop.telemetry.genai_spans import otel_trace_id
from medloop.testing.langfuse_server import LangfuseServer

QUESTION = "I have had a cough for two weeks."


@pytest.fixture
def server() -> Iterator[LangfuseServer]:
    with LangfuseServer() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "clinic")
    return tmp_path / "clinic"


def settings_of(server: LangfuseServer, home: Path, **langfuse: Any) -> Settings:
    return Settings(home=home, langfuse=server.settings(send=True, **langfuse))


def make_trace(question: str = QUESTION, **more: Any) -> Trace:
    messages = (Message(role="user", content=question), Message(role="assistant", content="Do you also have a fever?"))
    meta = {
        "prompt_tokens": 12,
        "completion_tokens": 7,
        "seconds": 0.25,
        "finish_reason": "stop",
        "guards": [{"guard": "red_flags", "finding": "x"}],
    }
    values: dict[str, Any] = {
        "session_id": "sess_1",
        "agent_name": "triage",
        "model_version": "clinic-7b@3",
        "meta": meta,
        **more,
    }
    return Trace(conversation=Conversation(messages=messages), **values)


def thumb(trace: Trace, thumb: str = "down", **more: Any) -> Feedback:
    kind = "positive" if thumb == "up" else "negative"
    return Feedback.model_validate(
        {"session_id": trace.session_id, "agent_name": trace.agent_name, "user_query": QUESTION, "agent_response": "…",
         "thumb": thumb, "feedback_type": kind, "trace_id": trace.trace_id, **more}
    )  # fmt: skip


def add(store: Store, *records: Any) -> None:
    crud.add(store, records, actor="test")


def begin(settings: Settings, store: Store) -> None:
    """Sending is switched on: what is stored from now on is sent."""
    send_pending(settings, store, backoff_s=0.001)


def test_traces_and_scores_reach_langfuse_without_a_word_of_the_exchange(server: LangfuseServer, home: Path) -> None:
    settings = settings_of(server, home)
    with open_store(settings) as store:
        add(store, make_trace("Stored before sending was switched on."))
        begin(settings, store)
        trace = make_trace()
        add(store, trace, thumb(trace, comments="It misses the red flag."))
        sent = send_pending(settings, store, backoff_s=0.001)["langfuse"]
        assert (sent.traces, sent.feedback) == (1, 1)
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].traces == 0
    [row] = server.project.observations.values()
    assert row["traceId"] == otel_trace_id(trace.trace_id) and row["model"] == "clinic-7b@3"
    assert row["usageDetails"] == {"input": 12, "output": 7} and row["input"] is None
    [score] = server.project.scores.values()
    assert (score["value"], score["dataType"], score["subject"]["id"]) == (False, "BOOLEAN", row["traceId"])
    assert all(b"cough" not in body and b"red flag" not in body for body in server.bodies)


def test_a_text_leaves_only_scrubbed_and_with_consent(server: LangfuseServer, home: Path) -> None:
    settings = settings_of(server, home, send_text=True)
    with open_store(settings) as store:
        begin(settings, store)
        named = make_trace("患者王芳，手机13800138000，咳嗽三天。")
        withdrawn = make_trace("I have a headache.", user_hash=subject_of(store, "patient 7"))
        consent.record(store, "patient 7", ("training",), granted=False, text_version="2026-01", actor="test")
        kept = thumb(named, "up", comments="Clear and kind.", consent=("evaluation",))
        add(store, named, withdrawn, kept, thumb(named, "down", comments="Not for anybody."))
        sent = send_pending(settings, store, backoff_s=0.001)["langfuse"]
        assert (sent.traces, sent.feedback, sent.without_text) == (2, 2, 1)
    everything = b"".join(server.bodies).decode()
    texts = json.dumps([row["input"] for row in server.project.observations.values()], ensure_ascii=False)
    assert "咳嗽三天" in texts and "13800138000" not in everything and "王芳" not in everything
    assert "headache" not in everything
    assert sorted(score["comment"] or "" for score in server.project.scores.values()) == ["", "Clear and kind."]


def test_what_quarantine_holds_waits_and_is_sent_after_its_release(server: LangfuseServer, home: Path) -> None:
    settings = settings_of(server, home)
    with open_store(settings) as store:
        begin(settings, store)
        held, free = make_trace("Somebody's story."), make_trace()
        add(store, held, free)
        with store.write() as conn:
            quarantine.hold(conn, held.trace_id, "traces", doubt=1.0, reasons=["a name"], actor="test")
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].traces == 1
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].traces == 0
        quarantine.decide(store, held.trace_id, "released", actor="usr_1", reason="nobody", was="waiting")
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].traces == 1
    assert len(server.project.observations) == 2


def test_what_is_erased_here_is_deleted_there(server: LangfuseServer, home: Path) -> None:
    settings = settings_of(server, home)
    with open_store(settings) as store:
        begin(settings, store)
        trace = make_trace(user_hash=subject_of(store, "patient 7"))
        other = make_trace("My knee hurts since Monday.", user_hash=subject_of(store, "patient 8"))
        add(store, trace, other, thumb(trace, "up", subject=trace.user_hash))
        begin(settings, store)
        erase_records(store, ErasureRequest(subject="patient 7", reason="asked for it"), actor="test")
        assert statuses(settings, store)[0].to_delete == 2
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].deleted == 2
        assert statuses(settings, store)[0].to_delete == 0
    assert server.project.deleted == [otel_trace_id(trace.trace_id)] and len(server.project.observations) == 1
    assert not server.project.scores


def test_a_rating_that_is_erased_alone_is_deleted_alone(server: LangfuseServer, home: Path) -> None:
    settings = settings_of(server, home)
    with open_store(settings) as store:
        begin(settings, store)
        trace = make_trace()
        rating, other = thumb(trace, "up"), thumb(trace, "down")
        add(store, trace, rating, other)
        begin(settings, store)
        erase_records(store, ErasureRequest(records=(rating.feedback_id,), reason="asked for it"), actor="test")
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].deleted == 1
    assert set(server.project.scores) == {other.feedback_id} and len(server.project.observations) == 1


def test_a_service_that_fails_gets_everything_once_it_is_back(server: LangfuseServer, home: Path) -> None:
    settings, n = settings_of(server, home), BATCH + 20
    with open_store(settings) as store:
        begin(settings, store)
        traces = [make_trace(f"I have had a cough for {number} days.") for number in range(n)]
        add(store, *traces)
        server.fault = lambda number, target: "error_500" if server.project.observations else "ok"
        with pytest.raises(ServiceError, match="answered 500"):
            send_pending(settings, store, backoff_s=0.001)
        assert len(server.project.observations) == BATCH
        server.fault = lambda number, target: "ok"
        send_pending(settings, store, backoff_s=0.001)
    assert {row["traceId"] for row in server.project.observations.values()} == {otel_trace_id(t.trace_id) for t in traces}


def test_scores_given_in_langfuse_come_back_to_our_own_trace_and_nothing_else_does(server: LangfuseServer, home: Path) -> None:
    settings = settings_of(server, home)
    with open_store(settings) as store:
        begin(settings, store)
        trace = make_trace()
        add(store, trace, thumb(trace, "up"))
        begin(settings, store)
        server.project.add_score("given-there", otel_trace_id(trace.trace_id), False, utc_now() - timedelta(seconds=1))
        counts = import_langfuse(settings, store, ImportWish(backoff_s=0.001), actor="test")
        assert (counts.traces_new, counts.scores_new, counts.down) == (0, 1, 1)
        newest = list(crud.iterate(store, Feedback))[-1]
        assert newest.trace_id == trace.trace_id and newest.thumb == "down"
        assert send_pending(settings, store, backoff_s=0.001)["langfuse"].feedback == 0


def test_a_collector_gets_spans_with_the_genai_attributes(server: LangfuseServer, home: Path) -> None:
    """The loopback Langfuse takes OTLP as any collector does."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    headers = {"authorization": "Basic cGstbGYtdDpzay1sZi10"}
    given = ", ".join(f"{name}={value}" for name, value in headers.items())
    telemetry = TelemetrySettings(otlp_url=f"{server.url}/api/public/otel/v1/traces", otlp_headers=given)
    settings = Settings(home=home, telemetry=telemetry)
    with open_store(settings) as store:
        begin(settings, store)
        trace = make_trace()
        add(store, trace, thumb(trace))
        send_pending(settings, store, backoff_s=0.001)
    requests = [
        ParseDict(json.loads(body), ExportTraceServiceRequest()) for body in server.bodies
    ]  # strict about names and types
    spans = [span for request in requests for span in request.resource_spans[0].scope_spans[0].spans]
    assert [span.name for span in spans] == ["chat clinic-7b@3", "gen_ai.evaluation"]
    values = {entry.key: entry.value for entry in spans[0].attributes}
    assert values["gen_ai.system"].string_value == "medloop" and values["gen_ai.request.model"].string_value == "clinic-7b@3"
    assert values["gen_ai.usage.input_tokens"].int_value == 12 and "gen_ai.input.messages" not in values
    assert [item.string_value for item in values["medloop.guards"].array_value.values] == ["red_flags"]
    assert spans[0].end_time_unix_nano - spans[0].start_time_unix_nano == 250_000_000


def test_the_commands_say_what_is_sent_where(server: LangfuseServer, home: Path, command_line, monkeypatch) -> None:
    monkeypatch.chdir(home)
    assert "Nothing is sent anywhere" in command_line("telemetry", "status").out
    done = command_line("telemetry", "send")
    assert done.code == 2 and "langfuse.send" in done.err
    for name, value in {"URL": server.url, "PUBLIC_KEY": "pk-lf-t", "SECRET_KEY": "sk-lf-t", "SEND": "true"}.items():
        monkeypatch.setenv(f"MEDLOOP_LANGFUSE__{name}", value)
    assert command_line("telemetry", "status").code == 0
    with open_store(Settings(home=home)) as store:
        add(store, make_trace(trace_id=uuid7()))
    status = command_line("telemetry", "status")
    [step] = [line.partition(": medloop ")[2] for line in status.out.splitlines() if ": medloop " in line]
    assert "1 traces and 0 ratings sent." in command_line(*step.split()).out
