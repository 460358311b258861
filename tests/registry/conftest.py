"""A workspace with a registry: MLflow's SQLite store in it, or a real MLflow server when MLFLOW_PYTHON names its Python."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from registry_world import copy_workspace

from medloop.contracts import Incident
from medloop.loop.workspace import init_workspace
from medloop.registry.mirror import open_mirror
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud

SERVER_PYTHON = os.environ.get("MLFLOW_PYTHON", "")
START_S = 180


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> Path:
    """A workspace with MLflow's empty database, whose migrations take seconds: made once, copied for each test."""
    home = tmp_path_factory.mktemp("registry") / "clinic"
    init_workspace(home)
    with open_mirror(Settings(home=home)) as mirror:
        assert mirror.versions() == []
    return home


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory) -> Iterator[str]:
    """A real MLflow server on a free port (make test-mlflow)."""
    if not SERVER_PYTHON:
        pytest.skip("no MLflow server: make test-mlflow MLFLOW_PYTHON=/path/to/bin/python")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [SERVER_PYTHON, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += [
        "--artifacts-destination",
        str(folder / "artifacts"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    environ = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environ, cwd=folder) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(30)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=2).text == "OK":
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise AssertionError("the MLflow server does not start")


@pytest.fixture(params=["embedded", "server"])
def settings(request, tmp_path: Path, template: Path) -> Settings:
    home = tmp_path / "clinic"
    copy_workspace(template, home)
    if request.param == "embedded":
        return Settings(home=home)
    url, name = request.getfixturevalue("mlflow_server"), f"m{tmp_path.stat().st_ino}-{time.time_ns()}"
    return Settings.model_validate({"home": home, "registry": {"url": url, "model": name}})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings) as opened:
        yield opened


@pytest.fixture
def open_incident():
    """An incident that nobody has closed."""
    return lambda store: crud.add(store, [Incident(record_id="fb_1")], actor="test")
