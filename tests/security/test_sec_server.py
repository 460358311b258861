"""Classes 20 and 21: hostile requests do not slow down the others; errors, logs and numbers say nothing of what was sent."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import twins
from payloads import CANARY, PATIENT
from sec_world import World, client_of, served

from medloop.api import errors, slow_clients
from medloop.api.limits import RequestLimits
from medloop.api.routes import train
from medloop.feedback import listing
from medloop.feedback.submit import submit
from medloop.jobs import queue
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.records import incident_rows, users
from medloop.web.app import create_app

# Class 20

SLOWEST_S = 1.0  # for somebody who asks whether the server is there while it is attacked


def head(path: str, key: str, *lines: str, method: str = "POST", kind: str = "application/json") -> bytes:
    own = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}", f"Content-Type: {kind}", *lines]
    return "\r\n".join([*own, "", ""]).encode()


def whole(path: str, key: str, body: bytes, kind: str = "application/json") -> bytes:
    return head(path, key, f"Content-Length: {len(body)}", "Connection: close", kind=kind) + body


def hostile(key: str) -> list[bytes]:
    feedback, lines = "/api/v1/rlhf/feedback", "/api/v1/rlhf/import"
    deep = [b"[" * 100_000, b'{"a":' * 40_000, b'{"rating": ' + b"9" * 200_000 + b"}", b'{"a": "' + b"\\u0000" * 30_000 + b'"}']
    wide = [
        b"{" + b",".join(b'"f%d":1' % n for n in range(20_000)) + b"}",
        b'{"axes": {' + b",".join(b'"a%d":1' % n for n in range(15_000)) + b"}}",
        json.dumps({"session_id": "s", "comments": "a!" * 10_000 + "\n" * 9_000, "user_query": "(((((" * 3_000}).encode(),
    ]
    requests = [whole(feedback, key, body) for body in (*deep, *wide)]
    requests += [
        whole(lines, key, body, "application/x-ndjson") for body in (b"\n" * 1_000_000, b"{}\n" * 100_000, b"[" * 2_000_000)
    ]
    requests += [whole("/web/login", key, b"&".join(b"f%d=1" % n for n in range(50_000)), "application/x-www-form-urlencoded")]
    requests += [
        head(feedback, key, f"Content-Length: {100 * 2**20}"),
        head(feedback, key, "Content-Length: -1"),
        head(feedback, key, "Content-Length: 9" * 1),
    ]
    get = {"method": "GET"}
    requests += [head("/api/v1/rlhf/feedback?" + "a=1&" * 12_000, key, "Connection: close", **get)]
    requests += [
        head("/web/static/style.css", key, "Range: bytes=" + ",".join(f"{n}-" for n in range(8_000)), "Connection: close", **get)
    ]
    requests += [head("/healthz", key, *(f"X-{n}: {'v' * 50}" for n in range(900)), "Connection: close", **get)]
    requests += [head("/healthz", key, "Cookie: " + "a=b; " * 10_000, "Connection: close", **get)]
    requests += [head("/healthz", key, "Accept-Language: " + "en;q=0.1," * 6_000, "Connection: close", **get)]
    requests += [
        head(feedback, key, "Transfer-Encoding: chunked") + b"ffffffff\r\n" + b"x" * 400_000,
        b"\x00" * 50_000,
        b"GET " + b"/" * 200_000,
    ]
    return [*requests, *(whole(feedback, key, body, "text/plain") for body in deep)]


def attack(port: int, requests: list[bytes]) -> None:
    for body in requests:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
                sock.sendall(body)
                sock.recv(1000)
        except OSError:
            continue  # refused in the middle: as it should be


def check_patience(port: int, requests: list[bytes]) -> list[str]:
    """What a healthy client noticed while the attack went on."""
    took, client = [], httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5)
    thread = threading.Thread(target=attack, args=(port, requests), daemon=True)
    thread.start()
    problems = []
    while thread.is_alive():
        began = time.perf_counter()
        try:
            code = client.get("/healthz").status_code
        except httpx.HTTPError as error:
            problems.append(type(error).__name__)
            continue
        took.append(time.perf_counter() - began)
        problems += [str(code)] if code != 200 else []
        time.sleep(0.005)
    client.close()
    slow = sorted(took)[int(0.99 * len(took))] if took else 99.0
    return [*problems, *([f"p99 {slow:.2f} s"] if slow > SLOWEST_S else [])]


class Running:
    """`medloop api serve`, as somebody starts it."""

    def __init__(self, home: Path, log: Path) -> None:
        init_workspace(home)
        with open_store(Settings(home=home)) as store:
            self.key = users.new_key(store, users.add_user(store, "li", "engineer", actor="test"), actor="test")
        environ = {**os.environ, "MEDLOOP_OFFLINE": "true", "MEDLOOP_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-u", "-m", "medloop", "--home", str(home), "api", "serve", "--port", "0", "--rate", "100000"]
        self.log, self.home = log, home
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        while not (match := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.port = int(match[1])
        with httpx.Client(transport=httpx.HTTPTransport(retries=100)) as client:
            client.get(f"http://127.0.0.1:{self.port}/healthz", timeout=20)

    def memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp("running")
    server = Running(base / "clinic", base / "log")
    yield server
    server.process.terminate()
    server.process.wait(timeout=20)


def test_hostile_requests_do_not_keep_others_waiting(running: Running) -> None:
    before, requests = running.memory(), hostile(running.key)
    assert len(requests) >= 25
    assert check_patience(running.port, requests) == []
    assert running.memory() - before < 200 * 2**20


def test_those_who_send_slowly_keep_nobody_waiting(running: Running) -> None:
    """Two hundred who never finish their headers and fifty who never finish their bodies."""
    slow = []
    try:
        for n in range(250):
            sock = socket.create_connection(("127.0.0.1", running.port), timeout=5)
            begun = head("/api/v1/rlhf/feedback", running.key, "Content-Length: 5000")
            sock.sendall(begun[:-20] if n < 200 else begun + b"{")
            slow.append(sock)
        assert check_patience(running.port, [b"GET / HTTP/1.1\r\n\r\n"] * 50) == []
    finally:
        for sock in slow:
            sock.close()


@pytest.mark.slow
def test_an_import_of_long_texts_keeps_no_other_writer_waiting(running: Running) -> None:
    """Six lines of the costliest text there is, and somebody else who sends one thumb meanwhile."""
    good, text = {"Authorization": f"Bearer {running.key}"}, "王小" * 9_990
    small = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}
    line = json.dumps({"kind": "feedback", **small, "user_query": text, "agent_response": text, "comments": text}) + "\n"
    sent = {"content": line * 6, "headers": {**good, "Content-Type": "application/x-ndjson"}, "timeout": 120}
    thread = threading.Thread(target=httpx.post, args=(f"http://127.0.0.1:{running.port}/api/v1/rlhf/import",), kwargs=sent)
    thread.start()
    time.sleep(0.5)
    began = time.perf_counter()
    httpx.post(f"http://127.0.0.1:{running.port}/api/v1/rlhf/feedback", json=small, headers=good, timeout=120)
    took = time.perf_counter() - began
    thread.join()
    assert took < SLOWEST_S


HEADS = [
    b"",
    b"G",
    b"GET /healthz HTTP/1.1\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    b"\r\n",
    b"POST /x HTTP/1.1\r\nHost: 127",
]
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def check_waiting(port: int, wait_s: float = 1.5) -> list[str]:
    """Connections that are still held after `wait_s`, though no request ever came to its end."""
    slow = [
        (begun, socket.create_connection(("127.0.0.1", port), timeout=5))
        for begun in (*HEADS, *(WHOLE + begun for begun in HEADS[1:]))
    ]
    try:
        until = time.monotonic() + wait_s
        for begun, sock in slow:
            sock.sendall(begun)
        while time.monotonic() < until and not all(is_closed(sock) for _, sock in slow):
            time.sleep(0.1)
            for begun, sock in slow:
                if begun.endswith((b"X: ", b"\r\n")):  # and on it goes, letter by letter
                    try:
                        sock.sendall(b"\r\n" if begun.endswith(b"\r\n") and len(begun) == 2 else b"a")
                    except OSError:
                        continue
        return [begun.decode() for begun, sock in slow if not is_closed(sock)]
    finally:
        for _, sock in slow:
            sock.close()


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(0.05)
    try:
        while sock.recv(65536):
            continue
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_headers_that_never_end_hold_no_connection(world: World, monkeypatch) -> None:
    monkeypatch.setattr(slow_clients, "HEAD_S", 0.4)
    with served(create_app(world.settings, supervise=False), http=slow_clients.SlowClientProtocol, timeout_keep_alive=1) as port:
        assert check_waiting(port, wait_s=15) == []  # closed after a second; a busy machine gets more
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200


def test_red_a_server_as_uvicorn_comes_holds_them(world: World) -> None:
    with served(create_app(world.settings, supervise=False), timeout_keep_alive=1) as port:
        assert len(check_waiting(port)) >= 6


def pipelined(port: int, key: str, *paths: str) -> list[str]:
    """The status lines that come back for several requests sent at once on one connection, the last of them a GET."""
    body, answers = b"x" * 3000, b""
    lines = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: 3000"
    posts = [f"POST {path} HTTP/1.1\r\n{lines}\r\n\r\n".encode() + body for path in paths]
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(b"".join(posts) + f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        while more := sock.recv(65536):
            answers += more
    return re.findall(r"HTTP/1\.1 (\d+)", answers.decode())


def test_a_full_server_turns_writes_away_without_a_task_and_the_connection_goes_on(world: World, monkeypatch) -> None:
    app = create_app(world.settings, supervise=False, limits=RequestLimits(in_flight=0))
    with served(app, http=slow_clients.SlowClientProtocol) as port:
        key, paths = world.keys["engineer"], ["/api/v1/rlhf/feedback"] * 200
        app.state.authenticator.cache_s = 1e6
        assert pipelined(port, key, "/api/v1/traces") == ["503", "200"]  # now the key is known
        monkeypatch.setattr("medloop.api.admission.Admission.__call__", lambda self, *request: 1 / 0)  # so it was not this one
        assert pipelined(port, key, *paths) == ["503"] * 200 + ["500"]
        assert app.state.http_counts.requests["POST", "none", 503] == 201


def test_a_connection_that_is_turned_away_again_and_again_stays(world: World, monkeypatch) -> None:
    monkeypatch.setattr(slow_clients, "HEAD_S", 0.3)
    app = create_app(world.settings, supervise=False, limits=RequestLimits(in_flight=0))
    with (
        served(app, http=slow_clients.SlowClientProtocol) as port,
        socket.create_connection(("127.0.0.1", port), timeout=5) as sock,
    ):
        for _ in range(8):
            sock.sendall(head("/api/v1/traces", world.keys["engineer"], "Content-Length: 2") + b"{}")
            assert sock.recv(65536).startswith(b"HTTP/1.1 503")
            time.sleep(0.1)


def flood(port: int, most: int) -> int:
    """How many bytes of one header a server takes."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        try:
            while sent < most:
                sent += sock.send(b"a" * 65536)
        except OSError:
            pass
    return sent


