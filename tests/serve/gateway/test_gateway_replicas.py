"""Two embedded servers, each a process; one is killed under load, and no request through the gateway fails."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn

from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.testing.processes import running_medloop
from medloop.web.app import create_app

CLIENTS, BEFORE, AFTER = 4, 8, 24  # answers before and after the kill


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise AssertionError("a model server did not start")


@pytest.mark.slow
def test_one_of_two_replicas_is_killed_and_no_request_fails(workspace: Path) -> None:
    init_workspace(workspace)
    ports = [free_port(), free_port()]
    words = ("serve", "--model", "embedded:tiny", "--port")
    with (
        running_medloop(*words, str(ports[0]), cwd=workspace) as (first, _),
        running_medloop(*words, str(ports[1]), cwd=workspace),
    ):
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url in urls:
            wait_until_ready(url)
        settings = Settings.model_validate({"home": workspace, "device": "cpu", "gateway": {"backends": ",".join(urls)}})
        with open_store(settings) as store:
            key = users.new_key(store, users.add_user(store, "tester", "engineer", actor="test"), actor="test")
        app = create_app(settings, supervise=False)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        gateway, statuses, lock = f"http://127.0.0.1:{listener.getsockname()[1]}", list[int](), threading.Lock()
        many = threading.Event()

        def ask() -> None:
            body = {"messages": [{"role": "user", "content": "I have had a mild cough for two weeks."}], "max_tokens": 24}
            with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=120) as client:
                while len(statuses) < BEFORE + AFTER:
                    status = client.post(f"{gateway}/v1/chat/completions", json=body).status_code
                    with lock:
                        statuses.append(status)
                        if len(statuses) >= BEFORE:
                            many.set()

        clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        assert many.wait(240)
        asked = [backend.answered for backend in app.state.gateway.pool.backends]
        os.kill(first.pid, signal.SIGKILL)
        for client in clients:
            client.join(240)
        pool = app.state.gateway.pool
        assert set(statuses) == {200} and len(statuses) >= BEFORE + AFTER
        assert all(asked) and pool.backends[0].failed and pool.backends[1].answered > asked[1]
        assert pool.retries <= CLIENTS + pool.backends[0].failed  # what was on its way, and a look again after a pause
        server.should_exit = True
        thread.join(60)
        listener.close()
