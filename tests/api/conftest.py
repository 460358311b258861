"""An app over a workspace with a small model, and a client that has the key."""

import json
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.web.app import create_app


@pytest.fixture
def settings(workspace: Path, new_workspace: Path) -> Settings:
    shutil.copytree(new_workspace, workspace, dirs_exist_ok=True)
    (workspace / "data/rl/training_prompts.jsonl").write_text(json.dumps({"id": "q", "question": "Pain?"}) + "\n")
    return Settings(home=workspace, device="cpu", threads=1, offline=True)


@pytest.fixture
def key(settings: Settings) -> str:
    with open_store(settings) as store:
        return users.new_key(store, users.add_user(store, "tester", "engineer", actor="test"), actor="test")


@pytest.fixture
def stranger(settings: Settings, key: str):
    with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(stranger: TestClient, key: str) -> TestClient:
    stranger.headers["Authorization"] = f"Bearer {key}"
    return stranger
