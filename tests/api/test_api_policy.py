"""Routes x roles: what docs/stages/access.md says is what every route says and does; and nobody gets at what is somebody else's."""

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from medloop.api.app import OPEN
from medloop.api.policy import RoutePolicy, allow
from medloop.contracts import Feedback
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users
from medloop.web.app import create_app
from medloop.web.navigation import MENU, REACHED, THROUGH

DOC = Path(__file__).parents[2] / "docs/stages/access.md"
LINE = re.compile(r"^\| `([A-Z]+) (/\S*)` \| ([a-z, -]+) \| (\S+) \|$", re.M)


OPEN_TO_SITES = {  # what a user of a site other than main may call; docs/stages/sites.md
    "POST /v1/chat/completions", "GET /v1/models", "POST /api/v1/rlhf/feedback", "POST /api/v1/rlhf/preference",
    "POST /api/v1/rlhf/correction", "GET /web/", "POST /web/logout", "GET /web/alive", "GET /web/account", "POST /web/account",
    "GET /web/chat", "GET /web/events", "GET /api/v1/queue/next", "POST /api/v1/queue/{item_id}/done",
    "POST /api/v1/queue/{item_id}/skip", "GET /web/queue", "POST /web/queue/skip", "POST /web/queue/undo",
    *(f"{method} /web/{page}" for method in ("GET", "POST") for page in ("rate", "compare", "correct")),
    *(f"GET /api/v1/rlhf/{kind}{name}" for kind in ("feedback", "preference", "correction") for name in ("", "/{record_id}")),
    "GET /api/v1/rlhf/export", "GET /web/history", "GET /web/history/{record}", "POST /web/history/{record}/ask",
}  # fmt: skip


def declared() -> dict[tuple[str, str], tuple[frozenset[str], str]]:
    """(method, path) -> (roles, scope), as the table says."""
    table = DOC.read_text(encoding="utf-8").partition("<!-- routes")[2]
    return {
        (method, path): (
            frozenset(users.ROLES) if roles == "all" else frozenset(roles.replace(" ", "").split(",")) - {"-"},
            scope,
        )
        for method, path, roles, scope in LINE.findall(table)
    }


def walk(routes):
    """All routes, those of included routers too; one that is neither would be a hole in this test."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from walk(route.original_router.routes)
        else:
            yield from ((method, route.path, route) for method in route.methods)


def policies_of(route) -> list[RoutePolicy]:
    return [each.call.policy for each in route.dependant.dependencies if hasattr(each.call, "policy")]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One app for the whole matrix, with a key of every role."""
    home = tmp_path_factory.mktemp("matrix") / "clinic"
    init_workspace(home)
    settings = Settings(home=home, device="cpu", threads=1, offline=True)
    with open_store(settings) as store:
        people = {name: users.add_user(store, name, name, actor="test") for name in users.ROLES}
        people["stranger"] = users.add_user(store, "stranger", "clinician", actor="test")
        keys = {name: users.new_key(store, user, actor="test") for name, user in people.items()}
    app = create_app(settings, supervise=False)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client, keys, settings


def test_every_route_is_in_the_table_with_one_policy_as_it_says(world):
    client, _, _ = world
    documented = declared()
    enforced = {}
    for method, path, route in walk(client.app.routes):
        policies = policies_of(route)
        assert len(policies) == (0 if path in OPEN else 1), f"{method} {path} has {len(policies)} policies"
        enforced[method, path] = (policies[0].roles, policies[0].scope or "any") if policies else (frozenset(), "-")
    assert enforced == documented  # a new route needs a line in docs/stages/access.md


@pytest.mark.parametrize("who", ["anonymous", *users.ROLES])
def test_every_cell_of_the_table_is_what_happens(world, who):
    client, keys, _ = world
    headers = {} if who == "anonymous" else {"Authorization": f"Bearer {keys[who]}"}
    for (method, path), (roles, _scope) in declared().items():
        address = re.sub(r"\{\w+\}", "none", path)
        answered = client.request(method, address, headers=headers, follow_redirects=False)
        if (method, path) == ("POST", "/web/login"):
            continue  # without a name and a password it is 401 for everybody
        to_login = answered.headers.get("location") == "/web/login" or "why=over" in answered.headers.get("location", "")
        refused = answered.status_code in (401, 403) or to_login
        assert refused == (path not in OPEN and who not in roles), f"{who}: {method} {path} -> {answered.status_code}"
        assert answered.status_code < 500, f"{who}: {method} {path}"


def test_a_key_without_the_scope_is_refused_wherever_one_is_asked_for(world):
    client, _, settings = world
    with open_store(settings) as store:
        bare = users.new_key(store, users.get_user(store, "admin"), scopes=("users",), actor="test")
    for (method, path), (roles, scope) in declared().items():
        if "admin" in roles and scope not in ("any", "users"):
            address = re.sub(r"\{\w+\}", "none", path)
            assert client.request(method, address, headers={"Authorization": f"Bearer {bare}"}).status_code == 403, path


def test_the_menu_shows_each_role_exactly_the_pages_that_it_may_open():
    for name, roles in MENU.items():
        through = {role for page, role in THROUGH if page == name}
        assert set(roles) | through == declared()["GET", f"/web/{name}"][0] and not set(roles) & through, name


