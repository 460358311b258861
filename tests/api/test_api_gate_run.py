"""A run of the gate as a job: started over HTTP or on its page, done by a worker, its verdict stored like that of the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from medloop.jobs import queue
from medloop.jobs.worker import work
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import folder_sha256
from medloop.store.records import gates, users
from medloop.testing.models import tiny_adapter, tiny_model
from medloop.testing.records import make_emergencies

FEW = {
    "splits": ["gold"], "required_suites": ["gold"], "suites": [], "rules": ["emergency", "risk"], "n": 12, "min_cases": 10,
    "max_new_tokens": 4, "accept_unmeasured_judges": True,
}  # fmt: skip
MODEL = "models/full/random+a"


@pytest.fixture
def models(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = settings.home
    jsonl.write(home / "data/processed/gold_set.jsonl", make_emergencies(12))
    tiny_adapter(home / "models/lora/a", tiny_model(home / "models/full/random"))
    monkeypatch.chdir(home)  # as a worker is
    return home


def test_a_run_over_http_stores_a_verdict_on_the_bytes_of_the_model(client: TestClient, settings: Settings, models: Path) -> None:
    filed = client.post("/api/v1/gate/runs", json={"model": MODEL, "settings": FEW})
    job = filed.json()
    assert filed.status_code == 202 and filed.headers["location"] == job["address"] == f"/api/v1/gate/runs/{job['job_id']}"
    assert job["state"] == "queued" and job["result"] is None and job["job_id"].startswith("gate_")
    assert client.post("/api/v1/gate/runs", json={"model": MODEL, "settings": FEW}).json()["job_id"] == job["job_id"], "once"
    assert work(job["job_id"], settings).state == "succeeded"
    done = client.get(job["address"]).json()
    result = done["result"]
    assert done["state"] == "succeeded" and done["progress"] == 100 and result["outcome"] in ("fail", "not_enough_evidence")
    assert result["artifact"] == folder_sha256(models / "models/lora/a") and result["refusal"]
    assert client.get(f"/api/v1/gate/{result['gate']}").json()["label"] == result["label"]
    with open_store(settings) as store:
        stored = gates.latest_gate(store, result["artifact"])
        assert stored is not None and stored.content_id() == result["gate"] and "n" in stored.changed_settings
        (line,) = audit.page(store, audit.AuditFilter(action="gate.decide"))
        assert line["actor"] == users.get_user(store, "tester").user_id, "who started it stands for it, not the worker"
    assert (models / result["report"]).is_file()


@pytest.mark.parametrize(
    "body",
    [
        {"model": "../outside+a"},
        {"model": "/etc+a"},
        {"model": "http://127.0.0.1:9/v1#m"},
        {"model": "someone/unknown+a"},
        {"model": "embedded:tiny+nobody"},
        {"model": "embedded:tiny+../../keys"},
        {"model": "embedded:tiny+keys"},
        {"model": "+a"},
        {"model": MODEL, "baseline": "reports"},
        {"model": MODEL, "settings": {"suites": ["os:system"]}},
        {"model": MODEL, "settings": {"suites": ["multiple_choice=/etc/passwd"]}},
        {"model": MODEL, "settings": {"rules": ["json:loads"]}},
        {"model": MODEL, "settings": {"margin": 0}},
        {"model": MODEL, "report": "x"},
    ],
    ids=str,
)
def test_what_is_not_in_the_workspace_and_code_are_refused(client: TestClient, settings: Settings, models: Path, body) -> None:
    answer = client.post("/api/v1/gate/runs", json=body)
    assert answer.status_code == 422, answer.text
    assert not queue.ids(settings), "nothing was queued"


def test_clinicians_read_runs_and_do_not_start_them(stranger: TestClient, settings: Settings, models: Path, key: str) -> None:
    with open_store(settings) as store:
        reader = users.new_key(store, users.add_user(store, "dr.li", "clinician", actor="test"), actor="test")
    assert stranger.post("/api/v1/gate/runs", json={"model": MODEL}, headers=_as(reader)).status_code == 403
    job_id = stranger.post("/api/v1/gate/runs", json={"model": MODEL}, headers=_as(key)).json()["job_id"]
    assert stranger.get(f"/api/v1/gate/runs/{job_id}", headers=_as(reader)).json()["state"] == "queued"
    assert stranger.get(f"/api/v1/data/build/{job_id}", headers=_as(key)).status_code == 404, "a job of another kind"


def _as(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
