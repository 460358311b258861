"""Classes 9 and 10: the server calls nobody that a request names, and answers to its own name only."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import twins
from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from payloads import HOSTS, addresses
from sec_world import World, client_of, served

from medloop.jobs import queue, requests
from medloop.teacher import wire
from medloop.teacher.failures import Failure
from medloop.web.app import create_app

# Class 9


@pytest.fixture
def metadata() -> Iterator[tuple[int, list[str]]]:
    """A server that nobody should be made to ask; its port, and who came."""
    came: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    done = threading.Event()

    def listen() -> None:
        while not done.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                continue
            came.append("hit")
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            connection.close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield listener.getsockname()[1], came
    done.set()
    thread.join()
    listener.close()


URL_FIELDS: list[Callable[[str], dict]] = [
    lambda url: {"config": {"rollout_url": url}},
    lambda url: {"config": {"prompts": url}},
    lambda url: {"config": {"reward": url}},
    lambda url: {"config": {"given": {"teacher": url}}},
    lambda url: {"config": {"given": {"model": url}}},
    lambda url: {"config": {"adapter": url}},
    lambda url: {"config": {"held_out": url}},
    lambda url: {"model_id": url},
    lambda url: {"config": {"base_url": url}},
]


def check_addresses(ask: Callable[[str], Any], metadata: tuple[int, list[str]]) -> list[str]:
    """Addresses that were taken, or were even asked."""
    port, came = metadata
    problems = []
    for url in addresses(port):
        before = len(came)
        if ask(url).status_code == 200 or len(came) > before:
            problems.append(url)
    return problems


@pytest.mark.parametrize("n", range(len(URL_FIELDS)))
def test_no_field_of_a_request_makes_the_server_call_an_address(world: World, metadata, n: int) -> None:
    def ask(url: str):
        return world.send("engineer", "POST", "/api/train", json={"stage": "GRPO", **URL_FIELDS[n](url)})

    assert check_addresses(ask, metadata) == [] and queue.ids(world.settings) == []


def test_red_a_twin_that_fetches_and_our_door_without_its_check_are_found(world: World, metadata, monkeypatch) -> None:
    with client_of(twins.fetching()) as client:
        assert len(check_addresses(lambda url: client.post("/fetch", json={"url": url}), metadata)) >= 3
    seen = []
    monkeypatch.setattr(requests, "check_remote", lambda request, settings: None)
    submit = "medloop.api.routes.train.submit_training"
    monkeypatch.setattr(submit, lambda request, settings, **more: seen.append(request.config) or 1 / 0)
    world.send("engineer", "POST", "/api/train", json={"stage": "GRPO", "config": {"rollout_url": "http://127.0.0.1:1/"}})
    assert seen == [{"rollout_url": "http://127.0.0.1:1/"}]


@pytest.fixture
def redirecting(metadata) -> Iterator[int]:
    """A server that sends everybody on to the one nobody should ask."""
    app, port = FastAPI(), metadata[0]

    @app.post("/{path:path}")
    def on(path: str) -> RedirectResponse:
        return RedirectResponse(f"http://127.0.0.1:{port}/latest/meta-data", status_code=307)

    with served(app) as url:
        yield url


def test_the_teacher_is_not_led_elsewhere_by_a_redirect(redirecting: int, metadata) -> None:
    async def ask() -> None:
        async with httpx.AsyncHTTPTransport() as lane:
            await wire.post(lane, f"http://127.0.0.1:{redirecting}/v1", {"authorization": "Bearer x"}, b"{}", 10_000)

    with pytest.raises(Failure):
        asyncio.run(ask())
    assert metadata[1] == []


def test_red_a_client_that_follows_redirects_is_found(redirecting: int, metadata) -> None:
    httpx.post(f"http://127.0.0.1:{redirecting}/v1", json={}, follow_redirects=True)
    assert metadata[1] == ["hit"]


# Class 10


def raw(port: int, head: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(head)
        answer = sock.recv(4096)
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


def check_hosts(port: int, path: str = "/api/train") -> list[str]:
    """Host headers with which a protected address was served."""
    heads = [f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS]
    heads += [
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS[:8]
    ]
    heads += [f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS[:8]]
    heads += [
        f"GET {path} HTTP/1.0\r\n\r\n".encode(),
        f"GET //healthz/..{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode(),
    ]
    return [head.decode() for head in heads if raw(port, head) in range(200, 300)]


def test_no_host_header_opens_a_door(world: World) -> None:
    with served(create_app(world.settings, supervise=False)) as port:
        assert check_hosts(port) == []
        strangers = [f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS if host]
        assert [
            head for head in strangers if raw(port, head) == 200 and head.split(b"\r\n")[1].strip() != b"Host: 127.0.0.1"
        ] == []
        assert raw(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n") == 200


def test_red_a_twin_that_puts_the_address_together_is_found() -> None:
    with served(twins.bad_host()) as port:
        assert check_hosts(port)
