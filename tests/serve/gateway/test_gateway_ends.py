"""How answers end that nobody reads, that a model spoils or that take too long: traced, counted, and blamed on whom it was."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from gateway_world import CHEST, COUGH, events_of

from medloop.contracts.assistant import Route
from medloop.deploy.alarms import LiveAnswers
from medloop.serve.gateway.addresses import CheckedNetwork
from medloop.serve.gateway.answer_plan import ChatCaller
from medloop.serve.gateway.chat_request import ChatError, parse_request
from medloop.serve.gateway.connections import ConnectionStack
from medloop.serve.gateway.model_tools import run_calls
from medloop.serve.gateway.wire import BackendFailure, ModelServer, _joined
from medloop.store.db import open_store
from medloop.store.records.routes import add_route

QUESTION = json.dumps({"messages": [{"role": "user", "content": COUGH}], "stream": True}).encode()


def test_one_slow_answer_of_twenty_is_not_the_95th_percentile() -> None:
    answers = LiveAnswers()
    for seconds in [0.1] * 19 + [99.0]:
        answers.add("m", ok=True, seconds=seconds)
    assert answers.counts("m", 60).p95_s == 0.1


@pytest.mark.parametrize(("fault", "failed"), [("slow", 0), ("away", 0), ("error_500", 1)])
def test_an_outage_and_a_timeout_are_not_the_versions_fault(gateway_world, fault: str, failed: int) -> None:
    world = gateway_world(fallback=True, timeout_s=0.3, **({"backends": "http://127.0.0.1:9"} if fault == "away" else {}))
    with open_store(world.settings) as store:
        add_route(store, Route(model="base", version=1, served_name="base"))
    world.client.portal.call(world.gateway.parts.refresh_route)
    world.servers[0].faults.append(fault)
    assert world.ask().json()["medloop"]["fallback"] is True
    assert world.client.app.state.live_answers.counts("base", 60).failed == failed


def test_more_tokens_than_the_settings_allow_are_refused(gateway_world) -> None:
    world = gateway_world(most_tokens=50)
    response = world.ask(max_tokens=51)
    assert response.status_code == 400 and response.json()["error"]["param"] == "max_tokens" and not world.servers[0].requests
    assert world.ask(max_completion_tokens=50).status_code == 200


def test_an_answer_without_max_tokens_has_a_limit_that_fits_the_context() -> None:
    server = ModelServer("http://127.0.0.1:9", ConnectionStack(CheckedNetwork(())))
    payload = {"messages": [{"role": "user", "content": "咳嗽怎么办？"}]}
    assert server.with_limit("base", payload, 1024) is payload  # it does not say how much it can read
    server.lengths = {"base": 1200}
    assert server.with_limit("base", payload, 1024)["max_tokens"] == 1024
    long = {"messages": [{"role": "user", "content": "咳" * 40}]}  # 120 bytes and the template may be more than is left
    assert server.with_limit("base", long, 1024) is long
    assert server.with_limit("base", payload | {"max_tokens": 7}, 1024)["max_tokens"] == 7
    call = {"id": "call-0", "type": "function", "function": {"name": "dose", "arguments": json.dumps({"drug": "x" * 100})}}
    for more in ({"tools": [{"type": "function", "function": {"name": "dose"}}]},
                 {"messages": [*payload["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]}):  # fmt: skip
        assert server.with_limit("base", payload | more, 1024) == payload | more  # tools and their calls are read, too


def test_the_limit_of_an_answer_reaches_the_model_server(gateway_world) -> None:
    world = gateway_world(answer_tokens=77)
    world.servers[0].max_model_len = 4096
    world.client.portal.call(world.gateway.pool.look_at, world.gateway.pool.backends[0])
    world.ask()
    assert world.servers[0].requests[-1]["max_tokens"] == 77
    world.ask(max_tokens=5)
    assert world.servers[0].requests[-1]["max_tokens"] == 5


@pytest.mark.parametrize(("started", "read"), [(True, ["Rest and drink."]), (False, [])])
def test_text_that_came_with_an_unreadable_event_is_not_lost(started: bool, read: list[str]) -> None:
    """Before the first piece, another server can still give the whole answer."""
    pieces = [json.dumps({"choices": [{"delta": {"content": text}}]}).encode() for text in ("Rest ", "and drink.")]
    texts = list[str]()
    with pytest.raises(BackendFailure, match="unreadable"):
        texts.extend(delta.text for delta in _joined([*pieces, b"{", pieces[0]], started))
    assert texts == read


@pytest.mark.parametrize("arguments", ["[" * 1500, '{"a": NaN}', '{"a": 1e999}', '{"a": ' + "[" * 300 + "]" * 300 + "}"])
def test_arguments_that_no_tool_can_read_are_a_record(arguments: str) -> None:
    _, (call,) = run_calls({}, [{"function": {"name": "x", "arguments": arguments}}])
    assert call.arguments == {"unreadable": True}


def test_halves_of_characters_in_a_call_are_cleaned() -> None:
    half = {"id": "\ud800", "function": {"name": "x\ud800", "arguments": '{"a\ud800": "\\ud800"}'}}
    messages, (call,) = run_calls({}, [half])
    assert json.dumps(messages, ensure_ascii=False).encode() and call.tool == "x?" and call.arguments == {"a?": "?"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_bug_behind_an_answer_leaves_notice_trace_and_count(gateway_world, monkeypatch, stream: bool) -> None:
    world = gateway_world()

    def broken(*args: object, **more: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr(world.gateway.pool, "stream" if stream else "complete", broken)
    assert world.ask(stream=stream).status_code == 500 and world.gateway.counts.outcomes["failed"] == 1
    noticed = world.ask(CHEST, stream=stream)
    assert noticed.status_code == 200 and world.gateway.counts.outcomes["unavailable"] == 1
    about = events_of(noticed)[-1] if stream else noticed.json()
    assert about["medloop"]["notice"] and about["medloop"]["error"] == "internal" and world.gateway.in_flight == 0
    assert world.gateway.traces.counts.numbers.accepted == 2


def test_a_reader_who_leaves_before_the_first_event_is_counted_and_the_server_left(gateway_world) -> None:
    world, gateway = (found := gateway_world()), found.gateway
    world.servers[0].pause.set()

    async def leave() -> None:
        _, events = await gateway.stream(await gateway.plan(parse_request(QUESTION), ChatCaller("u")))
        assert gateway.in_flight == 1
        await events.aclose()

    world.client.portal.call(leave)
    assert world.servers[0].cancelled.wait(60) and gateway.in_flight == 0
    assert gateway.counts.outcomes["cancelled"] == 1 and gateway.traces.counts.numbers.accepted == 1


def test_the_deadline_holds_while_a_stream_opens(gateway_world) -> None:
    world = gateway_world(deadline_s=0.3, timeout_s=20)  # a server that was given up after 20 s would have failed
    world.servers[0].faults.append("slow")
    failed = world.gateway.pool.backends[0].failed

    async def ask() -> int:
        with pytest.raises(ChatError) as error:
            await world.gateway.stream(await world.gateway.plan(parse_request(QUESTION), ChatCaller("u")))
        return error.value.status

    assert world.client.portal.call(ask) == 504 and world.gateway.in_flight == 0
    assert world.gateway.pool.backends[0].failed == failed


def test_a_slow_reader_is_not_a_slow_model(gateway_world) -> None:
    world, gateway = (found := gateway_world()), found.gateway

    async def reading() -> bytes:
        _, events = await gateway.stream(plan := await gateway.plan(parse_request(QUESTION), ChatCaller("u")))
        read = [await anext(events)]
        gateway.parts.deadline_s = spent = time.monotonic() - plan.started + 1  # of all but the reader, who takes longer
        await asyncio.sleep(spent + 0.5)
        read += [each async for each in events]
        return read[-1]

    assert b"read too slowly" in world.client.portal.call(reading)
    assert gateway.counts.outcomes["cancelled"] == 1 and gateway.counts.outcomes["failed"] == 0
