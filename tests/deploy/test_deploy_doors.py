"""Deployments through their doors: the command line, HTTP, the page, and the loop of the API; the same rules at each."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest
from deploy_world import add_versions, artifact_of, live_version, name_of, promote
from fastapi.testclient import TestClient

from medloop.contracts import Incident
from medloop.loop.deploy import deploy_alias, deploy_site, route_at
from medloop.loop.rollback import block_version, clear_block
from medloop.store.db import open_store
from medloop.store.records import crud, sites, users
from medloop.store.records.deploy_events import block_of, events
from medloop.store.records.routes import live_route
from medloop.testing.registry import examine
from medloop.web.app import create_app

PASSWORD = "correct horse battery"


@pytest.fixture
def people(store) -> None:
    for role in users.ROLES:
        users.add_user(store, role, role, password=PASSWORD, actor="test")


@pytest.fixture
def server(settings, people) -> Iterator[TestClient]:
    app = create_app(settings, supervise=False)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def key_of(store, role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {users.new_key(store, users.get_user(store, role), actor='test')}"}


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_the_command_line_deploys_and_goes_back(settings, store, doubles, command_line) -> None:
    def run(*words: str):
        return command_line("--home", settings.home, *words)

    assert "Nothing is deployed yet." in run("deploy", "status").out and "Nothing was deployed yet" in run("deploy", "list").out
    assert f"Version 1 ({name_of(store, 1)}) answers now." in run("deploy", "--reason", "first").out
    assert "answers already" in run("deploy").out
    promote(store, 2)
    assert f"before it was {name_of(store, 1)}" in run("deploy").out
    status = json.loads(run("deploy", "status", "--json").out)
    assert status["live"]["version"] == 2 and [state["is_up"] for state in status["replicas"]] == [True, True]
    assert run("rollback").code == 2  # a reason is needed
    assert "Version 1" in run("rollback", "--reason", "worse in triage").out
    promote(store, 2)
    refused = run("deploy")
    assert refused.code == 10 and "was rolled back on" in refused.err
    told = run("deploy", "status").out
    assert "Version 2 is blocked: worse in triage" in told
    assert "instead of version 2" in told.lower() and "rolled back: worse in triage" in told  # the reason is about version 2
    assert run("deploy", "clear", "2", "--reason", "it was the network").code == 0
    assert run("deploy").code == 0 and live_version(store) == 2
    doubles[0].restart()
    assert "Loaded again" in run("deploy", "check", "--once").out
    doubles[1].kill()
    down = run("deploy", "check", "--once")
    assert down.code == 10 and "1 of 2 model servers are up" in down.out
    rows = json.loads(run("deploy", "list", "--json", "--steps").out)["events"]
    assert {"switch", "canary", "block", "clear", "restore"} <= {row["kind"] for row in rows}


def test_http_says_who_may(settings, store, server: TestClient) -> None:
    keys = {role: key_of(store, role) for role in users.ROLES}
    assert server.post("/api/v1/deploy", json={}, headers=keys["clinician"]).status_code == 403
    done = server.post("/api/v1/deploy", json={"reason": "first"}, headers=keys["engineer"])
    assert done.status_code == 200 and done.json()["route"]["version"] == 1 and done.json()["changed"]
    promote(store, 2)
    assert server.post("/api/v1/deploy", json={}, headers=keys["admin"]).json()["from"] == name_of(store, 1)
    assert server.post("/api/v1/deploy/rollback", json={"reason": "x"}, headers=keys["auditor"]).status_code == 403
    back = server.post("/api/v1/deploy/rollback", json={"reason": "harm seen"}, headers=keys["clinician"])
    assert back.status_code == 200 and live_version(store) == 1  # whoever sees harm may stop it
    promote(store, 2)
    refused = server.post("/api/v1/deploy", json={}, headers=keys["engineer"])
    assert refused.status_code == 409 and "rolled back" in refused.json()["error"]
    assert server.post("/api/v1/deploy/rollback", json={"reason": "x", "to": "../1"}, headers=keys["admin"]).status_code == 422
    assert server.post("/api/v1/deploy/clear", json={"version": 2}, headers=keys["clinician"]).status_code == 403
    assert server.post("/api/v1/deploy/clear", json={"version": 2}, headers=keys["engineer"]).status_code == 200
    status = server.get("/api/v1/deploy", headers=keys["auditor"]).json()
    assert status["live"]["version"] == 1 and status["blocked"] == [] and len(status["replicas"]) == 2
    rows = server.get("/api/v1/deploy/events?limit=5", headers=keys["clinician"]).json()["events"]
    assert rows[0]["kind"] == "clear" and len(rows) == 5


def test_http_and_the_page_stop_a_version_that_answers_at_a_site(settings, store, fleet, server: TestClient) -> None:
    for name in ("dr.b", "dr.c"):
        sites.assign(store, users.add_user(store, name, "clinician", actor="test"), "ward-b", actor="test")
    deploy_alias(fleet, actor="test")
    deploy_site(fleet, "ward-b", 2, actor="test")
    csrf = log_in(server, "auditor")
    page = server.get("/web/deployments").text
    assert "At the site ward-b" in page and name_of(store, 2) in page and "/web/deployments/block" not in page
    csrf = log_in(server, "clinician")
    form = {"csrf": csrf, "version": "2", "reason": "wrong doses"}
    assert "Stop version 2 at its sites" in server.get("/web/deployments").text
    assert server.post("/web/deployments/block", data=form).status_code == 422
    stopped = server.post("/web/deployments/block", data={**form, "confirm": "yes"})
    assert stopped.status_code == 200 and "the champion of main answers" in stopped.text
    assert route_at(store, "ward-b").version == 1
    server.cookies.clear()
    keys = {role: key_of(store, role) for role in ("auditor", "engineer", "clinician")}
    clear_block(store, 2, actor="test")
    deploy_site(fleet, "ward-b", 2, actor="test")
    body = {"version": 2, "reason": "wrong doses"}
    assert server.post("/api/v1/deploy/block", json=body, headers=keys["auditor"]).status_code == 403
    done = server.post("/api/v1/deploy/block", json=body, headers=keys["clinician"])
    assert done.status_code == 200 and done.json() == {"version": 2, "blocked": True, "sites": ["ward-b"]}
    refused = server.post("/api/v1/deploy/block", json={**body, "version": 1}, headers=keys["engineer"])
    assert refused.status_code == 422 and "medloop rollback" in refused.text
    assert "ward-b" not in server.get("/api/v1/deploy", headers=keys["engineer"]).json()["sites"]


def log_in(server: TestClient, role: str) -> str:
    server.cookies.clear()
    server.post("/web/login", data={"name": role, "password": PASSWORD})
    return re.search(r'name="csrf" value="([^"]+)"', server.get("/web/").text)[1]


def test_the_page_shows_what_answers_and_rolls_back_after_a_confirmation(store, server: TestClient, doubles) -> None:
    csrf = log_in(server, "engineer")
    assert "Nothing is deployed yet" in server.get("/web/deployments").text
    form = {"csrf": csrf, "confirm": "yes"}
    assert f"{name_of(store, 1)} answers now." in server.post("/web/deployments/deploy", data=form).text
    promote(store, 2)
    server.post("/web/deployments/deploy", data=form)
    assert live_version(store) == 2
    csrf = log_in(server, "clinician")
    page = server.get("/web/deployments").text
    assert 'action="/web/deployments/rollback"' in page and 'action="/web/deployments/deploy"' not in page
    form = {"csrf": csrf, "reason": "worse in triage"}
    assert server.post("/web/deployments/rollback", data=form).status_code == 422 and live_version(store) == 2
    assert server.post("/web/deployments/rollback", data={"csrf": csrf, "confirm": "yes"}).status_code == 422
    assert '<option value="1">' in page and "The versions here have passed the gate. The base has not" in page
    assert server.post("/web/deployments/rollback", data={**form, "confirm": "yes"}).status_code == 200
    assert live_version(store) == 1
    assert "instead of version 2" in server.get("/web/registry").text
    doubles[1].kill()
    page = server.get("/web/deployments").text
    assert "Version 2 is blocked" in page and "worse in triage" in page and "cannot be reached" in page
    assert "部署" in server.get("/web/deployments", headers={"Accept-Language": "zh"}).text
    assert server.post("/web/deployments/clear", data={"csrf": csrf, "version": "2", "confirm": "yes"}).status_code == 403
    csrf = log_in(server, "admin")
    assert server.post("/web/deployments/clear", data={"csrf": csrf, "version": "2", "confirm": "yes"}).status_code == 200
    assert block_of(store, artifact_of(store, 2)) is None
    log_in(server, "auditor")
    assert 'action="/web/deployments/' not in server.get("/web/deployments").text


def test_the_challenger_is_deployed_on_the_page_and_every_other_version_says_what_is_in_its_way(
    settings, store, server: TestClient, command_line
) -> None:
    add_versions(store, "third", "fourth")
    csrf = log_in(server, "engineer")
    form = {"csrf": csrf, "confirm": "yes"}
    assert server.post("/web/deployments/deploy", data={**form, "version": "1"}).status_code == 200
    promote(store, 2, "challenger")
    assert "Deploy the challenger: medloop" in command_line("--home", settings.home, "deploy", "status").out
    page = server.get("/web/deployments").text
    assert "Deploy the challenger, version 2" in page and 'name="alias" value="challenger"' in page
    others = page.split("Other versions: may they go live?")[1].split("</details>")[0]
    assert re.findall(r"version (\d)", others) == ["4", "3"] and others.count("It may go live. Promote it first.") == 2
    moved = server.post("/web/deployments/deploy", data={**form, "version": "3", "alias": "challenger"})
    assert moved.status_code == 409 and "It is not the challenger any more" in moved.text, "never another than the page showed"
    done = server.post("/web/deployments/deploy", data={**form, "version": "2", "alias": "challenger"})
    assert f"{name_of(store, 2)} is deployed as the challenger" in done.text and "Deploy the challenger" not in done.text
    assert live_route(store, "challenger").version == 2 and live_version(store) == 1
    promote(store, 3, "challenger")
    block_version(store, 3, actor="test", reason="wrong doses")
    examine(store, artifact_of(store, 4), "fail")
    english = server.get("/web/deployments").text
    assert "wrong doses" in english.split("Deploy the challenger, version 3")[1].split("</details>")[0]
    assert "&#39;critical_failures&#39; failed" in english or "critical" in english.split("Other versions")[1]
    zh = server.get("/web/deployments", headers={"Accept-Language": "zh"}).text
    other = zh.split("其他版本：能否上线？")[1].split("</details>")[0]
    assert "不能上线：" in other and "未通过" in other and "Cannot" not in other
    refused = server.post("/web/deployments/deploy", data={**form, "version": "3", "alias": "challenger"})
    assert refused.status_code == 409 and "wrong doses" in refused.text
    crud.add(store, [Incident(record_id="fb_1", opened_by="usr_1")], actor="test")
    clear_block(store, 3, actor="test")
    assert "open safety incidents (1)" in server.get("/web/deployments").text.split("Deploy the challenger, version 3")[1]
    said = command_line("--home", settings.home, "deploy", "status").out
    assert "The challenger cannot go live: There are open safety incidents (1)." in said
    choices = server.get("/api/v1/deploy", headers=key_of(store, "auditor")).json()["choices"]
    assert [(row["version"], row["alias"]) for row in choices] == [(4, None), (3, "challenger"), (2, None)]
    assert all(row["refusal"] for row in choices)
    body = {"alias": "champion", "version": 3}
    assert server.post("/api/v1/deploy", json=body, headers=key_of(store, "engineer")).status_code == 409
    log_in(server, "auditor")
    page = server.get("/web/deployments").text
    assert "Other versions: may they go live?" in page and 'action="/web/deployments/' not in page


def test_the_loop_of_the_api_rolls_a_version_back_that_turns_bad_and_heals_a_restarted_server(
    settings, store, doubles, command_line
) -> None:
    assert command_line("--home", settings.home, "deploy").code == 0
    promote(store, 2)
    assert command_line("--home", settings.home, "deploy").code == 0
    with TestClient(create_app(settings), base_url="http://127.0.0.1"):
        doubles[0].restart()
        wait_for(lambda: name_of(store, 2) in doubles[0].adapters)
        began = time.monotonic()
        for double in doubles:
            double.bad.add(name_of(store, 2))
        wait_for(lambda: live_version(store) == 1, 60)
        assert time.monotonic() - began < 60
    with open_store(settings) as opened:
        [alarm] = events(opened, kinds=("alarm",))
        assert alarm.served_name == name_of(store, 2) and alarm.numbers["failed"] >= 1
        assert live_route(opened).changed_by == "medloop" and block_of(opened, artifact_of(store, 2)) is not None


def test_http_and_the_page_name_and_end_the_champion_of_a_site(settings, store, fleet, server: TestClient) -> None:
    sites.assign(store, users.add_user(store, "dr.b", "clinician", actor="test"), "ward-b", actor="test")
    deploy_alias(fleet, actor="test")
    keys = {role: key_of(store, role) for role in ("clinician", "engineer")}
    body = {"version": 2, "reason": "trained there"}
    assert server.post("/api/v1/sites/ward-b/champion", json=body, headers=keys["clinician"]).status_code == 403
    assert server.post("/api/v1/sites/wrad-b/champion", json=body, headers=keys["engineer"]).status_code == 422
    named = server.post("/api/v1/sites/ward-b/champion", json=body, headers=keys["engineer"])
    assert named.status_code == 200 and named.json()["changed"] and route_at(store, "ward-b").version == 2
    listed = {row["site"]: row for row in server.get("/api/v1/sites", headers=keys["clinician"]).json()["sites"]}
    assert listed["ward-b"]["champion"] == name_of(store, 2) and listed["main"]["champion"] == name_of(store, 1)
    ended = server.post("/api/v1/sites/ward-b/champion/end", json={"reason": "harm"}, headers=keys["clinician"])
    assert ended.status_code == 200 and route_at(store, "ward-b").version == 1
    assert server.post("/api/v1/sites/ward-b/champion/end", json={"reason": "x"}, headers=keys["clinician"]).status_code == 422
    server.post("/web/login", data={"name": "engineer", "password": PASSWORD}, headers={"Origin": "http://127.0.0.1"})
    page = server.get("/web/sites").text
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)[1]

    def send(step: str, **fields: str):
        form = {"csrf": csrf, "site": "ward-b", "confirm": "yes", "reason": "again", **fields}
        return server.post(f"/web/sites/{step}", data=form, headers={"Origin": "http://127.0.0.1"})

    assert send("champion", version="2", confirm="").status_code == 422 and route_at(store, "ward-b").version == 1
    assert "answers at the site now" in send("champion", version="2").text and route_at(store, "ward-b").version == 2
    assert "its own champion" in server.get("/web/sites").text
    assert "answers at the site now" in send("end").text and route_at(store, "ward-b").version == 1
