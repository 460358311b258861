"""Datasets, consent and erasure over HTTP: the same functions as the commands, as jobs, for the right people."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from medloop.api import task_jobs
from medloop.contracts import Feedback, TrainRequest
from medloop.data.feedback import build as from_feedback
from medloop.data.feedback.build import FeedbackConfig
from medloop.jobs import job_row, kinds, queue, submit
from medloop.jobs.job_row import StateError
from medloop.jobs.lease import Lease, claim
from medloop.jobs.submit import submit_training
from medloop.jobs.supervisor import Supervisor, is_due
from medloop.jobs.worker import RETRY_S, end_of_stopped, work
from medloop.loop.feedback import build_from_feedback
from medloop.privacy.consent import subject_of
from medloop.settings import JobSettings, Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import crud, erasing, users
from medloop.testing.canary import CANARY, told, traces_of
from medloop.testing.feedback import make_preference, make_thumb


def fill(settings: Settings) -> None:
    with open_store(settings) as store:
        who = subject_of(store, "4711")
        given = [make_preference(n, f"rest {n}", f"run {n}", "a") for n in range(6)]
        crud.add(store, [*given, make_thumb(9, "sleep", True, query=told("back"), subject=who, feedback_id="fb_1")], actor="test")


def as_(client: TestClient, settings: Settings, role: str) -> TestClient:
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, f"the-{role}", role, actor="test"), actor="test")
    client.headers["Authorization"] = f"Bearer {key}"
    return client


def done(client: TestClient, settings: Settings, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """File a job, do it as a worker does, and ask for what came of it."""
    filed = client.post(f"/api/v1/{path}", json=body)
    assert filed.status_code == 202 and filed.headers["location"] == filed.json()["address"], filed.text
    assert filed.json()["state"] == "queued" and filed.json()["result"] is None
    work(filed.json()["job_id"], settings)
    response = client.get(filed.json()["address"])
    assert response.status_code == 200 and CANARY not in response.text
    return response.json()


def test_a_build_over_http_is_the_build_of_the_command(client: TestClient, settings: Settings) -> None:
    fill(settings)
    result = done(client, settings, "data/build", {"name": "week46", "seed": 7})["result"]
    assert result["rows"]["preferences.jsonl"] == 6 and result["new"] == 7
    folder = Path(settings.home / "data/feedback/week46")
    assert verify_artifact(folder).sha256 == result["sha256"]
    with open_store(settings) as store:
        again = build_from_feedback(store, FeedbackConfig(name="week46"), seed=7, actor="test")
    assert (again.sha256, again.new_records) == (result["sha256"], 0)


def test_a_build_with_nothing_to_learn_from_says_why(client: TestClient, settings: Settings) -> None:
    empty = client.post("/api/v1/data/build", json={})
    assert empty.status_code == 422 and "no feedback" in empty.json()["error"]
    with open_store(settings) as store:
        crud.add(store, [make_thumb(1, "rest", True, consent=())], actor="test")
    task = done(client, settings, "data/build", {})
    assert task["state"] == "failed" and "1 records no consent" in task["message"] and task["result"] is None


def test_who_waits_gets_the_result_and_who_asks_twice_gets_one_job(client: TestClient, settings: Settings) -> None:
    fill(settings)
    first, second = (client.post("/api/v1/data/build", json={"name": "a"}).json()["job_id"] for _ in range(2))
    other = client.post("/api/v1/data/build", json={"name": "b"}).json()["job_id"]
    assert first == second != other

    def worker() -> None:
        while not queue.ids(settings, ("data",))[2:]:
            time.sleep(0.05)
        work(queue.ids(settings, ("data",))[0], settings)

    thread = threading.Thread(target=worker)
    thread.start()
    waited = client.post("/api/v1/data/build?wait=30", json={"name": "c"})
    thread.join()
    assert waited.status_code == 200 and waited.json()["result"]["name"] == "c"
    assert client.post("/api/v1/data/build?wait=31", json={}).status_code == 422


def test_when_too_many_wait_the_next_is_answered_at_once(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(settings)
    monkeypatch.setattr(task_jobs, "WAITING", threading.Semaphore(0))
    began = time.monotonic()
    assert client.post("/api/v1/data/build?wait=20", json={}).status_code == 202 and time.monotonic() - began < 10


def test_a_job_is_shown_to_those_who_may_do_such_jobs_alone(client: TestClient, settings: Settings) -> None:
    fill(settings)
    address = client.post("/api/v1/data/build", json={}).json()["address"]
    assert client.get(address.replace("data/build", "erasure")).status_code == 403
    admin = as_(client, settings, "admin")
    assert admin.get(address).status_code == 403 and admin.get(address.replace("data/build", "erasure")).status_code == 404
    assert as_(client, settings, "clinician").get(address).status_code == 403


def test_a_cancelled_build_publishes_nothing_and_an_erasure_is_not_cancelled(client: TestClient, settings: Settings) -> None:
    fill(settings)
    job_id = client.post("/api/v1/data/build", json={}).json()["job_id"]
    assert queue.cancel(job_id, settings).state == "cancelled" and not (settings.home / "data/feedback/feedback").exists()
    filed = as_(client, settings, "admin").post("/api/v1/erasure", json={"subject": "4711", "reason": "asked"}).json()
    assert client.post(f"/api/train/{filed['job_id']}/cancel").status_code == 404
    with pytest.raises(StateError, match="always runs to the end"):
        queue.cancel(filed["job_id"], settings)
    assert "4711" not in (settings.workspace.jobs / filed["job_id"] / "request.json").read_text()


@pytest.mark.parametrize("body", [{"name": "../x"}, {"test_share": 2}, {"unknown": 1}, {"seed": -1}])
def test_a_bad_build_body_is_refused_by_field(client: TestClient, body: dict) -> None:
    assert client.post("/api/v1/data/build", json=body).status_code == 422


def test_consent_is_recorded_by_hash_and_read_back(stranger: TestClient, settings: Settings) -> None:
    client = as_(stranger, settings, "clinician")
    body = {"subject": "Ann Example", "purposes": ["training", "teacher"], "text_version": "2026-01"}
    response = client.post("/api/v1/consent", json=body)
    assert response.status_code == 201 and response.json()["subject"].startswith("sub_") and "Ann" not in response.text
    client.post("/api/v1/consent", json={**body, "purposes": ["training"], "granted": False})
    consents = client.get("/api/v1/consent", params={"subject": response.json()["subject"]}).json()
    assert consents["now"] == {"training": False, "teacher": True} and len(consents["history"]) == 2
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
    before = done(client, settings, "data/build", {})["result"]
    as_(client, settings, "admin").post(
        "/api/v1/consent", json={"subject": "4711", "purposes": ["training"], "granted": False, "text_version": "1"}
    )
    after = done(as_(client, settings, "engineer"), settings, "data/build", {})["result"]
    assert (before["rows"]["thumbs.jsonl"], after["rows"]["thumbs.jsonl"]) == (1, 0)


def test_an_admin_erases_and_the_answer_holds_no_text(client: TestClient, settings: Settings) -> None:
    fill(settings)
    assert done(client, settings, "data/build", {})["result"] and traces_of(settings.home)
    body = {"subject": "4711", "reason": "asked"}
    assert client.post("/api/v1/erasure", json=body).status_code == 403
    admin = as_(client, settings, "admin")
    dry = done(admin, settings, "erasure", {**body, "dry_run": True})["result"]
    assert dry["state"] == "preview" and dry["rows"] == {"rlhf_feedback": 1} and traces_of(settings.home)
    result = done(admin, settings, "erasure", body)["result"]
    assert result["state"] == "complete" and traces_of(settings.home) == []
    proof = json.loads((settings.workspace.reports / f"erasure/{result['erasure_id']}.json").read_text())
    assert result["proof"] == proof and proof["rows"] == {"rlhf_feedback": 1}
    assert done(admin, settings, "erasure", body)["result"]["erasure_id"] == result["erasure_id"]
    with open_store(settings) as store:
        assert crud.get(store, Feedback, "fb_1") is None and audit.verify(store).ok


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


def filed(client: TestClient, path: str, body: dict[str, Any]) -> str:
    response = client.post(f"/api/v1/{path}", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["job_id"])


@pytest.mark.parametrize(("path", "role"), [("erasure", "admin"), ("data/build", "engineer")])
def test_what_finds_the_workspace_in_use_is_tried_again_by_itself(
    stranger: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch, path: str, role: str
) -> None:
    fill(settings)
    body = {"subject": "4711", "reason": "asked"} if path == "erasure" else {}
    job_id = filed(as_(stranger, settings, role), path, body)
    monkeypatch.setattr(erasing.erasure_lock.__wrapped__, "__kwdefaults__", {"wait_s": 0.1})
    monkeypatch.setattr(from_feedback, "WAIT_S", 0.1)
    with open_store(settings) as store, erasing.erasure_lock(store):
        row = work(job_id, settings)
    assert row.state == "queued" and "in use" in str(row.reason) and not is_due(row) and row.restarts == 0
    assert is_due(row.model_copy(update={"ready_at": row.ready_at - RETRY_S}))
    assert work(job_id, settings).state == "succeeded"


def test_a_failure_of_the_server_is_not_the_callers_fault(
    stranger: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(settings)
    file_it = submit.submit_erasure

    def and_fail(*args: Any, **more: Any) -> str:
        job_id = file_it(*args, **more)
        monkeypatch.setitem(kinds.KINDS, "ERASE", replace(kinds.KINDS["ERASE"], run=lambda work: 1 / 0))
        work(job_id, settings)
        return job_id

    monkeypatch.setattr(submit, "submit_erasure", and_fail)
    body = {"subject": "4711", "reason": "asked"}
    response = as_(stranger, settings, "admin").post("/api/v1/erasure?wait=5", json=body)
    assert response.status_code == 200 and response.json()["state"] == "failed" and "Internal error" in response.json()["message"]


class Child:
    """A worker that goes on and on."""

    def poll(self) -> None:
        return None


def test_tasks_do_not_wait_for_training_and_are_done_one_at_a_time(client: TestClient, settings: Settings) -> None:
    fill(settings)
    training = [submit_training(TrainRequest(stage="GRPO", model_id="embedded:tiny"), settings).job_id for _ in range(2)]
    first, _ = (client.post("/api/v1/data/build", json={"name": name}).json()["job_id"] for name in "ab")
    started: list[str] = []

    def start(job_id: str, _: Settings) -> Any:
        started.append(job_id)
        return Child()

    supervisor = Supervisor(settings, start=start)
    for _ in range(2):
        supervisor.poll()
    assert sorted(started) == sorted([training[0], first])


def test_so_many_tasks_may_wait_and_the_next_is_told_when_to_come_again(client: TestClient, settings: Settings) -> None:
    fill(settings)
    codes = [
        client.post("/api/v1/data/build", json={"name": f"d{n}"}).status_code
        for n in range(settings.jobs.max_waiting_per_user + 1)
    ]
    assert codes == [202] * settings.jobs.max_waiting_per_user + [429]


def test_datasets_that_wait_hold_up_no_erasure(client: TestClient, settings: Settings) -> None:
    fill(settings)
    small = settings.model_copy(update={"jobs": JobSettings(max_waiting=2)})
    client.app.state.store.settings = small
    for name in "ab":
        filed(client, "data/build", {"name": name})
    assert client.post("/api/v1/data/build", json={"name": "c"}).status_code == 429
    erasure = filed(as_(client, settings, "admin"), "erasure", {"subject": "4711", "reason": "asked"})
    started: list[str] = []
    Supervisor(settings, start=lambda job_id, _: started.append(job_id) or Child()).poll()
    assert started == [erasure]


def test_tasks_take_no_place_of_a_training_job(client: TestClient, settings: Settings) -> None:
    fill(settings)
    for n in range(settings.jobs.max_waiting_per_user):
        filed(client, "data/build", {"name": f"d{n}"})
    assert client.post("/api/train", json={"stage": "GRPO", "model_id": "embedded:tiny"}).status_code == 200


def test_tasks_are_no_training_jobs_to_the_routes_of_training(client: TestClient, settings: Settings) -> None:
    fill(settings)
    build = filed(client, "data/build", {})
    erasure = filed(as_(client, settings, "admin"), "erasure", {"subject": "4711", "reason": "asked"})
    trained = submit_training(TrainRequest(stage="GRPO", model_id="embedded:tiny"), settings).job_id
    engineer = as_(client, settings, "engineer")
    assert [job["job_id"] for job in engineer.get("/api/train").json()["jobs"]] == [trained]
    for task in (build, erasure):
        work(task, settings)
        for method, path in (
            ("GET", f"status/{task}"),
            ("GET", f"{task}/metrics"),
            ("POST", f"{task}/resume"),
            ("POST", f"{task}/cancel"),
        ):
            response = engineer.request(method, f"/api/train/{path}")
            assert response.status_code == 404 and "er_" not in response.text
        assert engineer.get("/api/train", params={"after": task}).status_code == 404


def test_words_about_tasks_are_not_those_of_training(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(settings)
    messages = [client.get("/api/v1/data/build/nonsense").json()["hint"]]
    job_id = filed(client, "data/build", {})
    folder = queue.folder_of(job_id, settings)
    with claim(folder):
        pass
    messages.append(client.get(f"/api/v1/data/build/{job_id}").json()["message"])
    row = job_row.read(folder)
    for change in ({"cancel_requested": True}, {"restarts": 3}):
        messages.append(str(Supervisor(settings)._restarted(row.model_copy(update=change), "The worker died").reason))
    job_row.change(folder, lambda now: now.model_copy(update={"cancel_requested": True}))
    messages.append(str(end_of_stopped(Lease(folder, row.token)).reason))
    job_row.change(folder, lambda now: now.model_copy(update={"cancel_requested": False}))
    monkeypatch.setitem(kinds.KINDS, "BUILD", replace(kinds.KINDS["BUILD"], run=out_of_memory))
    messages.append(str(work(job_id, settings).reason))
    assert len(messages) == 6 and not any(
        word in message for message in messages for word in ("checkpoint", "micro_batch_size", "resume")
    )
    assert "data_" in messages[0] and "nothing was published" in messages[2] and "nothing was published" in messages[4]


def out_of_memory(*args: Any) -> None:
    raise MemoryError
