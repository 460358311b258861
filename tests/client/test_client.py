"""The client: stored once whatever the network does, and honest when it is not."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn

from medloop.client import AsyncClient, Client, Receipt, RefusedError, UnsentError, wire
from medloop.contracts import Correction, Feedback, Preference, Trace
from medloop.errors import ConfigError, InputError
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users
from medloop.web.app import create_app

TALK = [{"role": "user", "content": "A cough."}, {"role": "assistant", "content": "Any fever?"}]
SAID = {"session_id": "s", "agent_name": "a", "model_version": "m", "messages": TALK}
STORED = {"feedback_id": "fb_1", "timestamp": "2026-02-03T12:00:00Z", "quarantined": False}


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 0.01)


class Flaky(httpx.MockTransport):
    """Answers by a list of statuses (0: the connection breaks), then 201; remembers what came."""

    def __init__(self, *statuses: int, **headers: str) -> None:
        self.statuses, self.given, self.seen = list(statuses), headers, []
        super().__init__(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.seen.append((request.headers["Idempotency-Key"], request.content, request.headers["Authorization"]))
        status = self.statuses.pop(0) if self.statuses else 201
        if status == 0:
            raise httpx.ConnectError("no", request=request)
        body = STORED if status in (200, 201) else {"error": "No.", "hint": "Wait."}
        return httpx.Response(status, json=body, headers=self.given)


def sent(transport: Flaky, *, asynchronous: bool, **fields) -> Receipt:
    if not asynchronous:
        with Client("http://x", "mlk_1", transport=transport, deadline=2) as client:
            return client.feedback(**fields)

    async def go() -> Receipt:
        async with AsyncClient("http://x", "mlk_1", transport=transport, deadline=2) as client:
            return await client.feedback(**fields)

    return asyncio.run(go())


both_clients = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@both_clients
def test_tries_again_with_the_same_key_and_body_until_it_is_stored(asynchronous: bool) -> None:
    transport = Flaky(0, 503, 429, 502, 408)
    receipt = sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up", comments=None)
    assert receipt == Receipt("fb_1", "2026-02-03T12:00:00Z", False) and len(transport.seen) == 6
    assert len(set(transport.seen)) == 1 and json.loads(transport.seen[0][1]) == {"trace_id": "t", "thumb": "up"}


@both_clients
def test_each_call_has_a_key_of_its_own_unless_given(asynchronous: bool) -> None:
    transport = Flaky()
    for key in (None, None, "mine"):
        sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up", idempotency_key=key)
    keys = [key for key, _, _ in transport.seen]
    assert len(set(keys)) == 3 and keys[2] == "mine"


@both_clients
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 507])
def test_what_no_repeat_can_mend_is_raised_at_once(asynchronous: bool, status: int) -> None:
    transport = Flaky(status)
    with pytest.raises(RefusedError, match=r"No\. Wait\.") as caught:
        sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up")
    assert caught.value.status == status and len(transport.seen) == 1


@both_clients
def test_after_the_deadline_it_says_so_and_hands_out_the_key(asynchronous: bool) -> None:
    transport, started = Flaky(*[503] * 10_000), time.monotonic()
    with pytest.raises(UnsentError, match="503") as caught:
        sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up")
    assert 1.5 < time.monotonic() - started < 4 and caught.value.key == transport.seen[0][0]


@both_clients
def test_retry_after_is_honoured(asynchronous: bool) -> None:
    transport, started = Flaky(503, **{"Retry-After": "1"}), time.monotonic()
    sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up")
    assert time.monotonic() - started >= 1.0


@both_clients
def test_a_wait_that_is_longer_than_the_deadline_is_not_begun(asynchronous: bool) -> None:
    transport, started = Flaky(*[429] * 9, **{"Retry-After": "30"}), time.monotonic()
    with pytest.raises(UnsentError, match="429"):
        sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up")
    assert time.monotonic() - started < 1 and len(transport.seen) == 1


@both_clients
def test_the_last_pause_leaves_time_for_one_more_try(asynchronous: bool, monkeypatch) -> None:
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr(wire, "LONGEST_PAUSE_S", 60.0)
    transport, started = Flaky(503), time.monotonic()
    assert sent(transport, asynchronous=asynchronous, trace_id="t", thumb="up").id == "fb_1"
    assert 1.5 < time.monotonic() - started < 2 and len(transport.seen) == 2


@both_clients
def test_no_time_at_all_is_one_try(asynchronous: bool) -> None:
    for transport, good in ((Flaky(), True), (Flaky(503), False)):
        client = Client("http://x", "k", transport=transport, deadline=0)
        if asynchronous:
            client = AsyncClient("http://x", "k", transport=transport, deadline=0)
        try:
            receipt = client.feedback(trace_id="t", thumb="up")
            assert (asyncio.run(receipt) if asynchronous else receipt).id == "fb_1" and good
        except UnsentError:
            assert not good
        assert len(transport.seen) == 1


class Silent(threading.Thread):
    """A server that takes connections and then, by turns, says nothing or breaks them off with a reset."""

    def __init__(self, how: str) -> None:
        super().__init__(daemon=True)
        self.socket, self.how, self.accepted, self.held = socket.create_server(("127.0.0.1", 0)), how, 0, []
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.accepted += 1
            if self.how == "reset":
                connection.recv(100)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            else:
                self.held.append(connection)


@both_clients
@pytest.mark.parametrize(
    ("how", "last"), [("silent", "ReadTimeout"), ("reset", "ReadError|WriteError|RemoteProtocolError")], ids=["silent", "reset"]
)
def test_a_server_that_is_silent_or_hangs_up_costs_the_deadline_and_no_more(asynchronous: bool, how: str, last: str) -> None:
    server, started = Silent(how), time.monotonic()
    url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    with pytest.raises(UnsentError, match=last):
        if asynchronous:
            asyncio.run(AsyncClient(url, "k", deadline=1, timeout=60).feedback(trace_id="t", thumb="up"))
        else:
            Client(url, "k", deadline=1, timeout=60).feedback(trace_id="t", thumb="up")
    server.socket.close()
    assert 0.8 < time.monotonic() - started < 3 and server.accepted >= (1 if how == "silent" else 2)


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_mistakes_of_the_caller_are_told_at_once(make) -> None:
    for url in ("127.0.0.1:8000", "ftp://x", "http://", ""):
        with pytest.raises(ConfigError, match="Not a server address"):
            make(url, "mlk_1")
    for key in ("", " ", "mlk 1", "mlk\n1", "鑰匙"):
        with pytest.raises(ConfigError, match="Not a valid API key"):
            make("http://x", key)
    for given in ("", "a b", "a\n", "é", "k" * 201):
        with pytest.raises(InputError, match="Invalid idempotency_key"):
            wire.build_call("feedback", {"thumb": "up", "idempotency_key": given})


def test_a_key_that_was_read_from_a_file_may_end_with_a_line_break() -> None:
    transport = Flaky()
    with Client("http://x", "mlk_1\n", transport=transport) as client:
        client.feedback(trace_id="t", thumb="up")
    assert transport.seen[0][2] == "Bearer mlk_1"


def test_both_clients_have_the_same_calls() -> None:
    def calls(of: type) -> dict[str, object]:
        return {
            name: inspect.signature(member).parameters
            for name, member in vars(of).items()
            if not name.startswith("_") and callable(member)
        }

    plain, other = calls(Client), calls(AsyncClient)
    assert plain.pop("close") == other.pop("aclose") and plain == other
    assert set(plain) == {"log_trace", "feedback", "preference", "correction"}
    begin = [list(inspect.signature(of.__init__).parameters) for of in (Client, AsyncClient)]
    assert begin[0] == begin[1]


def test_an_answer_that_is_not_ours_is_no_success() -> None:
    half = {name: value for name, value in STORED.items() if name != "timestamp"}
    for answer in (
        *(httpx.Response(201, json=body) for body in (["?"], {}, half)),
        httpx.Response(200, text="<html>proxy</html>"),
        httpx.Response(307, headers={"Location": "http://elsewhere/"}),
    ):
        with Client("http://x", "k", transport=httpx.MockTransport(lambda request, answer=answer: answer)) as client:
            with pytest.raises(RefusedError):
                client.feedback(trace_id="t", thumb="up")


def test_the_client_is_light() -> None:
    code = "import medloop.client, sys; print({'pydantic', 'sqlalchemy', 'torch', 'fastapi', 'numpy'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real server in a thread: (url, key, store)."""
    home = tmp_path_factory.mktemp("clinic")
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        key = users.new_key(store, users.add_user(store, "agent", "engineer", actor="test"), actor="test")
        app = create_app(Settings(home=home), supervise=False)
        running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        while not running.started:
            time.sleep(0.02)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", key, store
        running.should_exit = True
        thread.join(10)