def test_every_page_is_in_the_menu_or_is_reached_from_another():
    """An address with a name or id in it belongs to the page of the menu that lists them."""
    pages = {path for method, path in declared() if method == "GET" and path.startswith("/web/") and "{" not in path}
    assert pages == {f"/web/{name}" for name in MENU} | set(REACHED)
    assert set(REACHED.values()) | set(THROUGH.values()) <= {*MENU, "layout"}
    inner = {path.split("/")[2] for method, path in declared() if method == "GET" and path.startswith("/web/") and "{" in path}
    assert inner <= {*MENU, "language", "static"}


def test_the_scopes_in_the_docs_are_the_scopes():
    documented = dict(re.findall(r"^\| `([a-z:]+)` \| ([^|`]+) \|$", DOC.read_text(encoding="utf-8"), re.M))
    assert documented == users.SCOPES


@pytest.mark.parametrize(("roles", "scope"), [((), "jobs"), (("root",), "jobs"), (("admin",), "everything")])
def test_a_policy_with_a_typing_mistake_does_not_start(roles, scope):
    with pytest.raises(AssertionError):
        allow(*roles, scope=scope)


def test_what_is_mine_is_nothing_to_others(world):
    """Every id of one clinician, probed by another, by an annotator, and as the target of a change: 404, and never a text."""
    client, keys, _ = world
    mine, theirs = ({"Authorization": f"Bearer {keys[name]}"} for name in ("clinician", "stranger"))
    secret = "only the clinician wrote this"
    exchange = {"session_id": "s", "agent_name": "x", "user_query": secret, "agent_response": "a"}
    records = {
        "feedback": client.post("/api/v1/rlhf/feedback", json={**exchange, "thumb": "up"}, headers=mine).json(),
        "preference": client.post(
            "/api/v1/rlhf/preference",
            json={"prompt": secret, "response_a": "a", "response_b": "b", "preferred": "a"},
            headers=mine,
        ).json(),
        "correction": client.post(
            "/api/v1/rlhf/correction", json={"prompt": secret, "original": "a", "golden": "b"}, headers=mine
        ).json(),
    }
    ids = {kind: answer[f"{kind}_id"] for kind, answer in records.items()}
    paths = [f"/api/v1/rlhf/{kind}/{record_id}" for kind, record_id in ids.items()]
    paths += [
        f"/web/{page}?again={ids[kind]}"
        for page, kind in (("rate", "feedback"), ("compare", "preference"), ("correct", "correction"))
    ]
    for path in paths:
        assert client.get(path, headers=mine).status_code == 200, path
        for who in ("stranger", "annotator"):
            answered = client.get(path, headers={"Authorization": f"Bearer {keys[who]}"})
            assert answered.status_code == 404 and secret not in answered.text, f"{who}: {path}"
    for path in (
        "/api/v1/rlhf/feedback",
        "/api/v1/rlhf/preference",
        "/api/v1/rlhf/correction",
        "/api/v1/rlhf/export",
        "/web/history",
    ):
        assert secret not in client.get(path, headers=theirs).text, path
    assert client.post("/web/rate", data={"again": ids["feedback"], "thumb": "down"}, headers=theirs).status_code == 404
    replaced = client.post(
        "/api/v1/rlhf/feedback", json={**exchange, "thumb": "down", "supersedes": ids["feedback"]}, headers=theirs
    )
    assert replaced.status_code == 422


@pytest.mark.parametrize("name", ["recorded_by", "role", "received", "__proto__", "constructor", "lc", "user_id", "processed"])
def test_nobody_becomes_somebody_else_by_a_field_in_a_body(world, name):
    client, keys, settings = world
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up", name: "admin"}
    answered = client.post(
        "/api/v1/rlhf/feedback",
        content=json.dumps(body),
        headers={"Authorization": f"Bearer {keys['clinician']}", "Content-Type": "application/json"},
    )
    assert answered.status_code == 422
    form = {"question": "q", "answer": "a", "thumb": "up", name: "admin"}
    client.post("/web/rate", data=form, headers={"Authorization": f"Bearer {keys['clinician']}"})
    with open_store(settings) as store:
        mine = users.get_user(store, "clinician").user_id
        assert {record.recorded_by for record in crud.iterate(store, Feedback)} <= {mine}


HOSTILE = [
    "' OR '1'='1",
    "mlk_' UNION SELECT 1--",
    "\x00",
    "%00",
    "../../etc/passwd",
    "{{7*7}}",
    "a" * 60_000,
    "‮",
    "1; DROP TABLE users",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_headers_queries_and_paths_opens_nothing(world, text):
    client, keys, _ = world
    raw = text.encode("utf-8", "replace").replace(b"\x00", b"?")
    good = {"Authorization": f"Bearer {keys['auditor']}"}
    answered = client.get("/api/train", headers=[(b"authorization", b"Bearer " + raw)])
    assert answered.status_code == 401
    assert client.get("/web/audit", params={"actor": text[:128], "action": text[:64]}, headers=good).status_code in (200, 404)
    assert client.get("/web/", headers=[(b"cookie", b"medloop_session=" + raw[:4000])], follow_redirects=False).status_code == 303
    listed = client.get(
        "/api/v1/rlhf/feedback",
        params={"sort": text, "password__startswith": "a"},
        headers={"Authorization": f"Bearer {keys['engineer']}"},
    )
    assert listed.status_code in (200, 422)


def test_the_routes_that_are_open_to_users_of_a_site(world):
    """A new one needs a decision: it must show nothing that another site wrote."""
    opened = {
        f"{method} {path}"
        for method, path, route in walk(world[0].app.routes)
        if method not in ("HEAD", "OPTIONS") and any(policy.sites for policy in policies_of(route))
    }
    assert opened == OPEN_TO_SITES
