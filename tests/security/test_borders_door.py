"""What comes in: the caller is known before a slot is taken and before a body is read; nobody without a key stops the others."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sec_world import World, client_of, served

from medloop.api import slow_clients
from medloop.api.limits import RequestLimits
from medloop.contracts import Message
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.settings import Settings
from medloop.store import audit, passwords
from medloop.store.db import open_store
from medloop.store.records import review_queue, users
from medloop.web.app import create_app

FEEDBACK, IMPORT = "/api/v1/rlhf/feedback", "/api/v1/rlhf/import"
RATED = {"session_id": "s", "agent_name": "a", "user_query": "Pain?", "agent_response": "Where?", "thumb": "up"}
LINES = "application/x-ndjson"
PASSWORD = "correct horse battery"


def head(path: str, key: str, *lines: str, kind: str = "application/json") -> bytes:
    known = [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {kind}", *known, *lines, "", ""]).encode()


@contextmanager
def held(port: int, count: int, start: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent this much and then stay."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(count)]
        for sock in sockets:
            sock.sendall(start)
        yield sockets


@contextmanager
def door(world: World, in_flight: int = 256, **more: Any) -> Iterator[int]:
    app = create_app(world.settings, supervise=False, limits=RequestLimits(rate=1e6, in_flight=in_flight))
    with served(app, **{"http": slow_clients.SlowClientProtocol, **more}) as port:
        yield port


def rate(port: int, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"http://127.0.0.1:{port}{FEEDBACK}", json=RATED, headers=headers, timeout=10).status_code


def status(sock: socket.socket) -> int:
    return int(sock.recv(65536).split()[1])


@pytest.mark.parametrize("key", ["", "mlk_0123456789ab_" + "x" * 43])
def test_bodies_without_a_valid_key_take_no_slot_and_are_answered_before_they_come(world: World, key: str) -> None:
    with door(world, in_flight=4) as port, held(port, 12, head(FEEDBACK, key, "Content-Length: 5000") + b"{") as sockets:
        assert rate(port, world.keys["clinician"]) == 201
        assert {status(sock) for sock in sockets} == {401}


def test_a_stranger_who_goes_on_sending_is_not_kept_in_memory(world: World) -> None:
    """The body is thrown away as it comes, and after that the connection serves the next request."""
    with door(world) as port, held(port, 1, head(IMPORT, "", "Content-Length: 3000000", kind=LINES)) as (sock,):
        assert status(sock) == 401
        sock.sendall(b"x" * 3_000_000 + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert status(sock) == 200


def test_one_key_that_never_finishes_leaves_slots_for_the_others(world: World) -> None:
    begun = head(FEEDBACK, world.keys["engineer"], "Content-Length: 5000") + b"{"
    with door(world, in_flight=8) as port, held(port, 12, begun) as sockets:
        assert rate(port, world.keys["clinician"]) == 201
        assert rate(port, world.keys["engineer"]) == 503
        for sock in sockets:
            sock.settimeout(0.3)
        refused = [sock for sock in sockets if _answers(sock)]
        assert len(refused) == 6  # a caller alone has three quarters of the slots


def _answers(sock: socket.socket) -> bool:
    try:
        return status(sock) == 503
    except TimeoutError:
        return False


def test_large_bodies_take_as_many_slots_as_their_memory(world: World) -> None:
    begun = head(IMPORT, world.keys["engineer"], "Transfer-Encoding: chunked", kind=LINES) + b"1\r\n{\r\n"
    with door(world, in_flight=64) as port, held(port, 3, begun):
        time.sleep(0.3)
        assert rate(port, world.keys["clinician"]) == 201 and rate(port, world.keys["engineer"]) == 201
        with held(port, 1, begun) as (sock,):
            assert status(sock) == 503


def test_connections_that_say_nothing_make_room_for_those_that_do(world: World) -> None:
    with door(world, limit_concurrency=20) as port, held(port, 60, b"POST / HTTP/1.1\r\nHost:"):
        assert [rate(port, world.keys["clinician"]) for _ in range(5)] == [201] * 5


def test_forms_that_never_end_do_not_keep_people_from_logging_in(world: World, monkeypatch) -> None:
    monkeypatch.setattr(passwords, "COST", 2**4)
    _add_people(world.settings)
    form = head("/web/login", "", "Content-Length: 500", kind="application/x-www-form-urlencoded") + b"name="
    with door(world) as port, held(port, 100, form) as sockets:
        answered = httpx.post(f"http://127.0.0.1:{port}/web/login", data={"name": "dr.wu", "password": PASSWORD}, timeout=10)
        assert answered.status_code == 303
        assert status(sockets[0]) == 408  # the oldest has lost its place


def _add_people(settings: Settings) -> None:
    """People with passwords; a new password for those of the world would revoke their keys."""
    with open_store(settings) as store:
        for name in {"dr.wu", "dr.he"} - {user.name for user in users.list_users(store)}:
            users.add_user(store, name, "clinician", password=PASSWORD, actor="test")


CHUNKED = "5\r\n     \r\n0\r\n"


def with_key_in_trailers(world: World, **more: Any) -> int:
    """Sent at once, so that all of it is there when the server looks for the key."""
    trailers = f"Authorization: Bearer {world.keys['engineer']}\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
    request = head("/api/train", "", "TE: trailers", "Transfer-Encoding: chunked") + f"{CHUNKED}{trailers}".encode()
    with door(world, **more) as port, held(port, 1, request) as (sock,):
        return status(sock)


def test_a_key_in_the_trailers_of_a_body_opens_nothing(world: World) -> None:
    assert with_key_in_trailers(world) == 401


def test_red_a_server_as_uvicorn_comes_takes_a_key_from_trailers(world: World) -> None:
    assert with_key_in_trailers(world, http="httptools") == 422  # the key was accepted, and the body is not a job


def test_trailers_without_an_end_are_closed(world: World) -> None:
    start = head(FEEDBACK, world.keys["engineer"], "Transfer-Encoding: chunked") + f"{CHUNKED}X: ".encode()
    with door(world) as port, held(port, 1, start) as (sock,):
        sent = 0
        try:
            while sent < 32 * 2**20:
                sent += sock.send(b"a" * 65536)
        except OSError:
            pass
        assert sent < 16 * 2**20


class Counting(slow_clients.SlowClientProtocol):
    """Counts the requests that wait on a connection."""

    most = 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        Counting.most = max(Counting.most, len(self.pipeline))


PIPELINED = b"GET /api/v1/queue/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def answers(sock: socket.socket) -> Iterator[bytes]:
    """What arrives, until the server closes or is silent."""
    sock.settimeout(2)
    try:
        while received := sock.recv(65536):
            yield received
    except OSError:
        pass


def test_requests_that_come_before_the_answers_wait_in_a_short_line(world: World, monkeypatch) -> None:
    monkeypatch.setattr(Counting, "most", 0)
    with door(world, http=Counting) as port:
        with held(port, 1, PIPELINED * 20) as (sock,):
            assert b"".join(answers(sock)).count(b"HTTP/1.1 401") == 20
        with held(port, 1, b"") as (sock,), pytest.raises(OSError):
            for _ in range(2000):  # 56 MB of requests, while the answers to the first are read
                sock.sendall(PIPELINED * 500)
                sock.settimeout(0.01)
                with suppress(TimeoutError):
                    sock.recv(2**20)
                sock.settimeout(5)
        assert rate(port, world.keys["clinician"]) == 201
    assert 10 <= Counting.most <= slow_clients.PIPELINED


# B11: behind a proxy


@pytest.fixture
def proxied(world: World, tmp_path: Path, monkeypatch) -> Iterator[Any]:
    monkeypatch.setattr(passwords, "COST", 2**4)
    _add_people(world.settings)

    def client(trusted: str) -> Any:
        settings = world.settings.model_copy(update={"api": world.settings.api.model_copy(update={"trusted_proxies": trusted})})
        return stack.enter_context(served(create_app(settings, supervise=False), proxy_headers=False))

    with ExitStack() as stack:
        yield client


def log_in(port: int, name: str, password: str, *forwarded: str) -> int:
    headers = [("X-Forwarded-For", value) for value in forwarded]
    form = {"name": name, "password": password}
    return httpx.post(f"http://127.0.0.1:{port}/web/login", data=form, headers=headers, timeout=10).status_code


def test_thirty_bad_logins_behind_a_proxy_lock_nobody_else_out(proxied) -> None:
    port = proxied("")
    assert {log_in(port, f"guess{n}", "wrong password") for n in range(35)} == {401}
    assert log_in(port, "dr.wu", PASSWORD) == 303


def test_a_trusted_proxy_names_the_address_that_is_slowed_down(proxied) -> None:
    port, guesser = proxied("127.0.0.1, 10.0.0.0/8"), "203.0.113.9"
    assert {log_in(port, f"guess{n}", "wrong password", guesser) for n in range(30)} == {401}
    for lie in ("198.51.100.7, 203.0.113.9", "203.0.113.9:4711, 10.1.2.3", "198.51.100.7,203.0.113.9,10.1.2.3"):
        assert log_in(port, "dr.wu", PASSWORD, lie) == 429, lie
    assert log_in(port, "dr.wu", PASSWORD, "198.51.100.7") == 303


def test_guesses_from_many_addresses_slow_a_name_down_but_not_where_it_logs_in(proxied) -> None:
    port = proxied("127.0.0.1")
    assert log_in(port, "dr.he", PASSWORD, "198.51.100.7") == 303
    assert {log_in(port, "dr.he", "wrong password", f"203.0.113.{n}") for n in range(30)} == {401}
    assert log_in(port, "dr.he", PASSWORD, "203.0.113.99") == 429
    assert log_in(port, "dr.he", PASSWORD, "198.51.100.7") == 303


def test_without_the_setting_a_forwarded_address_is_not_believed(proxied) -> None:
    port = proxied("")
    codes = [log_in(port, "dr.wu", "wrong password", f"203.0.113.{n}") for n in range(6)]
    assert codes == [401] * 5 + [429]


# Redirects, audit lines, times


@pytest.mark.parametrize("path", ["/", "/web", "/web/", "/web/queue/", "/web/login/", "/api/v1/rlhf/feedback/", "/healthz/"])
def test_no_redirect_names_a_scheme_or_a_host(world: World, path: str) -> None:
    app = create_app(world.settings, supervise=False, hosts=("127.0.0.1", "feedback.example"))
    with client_of(app) as client:
        answered = client.get(path, headers={"Host": "feedback.example"}, follow_redirects=False)
    assert answered.status_code in (303, 404)
    assert answered.headers.get("location", "/").startswith("/") and "//" not in answered.headers.get("location", "/")


def test_asking_for_the_same_item_again_and_again_does_not_fill_the_audit_log(world: World) -> None:
    store = world.client.app.state.store
    content = QueueContent(prompt=(Message(role="user", content="I cough."),), answers=("Rest.",))
    item = QueueItem(kind="rate", content=content, priority=0.5, reasons={"risk": 0.5}, raters=2)
    review_queue.add_items(store, [item], actor="test")
    items = {world.send("clinician", "GET", "/api/v1/queue/next?kind=rate").json()["item_id"] for _ in range(50)}
    lines = [row for row in audit.show(store, 200) if row["action"] == "queue_items.read" and row["subject"] in items]
    assert len(items) == 1 and len(lines) == 1


TIMES = ("0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "0000-01-01T00:00:00Z", "99999-01-01T00:00:00Z", "1e300",
         "-1e18", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00%2B99:99", "NaN", "2026-01-01T00:00:00", "now")  # fmt: skip
PATHS = [
    *((role, f"/api/v1/rlhf/{kind}?{name}=") for role, kind in (("engineer", "feedback"), ("clinician", "preference"),
      ("engineer", "incidents"), ("clinician", "export")) for name in ("since", "until")),
    ("clinician", "/web/history?before="),
]  # fmt: skip
DAYS = ("0001-01-01", "9999-12-31", "10000-01-01", "9999-12-32", "1e9")


@pytest.mark.parametrize(("role", "path"), PATHS)
def test_an_extreme_time_in_a_filter_is_refused_in_plain_words(world: World, role: str, path: str) -> None:
    for text in TIMES:
        answered = world.send(role, "GET", f"{path}{text}")
        assert answered.status_code == 422, (text, answered.status_code, answered.text[:200])
    assert world.send(role, "GET", f"{path}2026-01-01T00:00:00%2B14:00").status_code == 200


@pytest.mark.parametrize("kind", ["feedback", "preference", "correction"])
def test_an_extreme_time_of_a_record_is_refused_and_named(world: World, kind: str) -> None:
    bodies = {
        "feedback": RATED, "preference": {"prompt": "q", "response_a": "a", "response_b": "b", "preferred": "a"},
        "correction": {"prompt": "q", "original": "a", "golden": "b"},
    }  # fmt: skip
    for text in (*TIMES[:-2], 1e300, -62135596801, 253402300800, True, None.__class__.__name__):
        time_text = text.replace("%2B", "+") if isinstance(text, str) else text
        line = {**bodies[kind], "timestamp": time_text}
        answered = world.send("clinician", "POST", f"/api/v1/rlhf/{kind}", json=line)
        assert answered.status_code == 422 and "timestamp" in answered.text, (text, answered.text)
        lines = world.send(
            "clinician", "POST", IMPORT, content=json.dumps({"kind": kind, **line}) + "\n", headers={"Content-Type": LINES}
        )
        assert lines.json()["results"][0]["status"] == 422


@pytest.mark.parametrize(
    ("role", "path"), [("auditor", "/web/audit"), ("auditor", "/web/audit/export"), ("clinician", "/web/incidents")]
)
def test_days_at_the_ends_of_the_calendar_are_filters_like_others(world: World, role: str, path: str) -> None:
    with client_of(create_app(world.settings, supervise=False)) as client:
        for name in ("since", "until"):
            for day in DAYS:
                answered = client.get(f"{path}?{name}={day}", headers=world.headers(role), follow_redirects=False)
                assert answered.status_code == 200, (name, day, answered.status_code)
        assert client.get(f"/web/audit?before={10**30}", headers=world.headers("auditor")).status_code == 422