def test_every_call_arrives(server) -> None:
    url, key, store = server
    with Client(url, key) as client:
        trace = client.log_trace(**SAID, contexts=["c"], meta={"n": 1})
        rated = client.feedback(trace_id=trace, rating=2, axes={"safety": 1}, critical=True, golden="g", consent=["training"])
        chosen = client.preference(prompt="p", response_a="a", response_b="b", preferred="b", shown_first="a")
        fixed = client.correction(golden="g", trace_id=trace, supersedes=None)
    assert crud.get(store, Trace, trace).contexts == ("c",)
    assert crud.get(store, Feedback, rated.id).axes == {"safety": 1} and rated.incident_id and rated.correction_id
    assert crud.get(store, Preference, chosen.id).preferred == "b"
    assert crud.get(store, Correction, fixed.id).original == "Any fever?"


def test_async_calls_arrive_and_a_repeat_is_told(server) -> None:
    url, key, store = server

    async def go() -> tuple[Receipt, Receipt, Receipt]:
        async with AsyncClient(url, key) as client:
            trace = await client.log_trace(**SAID)
            first = await client.feedback(trace_id=trace, thumb="up", idempotency_key="k")
            second = await client.feedback(trace_id=trace, thumb="up", idempotency_key="k")
            await client.preference(prompt="p", response_a="a", response_b="b", preferred="a")
            return first, second, await client.correction(golden="g", feedback_id=first.id)

    first, second, fixed = asyncio.run(go())
    assert (first.repeated, second.repeated) == (False, True) and first.id == second.id
    assert crud.get(store, Correction, fixed.id).feedback_id == first.id