def test_a_header_without_an_end_fills_no_memory(running: Running) -> None:
    before = running.memory()
    assert flood(running.port, 64 * 2**20) < 16 * 2**20
    assert running.memory() - before < 30 * 2**20


def test_red_a_server_as_uvicorn_comes_takes_it_all(world: World) -> None:
    with served(create_app(world.settings, supervise=False)) as port:
        assert flood(port, 32 * 2**20) >= 32 * 2**20


def test_red_a_twin_that_works_where_all_wait_is_found() -> None:
    with served(twins.blocking()) as port:
        assert check_patience(port, hostile("x")[:2])


# Class 21

INNER = [
    (queue, "folder_of", "GET", "/api/train/status/train_20260203T120000Z"),
    (queue, "page", "GET", "/api/train"),
    (train, "submit_training", "POST", "/api/train"),
    (listing, "list_records", "GET", "/api/v1/rlhf/feedback"),
    (listing, "get_record", "GET", "/api/v1/rlhf/feedback/fb_1"),
    (incident_rows, "list_incidents", "GET", "/api/v1/rlhf/incidents"),
    (incident_rows, "count_incidents", "GET", "/metrics"),
    (submit, "prepare_submission", "POST", "/api/v1/rlhf/feedback"),
]
TELLS = re.compile(r"Traceback|0x[0-9a-f]{6,}|\.py\b|line \d+, in|site-packages|/tmp/|sqlalchemy|pydantic", re.I)


