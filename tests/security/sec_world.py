"""What the security tests share: the app with keys of every role, a record of the files that were opened, a real server."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from medloop.settings import Settings

_opened: list[str] | None = None


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir") and args and isinstance(args[0], str | os.PathLike):
        _opened.append(os.fspath(args[0]))


sys.addaudithook(_hook)  # Python itself tells of every file it opens; in the place of strace


@contextmanager
def opened_files() -> Iterator[list[str]]:
    global _opened
    _opened = opened = []
    try:
        yield opened
    finally:
        _opened = None


@dataclass(frozen=True)
class World:
    client: TestClient
    keys: dict[str, str]
    settings: Settings
    outside: Path

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[who]}"}

    def send(self, who: str, method: str, path: str, **more: Any) -> Any:
        headers = {**self.headers(who), **more.pop("headers", {})}
        return self.client.request(method, path, headers=headers, follow_redirects=False, **more)


def client_of(app: FastAPI) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@contextmanager
def served(app: FastAPI, **more: Any) -> Iterator[int]:
    """The app on a port of this machine."""
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, **{"log_level": "critical", **more}))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=10)
