"""The playground's calls against the real API and the real embedded model server."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from medloop.cli.playground import PAGE
from medloop.contracts import Feedback, Trace
from medloop.loop.feedback import queue_new_complaints
from medloop.loop.workspace import init_workspace
from medloop.sections import GatewaySettings
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, users
from medloop.store.records.review_queue import list_items
from medloop.testing.model_server import model_server
from medloop.web.app import create_app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with model_server() as server:
        yield server.url


@pytest.fixture
def api(tmp_path: Path, model: str) -> Iterator[tuple[str, str, Store]]:
    """Address, key and store of an API that serves, with its assistant in front of the model server."""
    init_workspace(tmp_path / "clinic")
    gateway = GatewaySettings(backends=f"{model}#base")
    settings = Settings(home=tmp_path / "clinic", device="cpu", threads=1, offline=True, gateway=gateway)
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, "ann", "engineer", actor="test"), actor="test")
        app = create_app(settings, supervise=False)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", key, store
        server.should_exit = True
        thread.join(30)


def load_calls() -> Any:
    spec = importlib.util.spec_from_file_location("playground_calls_real", PAGE.with_name("calls.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["playground_calls_real"] = module
    spec.loader.exec_module(module)
    return module


def test_an_answer_of_a_model_server_goes_to_the_review_queue_of_the_api(api: tuple[str, str, Store], model: str) -> None:
    (url, key, store), calls = api, load_calls()
    assistant = calls.Assistant(url, key, servers=(model,))
    assert "base" in assistant.versions()
    knobs = calls.SamplingKnobs(temperature=1.0, max_tokens=8, seed=1)
    answer, again = (assistant.ask("base", "I have had a cough for two weeks.", knobs) for _ in range(2))
    assert answer.text and answer.text == again.text and answer.tokens
    feedback_id = assistant.send_to_review(answer, "It does not ask about fever.")
    feedback = crud.get(store, Feedback, feedback_id)
    assert feedback and feedback.thumb == "down" and feedback.comments == "It does not ask about fever."
    trace = crud.get(store, Trace, feedback.trace_id or "")
    assert trace and trace.agent_name == "playground" and trace.conversation.answer == answer.text
    queue_new_complaints(store)  # the server may have been quicker
    assert len(list_items(store, state="open", limit=5)) == 1


def test_an_answer_of_the_assistant_goes_to_review_by_its_own_trace(api: tuple[str, str, Store]) -> None:
    (url, key, store), calls = api, load_calls()
    assistant = calls.Assistant(url, key)
    assert assistant.versions()[0] == "medloop"
    answer = assistant.ask("medloop", "I have had a cough for two weeks.", calls.SamplingKnobs(max_tokens=8))
    assert answer.text and answer.inference_id and answer.version
    feedback = crud.get(store, Feedback, assistant.send_to_review(answer, "Too short."))
    assert feedback and feedback.trace_id == answer.inference_id and feedback.agent_response
    emergency = assistant.ask("medloop", "I have crushing chest pain and cannot breathe.", calls.SamplingKnobs(max_tokens=8))
    assert "120" in emergency.text or "emergency" in emergency.text.lower()
