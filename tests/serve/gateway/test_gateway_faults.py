"""What goes wrong behind the gateway: dead and slow replicas, streams that break, garbage, addresses it must not ask, lost traces."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient
from gateway_world import CHEST, COUGH, events_of, text_of

from medloop.contracts import Conversation, Message, Trace
from medloop.errors import BusyError, ConfigError
from medloop.serve.gateway.addresses import parse_networks
from medloop.serve.gateway.backends import BackendAddress, parse_backends
from medloop.serve.gateway.notices import notices
from medloop.serve.gateway.trace_counts import counting, read_numbers
from medloop.serve.gateway.trace_queue import TraceQueue
from medloop.store.records import crud
from medloop.web.app import create_app


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["error_500", "busy", "garbage", "not_a_completion", "dies_first", "redirect", "no_model"])
def test_a_failure_before_the_first_byte_is_answered_by_the_other_replica(gateway_world, stream: bool, fault: str) -> None:
    world = gateway_world(servers=2)
    for server in world.servers:  # whichever is asked first fails once
        server.faults.append(fault)
    first, second = world.ask(COUGH, stream=stream), world.ask(COUGH, stream=stream)
    statuses = sorted([first.status_code, second.status_code])
    served = [server for server in world.servers if not server.faults]
    assert statuses[0] == 200 and served, (first.text, second.text)
    text = text_of(events_of(second)) if stream else second.json()["choices"][0]["message"]["content"]
    assert text == world.servers[0].answer


def test_a_killed_replica_costs_no_request(gateway_world) -> None:
    world = gateway_world(servers=2)
    assert world.ask(COUGH).status_code == 200
    world.servers[0].stop()
    answers = [world.ask(COUGH, stream=number % 2 == 1) for number in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 8
    assert all("[DONE]" in answer.text for answer in answers[1::2])


def test_the_fallback_answers_under_its_own_name(gateway_world) -> None:
    world = gateway_world(backends="http://127.0.0.1:9", fallback=True)
    about = world.ask(COUGH).json()["medloop"]
    assert about["fallback"] is True and about["version"] == "spare"
    events = events_of(world.ask(CHEST, stream=True))
    assert events[-1]["medloop"]["fallback"] is True and text_of(events).endswith("From the fallback.")


@pytest.mark.parametrize("fault", ["dies_midway", "ends_early", "error_event"])
def test_a_stream_that_breaks_ends_with_an_error_and_never_as_a_whole_answer(gateway_world, fault: str) -> None:
    world = gateway_world()
    world.servers[0].faults.append(fault)
    response = world.ask(COUGH, stream=True)
    events = events_of(response)
    assert events[-1]["error"]["code"] == "stream_interrupted" and "[DONE]" not in response.text
    assert text_of(events) != world.servers[0].answer and len(text_of(events)) < len(world.servers[0].answer)
    world.client.portal.call(world.gateway.traces.ensure, response.headers["x-medloop-inference"])
    trace = crud.get(world.client.app.state.store, Trace, response.headers["x-medloop-inference"])
    assert trace is not None and trace.meta["finish_reason"] == "error" and trace.meta["error"] in ("died", "unreadable")


def test_a_server_that_does_not_answer_in_time_is_a_504(gateway_world) -> None:
    world = gateway_world(timeout_s=0.3)
    world.servers[0].faults.append("slow")
    response = world.ask(COUGH)
    assert response.status_code == 504 and response.json()["error"]["code"] == "timeout"
    world.servers[0].released.set()


def test_a_request_that_the_server_refuses_is_not_sent_again(gateway_world) -> None:
    world = gateway_world(servers=2)
    for server in world.servers:
        server.faults.append("error_400")
    assert world.ask(COUGH).status_code == 400 and sum(len(server.requests) for server in world.servers) == 1


def test_the_notice_does_not_wait_for_a_slow_model(gateway_world) -> None:
    world = gateway_world(timeout_s=30)
    world.servers[0].faults.append("slow")
    threading.Timer(1.5, world.servers[0].released.set).start()
    events = events_of(world.ask(CHEST, stream=True))
    assert events[1]["choices"][0]["delta"]["content"].startswith("⚠️") and text_of(events).endswith(world.servers[0].answer)


def test_too_many_answers_at_once_are_refused(gateway_world) -> None:
    world = gateway_world()
    world.gateway.in_flight = world.gateway.parts.most_at_once
    refused = world.ask(COUGH)
    assert refused.status_code == 429 and refused.json()["error"]["code"] == "overloaded"
    warned = world.ask(CHEST).json()["choices"][0]["message"]["content"]
    assert warned == f"{notices()['emergency'][0]}\n\n{notices()['unavailable'][0]}" and world.servers[0].requests == []
    world.gateway.in_flight = 0
    assert world.ask(COUGH).status_code == 200


@pytest.mark.parametrize(
    "url",
    [
        "http://8.8.8.8:80",
        "http://169.254.169.254/latest",
        "http://[2001:db8::1]:80",
        "ftp://127.0.0.1",
        "http://u:p@127.0.0.1",
        "http://[::ffff:8.8.8.8]/",
    ],
)
def test_an_address_outside_the_private_networks_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.backends"):
        parse_backends(url)


def test_a_network_is_allowed_by_name() -> None:
    (address,) = parse_backends("http://203.0.113.7:8000/v1#m", parse_networks("203.0.113.0/24"))
    assert (address.url, address.name) == ("http://203.0.113.7:8000", "m")
    assert [each.url for each in parse_backends("http://127.0.0.1:1, http://10.0.0.2:8000/v1/")] == [
        "http://127.0.0.1:1",
        "http://10.0.0.2:8000",
    ]


def test_a_name_that_resolves_elsewhere_is_not_connected_to(gateway_world, monkeypatch) -> None:
    """Checked for every connection: a name may point elsewhere a moment later."""
    world = gateway_world(backends="http://models.internal:80")

    async def elsewhere(self, host, port, **more):
        return [(2, 1, 6, "", ("93.184.216.34", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", elsewhere)
    assert world.ask(COUGH).status_code == 503
    world.client.portal.call(world.gateway.pool.look_at, world.gateway.pool.backends[0])
    assert world.gateway.pool.backends[0].last_failure.startswith("unreachable")


def test_half_a_character_and_a_search_that_fails_cost_no_answer(gateway_world) -> None:
    world = gateway_world()

    def crash(question: str) -> None:
        raise OSError("no")

    world.gateway.parts.find_rules = world.gateway.parts.find_passages = crash
    world.servers[0].answer = "Rest \ud83d now."
    for stream in (False, True):
        response = world.ask(COUGH, stream=stream)
        text = text_of(events_of(response)) if stream else response.json()["choices"][0]["message"]["content"]
        assert text == "Rest ? now."
    assert world.gateway.traces.counts.numbers.failed == 0


def trace(number: int) -> Trace:
    talk = Conversation(messages=(Message(role="user", content="q"), Message(role="assistant", content="a")))
    return Trace(trace_id=f"t{number}", session_id="s", agent_name="x", model_version="m", conversation=talk)


def test_a_full_queue_drops_and_says_so_and_a_busy_store_is_asked_again(tmp_path: Path) -> None:
    saved, busy = [], [True, True]

    async def save(traces: Sequence[Trace]) -> None:
        if busy:
            busy.pop()
            raise BusyError("no")
        saved.extend(each.trace_id for each in traces)

    async def run() -> None:
        with counting(tmp_path / "counts") as counts:
            async with TraceQueue(save, counts, most=5) as traces:
                accepted = [traces.put(f"t{number}", partial(trace, number)) for number in range(8)]
                assert accepted == [True] * 5 + [False] * 3 and counts.numbers.dropped == 3
            assert sorted(saved) == [f"t{number}" for number in range(5)]
            assert (counts.numbers.accepted, counts.numbers.written, counts.numbers.pending) == (8, 5, 0)

    asyncio.run(run())


def test_a_rating_asks_for_erasures_only_while_a_trace_is_held(tmp_path: Path) -> None:
    """To ask is to look at a file, and ratings come hundreds of times a second."""
    asked = list[int]()

    async def save(traces: Sequence[Trace]) -> None: ...

    async def run() -> None:
        with counting(tmp_path / "counts") as counts:
            async with TraceQueue(save, counts, share=0.0, erased=lambda: asked.append(0) or 0) as traces:
                before = len(asked)
                await traces.ensure("stored long ago")
                assert len(asked) == before
                traces.put("t1", partial(trace, 1))
                held = len(asked)
                await traces.ensure("stored long ago")
                assert len(asked) == held + 1

    asyncio.run(run())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from medloop.serve.gateway.notices import notices
from medloop.serve.gateway.trace_counts import counting
with counting(Path(sys.argv[1])) as counts:
    counts.add("accepted", 7); counts.add("written", 4); counts.add("dropped", 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_lost_is_counted_at_the_next_start(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "counts")], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL and read_numbers(tmp_path / "counts").pending == 2
    with counting(tmp_path / "counts") as counts:
        assert (counts.numbers.lost, counts.numbers.pending, counts.numbers.written) == (2, 0, 4)


def test_a_reader_that_leaves_ends_the_question_at_the_server(gateway_world) -> None:
    """Through a real socket: the gateway closes its own connection, and the server may stop to compute."""
    world = gateway_world()
    world.servers[0].pause.set()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    app = create_app(world.settings, supervise=False)
    running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": COUGH}]}).encode()
    with socket.create_connection(listener.getsockname(), timeout=60) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {world.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert b"200 OK" in connection.recv(4096)
    assert world.servers[0].cancelled.wait(60)
    assert app.state.gateway.counts.outcomes["cancelled"] == 1 and app.state.gateway.traces.counts.numbers.accepted == 1
    running.should_exit = True
    thread.join(60)
    listener.close()


def test_a_server_of_our_own_that_still_loads_is_said_and_not_asked_for_again(gateway_world) -> None:
    """Seen: `api serve --with-model` answered the first question with the advice to run what had just been run."""
    world = gateway_world()
    double = world.servers[0]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    headers = {"Authorization": f"Bearer {world.key}"}
    settings = world.settings.model_copy(update={"gateway": world.settings.gateway.model_copy(update={"backends": ""})})
    asked = {"messages": [{"role": "user", "content": COUGH}]}
    for url, code, word in ((nobody, "loading", "logs/model-server.log"), (double.url, "no_backend", "--with-model")):
        app = create_app(settings, supervise=False, backends=[BackendAddress(url, log="logs/model-server.log")])
        with TestClient(app, base_url="http://127.0.0.1", headers=headers) as client:
            if url == double.url:
                assert client.post("/v1/chat/completions", json=asked).status_code == 200
                double.stop()  # it has answered: from now on it is away, and not loading
            for stream in (False, True):
                refused = client.post("/v1/chat/completions", json={**asked, "stream": stream})
                assert refused.status_code == 503 and refused.json()["error"]["code"] == code
                assert word in refused.json()["error"]["message"]
