"""A workspace with people of every role, an app over it, clients without and with a real browser."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from web_world import PASSWORD, Browser

from medloop.contracts import Trace
from medloop.contracts.queue import QueueItem
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, review_queue, users
from medloop.web.app import create_app


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> Path:
    """A workspace with a user of every role, made once and copied for each test."""
    home = tmp_path_factory.mktemp("web") / "clinic"
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        for name in (*users.ROLES, "other"):
            users.add_user(store, name, name if name in users.ROLES else "clinician", password=PASSWORD, actor="test")
        store.checkpoint()
    return home


@pytest.fixture
def settings(workspace: Path, template: Path) -> Settings:
    shutil.copytree(template, workspace, dirs_exist_ok=True)
    return Settings(home=workspace, device="cpu", threads=1, offline=True)


@pytest.fixture
def store(settings: Settings):
    with open_store(settings) as opened:
        yield opened


@pytest.fixture
def fill(store):
    """Put traces and items of the queue into the store."""

    def put(*given: Trace | QueueItem) -> None:
        crud.add(store, [record for record in given if isinstance(record, Trace)], actor="test")
        review_queue.add_items(store, [record for record in given if isinstance(record, QueueItem)], actor="test")

    return put


@pytest.fixture
def running(settings: Settings):
    with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def app(running: TestClient):
    return running.app


@pytest.fixture
def browse(app, running: TestClient):
    """A client for somebody, logged in unless it is nobody. All use one event loop, as in a server, and none is made anew."""

    def as_user(name: str | None) -> Browser:
        client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
        client.portal = running.portal
        client.headers["Origin"] = "http://127.0.0.1"
        if name is not None:
            answered = client.post("/web/login", data={"name": name, "password": PASSWORD}, follow_redirects=False)
            assert answered.status_code == 303, answered.text
        return Browser(client)

    return as_user


@pytest.fixture
def server(settings: Settings):
    """The same app on a port of this machine, for a real browser."""
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(create_app(settings, supervise=False), log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    running.should_exit = True
    thread.join(timeout=10)


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def chromium():
    """A browser for one module: as long as Playwright's sync API is open, `asyncio.run` fails in this thread."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium found (chromium, chromium-browser, google-chrome in PATH, or the variable CHROMIUM)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev extra has it)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, server, store):
    """A page in a browser of its own, logged in; the messages of its console are in `page.console_lines`."""
    contexts = []

    def as_user(name: str | None, **options):
        context = chromium.new_context(base_url=server, **options)
        contexts.append(context)
        page = context.new_page()
        page.console_lines = []
        page.on("console", lambda message: page.console_lines.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.console_lines.append(f"error: {error}"))
        if name is not None:
            token = users.open_session(store, users.get_user(store, name), actor="test")
            context.add_cookies(
                [{"name": "medloop_session", "value": token, "url": server, "httpOnly": True, "sameSite": "Strict"}]
            )
            page.goto("/web/")
        return page

    yield as_user
    for context in contexts:
        context.close()
