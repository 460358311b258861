"""The registry through its doors: the command line, HTTP and the page; the same rule at each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from registry_world import copy_workspace

from medloop.registry.mirror import open_mirror
from medloop.registry.promote import champion
from medloop.settings import Settings
from medloop.store import passwords
from medloop.store.db import open_store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import users
from medloop.testing.registry import examine, make_adapter
from medloop.web.app import create_app

PASSWORD = "correct horse battery"


@pytest.fixture
def home(template: Path, tmp_path: Path, monkeypatch) -> Path:
    """`good` has passed the gate, `bad` has failed it; nothing is registered."""
    monkeypatch.setattr(passwords, "COST", 2**4)
    home = tmp_path / "clinic"
    copy_workspace(template, home)
    with open_store(Settings(home=home)) as store:
        examine(store, make_adapter(store, "good"))
        examine(store, make_adapter(store, "bad"), "fail")
        for role in users.ROLES:
            users.add_user(store, role, role, password=PASSWORD, actor="test")
    return home


@pytest.fixture
def server(home: Path) -> Iterator[TestClient]:
    app = create_app(Settings(home=home), supervise=False)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def key_of(home: Path, role: str) -> dict[str, str]:
    with open_store(Settings(home=home)) as store:
        return {"Authorization": f"Bearer {users.new_key(store, users.get_user(store, role), actor='test')}"}


def hash_of(home: Path, name: str) -> str:
    return verify_artifact(home / "models/lora" / name).sha256


def test_the_command_line_registers_promotes_and_goes_back(home: Path, command_line, tmp_path: Path) -> None:
    def run(*words: str):
        return command_line("--home", home, "registry", *words)

    assert "no version yet" in run("list").out
    assert "registry promote 1" in run("add", "good").out
    assert "cannot be promoted yet: The gate's check 'critical_failures' failed" in run("add", "bad").out
    refused = run("promote", "2")
    assert refused.code == 3 and "med-assistant/2 cannot be the champion: The gate's check" in refused.err
    assert run("promote", "1", "--reason", "safer").out == "med-assistant/1 is the champion now.\n"
    rows = json.loads(run("list", "--json").out)["versions"]
    assert [(row["version"], row["aliases"], row["gate_outcome"]) for row in rows] == [(2, [], "fail"), (1, ["champion"], "pass")]
    assert "promote champion by" in run("show", "1").out and "safer" in run("show", "1").out
    assert run("verify").code == 0
    with open_mirror(Settings(home=home)) as mirror:
        mirror.set_alias("champion", 2)
    moved = run("verify")
    assert moved.code == 10 and "In MLflow its version 2 is the champion, but medloop promoted version 1" in moved.out
    assert run("verify", "--repair").code == 0
    assert run("pull", "1", str(tmp_path / "back")).code == 0 and verify_artifact(tmp_path / "back").sha256 == hash_of(
        home, "good"
    )
    assert run("demote", "champion").code == 0 and champion(Settings(home=home)) is None
    assert run("rollback").out == "med-assistant/1 is the champion again.\n"
    assert run("show", "7").code == 3


def test_http_registers_by_hash_and_promotes_by_the_gate(home: Path, server: TestClient) -> None:
    engineer, clinician = key_of(home, "engineer"), key_of(home, "clinician")
    made = [
        server.post("/api/v1/registry/versions", json={"artifact": hash_of(home, name)}, headers=engineer)
        for name in ("good", "bad")
    ]
    assert [(answer.status_code, answer.json()["version"], answer.json()["lag"]) for answer in made] == [
        (201, 1, None),
        (201, 2, None),
    ]
    unknown = server.post("/api/v1/registry/versions", json={"artifact": "sha256:" + "0" * 64}, headers=engineer)
    assert unknown.status_code == 404
    assert server.post("/api/v1/registry/promote", json={"version": 1}, headers=clinician).status_code == 403
    refused = server.post("/api/v1/registry/promote", json={"version": 2}, headers=engineer)
    assert refused.status_code == 409 and "critical_failures" in refused.json()["error"]
    assert server.post("/api/v1/registry/promote", json={"version": 1}, headers=engineer).json()["aliases"] == ["champion"]
    versions = server.get("/api/v1/registry/versions", headers=clinician).json()["versions"]
    assert [(row["version"], row["aliases"], row["mirrored"]) for row in versions] == [(2, [], True), (1, ["champion"], True)]
    assert server.get("/api/v1/registry/versions/9", headers=clinician).status_code == 404
    assert server.post("/api/v1/registry/rollback", json={}, headers=engineer).status_code == 404
    assert server.post("/api/v1/registry/demote", json={}, headers=engineer).json()["version"] is None


def log_in(server: TestClient, role: str) -> str:
    """The token of the forms of a new session."""
    server.cookies.clear()
    server.post("/web/login", data={"name": role, "password": PASSWORD})
    return re.search(r'name="csrf" value="([^"]+)"', server.get("/web/").text)[1]


def test_the_page_promotes_after_a_confirmation_and_shows_why_not(home: Path, server: TestClient) -> None:
    engineer = key_of(home, "engineer")
    for name in ("good", "bad"):
        server.post("/api/v1/registry/versions", json={"artifact": hash_of(home, name)}, headers=engineer)
    csrf = log_in(server, "engineer")
    page = server.get("/web/registry").text
    assert "Cannot be promoted" in page and "critical_failures" in page and page.count('action="/web/registry/promote"') == 2
    form = {"csrf": csrf, "alias": "champion", "version": "1"}
    unconfirmed = server.post("/web/registry/promote", data=form)
    assert unconfirmed.status_code == 422 and "tick the box" in unconfirmed.text and champion(Settings(home=home)) is None
    assert server.post("/web/registry/promote", data={**form, "version": "2", "confirm": "yes"}).status_code == 409
    done = server.post("/web/registry/promote", data={**form, "confirm": "yes"})
    assert done.status_code == 200 and "med-assistant/1 is the champion now." in done.text
    assert server.post("/web/registry/promote", data={**form, "version": "x", "confirm": "yes"}).status_code == 404
    chinese = server.get("/web/registry", headers={"Accept-Language": "zh"}).text
    assert "冠军模型" in chinese and "版本 1 晋升为冠军模型" in chinese and "不能晋升" in chinese
    csrf = log_in(server, "clinician")
    assert 'action="/web/registry/' not in server.get("/web/registry").text
    assert server.post("/web/registry/promote", data={**form, "csrf": csrf, "confirm": "yes"}).status_code == 403
