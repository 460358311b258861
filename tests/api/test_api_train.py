"""The door: who comes in, what is refused and how it is said; routes of training jobs."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from medloop.api.request_filter import BODY_LIMIT
from medloop.contracts import TrainRequest
from medloop.contracts.validity import LabelledCase
from medloop.jobs import job_row, queue
from medloop.jobs.submit import submit_training
from medloop.jobs.worker import work
from medloop.loop.trust import validate
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.trust import TrustConfig
from medloop.settings import JobSettings
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.web.app import create_app

GRPO = {"stage": "GRPO", "config": {"steps": 2}}


def test_the_door_opens_without_torch():
    code = "import medloop.web.app, medloop.jobs.worker, sys; print({'torch', 'transformers', 'trl', 'peft'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1/healthz?",
        "localhost#",
        "localhost:80:80",
        "127.0.0.1:99999999",
        "",
        "0.0.0.0",
    ],
)
def test_another_host_is_a_stranger(client, host):
    assert client.get("/healthz", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "[::1]:8000"])
def test_this_machine_is_at_home(client, host):
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


def test_pages_of_other_origins_may_not_call(client):
    assert client.get("/api/train", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/train", headers={"Origin": "http://127.0.0.1"}).status_code == 200


def test_a_body_is_json_and_small(client):
    text = json.dumps(GRPO)
    assert client.post("/api/train", content=text, headers={"Content-Type": "text/plain"}).status_code == 415
    large = json.dumps({**GRPO, "config": {"x": "a" * BODY_LIMIT}})
    assert client.post("/api/train", content=large, headers={"Content-Type": "application/json"}).status_code == 413
    chunks = (large[start : start + 1000].encode() for start in range(0, len(large), 1000))
    assert client.post("/api/train", content=chunks, headers={"Content-Type": "application/json"}).status_code == 413
    deep = "[" * 30_000 + "]" * 30_000
    assert client.post("/api/train", content=deep, headers={"Content-Type": "application/json"}).status_code in (400, 422)


def test_a_bad_body_is_told_by_its_fields_and_never_repeated(client):
    body = {"stage": "GRPO", "irs_config": {"n_iterations": "patient Li Wei"}, "role": "admin"}
    answered = client.post("/api/train", json=body)
    assert answered.status_code == 422 and "Li Wei" not in answered.text
    assert [field["field"] for field in answered.json()["fields"]] == ["irs_config.n_iterations", "role"]
    assert set(answered.json()) == {"error", "hint", "fields"}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"stage": "GRPO", "config": {"stepz": "Li-Wei", "steps": "Li-Wei"}}, ["config.steps", "config.stepz"]),
        ({"stage": "PPO", "config": {"clip": 2, "given": {"model": 3}}}, ["config.given.model", "config.clip"]),
        ({"stage": "IRS", "irs_config": {"learning_rate": 3}}, ["irs_config.learning_rate"]),
        ({"stage": "IRS", "irs_config": {"dw_config": {"initial_weights": {"rel": 99}}}}, ["irs_config.dw_config"]),
        ({"stage": "IRS", "irs_config": {"top": 3}}, ["irs_config.top"]),
        ({"stage": "SFT", "config": {"epochs": 0}}, ["config.epochs"]),
        ({"stage": "REWARD", "config": {"centre": "Li-Wei"}}, ["config.centre"]),
        ({"stage": "DPO", "config": {"loss": "Li-Wei"}}, ["config.loss"]),
        ({"stage": "KTO", "config": {"batch_size": 1}}, ["config"]),
    ],
)
def test_settings_that_do_not_fit_are_told_by_field_before_there_is_a_job(client, settings, body, fields):
    answered = client.post("/api/train", json=body)
    assert answered.status_code == 422 and [field["field"] for field in answered.json()["fields"]] == fields
    assert "Li-Wei" not in answered.text and all(field["problem"] for field in answered.json()["fields"])
    assert queue.ids(settings) == [] and not list((settings.home / "jobs").iterdir())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"stage": "DPO"}, 409),
        ({"stage": "NONE"}, 422),
        ({"stage": "GRPO", "config": {"prompts": "../../etc/passwd"}}, 422),
        ({"stage": "GRPO", "config": {"prompts": "keys/master.key"}}, 422),
        ({"stage": "GRPO", "config": {"prompts": "./medloop.db"}}, 422),
        ({"stage": "GRPO", "config": {"given": {"x": "os:system"}}}, 422),
        ({"stage": "SFT"}, 409),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(client, settings, body, code):
    answered = client.post("/api/train", json=body)
    assert answered.status_code == code and answered.json()["error"].endswith(".") and answered.json()["hint"]
    assert queue.ids(settings) == [] and str(settings.home) not in answered.text


def test_an_unknown_job_is_404_everywhere(client):
    for name in ("train_20990101T000000Z", "..%2f..%2fkeys", "x"):
        for method, path in (("GET", "status/{}"), ("GET", "{}/metrics"), ("POST", "{}/cancel"), ("POST", "{}/resume")):
            answered = client.request(method, "/api/train/" + path.format(name))
            assert answered.status_code in (404, 405) and set(answered.json()) == {"error", "hint"}


def test_a_job_is_submitted_seen_listed_cancelled_and_resumed(client, settings):
    job = client.post("/api/train", json=GRPO).json()
    job_id = job["job_id"]
    assert client.get(f"/api/train/status/{job_id}").json() == {
        k: job[k] for k in ("job_id", "stage", "state", "detail", "objective")
    }
    assert client.post(f"/api/train/{job_id}/cancel").json()["state"] == "cancelled"
    assert client.post(f"/api/train/{job_id}/resume").json()["state"] == "queued"
    again = client.post(f"/api/train/{job_id}/resume")
    assert again.status_code == 409 and "queued" in again.json()["error"]


def test_a_stage_is_accepted_in_either_case_and_answered_in_upper_case(client):
    answered = client.post("/api/train", json={**GRPO, "stage": "grpo"})
    assert answered.status_code == 200 and answered.json()["stage"] == "GRPO"
    assert client.get(f"/api/train/status/{answered.json()['job_id']}").json()["stage"] == "GRPO"


def test_the_list_comes_in_pages_newest_first(client):
    job_ids = [client.post("/api/train", json=GRPO).json()["job_id"] for _ in range(3)]
    first = client.get("/api/train", params={"limit": 2}).json()
    rest = client.get("/api/train", params={"limit": 2, "after": first["next"]}).json()
    assert [job["job_id"] for job in first["jobs"] + rest["jobs"]] == job_ids[::-1] and rest["next"] is None
    assert client.get("/api/train", params={"limit": 0}).status_code == 422


def test_only_so_many_jobs_of_one_person_may_wait(client, settings, key):
    responses = [client.post("/api/train", json=GRPO) for _ in range(settings.jobs.max_waiting_per_user)]
    assert {response.status_code for response in responses} == {200}
    over = client.post("/api/train", json=GRPO)
    assert over.status_code == 429 and over.headers["retry-after"] == "60"
    assert over.json()["error"] == "You already have 10 jobs waiting; the limit is 10."
    assert over.json()["hint"] == "Cancel one, or send it again after 60 s."
    assert len(queue.ids(settings)) == 10 and not list((settings.home / "jobs").glob(".*"))
    with open_store(settings) as store:  # another person goes on, with the same role
        other = users.new_key(store, users.add_user(store, "other", "engineer", actor="test"), actor="test")
    assert client.post("/api/train", json=GRPO, headers={"Authorization": f"Bearer {other}"}).status_code == 200
    first = responses[0].json()["job_id"]
    assert client.post(f"/api/train/{first}/cancel").status_code == 200
    assert client.post("/api/train", json=GRPO).status_code == 200
    assert client.post(f"/api/train/{first}/resume").status_code == 429  # the place is taken
    assert client.post("/api/train", json={"stage": "NONE"}).status_code == 422


def test_only_so_many_jobs_may_wait_in_all_however_many_ask_at_once(settings, key):
    small = settings.model_copy(update={"jobs": JobSettings(max_waiting=3)})
    submit_training(TrainRequest(**GRPO), small)  # at the keyboard: counted, and never refused
    with TestClient(create_app(small, supervise=False), base_url="http://127.0.0.1") as client, ThreadPoolExecutor(8) as pool:
        ask = lambda _: client.post("/api/train", json=GRPO, headers={"Authorization": f"Bearer {key}"})  # noqa: E731
        answers = list(pool.map(ask, range(8)))
    assert sorted(response.status_code for response in answers) == [200] * 2 + [429] * 6 and len(queue.ids(small)) == 3
    assert {response.json()["error"] for response in answers if response.status_code == 429} == {
        "3 jobs are already waiting; the limit is 3."
    }
    submit_training(TrainRequest(**GRPO), small)


def test_a_job_that_waits_for_space_waits_and_one_that_is_over_does_not(settings):
    row = job_row.read(queue.folder_of(submit_training(TrainRequest(**GRPO), settings, by="u").job_id, settings))
    assert row.is_waiting and row.submitter == "u"
    assert row.model_copy(update={"state": "paused", "waits_for": "space"}).is_waiting
    assert not any(
        row.model_copy(update={"state": state}).is_waiting for state in ("running", "paused", "succeeded", "cancelled")
    )


def test_metrics_are_the_lines_of_the_file(client, settings):
    job_id = client.post("/api/train", json=GRPO).json()["job_id"]
    assert client.get(f"/api/train/{job_id}/metrics").json() == []
    line = {"ts": "2026-02-03T12:00:01Z", "iter": 1, "phase": "GENERATING", "progress": 10}
    (queue.folder_of(job_id, settings) / "metrics.jsonl").write_text(json.dumps(line) + '\n{"ts": "2026')
    assert client.get(f"/api/train/{job_id}/metrics").json() == [line]


def test_an_error_of_our_own_says_nothing_of_what_it_met(client, monkeypatch, caplog):
    def broken(*_, **__):
        raise KeyError("patient Li Wei")

    monkeypatch.setattr(queue, "page", broken)
    answered = client.get("/api/train")
    assert answered.status_code == 500 and "Li Wei" not in answered.text + caplog.text and "KeyError" in caplog.text


def test_a_damaged_row_is_told_without_its_path(client, settings):
    job_id = client.post("/api/train", json=GRPO).json()["job_id"]
    Path(queue.folder_of(job_id, settings) / job_row.QUEUE).write_text("{")
    answered = client.get(f"/api/train/status/{job_id}")
    assert answered.status_code == 500 and "workspace" in answered.json()["error"] and str(settings.home) not in answered.text


def test_answers_carry_careful_headers(client):
    headers = client.get("/healthz").headers
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]


def test_a_job_on_a_reward_that_labels_do_not_support_is_refused_unless_accepted_and_irs_names_its_fixed_weights(
    client, settings
):
    assert (
        "default mix, whose weights do not change"
        in client.post("/api/train", json={"stage": "IRS"}).json()["objective"]["notes"][0]
    )
    answers = {"chosen": "It is nothing, sleep.", "rejected": "Call an ambulance now, this may be a heart attack."}
    cases = [
        LabelledCase(id=f"{n}", question=f"Crushing chest pain for an hour {n}", source="ward", **answers) for n in range(30)
    ]
    validate(settings, cases, build_mix(MixConfig()), config=TrustConfig())
    jobs = queue.ids(settings)
    for body in (GRPO, {"stage": "PPO"}, {"stage": "IRS"}):
        refused = client.post("/api/train", json=body)
        assert refused.status_code == 422 and queue.ids(settings) == jobs
        assert refused.json()["error"].startswith("People's labels do not support this reward: the whole reward (agreement 0.00")
        assert "accept_untrusted" in refused.json()["hint"]
    accepted = client.post("/api/train", json={"stage": "GRPO", "config": {"accept_untrusted": True}}).json()
    assert accepted["warnings"][0].startswith("UNTRUSTED, and accepted: the whole reward")


def test_what_a_job_names_is_looked_at_again_by_its_worker(client, settings):
    prompts = settings.home / "data/rl/mine.jsonl"
    prompts.write_bytes((settings.home / "data/rl/training_prompts.jsonl").read_bytes())
    sent = client.post("/api/train", json={"stage": "GRPO", "config": {"prompts": "data/rl/mine.jsonl"}})
    prompts.unlink()
    prompts.symlink_to(settings.home / "keys/master.key")
    done = work(sent.json()["job_id"], settings)
    assert done.state == "failed" and "config.prompts: a job may read only" in done.reason
