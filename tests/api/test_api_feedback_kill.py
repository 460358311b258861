"""kill -9 of the server under load: what it acknowledged is there, once, whatever the moment. Clients resend with their key.

The default run kills three servers on each database; `pytest -m slow` kills thirty. `benchmarks/ingest.py --part kill` kills as many
as asked, with 64 connections.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from sqlalchemy import select

from medloop.client import Client
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.store.tables import idempotency_keys, incidents, red_team_cases, rlhf_feedback
from medloop.testing.processes import fork_server
from medloop.web.app import create_app

SAID = {"agent_name": "a", "user_query": "q", "agent_response": "r", "rating": 1, "critical": True}


def serve(home: str, url: str, port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
    app = create_app(Settings(home=Path(home), database={"url": url}), supervise=False)
    uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none")).run(sockets=[listener])


class Killer:
    """A server on one port, killed and started again; forks of a process that has the imports."""

    def __init__(self, settings: Settings) -> None:
        self.context = fork_server()
        self.settings = settings
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        url = self.settings.database.url.get_secret_value()
        self.process = self.context.Process(target=serve, args=(str(self.settings.home), url, self.port), daemon=True)
        self.process.start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/healthz")
                return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the server did not start")

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)
        self.process.join(20)


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return request.getfixturevalue({"sqlite": "sqlite_settings", "postgresql": "postgres_settings"}[request.param])


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)], ids=["few", "many"])
def test_acknowledged_feedback_survives_killed_servers_once(settings: Settings, kills: int) -> None:
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, "agent", "engineer", actor="test"), actor="test")
    server, acked, stop, failed = Killer(settings), [], threading.Event(), []

    def send(worker: int) -> None:
        with Client(f"http://127.0.0.1:{server.port}", key, deadline=60, timeout=20) as client:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    acked.append((f"{worker}-{number}", client.feedback(session_id=f"{worker}-{number}", **SAID)))
                except Exception as error:
                    failed.append(error)
                    return

    threads = [threading.Thread(target=send, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    rng = random.Random(7)
    for _ in range(kills):
        target, deadline = len(acked) + rng.randint(8, 30), time.monotonic() + 60
        while len(acked) < target and time.monotonic() < deadline and not failed:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.03))
        server.kill()
        server.start()
    stop.set()
    for thread in threads:
        thread.join(70)
    server.kill(signal.SIGTERM)
    assert not failed and len(acked) >= 8 * kills
    _check(settings, {name: receipt.id for name, receipt in acked})


def _check(settings: Settings, acked: dict[str, str]) -> None:
    with open_store(settings) as store:
        with store.read() as conn:
            there = dict(conn.execute(select(rlhf_feedback.c.session_id, rlhf_feedback.c.feedback_id)).all())
            stored = conn.execute(select(rlhf_feedback.c.feedback_id)).scalars().all()
            beside = [conn.execute(select(table.c.record_id)).scalars().all() for table in (incidents, red_team_cases)]
            keys = conn.execute(select(idempotency_keys.c.id)).scalars().all()
        assert there == acked and len(stored) == len(acked) == len(keys)
        assert [sorted(rows) for rows in beside] == [sorted(stored)] * 2
        assert audit.verify(store).ok


def test_sigterm_answers_what_was_taken_and_ends_well(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        key = users.new_key(store, users.add_user(store, "agent", "engineer", actor="test"), actor="test")
    server, codes = Killer(sqlite_settings), []
    with httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}", headers={"Authorization": f"Bearer {key}"}, timeout=20
    ) as client:

        def send() -> None:
            try:
                while True:
                    codes.append(client.post("/api/v1/rlhf/feedback", json={"session_id": "s", **SAID}).status_code)
            except httpx.TransportError:
                pass

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.7)
        started = time.monotonic()
        server.kill(signal.SIGTERM)
        for thread in threads:
            thread.join(20)
    assert time.monotonic() - started < 10 and server.process.exitcode in (0, -signal.SIGTERM) and set(codes) <= {201, 503}
    with open_store(sqlite_settings) as store, store.read() as conn:
        assert len(conn.execute(select(rlhf_feedback.c.id)).all()) == codes.count(201) > 5
