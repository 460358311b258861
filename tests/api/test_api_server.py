"""A real server on a free port, as somebody starts it: the contract of the training API, and what outlives the server."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from medloop.cli import app as cli
from medloop.jobs import job_row, queue
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.testing.models import tiny_model

# The request of the training API as its clients send it, letter by letter.
EXAMPLE_REQUEST = """{
  "stage": "IRS",
  "model_id": "Qwen/Qwen2.5-1.5B-Instruct",
  "irs_config": {
    "n_iterations": 3,
    "n_candidates": 4,
    "batch_size": 2,
    "learning_rate": 2e-5,
    "max_new_tokens": 256,
    "load_in_4bit": true,
    "dw_config": {
      "history_window": 5,
      "temperature": 2.0,
      "initial_weights": {"rel": 1.0, "faith": 1.0, "conc": 0.5}
    }
  },
  "n_questions": 100,
  "top_k": 3
}"""


PASSAGES = [
    "A cough after a cold usually ends by itself within three weeks.",
    "See a doctor about a cough with blood, with a high fever or with a short breath.",
    "Warm drinks and honey soothe a cough; children below one year must not have honey.",
    "This fourth passage is one more than top_k allows.",
]
SAFETY = {  # their weights in the default mix, times 2.5, the sum of the document's initial weights
    "emergency": 0.625, "risk": -0.375, "undertriage": -0.625, "overtriage": -0.0125, "safety_net": -0.15, "off_topic": -0.25,
    "false_reassurance": -0.25, "length": -0.125, "repetition": -0.25,
}  # fmt: skip


class Server:
    """`medloop api serve` in a process of its own."""

    def __init__(self, home: Path, key: str = "") -> None:
        environ = {**os.environ, "MEDLOOP_OFFLINE": "true", "MEDLOOP_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-u", "-m", "medloop", "--home", str(home), "api", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        self.output = ""
        while "Serving" not in self.output:
            line = self.process.stdout.readline()
            assert line, "the server did not start"
            self.output += line
        self.key = key or self._new_key(home)
        url = re.search(r"http://127\.0\.0\.1:\d+", self.output)
        assert url is not None
        self.client = httpx.Client(base_url=url[0], headers={"Authorization": f"Bearer {self.key}"}, timeout=20)
        self.client.get("/healthz")  # the address that is printed answers at once

    @staticmethod
    def _new_key(home: Path) -> str:
        command = [sys.executable, "-m", "medloop", "--home", str(home), "api", "keys", "new", "admin", "--scope", "jobs"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return re.findall(r"mlk_\S+", output)[0]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        os.killpg(self.process.pid, number)  # as Ctrl-C does: everybody in the session
        code = self.process.wait(timeout=15)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def until(self, job_id: str, *states: str, seconds: float = 120, seen: list[dict] | None = None) -> dict:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.client.get(f"/api/train/status/{job_id}").json()
            if seen is not None:
                seen.append(status)
            if status["state"] in states:
                return status
            time.sleep(0.2)
        raise AssertionError(f"{job_id} is {status}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "clinic"
    init_workspace(place)
    rows = [
        {"id": f"q{n}", "question": f"I have had a cough for {n} days. What should I do?", "context": PASSAGES} for n in range(6)
    ]
    (place / "data/rl/training_prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    (place / "data/processed/dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[4:]))
    tiny_model(place / "models/full/base")
    return place


@pytest.fixture(scope="module")
def first(home: Path):
    """The server whose start made the key."""
    started = Server(home)
    yield started
    if started.process.poll() is None:
        assert started.end() == 0


@pytest.fixture
def server(first: Server, home: Path):
    """A running one; a test that killed it leaves the next to start another."""
    if first.process.poll() is None:
        yield first
        return
    started = Server(home, first.key)
    yield started
    if started.process.poll() is None:
        started.end()


def test_the_contract_of_the_training_api_on_a_running_server(server, home):
    assert httpx.post(f"{server.client.base_url}/api/train", content=EXAMPLE_REQUEST).status_code in (401, 415)
    headers = {"Content-Type": "application/json"}
    response = server.client.post("/api/train", content=EXAMPLE_REQUEST, headers=headers)
    answer = response.json()
    assert response.status_code == 200 and re.fullmatch(r"train_\d{8}T\d{6}Z(-\d+)?", answer["job_id"])
    assert (answer["stage"], answer["state"]) == ("IRS", "queued")
    parts = answer["objective"]["parts"]
    assert {name: part["weight"] for name, part in parts.items() if part["dynamic"]} == {"rel": 1.0, "faith": 1.0, "conc": 0.5}
    assert {name: part["weight"] for name, part in parts.items() if not part["dynamic"]} == SAFETY
    assert all(part["version"] for part in parts.values()) and set(answer["objective"]["notes"]) <= set(answer["warnings"])
    server.client.post(f"/api/train/{answer['job_id']}/cancel")  # the model is not on this machine

    small = {"n_iterations": 2, "n_candidates": 4, "batch_size": 4, "max_new_tokens": 32}
    # Rewards on two held-out questions are noise: a round that seems to have made them worse is kept here.
    body = json.loads(EXAMPLE_REQUEST) | {"model_id": "embedded:tiny", "n_questions": 4}
    body["config"] = {"tolerance": 9.0, "threshold": -9.0, "max_prompt": 512}
    body["irs_config"] |= small
    body["irs_config"]["dw_config"]["normalize_slopes"] = False
    job_id = server.client.post("/api/train", json=body).json()["job_id"]
    running: list[dict] = []
    status = server.until(job_id, "succeeded", "failed", seen=running)
    assert status["state"] == "succeeded", status
    _check_running(job_id, [seen for seen in running if seen["state"] == "running"])
    assert status["detail"]["runtime"] == {"device": "cpu", "unsloth_available": False, "gpu_mem_used": 0}
    assert {k: set(v) if isinstance(v, dict) else v for k, v in status["detail"].items() if k not in ("message", "phase_progress")} == {
        "current_iteration": 2, "total_iterations": 2, "current_phase": "TRAINING",
        "metrics": {"avg_reward", "reward_breakdown", "current_weights"}, "runtime": {"device", "unsloth_available", "gpu_mem_used"},
    }  # fmt: skip
    lines = server.client.get(f"/api/train/{job_id}/metrics").json()
    assert {"GENERATING", "SCORING", "METRICS", "TRAINING", "HELD_OUT"} == {line["phase"] for line in lines}
    _check_lines(lines, [json.loads(line) for line in (home / "jobs" / job_id / "metrics.jsonl").read_text().splitlines()])
    folder = home / "jobs" / job_id
    _check_numbers(status, lines, json.loads((folder / "weights.json").read_text()))
    assert {name: part["weight"] for name, part in status["objective"]["parts"].items()} == parts_of(answer)
    assert (
        status["objective"]["version"] == json.loads((folder / "config.json").read_text())["identity"]["config"]["reward_version"]
    )
    _check_gold([json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()])
    result = home / "models/rl" / job_id
    assert (result / "weights.png").read_bytes()[:4] == b"\x89PNG" and "Weights of the reward" in (
        result / "report.html"
    ).read_text()
    assert answer["objective"]["version"] in (result / "README.md").read_text()
    assert {"config.json", "metrics.jsonl", "samples.jsonl", "train.log", "checkpoints"} <= {p.name for p in folder.iterdir()}
    assert (folder / "checkpoints/iter_1/adapter_model.safetensors").is_file() and (folder / "checkpoints/final").is_dir()
    assert [job["job_id"] for job in server.client.get("/api/train").json()["jobs"]][:2] == [job_id, response.json()["job_id"]]


def _check_running(job_id: str, statuses: list[dict]) -> None:
    """While it runs the status has the documented fields, with values that can be true."""
    assert statuses
    for status in statuses:
        assert (status["job_id"], status["stage"]) == (job_id, "IRS")
        detail = status["detail"]
        assert set(detail) >= {"current_iteration", "total_iterations", "current_phase", "phase_progress", "metrics"}
        assert 0 <= detail["phase_progress"] <= 100 and detail["current_iteration"] <= detail["total_iterations"]
        assert detail["current_phase"] in (None, "GENERATING", "SCORING", "METRICS", "TRAINING", "HELD_OUT")


def _check_lines(lines: list[dict], written: list[dict]) -> None:
    """The route answers with the file; each phase has the fields of the document, with values."""
    assert lines == written and all({"ts", "iter", "phase"} <= set(line) for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", line["ts"]) for line in lines)
    assert [line["ts"] for line in lines] == sorted(line["ts"] for line in lines)
    of = {name: [line for line in lines if line["phase"] == name] for name in ("GENERATING", "SCORING", "METRICS", "TRAINING")}
    assert {name: {line["iter"] for line in of_phase} for name, of_phase in of.items()} == {name: {1, 2} for name in of}
    assert [line["progress"] for line in of["GENERATING"]] == [0, 100, 0, 100] and {
        line["progress"] for line in of["SCORING"]
    } == {100}
    assert all(
        isinstance(line["avg_reward"], float) and set(line["weights"]) == {"rel", "faith", "conc"} for line in of["METRICS"]
    )
    assert all(0 < line["epoch"] <= 1 and line["loss"] > 0 for line in of["TRAINING"])
    assert [line["epoch"] for line in of["TRAINING"] if line["iter"] == 2][-1] == 1


def test_the_smoke_request_of_the_document_makes_a_job(server, home):
    response = server.client.post("/api/train", json={"stage": "IRS", "n_iterations": 1, "n_questions": 8})
    assert response.status_code == 200, response.text
    job_id = response.json()["job_id"]
    request = json.loads((home / "jobs" / job_id / "request.json").read_text())
    assert (request["stage"], request["n_iterations"], request["n_questions"]) == ("IRS", 1, 8)
    assert server.client.post(f"/api/train/{job_id}/cancel").status_code == 200


def parts_of(answer: dict) -> dict[str, float]:
    return {name: part["weight"] for name, part in answer["objective"]["parts"].items()}


def _check_numbers(status: dict, lines: list[dict], history: dict) -> None:
    """The status has the reward of the last iteration, what it is made of, and the weights that were in force."""
    shown, last = status["detail"]["metrics"], [line for line in lines if line["phase"] == "METRICS"][-1]
    assert shown["avg_reward"] == last["avg_reward"] and shown["reward_breakdown"] == last["extra"]["parts"]
    assert {"rel", "faith", "conc", "risk", "false_reassurance", "overtriage"} <= set(shown["reward_breakdown"])
    assert all(0 < shown["reward_breakdown"][name] <= 1 for name in ("rel", "faith", "conc"))
    assert history["config"]["normalize_slopes"] is False and history["config"]["history_window"] == 5
    # One round has no slope yet, so the second one still has the initial weights; raw slopes then move them a little.
    assert shown["current_weights"] == history["rounds"][0]["weights"] == {"rel": 1.0, "faith": 1.0, "conc": 0.5}
    moved = history["rounds"][1]["weights"]
    assert moved["conc"] > 0.55 and abs(moved["rel"] - 1.0) < 0.1
    assert history["rounds"][1]["means"] == pytest.approx({name: shown["reward_breakdown"][name] for name in moved}, abs=1e-5)


def _check_gold(rows: list[dict]) -> None:
    """One gold answer per question and iteration, held to the first three passages, and none that a safety rule refuses.

    Beside it stands the candidate with the lowest reward, which was not selected.
    """
    gold = [row for row in rows if row["selected"]]
    best = {(row["iter"], row["prompt_id"]): row["reward"] for row in gold}
    assert gold and len(best) == len(gold)
    assert all(row["reward"] <= best[row["iter"], row["prompt_id"]] for row in rows if not row["selected"])
    for row in gold:
        assert row["context"] == "\n".join(PASSAGES[:3])
        assert {"rel", "faith", "conc", "risk"} <= set(row["parts"]) and row["parts"]["risk"] < 0.5
        assert "emergency" not in row["parts"]  # no red flag in these questions: absent, never 0.0
        assert row["parts"]["conc"] == pytest.approx(max(0, 1 - len(row["answer"].strip()) / len(row["context"])), abs=0.02)


def test_the_same_settings_give_the_same_objective_over_http_and_from_the_command_line(server, home):
    """With dynamic weights and without: HTTP, `jobs submit` and `train irs` name the same version of the reward."""

    def medloop(*words: str) -> str:
        done = CliRunner().invoke(cli, ["--home", str(home), "--set", "offline=true", *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    small = [f"--set={pair}" for pair in ("n_questions=2", "n_iterations=1", "threshold=-9", "max_new_tokens=8", "held_out_n=0")]
    for name, irs_config in (
        ("dynamic", {"dw_config": {"initial_weights": {"rel": 1.0, "faith": 1.0, "conc": 0.5}}}),
        ("mix", {}),
    ):
        body = {"stage": "IRS", "model_id": "models/full/base", "irs_config": irs_config}
        answer = server.client.post("/api/train", json=body).json()
        objective = answer["objective"]
        flags = [f"--set={key}={json.dumps(value)}" for key, value in irs_config.items()]
        submitted = medloop("jobs", "submit", "irs", *flags)
        assert f"version {objective['version']}." in submitted
        for job_id in (answer["job_id"], *re.findall(r"train_\S+", submitted)):
            server.client.post(f"/api/train/{job_id}/cancel")
        assert f"version {objective['version']}." in medloop("train", "irs", "--name", name, *small, *flags)
        card = json.loads((home / f"models/rl/{name}/card.json").read_text())
        assert card["config"]["objective"] == objective and "risk" in objective["parts"]


def test_jobs_outlive_a_killed_server_and_the_next_one_finds_them(server, home):
    settings = Settings(home=home)
    config = {"steps": 8, "prompts_per_step": 2, "samples": 2, "max_new_tokens": 8, "held_out_n": 0, "lora_r": 2}
    body = {"stage": "GRPO", "model_id": "models/full/base", "config": config}
    job_id = server.client.post("/api/train", json=body).json()["job_id"]
    folder = queue.folder_of(job_id, settings)
    server.until(job_id, "running")
    before = job_row.read(folder)
    server.end(signal.SIGKILL)
    assert job_row.has_worker(folder) and "password: " in server.output
    again = Server(home, server.key)
    try:
        assert "password" not in again.output
        done = again.until(job_id, "succeeded", "failed")
        after = job_row.read(folder)
        assert done["state"] == "succeeded" and (after.token, after.restarts) == (before.token, 0)
    finally:
        assert again.end() == 0


@pytest.mark.slow
def test_a_job_outlives_twenty_killed_servers_with_one_worker(server, home):
    config = {"steps": 700, "prompts_per_step": 2, "samples": 2, "max_new_tokens": 8, "held_out_n": 0, "lora_r": 2}
    body = {"stage": "GRPO", "model_id": "models/full/base", "config": config}
    job_id = server.client.post("/api/train", json=body).json()["job_id"]
    server.until(job_id, "running")
    folder = queue.folder_of(job_id, Settings(home=home))
    before, running, seen = job_row.read(folder), server, []
    for _ in range(20):
        running.end(signal.SIGKILL)
        running = Server(home, server.key)
        seen.append(running.client.get(f"/api/train/status/{job_id}").json()["state"])
    assert set(seen) <= {"running", "succeeded"} and seen.count("running") >= 10
    assert running.until(job_id, "succeeded")["state"] == "succeeded"
    assert (job_row.read(folder).token, job_row.read(folder).restarts) == (before.token, 0)
    running.end()
