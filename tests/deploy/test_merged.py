"""Merged weights, all the way: written by the command, served by a server of their own, live by `--merged`, the same text."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from deploy_world import MODEL, promote, register
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import ModelRef
from medloop.contracts.deploy import CanaryVerdict
from medloop.deploy.copies import MERGED
from medloop.loop.deploy import deploy_alias, open_fleet
from medloop.loop.workspace import init_workspace
from medloop.models.find import resolve as resolve_model
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records.routes import live_route
from medloop.testing.registry import examine

pytestmark = pytest.mark.slow
PROMPT = {"prompt": "I have had a cough for two weeks.", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def text_of(url: str, model: str) -> str:
    response = httpx.post(f"{url}/v1/completions", json={**PROMPT, "model": model}, timeout=120)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def test_merged_weights_go_live_and_say_what_the_adapter_says(tmp_path: Path, monkeypatch) -> None:
    from medloop.testing.model_server import model_server
    from medloop.testing.models import random_adapter

    home = tmp_path / "clinic"
    init_workspace(home)
    settings = Settings(home=home)
    base, adapter = resolve_model(ModelRef(base="embedded:tiny"), settings).folder, settings.workspace.models / "lora/v1"
    made = random_adapter(tmp_path / "made", base, 1)
    with new_artifact(adapter) as folder:
        shutil.copytree(made, folder, dirs_exist_ok=True)
    artifact = verify_artifact(adapter).sha256
    with open_store(settings) as store:
        examine(store, artifact)
        promote(store, register(store, "v1", artifact))
    monkeypatch.setenv("MEDLOOP_HOME", str(home))
    result = CliRunner().invoke(app, ["deploy", "merge"])
    assert result.exit_code == 0, result.output
    (merged,) = home.rglob(f"{MODEL}-v1-*{MERGED}")
    with model_server(str(merged), name=merged.name) as server:
        live = Settings.model_validate({"home": home, "deploy": {"replicas": server.url, "drain_s": 0}})
        with open_store(live) as store, open_fleet(store, judge=passed) as fleet:
            assert deploy_alias(fleet, actor="test", merged=True).changed
            route = live_route(store)
        said = text_of(server.url, merged.name)
    assert route is not None and route.served_name == merged.name and route.version == 1
    with model_server(str(base), adapters={"v1": adapter}) as server:
        assert said == text_of(server.url, "v1") != text_of(server.url, "base")


def passed(asked, answer) -> CanaryVerdict:
    return CanaryVerdict(canary_id=asked.canary_id, passed=True, reason="random weights")
