"""What a request costs: an import by its lines, so that one key cannot keep the writer from the others."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from medloop.api.limits import BYTES_PER_TOKEN, LINES_PER_TOKEN, RequestLimits, import_cost
from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store.records import crud
from medloop.web.app import create_app

LINE = json.dumps({"kind": "feedback", "session_id": "s", "agent_name": "a", "user_query": "Pain?", "agent_response": "Where?",
                   "thumb": "up"})  # fmt: skip


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b"", 1.0),
        (b"x\n" * LINES_PER_TOKEN, 1.0),
        (b"x\n" * LINES_PER_TOKEN * 7, 7.0),
        (b"\n" * 2000, 2000 / LINES_PER_TOKEN),  # empty lines are read, too
        (b"x" * BYTES_PER_TOKEN * 3, 3.0),
    ],
    ids=["nothing", "one token", "lines", "empty lines", "bytes"],
)
def test_an_import_costs_by_its_lines_or_its_bytes(body: bytes, tokens: float) -> None:
    assert import_cost(body) == tokens


def sent(client: TestClient, key: str, lines: int):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
    return client.post("/api/v1/rlhf/import", content="\n".join([LINE] * lines) + "\n", headers=headers)


def test_lines_of_imports_count_against_the_rate_of_their_key_alone(settings: Settings, key: str) -> None:
    from medloop.store.db import open_store
    from medloop.store.records import users

    with open_store(settings) as store:
        other = users.new_key(store, users.get_user(store, "tester"), actor="test")
    app = create_app(settings, supervise=False, limits=RequestLimits(rate=10))  # 20 tokens at once
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert sent(client, key, 80).json()["stored"] == 80  # 16 tokens
        refused = sent(client, key, 80)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1 and refused.json()["hint"]
        assert sent(client, other, 20).json()["stored"] == 20
        assert crud.count(app.state.store, Feedback) == 100


def test_an_import_larger_than_the_burst_is_taken_when_the_bucket_is_full(settings: Settings, key: str) -> None:
    with TestClient(create_app(settings, supervise=False, limits=RequestLimits(rate=2)), base_url="http://127.0.0.1") as client:
        assert sent(client, key, 100).json()["stored"] == 100
        assert sent(client, key, 1).status_code == 429
