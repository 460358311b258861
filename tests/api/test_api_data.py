"""Datasets, consent and erasure over HTTP: the same functions as the commands, for the right people."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from medloop.contracts import Feedback
from medloop.privacy.consent import subject_of
from medloop.settings import Settings
from medloop.store import audit, records, users
from medloop.store.artifacts import verify_artifact
from medloop.store.db import open_store
from medloop.testing.canary import CANARY, told, traces_of
from medloop.testing.feedback import thumb, vote


def fill(settings: Settings) -> None:
    with open_store(settings) as store:
        who = subject_of(store, "4711")
        given = [vote(n, f"rest {n}", f"run {n}", "a") for n in range(6)]
        records.add(store, [*given, thumb(9, "sleep", True, query=told("back"), subject=who, feedback_id="fb_1")], actor="test")


def as_(client: TestClient, settings: Settings, role: str) -> TestClient:
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, f"the-{role}", role, actor="test"), actor="test")
    client.headers["Authorization"] = f"Bearer {key}"
    return client


def test_a_build_over_http_is_the_build_of_the_command(client: TestClient, settings: Settings) -> None:
    fill(settings)
    first = client.post("/api/v1/data/build", json={"name": "week46", "seed": 7})
    assert first.status_code == 200, first.text
    said = first.json()
    assert said["rows"]["preferences.jsonl"] == 6 and said["new"] == 7 and CANARY not in first.text
    folder = Path(settings.home / "data/feedback/week46")
    assert verify_artifact(folder).sha256 == said["sha256"]
    again = client.post("/api/v1/data/build", json={"name": "week46", "seed": 7}).json()
    assert (again["sha256"], again["new"]) == (said["sha256"], 0)


def test_a_build_with_nothing_to_learn_from_is_a_422_with_the_reason(client: TestClient) -> None:
    done = client.post("/api/v1/data/build", json={})
    assert done.status_code == 422 and "nothing to learn from" in done.json()["error"]


@pytest.mark.parametrize("body", [{"name": "../x"}, {"test_share": 2}, {"unknown": 1}, {"seed": -1}])
def test_a_bad_build_body_is_refused_by_field(client: TestClient, body: dict) -> None:
    assert client.post("/api/v1/data/build", json=body).status_code == 422


def test_consent_is_recorded_by_hash_and_read_back(stranger: TestClient, settings: Settings) -> None:
    client = as_(stranger, settings, "clinician")
    body = {"subject": "Ann Example", "purposes": ["training", "teacher"], "text_version": "2026-01"}
    made = client.post("/api/v1/consent", json=body)
    assert made.status_code == 201 and made.json()["subject"].startswith("sub_") and "Ann" not in made.text
    client.post("/api/v1/consent", json={**body, "purposes": ["training"], "granted": False})
    found = client.get("/api/v1/consent", params={"subject": made.json()["subject"]}).json()
    assert found["now"] == {"training": False, "teacher": True} and len(found["said"]) == 2
    for wrong in (
        {**body, "purposes": []},
        {**body, "purposes": ["selling"]},
        {**body, "subject": ""},
        {**body, "subject": "a\nb"},
        {**body, "timestamp": "2020-01-01T00:00:00Z"},
    ):
        assert client.post("/api/v1/consent", json=wrong).status_code == 422


def test_withdrawn_consent_empties_the_next_build(client: TestClient, settings: Settings) -> None:
    fill(settings)
    before = client.post("/api/v1/data/build", json={}).json()
    as_(client, settings, "admin").post(
        "/api/v1/consent", json={"subject": "4711", "purposes": ["training"], "granted": False, "text_version": "1"}
    )
    after = as_(client, settings, "engineer").post("/api/v1/data/build", json={}).json()
    assert (before["rows"]["thumbs.jsonl"], after["rows"]["thumbs.jsonl"]) == (1, 0)


def test_an_admin_erases_and_the_answer_holds_no_text(client: TestClient, settings: Settings) -> None:
    fill(settings)
    assert client.post("/api/v1/data/build", json={}).status_code == 200 and traces_of(settings.home)
    body = {"subject": "4711", "reason": "asked"}
    assert client.post("/api/v1/erasure", json=body).status_code == 403
    admin = as_(client, settings, "admin")
    dry = admin.post("/api/v1/erasure", json={**body, "dry_run": True}).json()
    assert dry["state"] == "preview" and dry["rows"] == {"rlhf_feedback": 1} and traces_of(settings.home)
    done = admin.post("/api/v1/erasure", json=body)
    assert done.json()["state"] == "complete" and CANARY not in done.text and traces_of(settings.home) == []
    assert admin.post("/api/v1/erasure", json=body).json()["erasure_id"] == done.json()["erasure_id"]
    with open_store(settings) as store:
        assert records.get(store, Feedback, "fb_1") is None and audit.verify(store).ok


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "r"},
        {"reason": "r", "subject": "a", "records": ["b"]},
        {"reason": "", "subject": "a"},
        {"reason": "r", "records": ["fb_none"]},
    ],
)
def test_an_erasure_of_nothing_is_refused(stranger: TestClient, settings: Settings, body: dict) -> None:
    assert as_(stranger, settings, "admin").post("/api/v1/erasure", json=body).status_code == 422
