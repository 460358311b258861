"""Classes 14, 18 and 22: SQL in any field, requests that another site could send, fields that are the server's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import twins
from payloads import COLUMNS, RESERVED, SQL
from sec_world import World, client_of

from medloop.api import policy, request_filter
from medloop.contracts import Correction, Feedback
from medloop.store.db import open_store
from medloop.store.records import crud, users

# Class 14


def check_queries(ask: Callable[[str], Any], rows: Callable[[Any], int]) -> list[str]:
    """Payloads that broke the statement, told more than a plain word tells, or took long."""
    plain, problems = rows(ask("plainword")), []
    for text in SQL:
        start = time.perf_counter()
        answered = ask(text)
        if answered.status_code >= 500 or rows(answered) > plain or time.perf_counter() - start > 3:
            problems.append(text)
    return problems


def count(answered: Any) -> int:
    if answered.status_code != 200 or "json" not in answered.headers["content-type"]:
        return 0
    body = answered.json()
    return len(body if isinstance(body, list) else body.get("items", body.get("jobs", [])))


QUERIES = ["after", "trace_id", "rating", "thumb", "processed", "feedback_type", "order", "limit"]


@pytest.mark.parametrize("name", QUERIES)
def test_no_filter_becomes_sql(world: World, name: str) -> None:
    assert check_queries(lambda text: world.send("engineer", "GET", "/api/v1/rlhf/feedback", params={name: text}), count) == []


def test_neither_headers_nor_paths_nor_cookies_become_sql(world: World) -> None:
    def ascii_of(text: str) -> bytes:
        return text.encode("utf-8").replace(b"\x1a", b"?")

    def in_key(text: str):
        return world.client.get("/api/v1/rlhf/feedback", headers=[(b"authorization", b"Bearer " + ascii_of(text))])

    def in_cookie(text: str):
        return world.client.get("/api/v1/rlhf/feedback", headers=[(b"cookie", b"medloop_session=" + ascii_of(text))])

    def in_path(text: str):
        return world.send("engineer", "GET", "/api/v1/rlhf/feedback/" + "".join(f"%{byte:02x}" for byte in text.encode()))

    def in_once(text: str):
        body = {
            "session_id": "s",
            "agent_name": "a",
            "user_query": text,
            "agent_response": text,
            "comments": text,
            "thumb": "up",
        }
        header = [(b"idempotency-key", ascii_of(text)), (b"authorization", f"Bearer {world.keys['engineer']}".encode())]
        return world.client.post("/api/v1/rlhf/feedback", json=body, headers=header)

    def in_audit(text: str):
        return world.send("auditor", "GET", "/web/audit", params={"actor": text, "action": text})

    def in_consent(text: str):
        return world.send("admin", "GET", "/api/v1/consent", params={"subject": text})

    for ask in (in_key, in_cookie, in_path, in_once, in_audit, in_consent):
        assert check_queries(ask, count) == [], ask.__name__
    with open_store(world.settings) as store:
        assert len(users.list_users(store)) >= 6


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_no_filter(world: World, name: str) -> None:
    for kind in ("feedback", "preference", "correction", "export", "incidents"):
        assert world.send("engineer", "GET", f"/api/v1/rlhf/{kind}", params={name: "a"}).status_code == 422


def test_red_a_twin_that_pastes_into_the_statement_is_found() -> None:
    with client_of(twins.concatenating()) as client:
        assert len(check_queries(lambda text: client.get("/list", params={"name": text}), count)) >= 5


# Class 18

KINDS = [
    "text/plain",
    "text/plain;charset=utf-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
    "application/jsonp",
]
ORIGINS = [
    "http://evil.example",
    "https://evil.example",
    "null",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.1:1",
    "file://",
    "http://localhost",
]


def check_other_sites(world: World) -> list[str]:
    """Requests that a page of another site could make a browser send, and that did something."""
    body = json.dumps({"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"})
    sent = [{"Content-Type": kind} for kind in KINDS] + [{"Origin": origin} for origin in ORIGINS]
    sent += [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")] + [
        {"Host": host} for host in ("evil.example", "127.0.0.1.evil")
    ]
    problems = []
    for headers in sent:
        headers = {"Content-Type": "application/json", **headers}
        answered = world.send("clinician", "POST", "/api/v1/rlhf/feedback", content=body, headers=headers)
        if answered.status_code not in (403, 415, 421):
            problems.append(f"{headers} {answered.status_code}")
        if "access-control-allow-origin" in answered.headers:
            problems.append(f"{headers}: CORS")
    for origin in ORIGINS:
        preflight = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        if "access-control-allow-origin" in world.client.options("/api/v1/rlhf/feedback", headers=preflight).headers:
            problems.append(f"{origin}: preflight")
    return problems


def check_forms(world: World) -> list[str]:
    """Changes that a session makes without the token of its page."""
    with open_store(world.settings) as store:
        token = users.open_session(store, users.get_user(store, "clinician"), actor="test")
    cookie = {"Cookie": f"medloop_session={token}", "Origin": "http://127.0.0.1"}
    form = {"question": "q", "answer": "a", "thumb": "up", "csrf": "x" * 43}
    page = world.client.post("/web/rate", data=form, headers=cookie, follow_redirects=False)
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}
    api = world.client.post("/api/v1/rlhf/feedback", json=body, headers=cookie)
    return [name for name, response in (("page", page), ("api", api)) if response.status_code != 403]


def test_pages_of_other_sites_do_nothing_here(world: World) -> None:
    assert check_other_sites(world) == [] and check_forms(world) == []


def test_red_without_the_guard_and_without_the_token_other_sites_are_found(world: World, monkeypatch) -> None:
    async def fine(request, token) -> None:
        return None

    monkeypatch.setattr(request_filter.RequestFilter, "_reject", lambda *_: None)
    assert len(check_other_sites(world)) >= 8
    monkeypatch.setattr(policy, "_check_csrf", fine)
    assert "api" in check_forms(world)


# Class 22

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "/api/v1/rlhf/feedback": ("clinician", {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}),
    "/api/v1/rlhf/preference": ("clinician", {"prompt": "p", "response_a": "a", "response_b": "b", "preferred": "a"}),
    "/api/v1/rlhf/correction": ("clinician", {"prompt": "p", "original": "a", "golden": "b"}),
    "/api/v1/traces": ("engineer", {"session_id": "s", "agent_name": "x", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}),
    "/api/v1/consent": ("admin", {"subject": "4711", "purposes": ["training"], "text_version": "1"}),
    "/api/v1/erasure": ("admin", {"subject": "nobody", "reason": "r", "dry_run": True}),
    "/api/train": ("engineer", {"stage": "GRPO"}),
}  # fmt: skip


# Id and time of a record are its sender's to give; `received` and `recorded_by` stay the server's.
SENDERS_OWN = {
    "/api/v1/rlhf/feedback": {"feedback_id", "timestamp"}, "/api/v1/rlhf/preference": {"preference_id", "timestamp"},
    "/api/v1/rlhf/correction": {"correction_id", "feedback_id", "timestamp"},
}  # fmt: skip


def check_fields(ask: Callable[[dict], Any]) -> list[str]:
    return [name for name, value in RESERVED.items() if ask({name: value}).status_code < 300]


@pytest.mark.parametrize("path", BODIES)
def test_no_field_that_is_the_servers_is_taken_from_a_body(world: World, path: str) -> None:
    who, body = BODIES[path]
    accepted = check_fields(lambda extra: world.send(who, "POST", path, json={**body, **extra}))
    assert set(accepted) <= SENDERS_OWN.get(path, set())


def test_a_given_id_neither_changes_nor_opens_the_record_of_another(world: World) -> None:
    who, body = BODIES["/api/v1/rlhf/feedback"]
    mine = {**body, "feedback_id": "fb_sec_given"}
    assert world.send("engineer", "POST", "/api/v1/rlhf/feedback", json=mine).status_code == 201
    for extra in ({}, {"thumb": "down"}, {"supersedes": "fb_sec_given", "feedback_id": "fb_sec_other"}):
        refused = world.send(who, "POST", "/api/v1/rlhf/feedback", json={**mine, **extra})
        assert refused.status_code == 422 and "q" not in refused.json().values()
    with open_store(world.settings) as store:
        stored = crud.get(store, Feedback, "fb_sec_given")
        assert stored is not None and stored.thumb == "up" and crud.get(store, Feedback, "fb_sec_other") is None


def test_a_given_id_of_a_correction_neither_changes_nor_opens_that_of_another(world: World) -> None:
    who, body = BODIES["/api/v1/rlhf/correction"]
    mine = {**body, "correction_id": "co_sec_given"}
    assert world.send("engineer", "POST", "/api/v1/rlhf/correction", json=mine).status_code == 201
    for extra in ({}, {"golden": "another"}, {"supersedes": "co_sec_given", "correction_id": "co_sec_other"}):
        assert world.send(who, "POST", "/api/v1/rlhf/correction", json={**mine, **extra}).status_code == 422
    with open_store(world.settings) as store:
        stored = crud.get(store, Correction, "co_sec_given")
        assert stored is not None and stored.golden == "b" and crud.get(store, Correction, "co_sec_other") is None


def test_forms_do_not_set_what_is_the_servers(world: World) -> None:
    form = {"question": "q", "answer": "a", "thumb": "up", **{name: str(value) for name, value in RESERVED.items()}}
    form["feedback_id"] = "fb_of_a_form"
    world.send("clinician", "POST", "/web/rate", data=form)
    world.send(
        "admin", "POST", "/web/users", data={"name": "newcomer", **{n: str(v) for n, v in RESERVED.items()}, "role": "annotator"}
    )
    with open_store(world.settings) as store:
        roles = {user.name: user.role for user in users.list_users(store)}
        known = {user.user_id for user in users.list_users(store)} | {None}
        assert {feedback.recorded_by for feedback in crud.iterate(store, Feedback)} <= known
        assert not {feedback.feedback_id for feedback in crud.iterate(store, Feedback)} & {"fb_of_a_form"}
    assert roles["clinician"] == "clinician" and roles["newcomer"] == "annotator"


def test_a_clinician_cannot_speak_for_another(world: World) -> None:
    who, body = BODIES["/api/v1/rlhf/feedback"]
    answered = world.send(who, "POST", "/api/v1/rlhf/feedback", json={**body, "clinician_id": "other"})
    if answered.status_code < 300:
        record = world.send(who, "GET", f"/api/v1/rlhf/feedback/{answered.json()['feedback_id']}").json()
        assert record["clinician_id"] != "other"


def test_red_a_twin_that_pours_bodies_over_records_is_found() -> None:
    user: dict[str, Any] = {"name": "li", "role": "clinician"}
    with client_of(twins.assigning(user)) as client:
        assert len(check_fields(lambda extra: client.post("/me", json=extra))) == len(RESERVED)
    assert user["role"] == "admin"
