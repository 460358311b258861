"""The registry through its doors: the command line, HTTP and the page; the same rule at each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient
from registry_world import copy_workspace

from medloop.contracts import GateCheck, utc_now
from medloop.registry.mirror import open_mirror
from medloop.registry.promote import champion
from medloop.settings import Settings
from medloop.store import passwords
from medloop.store.db import open_store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import gates, lineage, users
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
    assert refused.code == 10 and "med-assistant/2 cannot be the champion: The gate's check" in refused.err
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


def test_a_rollback_does_not_bring_back_what_was_demoted_while_an_incident_is_open(
    home: Path, command_line, open_incident
) -> None:
    def run(*words: str):
        return command_line("--home", home, "registry", *words)

    for words in (("add", "good"), ("promote", "1"), ("demote", "champion")):
        assert run(*words).code == 0
    with open_store(Settings(home=home)) as store:
        open_incident(store)
    refused = run("rollback")
    assert refused.code == 10 and "open safety incidents" in refused.err and champion(Settings(home=home)) is None


def test_a_version_that_was_demoted_does_not_come_back_behind_a_later_one(home: Path, command_line, open_incident) -> None:
    with open_store(Settings(home=home)) as store:
        examine(store, make_adapter(store, "better"), baseline=hash_of(home, "good"))
    for words in (("add", "good"), ("add", "better"), ("promote", "1"), ("demote", "champion"), ("promote", "2")):
        assert command_line("--home", home, "registry", *words).code == 0
    with open_store(Settings(home=home)) as store:
        open_incident(store)
    refused = command_line("--home", home, "registry", "rollback")
    assert refused.code == 10 and champion(Settings(home=home)).record.version == 2


@pytest.mark.parametrize("against", ["a failed check", "a clinician", "a taint of its weights", "only the open incident"])
def test_a_rollback_asks_the_newest_verdict_but_not_about_incidents(
    home: Path, server: TestClient, open_incident, against
) -> None:
    engineer, good = key_of(home, "engineer"), hash_of(home, "good")
    with open_store(Settings(home=home)) as store:
        better = make_adapter(store, "better")
        examine(store, better, baseline=good)
        for version, artifact in enumerate((good, better), 1):
            server.post("/api/v1/registry/versions", json={"artifact": artifact}, headers=engineer)
            assert server.post("/api/v1/registry/promote", json={"version": version}, headers=engineer).status_code == 200
        verdict = gates.latest_gate(store, good)
        if against == "a failed check":
            examine(store, good, "fail", baseline=verdict.baseline_artifact)
        elif against == "a clinician":
            by = users.get_user(store, "clinician").user_id
            gates.sign(store, verdict.content_id(), by=by, approved=False, comment="It sends emergencies home.")
            examine(store, good)  # a new verdict does not take the refusal back
        elif against == "a taint of its weights":
            later = verdict.model_copy(update={"weights": "sha256:" + "7" * 64})
            gates.save_gate(store, later, actor="test")
            with store.write() as conn:
                lineage.flag_artifact(conn, later.weights, "tainted", "trained on data erased in er_1", actor="test")
        else:
            open_incident(store)
            incidents = verdict.checks[0].model_copy(update={"name": "incidents", "outcome": "fail"})
            later = verdict.model_copy(update={"outcome": "fail", "checks": (*verdict.checks, incidents)})
            gates.save_gate(store, later, actor="test")
    answer = server.post("/api/v1/registry/rollback", json={}, headers=engineer)
    assert answer.status_code == (200 if against == "only the open incident" else 409), answer.text


def test_a_version_that_may_not_be_promoted_is_written_for_a_hub_only_as_unreleased(
    home: Path, command_line, tmp_path: Path
) -> None:
    hub = tmp_path / "hub"
    assert command_line("--home", home, "registry", "add", "bad").code == 0
    refused = command_line("--home", home, "registry", "push", "1", hub)
    assert refused.code == 10 and "critical_failures" in refused.err and not hub.exists()
    assert command_line("--home", home, "registry", "push", "1", hub, "--unreleased").code == 0
    front, body = (hub / "README.md").read_text(encoding="utf-8").split("---\n", 2)[1:]
    assert "Unreleased: this model may not be used" in body
    assert "critical_failures" in yaml.safe_load(front)["medloop"]["unreleased"]


def test_the_card_of_a_version_counts_people_and_not_their_signatures(home: Path, command_line, tmp_path: Path) -> None:
    with open_store(Settings(home=home)) as store:
        gate = examine(store, make_adapter(store, "signed"), needs_sign_offs=1)
        for approved in (True, False, True):
            gates.sign(store, gate, by=users.get_user(store, "clinician").user_id, approved=approved, comment="Read.")
    assert command_line("--home", home, "registry", "add", "signed").code == 0
    assert command_line("--home", home, "registry", "push", "1", tmp_path / "hub").code == 0
    assert "signed by 1 of 1." in (tmp_path / "hub/README.md").read_text(encoding="utf-8")


def log_in(server: TestClient, role: str) -> str:
    """The token of the forms of a new session."""
    server.cookies.clear()
    server.post("/web/login", data={"name": role, "password": PASSWORD})
    return re.search(r'name="csrf" value="([^"]+)"', server.get("/web/").text)[1]


def test_a_verdict_against_an_earlier_champion_promotes_nothing_and_every_door_names_the_command(
    home: Path, server: TestClient, command_line
) -> None:
    engineer, good = key_of(home, "engineer"), hash_of(home, "good")
    with open_store(Settings(home=home)) as store:
        for name in ("better", "late"):
            examine(store, make_adapter(store, name), baseline=good)
    for name in ("good", "better", "late"):
        server.post("/api/v1/registry/versions", json={"artifact": hash_of(home, name)}, headers=engineer)
    for version in (1, 2):
        assert server.post("/api/v1/registry/promote", json={"version": version}, headers=engineer).status_code == 200
    late = {"version": 3, "alias": "challenger"}
    refused = server.post("/api/v1/registry/promote", json=late, headers=engineer)
    command = "medloop gate --model candidate"
    assert refused.status_code == 409 and "another one is the champion now" in refused.text and command in refused.text
    told = command_line("--home", home, "registry", "promote", "3")
    assert told.code == 10 and command in told.err and champion(Settings(home=home)).record.version == 2
    csrf = log_in(server, "engineer")
    page = server.get("/web/registry").text
    assert "another one is the champion now" in page and command in page
    assert "现在的冠军模型已是另一个" in server.get("/web/registry", headers={"Accept-Language": "zh"}).text
    confirmed = {"csrf": csrf, "alias": "champion", "confirm": "yes"}
    other = server.post("/web/registry/rollback", data=confirmed | {"version": "3"})
    assert other.status_code == 409 and "somebody has changed the alias" in other.text, "another version was confirmed"
    assert champion(Settings(home=home)).record.version == 2 and 'name="version" value="1"' in page
    back = server.post("/web/registry/rollback", data=confirmed | {"version": "1"})
    assert back.status_code == 200 and champion(Settings(home=home)).record.version == 1, "a way back needs no new comparison"
    again = server.post("/api/v1/registry/promote", json=late, headers=engineer)
    assert again.status_code == 200, "its verdict is about the champion again"


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
    refused = server.post("/web/registry/promote", data={**form, "version": "2", "confirm": "yes"})
    assert (
        refused.status_code == 409 and "Nothing was changed." in refused.text and "critical_failures&#39; failed" in refused.text
    )
    in_chinese = server.post(
        "/web/registry/promote", data={**form, "version": "2", "confirm": "yes"}, headers={"Accept-Language": "zh"}
    )
    assert "检查项“critical_failures”未通过：" in in_chinese.text and "cannot be the" not in in_chinese.text
    assert 'action="/web/registry/rollback"' not in page, "there is nothing to go back to"
    done = server.post("/web/registry/promote", data={**form, "confirm": "yes"})
    assert done.status_code == 200 and "med-assistant/1 is the champion now." in done.text
    assert server.post("/web/registry/promote", data={**form, "version": "x", "confirm": "yes"}).status_code == 404
    chinese = server.get("/web/registry", headers={"Accept-Language": "zh"}).text
    assert "冠军模型" in chinese and "版本 1 晋升为冠军模型" in chinese and "不能晋升" in chinese
    csrf = log_in(server, "clinician")
    assert 'action="/web/registry/' not in server.get("/web/registry").text
    assert server.post("/web/registry/promote", data={**form, "csrf": csrf, "confirm": "yes"}).status_code == 403


def test_a_version_that_was_let_pass_by_waiver_is_no_mere_failure_in_the_list(
    home: Path, command_line, server: TestClient
) -> None:
    assert command_line("--home", home, "registry", "add", "bad").code == 0
    assert " failed " in command_line("--home", home, "registry", "list").out
    with open_store(Settings(home=home)) as store:
        people = [users.add_user(store, name, "clinician", actor="test").user_id for name in ("dr.a", "dr.b")]
        until = utc_now() + timedelta(days=9)
        failed = GateCheck(name="language/zh", outcome="fail", reason="Half of the answers are not in Chinese.")
        result = gates.latest_gate(store, hash_of(home, "bad")).model_copy(update={"checks": (failed,)})
        gates.save_gate(store, result, actor="test")
        asked = {"check": "language/zh", "reason": "English clinic.", "author": people[0], "expires": until}
        gates.approve_waiver(store, gates.request_waiver(store, result.artifact, **asked), by=people[1])
    assert "failed, passed by waiver (1)" in command_line("--home", home, "registry", "list").out


def test_models_without_a_step_to_take_have_no_hint_about_its_reason(home: Path, server: TestClient) -> None:
    server.post("/web/login", data={"name": "engineer", "password": PASSWORD}, headers={"Origin": "http://127.0.0.1"})
    server.post("/api/v1/registry/versions", json={"artifact": hash_of(home, "good")}, headers=key_of(home, "engineer"))
    assert "do not name a person" in server.get("/web/registry").text
    server.post("/api/v1/registry/promote", json={"version": 1}, headers=key_of(home, "engineer"))
    assert "do not name a person" not in server.get("/web/registry").text
