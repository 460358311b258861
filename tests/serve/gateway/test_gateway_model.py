"""The main path with a real model: the embedded server behind the gateway, the openai client before it, a child that comes back."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import httpx
import pytest
import uvicorn
from gateway_world import CHEST, COUGH

from medloop.loop.workspace import init_workspace
from medloop.serve.gateway.model_child import ModelChild
from medloop.serve.gateway.notices import notices
from medloop.settings import Settings
from medloop.testing.model_server import model_server
from medloop.web.app import create_app


def test_the_openai_client_talks_to_the_embedded_model_through_the_gateway(gateway_world) -> None:
    openai = pytest.importorskip("openai")
    with model_server() as server:
        world = gateway_world(servers=0, backends=server.url)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        running = uvicorn.Server(uvicorn.Config(create_app(world.settings, supervise=False), log_level="error"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            with openai.OpenAI(base_url=url, api_key=world.key, timeout=120, max_retries=0) as client:
                options = {"model": "medloop", "max_tokens": 24, "temperature": 0}
                whole = client.chat.completions.create(messages=[{"role": "user", "content": COUGH}], **options)
                pieces = client.chat.completions.create(messages=[{"role": "user", "content": COUGH}], stream=True, **options)
                text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
                assert text == whole.choices[0].message.content and whole.model_extra["medloop"]["version"] == "base"
                urgent = client.chat.completions.create(messages=[{"role": "user", "content": CHEST}], **options)
                assert urgent.choices[0].message.content.startswith(notices()["emergency"][0])
                with pytest.raises(openai.BadRequestError, match="not supported"):
                    client.chat.completions.create(messages=[{"role": "user", "content": COUGH}], n=1, tools=[], **options)
        finally:
            running.should_exit = True
            thread.join(60)
            listener.close()


class SleepingChild(ModelChild):
    """A process that costs nothing in the place of the model server."""

    @property
    def command(self) -> list[str]:
        before = super().command
        return [*before[: before.index("-m")], "-c", "import time; time.sleep(600)"]


def test_a_server_beside_the_api_is_started_again_after_a_kill_and_ends_with_it(tmp_path) -> None:
    init_workspace(tmp_path / "clinic")
    child = SleepingChild("embedded:tiny", Settings(home=tmp_path / "clinic"))
    with child.running():
        first = process_of(child, 1)
        os.kill(first.pid, signal.SIGKILL)
        second = process_of(child, 2)
        assert second.pid != first.pid and second.poll() is None
    assert second.poll() is not None


def process_of(child: ModelChild, start: int):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        process = child.process
        if child.starts >= start and process is not None and process.poll() is None:
            return process
        time.sleep(0.02)
    raise AssertionError("it was not started")


@pytest.mark.slow
def test_the_real_model_server_beside_the_api_answers(tmp_path) -> None:
    init_workspace(tmp_path / "clinic")
    child = ModelChild("embedded:tiny", Settings(home=tmp_path / "clinic", device="cpu", threads=1, offline=True))
    with child.running() as address:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{address.url}/v1/models", timeout=5, trust_env=False).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise AssertionError("the model server did not start")
