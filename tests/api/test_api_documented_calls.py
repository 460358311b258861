"""The documented calls of the feedback service, as their document writes them, against a real server: values, not key names."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import users
from medloop.web.app import create_app

RATED = {
    "session_id": "sess_xyz789", "agent_name": "prescription_agent", "rating": 5, "comments": "Appropriate first-line treatment",
}  # fmt: skip
RECORD = {
    **RATED, "feedback_id": "fb_abc123", "user_query": "Prescribe treatment for hypertension",
    "agent_response": "I recommend starting with lisinopril 10mg...", "feedback_type": "positive", "clinician_id": 123,
    "timestamp": "2025-01-15T10:30:00Z",
}  # fmt: skip
CHOICE = {
    "prompt": "What medication for type 2 diabetes?", "response_a": "Metformin 500mg twice daily...",
    "response_b": "Insulin immediately...", "preferred": "a",
}  # fmt: skip


@dataclass
class Served:
    url: str
    keys: dict[str, str]
    store: Store

    def call(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        return httpx.request(
            method, f"{self.url}/api/v1/rlhf{path}", json=body, headers=headers, trust_env=False, timeout=60, **more
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("documented") / "clinic"
    init_workspace(home)
    roles = {"123": "clinician", "program": "engineer"}
    with open_store(Settings(home=home)) as store:
        keys = {
            name: users.new_key(store, users.add_user(store, name, role, actor="t"), actor="t") for name, role in roles.items()
        }
        running = uvicorn.Server(
            uvicorn.Config(create_app(Settings(home=home), supervise=False), port=0, log_level="error", ws="none")
        )
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        while not running.started:
            time.sleep(0.02)
        yield Served(f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}", keys, store)
        running.should_exit = True
        thread.join(10)


def test_the_documented_body_works_for_a_clinician_without_a_trace(served: Served) -> None:
    answer = served.call("123", "POST", "/feedback", RATED)
    assert answer.status_code == 201, answer.text
    stored = served.call("123", "GET", f"/feedback/{answer.json()['feedback_id']}").json()
    assert {name: stored[name] for name in RATED} == RATED
    assert (stored["clinician_id"], stored["feedback_type"]) == (users.find_user_id(served.store, "123"), "positive")
    assert (stored["trace_id"], stored["user_query"], stored["agent_response"]) == (None, "", "")


def test_feedback_id_and_timestamp_are_kept_as_given_and_the_time_of_arrival_beside_them(served: Served) -> None:
    before = time.time()
    first, again = (served.call("program", "POST", "/feedback", RECORD) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200) and first.json() == again.json()
    assert (first.json()["feedback_id"], first.json()["timestamp"]) == ("fb_abc123", "2025-01-15T10:30:00Z")
    stored = served.call("program", "GET", "/feedback/fb_abc123").json()
    given = ("feedback_id", "timestamp", "session_id", "agent_name", "rating", "feedback_type")
    assert {name: stored[name] for name in given} == {name: RECORD[name] for name in given}
    assert stored["received"] > time.strftime("%Y-%m-%dT%H:%M", time.gmtime(before - 60))
    year = served.call("program", "GET", "/feedback", params={"since": "2025-01-01T00:00:00Z", "until": "2025-02-01T00:00:00Z"})
    assert [item["feedback_id"] for item in year.json()["items"]] == ["fb_abc123"]
    other = served.call("program", "POST", "/feedback", {**RECORD, "rating": 1})
    assert other.status_code == 422 and "feedback_id is taken" in other.json()["error"]


def test_clinician_id_refers_to_a_user_by_name_or_id(served: Served) -> None:
    user_id = users.find_user_id(served.store, "123")
    stored = served.call("program", "GET", "/feedback/fb_abc123").json()
    assert stored["clinician_id"] == user_id
    assert served.call("program", "POST", "/feedback", {**RATED, "clinician_id": user_id}).status_code == 201
    unknown = served.call("program", "POST", "/feedback", {**RATED, "clinician_id": 124})
    assert unknown.status_code == 422
    assert unknown.json()["error"] == "clinician_id names nobody: there is no such user."
    assert "medloop users add NAME --role clinician" in unknown.json()["hint"]


@pytest.mark.parametrize(
    ("timestamp", "words"), [("2199-01-01T00:00:00Z", "in the future"), ("1970-01-01T00:00:00Z", "before 2000")]
)
def test_an_absurd_timestamp_is_refused_with_a_sentence(served: Served, timestamp: str, words: str) -> None:
    refused = served.call("program", "POST", "/feedback", {**RATED, "timestamp": timestamp})
    assert refused.status_code == 422 and words in refused.text and timestamp not in refused.text


def test_a_record_without_consent_says_that_it_will_not_be_used_and_how_to_change_that(served: Served) -> None:
    first = served.call("123", "POST", "/preference", CHOICE).json()
    assert "no consent to training" in first["note"] and f'"supersedes": "{first["preference_id"]}"' in first["note"]
    changed = {**CHOICE, "consent": ["training"], "supersedes": first["preference_id"]}
    second = served.call("123", "POST", "/preference", changed)
    assert second.status_code == 201 and "note" not in second.json()
    stored = served.call("123", "GET", f"/preference/{second.json()['preference_id']}").json()
    assert {name: stored[name] for name in CHOICE} == CHOICE and stored["consent"] == ["training"]


def test_the_trigger_shows_how_many_records_count_and_how_many_wait_for_consent(served: Served) -> None:
    before = served.call("program", "GET", "/trigger").json()
    served.call("123", "POST", "/preference", CHOICE)
    served.call("123", "POST", "/preference", {**CHOICE, "consent": ["training"]})
    after = served.call("program", "GET", "/trigger").json()
    assert (after["usable"] - before["usable"], after["waiting_for_consent"] - before["waiting_for_consent"]) == (1, 1)
    assert after["words"].startswith(f"{after['usable']} of 1,000 new usable records") and after["last_trigger"] is None
    assert served.call("123", "GET", "/trigger").status_code == 403