def check_words(words: str, *secrets: str) -> list[str]:
    """Secrets and inner details in what was said."""
    return [text for text in (CANARY, PATIENT, *secrets) if text in words] + TELLS.findall(words)


BODY = {
    "session_id": "s",
    "agent_name": "x",
    "user_query": PATIENT,
    "agent_response": PATIENT,
    "comments": PATIENT,
    "thumb": "up",
}


@pytest.mark.parametrize(("module", "name", "method", "path"), INNER)
def test_an_error_of_our_own_tells_nothing(world: World, monkeypatch, caplog, module, name, method, path) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{PATIENT} at {hex(id(module))} in {world.settings.home}/medloop.db with {world.keys['engineer']}")

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(module, name, fail)
    more = {"json": {"stage": "GRPO"} if path == "/api/train" else BODY} if method == "POST" else {}
    answered = world.send("engineer", method, path, **more)
    assert answered.status_code == 500, answered.text
    assert check_words(answered.text, str(world.settings.home), world.keys["engineer"]) == []
    ours = " ".join(record.getMessage() for record in caplog.records if record.name.startswith(("medloop", "uvicorn")))
    assert "RuntimeError" in ours, "the log should say that there was an error"
    assert not [text for text in (PATIENT, world.keys["engineer"]) if text in ours]


