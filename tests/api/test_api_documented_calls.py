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
import sqlalchemy
import uvicorn
from typer.testing import CliRunner

from medloop.cli import app as cli
from medloop.contracts import Feedback
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.records import crud, users
from medloop.web.app import create_app

RATED = {
    "session_id": "sess_xyz789", "agent_name": "prescription_agent", "rating": 5, "comments": "Appropriate first-line treatment",
}  # fmt: skip
RECORD = {
    **RATED, "feedback_id": "fb_abc123", "user_query": "Prescribe treatment for hypertension",
    "agent_response": "I recommend starting with lisinopril 10mg...", "feedback_type": "positive", "clinician_id": 123,
    "timestamp": "2025-01-17T12:00:00Z",
}  # fmt: skip
CHOICE = {
    "prompt": "What medication for type 2 diabetes?", "response_a": "Metformin 500mg twice daily...",
    "response_b": "Insulin immediately...", "preferred": "a",
}  # fmt: skip
PAIRS = [  # the lines of preferences.jsonl, without their metadata
    {"prompt": "What medication for type 2 diabetes?", "chosen": "Metformin 500mg twice daily...", "rejected": "Insulin immediately..."},
    {
        "prompt": "Analyze this skin rash", "chosen": "Appears to be contact dermatitis...",
        "rejected": "Unable to determine from image",
    },
]  # fmt: skip
# The tables as the document creates them: column, whether it may be empty, whether its values are unique.
SCHEMA = {
    "rlhf_feedback": {
        "id": "", "feedback_id": "unique, not null", "session_id": "not null", "agent_name": "not null", "user_query": "not null",
        "agent_response": "not null", "rating": "", "feedback_type": "", "clinician_id": "", "comments": "", "timestamp": "",
        "processed": "",
    },
    "rlhf_preferences": {
        "id": "", "preference_id": "unique, not null", "prompt": "not null", "response_a": "not null", "response_b": "not null",
        "preferred": "", "clinician_id": "", "timestamp": "", "processed": "",
    },
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
        people = {name: users.add_user(store, name, role, actor="t") for name, role in roles.items()}
        spoken_for = {"program": [people["123"]]}  # an admin lets the program pass on what this clinician says
        keys = {name: users.new_key(store, user, speaks_for=spoken_for.get(name, ()), actor="t") for name, user in people.items()}
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
    assert (first.json()["feedback_id"], first.json()["timestamp"]) == ("fb_abc123", "2025-01-17T12:00:00Z")
    stored = served.call("program", "GET", "/feedback/fb_abc123").json()
    record = crud.get(served.store, Feedback, "fb_abc123")  # programs read no texts over HTTP
    whole = stored | {name: getattr(record, name) for name in ("user_query", "agent_response", "comments")}
    assert {name: whole[name] for name in RECORD} == RECORD | {"clinician_id": users.find_user_id(served.store, "123")}
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


def test_the_metrics_have_the_documents_numbers(served: Served) -> None:
    """Volume per day, the distribution of stars, agreement, reward-model accuracy and policy gain; the day is the sender's."""
    before = served.call("program", "GET", "/metrics?days=3650").json()
    for number, stars in enumerate((5, 5, 4, 1)):
        record = {**RECORD, "feedback_id": f"fb_doc_{number}", "timestamp": "2025-01-18T08:00:00Z", "rating": stars}
        assert served.call("program", "POST", "/feedback", record | {"feedback_type": None}).status_code == 201
    after = served.call("program", "GET", "/metrics?days=3650").json()
    assert after["per_day"]["2025-01-17"] == {"feedback": 1} and after["per_day"]["2025-01-18"] == {"feedback": 4}
    assert {star: after["stars"].get(star, 0) - before["stars"].get(star, 0) for star in "12345"} == {
        "1": 1, "2": 0, "3": 0, "4": 1, "5": 2,
    }  # fmt: skip
    assert isinstance(after["agreement"], list) and (after["reward_model"], after["policy"]) == (None, None)  # none trained yet


@pytest.mark.parametrize("table", SCHEMA)
def test_the_tables_have_the_documents_columns(served: Served, table: str) -> None:
    inspected = sqlalchemy.inspect(served.store.engine)
    columns = {column["name"]: column for column in inspected.get_columns(table)}
    unique = {column for constraint in inspected.get_unique_constraints(table) for column in constraint["column_names"]}
    assert inspected.get_pk_constraint(table)["constrained_columns"] == ["id"]
    for name, words in SCHEMA[table].items():
        assert name in columns and ("not null" not in words or not columns[name]["nullable"]), name
        assert "unique" not in words or name in unique, name
    checks = " ".join(str(check["sqltext"]) for check in inspected.get_check_constraints(table))
    assert ("rating >= 1 AND rating <= 5" if table == "rlhf_feedback" else "preferred IN ('a', 'b'") in checks


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/feedback", {**RATED, "rating": 0}, "rating"),
        ("/feedback", {**RATED, "rating": 6}, "rating"),
        ("/preference", {**CHOICE, "preferred": "c"}, "preferred"),
        ("/feedback", {**RECORD, "feedback_id": "fb_odd", "feedback_type": "great"}, "feedback_type"),
    ],
)
def test_what_the_documents_checks_refuse_is_refused_with_the_field(served: Served, path: str, body: Any, field: str) -> None:
    refused = served.call("program", "POST", path, body)
    assert refused.status_code == 422 and field in refused.text


def test_the_documents_choices_become_its_preference_pairs(served: Served) -> None:
    """Submitted as two choices, one with the answers swapped; `data build` writes the lines of the document, with metadata."""
    for pair, preferred in zip(PAIRS, "ab", strict=True):
        answers = (pair["chosen"], pair["rejected"]) if preferred == "a" else (pair["rejected"], pair["chosen"])
        body = {"prompt": pair["prompt"], "response_a": answers[0], "response_b": answers[1], "preferred": preferred}
        assert served.call("123", "POST", "/preference", {**body, "consent": ["training"]}).status_code == 201
    settings = served.store.settings
    done = CliRunner().invoke(cli, ["--home", str(settings.home), "data", "build"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines = list(jsonl.read(settings.workspace.preferences / "preferences.jsonl"))
    assert [{name: line[name] for name in pair} for pair in PAIRS for line in lines if line["prompt"] == pair["prompt"]] == PAIRS
    assert all(line["metadata"]["records"] and line["metadata"]["from"] == "votes" for line in lines)


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
