"""A workspace whose API asks scripted model servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.testing.chat_double import ChatDouble
from medloop.web.app import create_app

COUGH = "I have had a mild cough for two weeks. What can I do at home?"
CHEST = "My father has crushing chest pain that goes into his left arm, and he is sweating."


@dataclass
class GatewayWorld:
    """One API over one workspace, and its model servers."""

    client: TestClient
    settings: Settings
    servers: list[ChatDouble]
    key: str
    extra: dict[str, Any] = field(default_factory=dict)

    def ask(self, *texts: str, stream: bool = False, **more: Any) -> Any:
        roles = ("user", "assistant")
        messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts or (COUGH,))]
        return self.client.post("/v1/chat/completions", json={"messages": messages, "stream": stream, **more})

    @property
    def gateway(self) -> Any:
        return self.client.app.state.gateway


def events_of(response: Any) -> list[dict[str, Any]]:
    """The events of a stream; the last one of a whole answer is [DONE], which is left out."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(events: list[dict[str, Any]]) -> str:
    choices = [event["choices"][0] for event in events if event.get("choices")]
    return "".join(choice["delta"].get("content", "") for choice in choices)


@pytest.fixture
def gateway_world(workspace: Path) -> Iterator[Callable[..., GatewayWorld]]:
    """`gateway_world(servers=2, trace_share=1.0)`: settings of the section `gateway` by name."""
    with ExitStack() as stack:

        def start(*, servers: int = 1, role: str = "clinician", fallback: bool = False, **section: Any) -> GatewayWorld:
            init_workspace(workspace)
            doubles = [stack.enter_context(ChatDouble()) for _ in range(servers)]
            if fallback:
                doubles.append(stack.enter_context(ChatDouble("From the fallback.", models=("spare",))))
                section["fallback"] = f"{doubles[-1].url}#spare"
            section.setdefault("backends", ",".join(double.url for double in doubles[:servers]))
            settings = Settings.model_validate(
                {"home": workspace, "device": "cpu", "threads": 1, "offline": True, "gateway": section}
            )
            with open_store(settings) as store:
                key = users.new_key(store, users.add_user(store, "tester", role, actor="test"), actor="test")
            app = create_app(settings, supervise=False)
            client = stack.enter_context(TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False))
            client.headers["Authorization"] = f"Bearer {key}"
            return GatewayWorld(client, settings, doubles, key)

        yield start