def check_server_log(world: World, monkeypatch, caplog) -> list[str]:
    """Words of an error that reached the log of a real server, whoever wrote it."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"cannot take {PATIENT}")

    for module, name in ((queue, "page"), (listing, "list_records"), (listing, "export")):
        monkeypatch.setattr(module, name, fail)
    with served(create_app(world.settings, supervise=False), log_level="warning", log_config=None) as port:
        for path in ("/api/train", "/api/v1/rlhf/feedback", "/api/v1/rlhf/export", "/web/nothing"):
            try:
                httpx.get(f"http://127.0.0.1:{port}{path}", headers=world.headers("engineer"), timeout=10)
            except httpx.HTTPError:
                continue  # an answer that ends in the middle
    text = caplog.text + " ".join(
        logging.Formatter().formatException(record.exc_info) for record in caplog.records if record.exc_info
    )
    assert "RuntimeError" in text
    return [word for word in (PATIENT, "cannot take") if word in text]


def test_no_word_of_an_error_reaches_the_log_of_the_server(world: World, monkeypatch, caplog) -> None:
    assert check_server_log(world, monkeypatch, caplog) == []


def test_red_an_app_that_hands_its_errors_on_is_found(world: World, monkeypatch, caplog) -> None:
    monkeypatch.setattr(errors.BugHandler, "__call__", lambda self, scope, receive, send: self.app(scope, receive, send))
    assert check_server_log(world, monkeypatch, caplog)


def test_a_bug_is_answered_with_the_same_careful_headers(world: World, monkeypatch) -> None:
    monkeypatch.setattr(queue, "page", lambda *_, **__: 1 / 0)
    answered = world.send("engineer", "GET", "/api/train")
    assert answered.status_code == 500 and answered.headers["x-content-type-options"] == "nosniff"


def test_red_a_twin_that_tells_what_it_met_is_found() -> None:
    with client_of(twins.talkative()) as client:
        problems = check_words(client.post("/fail", content=PATIENT).text)
    assert PATIENT in problems and len(problems) >= 2


REFUSED: list[Callable[[str], tuple[str, str, dict[str, Any]]]] = [
    lambda text: ("POST", "/api/v1/rlhf/feedback", {"json": {**BODY, "rating": text}}),
    lambda text: ("POST", "/api/v1/rlhf/feedback", {"json": {**BODY, "trace_id": text}}),
    lambda text: ("POST", "/api/v1/rlhf/feedback", {"json": {**BODY, "supersedes": text}}),
    lambda text: ("POST", "/api/v1/rlhf/preference", {"json": {"prompt": text}}),
    lambda text: ("POST", "/api/train", {"json": {"stage": text}}),
    lambda text: ("POST", "/api/train", {"json": {"stage": "GRPO", "config": {"steps": text, "prompts": text}}}),
    lambda text: ("POST", "/api/v1/data/build", {"json": {"name": f"/{text}", "seed": text}}),
    lambda text: ("GET", f"/api/v1/rlhf/feedback/{text}", {}),
    lambda text: ("GET", f"/api/train/status/{text}", {}),
    lambda text: ("GET", f"/api/v1/rlhf/feedback?after={text}", {}),
    lambda text: ("GET", f"/api/v1/rlhf/feedback?order={text}", {}),
    lambda text: ("GET", f"/nothing/{text}", {}),
    lambda text: ("PATCH", f"/api/train?x={text}", {}),
    lambda text: ("POST", "/api/v1/rlhf/feedback", {"content": f'{{"{text}'.encode(), "headers": {"Content-Type": "application/json"}}),
    lambda text: ("POST", "/api/v1/rlhf/import", {"content": f'{{"kind": "{text}"}}\n'.encode(), "headers": {"Content-Type": "application/x-ndjson"}}),
]  # fmt: skip


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_a_refusal_does_not_repeat_what_was_sent(world: World, n: int) -> None:
    method, path, more = REFUSED[n](PATIENT)
    answered = world.send("engineer", method, path, **more)
    assert answered.status_code >= 400 or answered.json()["failed"] == 1, answered.text
    assert check_words(answered.text, str(world.settings.home), world.keys["engineer"]) == []


def test_neither_keys_nor_patients_are_in_the_log_the_numbers_or_the_audit_of_a_server(running: Running) -> None:
    wrong = running.key[:-6] + "AAAAAA"
    with httpx.Client(base_url=f"http://127.0.0.1:{running.port}", timeout=20) as client:
        good = {"Authorization": f"Bearer {running.key}"}
        assert client.post("/api/v1/rlhf/feedback", json=BODY, headers=good).status_code == 201
        for n in range(len(REFUSED)):
            method, path, more = REFUSED[n](PATIENT)
            for key in (running.key, wrong):
                sent = {**more, "headers": {**more.get("headers", {}), "Authorization": f"Bearer {key}"}}
                client.request(method, path, **sent)
        numbers = client.get("/metrics", headers=good).text
    with open_store(Settings(home=running.home)) as store:
        noted = json.dumps(audit.page(store, limit=200), default=str)
    outputs = {"log": running.log.read_text(), "numbers": numbers, "audit": noted}
    assert "medloop" in numbers and "rlhf_feedback" in noted
    assert {place: word for place, text in outputs.items() for word in (PATIENT, running.key, wrong) if word in text} == {}
