"""What training made of the feedback stands beside the feedback: reward-model accuracy and policy gain, from the cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from medloop.cli import app
from medloop.feedback.insight.metrics import measure
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import catalog
from medloop.store.db import Store, open_store
from medloop.store.files.artifacts import new_artifact
from medloop.store.records import lineage, users
from medloop.web.app import create_app

ACCURACY = {"test_accuracy": 0.64, "test_accuracy_low": 0.51, "test_accuracy_high": 0.76, "test_pairs": 53.0}
GAIN = {"held_out_gain": 0.135, "held_out_gain_low": 0.057, "held_out_gain_high": 0.216, "held_out": 96.0}


@pytest.fixture
def clinic(workspace: Path) -> Settings:
    init_workspace(workspace)
    return Settings(home=workspace, device="cpu", offline=True)


def publish(store: Store, kind: str, name: str, method: str, metrics: dict[str, float]) -> catalog.CatalogEntry:
    card = {"name": name, "method": method, "metrics": metrics, "finished": "2026-03-01T09:00:00Z"}
    with new_artifact(store.settings.home / "models" / name) as folder:
        (folder / "card.json").write_text(json.dumps(card))
    return catalog.register(store, kind, store.settings.home / "models" / name, card, actor="test")


def test_reward_model_accuracy_and_policy_gain_are_in_the_metrics_route_and_the_command(clinic: Settings) -> None:
    with open_store(clinic) as store:
        key = users.new_key(store, users.add_user(store, "eng", "engineer", actor="t"), actor="t")
        publish(store, "reward model", "old", "reward", ACCURACY | {"test_accuracy": 0.5})
        publish(store, "reward model", "new", "reward", ACCURACY)
        publish(store, "adapter", "rl", "grpo", GAIN)
        publish(store, "adapter", "sft", "sft", {"dev_loss": 1.0})  # newer, but it has no gain
    shown = CliRunner().invoke(app, ["--home", str(clinic.home), "feedback", "metrics"]).output
    assert "0.64 [0.51, 0.76] on 53 held-out pairs (reward new)" in shown
    assert "+0.135 [+0.057, +0.216] on 96 held-out questions (grpo rl)" in shown
    with TestClient(create_app(clinic, supervise=False), base_url="http://127.0.0.1") as client:
        answer = client.get("/api/v1/rlhf/metrics", headers={"Authorization": f"Bearer {key}"}).json()
    assert {"mean": 0.64, "low": 0.51, "high": 0.76, "n": 53}.items() <= answer["reward_model"]["value"].items()
    assert (answer["policy"]["name"], answer["policy"]["value"]["mean"]) == ("rl", 0.135)


def test_without_a_trained_model_the_metrics_say_so_and_an_erasure_is_told(clinic: Settings) -> None:
    shown = CliRunner().invoke(app, ["--home", str(clinic.home), "feedback", "metrics"]).output
    assert shown.count("none trained yet") == 2
    with open_store(clinic) as store:
        entry = publish(store, "reward model", "first", "reward", ACCURACY)
        with store.write() as conn:
            lineage.flag_artifact(conn, entry.sha256, "tainted", "erasure-1", actor="test")
        result = measure(store).reward_model
    assert result is not None and result.tainted and result.name == "first"