def test_a_lost_answer_stores_nothing_twice(server) -> None:
    url, key, store = server

    class Losing(httpx.HTTPTransport):
        lost = 0

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answer = super().handle_request(request)
            if self.lost < 2:  # the server has stored it; we never hear of it
                self.lost += 1
                raise httpx.ReadError("gone", request=request)
            return answer

    before = crud.count(store, Preference)
    with Client(url, key, transport=Losing()) as client:
        receipt = client.preference(prompt="p", response_a="a", response_b="b", preferred="a")
    assert receipt.repeated and crud.count(store, Preference) == before + 1


def test_a_wrong_key_and_an_unknown_trace_are_told_apart(server) -> None:
    url, key, _ = server
    for given, status in (("mlk_wrong", 401), (key, 422)):
        with Client(url, given) as client, pytest.raises(RefusedError) as caught:
            client.feedback(trace_id="t9", thumb="up")
        assert caught.value.status == status


def test_the_example_runs(server) -> None:
    url, key, store = server
    before = crud.count(store, Feedback)
    example = Path(__file__).parents[2] / "examples/agent.py"
    env = {**os.environ, "MEDLOOP_URL": url, "MEDLOOP_KEY": key}
    out = subprocess.run([sys.executable, str(example), "a cough"], env=env, capture_output=True, text=True, check=True)
    assert "Do you also have a fever?" in out.stdout and crud.count(store, Feedback) == before + 1
    lines = example.read_text().split("# ---- ten lines ----\n")[1].split("# ---- that was it")[0].splitlines()
    assert len([line for line in lines if line.strip()]) <= 10
