"""Classes 9 to 14, 16, 18 and 22: addresses, hosts, routes, roles, records of others, queries, keys, other sites, fields."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import twins
from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from payloads import COLUMNS, HOSTS, RESERVED, SQL, addresses
from sec_world import World, client_of, served

from medloop.api import guard, policy
from medloop.api.app import OPEN, create_app
from medloop.api.routes import feedback_read
from medloop.contracts import Feedback
from medloop.feedback.listing import Reader
from medloop.jobs import queue, requests
from medloop.store import records, users
from medloop.store.db import open_store
from medloop.teacher import wire
from medloop.teacher.failures import Failure

ACCESS = Path(__file__).parents[2] / "docs/stages/access.md"

# Class 9


@pytest.fixture
def metadata() -> Iterator[tuple[int, list[str]]]:
    """A server that nobody should be made to ask; its port, and who came."""
    came: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    done = threading.Event()

    def listen() -> None:
        while not done.is_set():
            try:
                found, _ = listener.accept()
            except OSError:
                continue
            came.append("hit")
            found.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            found.close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield listener.getsockname()[1], came
    done.set()
    thread.join()
    listener.close()


URL_FIELDS: list[Callable[[str], dict]] = [
    lambda url: {"config": {"rollout_url": url}},
    lambda url: {"config": {"prompts": url}},
    lambda url: {"config": {"reward": url}},
    lambda url: {"config": {"given": {"teacher": url}}},
    lambda url: {"config": {"given": {"model": url}}},
    lambda url: {"config": {"adapter": url}},
    lambda url: {"config": {"held_out": url}},
    lambda url: {"model_id": url},
    lambda url: {"config": {"base_url": url}},
]


def check_addresses(ask: Callable[[str], Any], metadata: tuple[int, list[str]]) -> list[str]:
    """Addresses that were taken, or were even asked."""
    port, came = metadata
    found = []
    for url in addresses(port):
        before = len(came)
        if ask(url).status_code == 200 or len(came) > before:
            found.append(url)
    return found


@pytest.mark.parametrize("n", range(len(URL_FIELDS)))
def test_no_field_of_a_request_makes_the_server_call_an_address(world: World, metadata, n: int) -> None:
    def ask(url: str):
        return world.send("engineer", "POST", "/api/train", json={"stage": "GRPO", **URL_FIELDS[n](url)})

    assert check_addresses(ask, metadata) == [] and queue.ids(world.settings) == []


def test_red_a_twin_that_fetches_and_our_door_without_its_check_are_found(world: World, metadata, monkeypatch) -> None:
    with client_of(twins.fetching()) as client:
        assert len(check_addresses(lambda url: client.post("/fetch", json={"url": url}), metadata)) >= 3
    seen = []
    monkeypatch.setattr(requests, "check_stranger", lambda request, settings: None)
    monkeypatch.setattr(queue, "submit", lambda request, settings: seen.append(request.config) or 1 / 0)
    world.send("engineer", "POST", "/api/train", json={"stage": "GRPO", "config": {"rollout_url": "http://127.0.0.1:1/"}})
    assert seen == [{"rollout_url": "http://127.0.0.1:1/"}]


@pytest.fixture
def redirecting(metadata) -> Iterator[int]:
    """A server that sends everybody on to the one nobody should ask."""
    app, port = FastAPI(), metadata[0]

    @app.post("/{path:path}")
    def on(path: str) -> RedirectResponse:
        return RedirectResponse(f"http://127.0.0.1:{port}/latest/meta-data", status_code=307)

    with served(app) as found:
        yield found


def test_the_teacher_is_not_led_elsewhere_by_a_redirect(redirecting: int, metadata) -> None:
    async def ask() -> None:
        async with httpx.AsyncHTTPTransport() as lane:
            await wire.post(lane, f"http://127.0.0.1:{redirecting}/v1", {"authorization": "Bearer x"}, b"{}", 10_000)

    with pytest.raises(Failure):
        asyncio.run(ask())
    assert metadata[1] == []


def test_red_a_client_that_follows_redirects_is_found(redirecting: int, metadata) -> None:
    httpx.post(f"http://127.0.0.1:{redirecting}/v1", json={}, follow_redirects=True)
    assert metadata[1] == ["hit"]


# Class 10


def raw(port: int, head: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(head)
        answer = sock.recv(4096)
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


def check_hosts(port: int, path: str = "/api/train") -> list[str]:
    """Host headers with which a protected address was served."""
    heads = [f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS]
    heads += [
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS[:8]
    ]
    heads += [f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS[:8]]
    heads += [
        f"GET {path} HTTP/1.0\r\n\r\n".encode(),
        f"GET //healthz/..{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode(),
    ]
    return [head.decode() for head in heads if raw(port, head) in range(200, 300)]


def test_no_host_header_opens_a_door(world: World) -> None:
    with served(create_app(world.settings, supervise=False)) as port:
        assert check_hosts(port) == []
        strangers = [f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in HOSTS if host]
        assert [
            head for head in strangers if raw(port, head) == 200 and head.split(b"\r\n")[1].strip() != b"Host: 127.0.0.1"
        ] == []
        assert raw(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n") == 200


def test_red_a_twin_that_puts_the_address_together_is_found() -> None:
    with served(twins.bad_host()) as port:
        assert check_hosts(port)


# Class 11


def routes_of(routes) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)
        else:
            yield route


def check_open(app: FastAPI) -> list[str]:
    """Routes that carry no policy and are not on the list of open ones."""
    found = []
    for route in routes_of(app.routes):
        calls = route.dependant.dependencies if hasattr(route, "dependant") else []
        if route.path not in OPEN and not [one for one in calls if hasattr(one.call, "policy")]:
            found.append(route.path)
    return found


def test_every_route_has_a_policy(world: World) -> None:
    assert check_open(world.client.app) == []
    assert {"/healthz", "/", "/web/login", "/web/language/{language}", "/web/static/{name}"} == OPEN


def test_red_a_new_route_without_a_policy_is_found(world: World) -> None:
    app = create_app(world.settings, supervise=False)

    @app.get("/api/v1/debug")
    def debug() -> dict[str, int]:
        return {}

    app.mount("/files", FastAPI())
    assert check_open(app) == ["/api/v1/debug", "/files"]


# Class 12

LINE = re.compile(r"^\| `([A-Z]+) (/\S*)` \| ([a-z, -]+) \| (\S+) \|$", re.M)


def check_roles(world: World) -> list[str]:
    """Cells of the table in docs/stages/access.md in which somebody got in who should not."""
    found = []
    for method, path, roles, _ in LINE.findall(ACCESS.read_text(encoding="utf-8").partition("<!-- routes")[2]):
        allowed = users.ROLES if roles == "all" else tuple(roles.replace(" ", "").split(","))
        for who in users.ROLES:
            if path in OPEN or who in allowed:
                continue
            answered = world.send(who, method, re.sub(r"\{\w+\}", "none", path))
            if answered.status_code not in (401, 403):
                found.append(f"{who}: {method} {path} {answered.status_code}")
    return found


def test_nobody_does_what_is_not_for_their_role(world: World) -> None:
    assert check_roles(world) == []


def test_red_a_door_that_knows_people_but_not_roles_is_found(world: World, monkeypatch) -> None:
    real = policy.credential_of

    async def anybody(request):
        found = await real(request)
        accepted = next(one.call.policy for one in request.scope["route"].dependant.dependencies if hasattr(one.call, "policy"))
        return found and replace(found, user=replace(found.user, role=min(accepted.roles)))

    monkeypatch.setattr(policy, "credential_of", anybody)
    assert len(check_roles(world)) >= 20


# Class 13


def check_others(world: World) -> list[str]:
    """Addresses at which somebody got at another's records."""
    secret = "words of the first clinician"
    exchange = {"session_id": "s", "agent_name": "x", "user_query": secret, "agent_response": "a"}
    bodies = {
        "feedback": {**exchange, "thumb": "up"},
        "preference": {"prompt": secret, "response_a": "a", "response_b": "b", "preferred": "a"},
        "correction": {"prompt": secret, "original": "a", "golden": "b"},
    }
    pages = {"feedback": "rate", "preference": "compare", "correction": "correct"}
    found = []
    for kind, body in bodies.items():
        made = world.send("clinician", "POST", f"/api/v1/rlhf/{kind}", json=body).json()[f"{kind}_id"]
        paths = [
            f"/api/v1/rlhf/{kind}/{made}",
            f"/web/{pages[kind]}?again={made}",
            f"/api/v1/rlhf/{kind}",
            f"/api/v1/rlhf/export?kind={kind}",
        ]
        for who in ("other", "annotator", "engineer", "admin"):
            answers = [(path, world.send(who, "GET", path)) for path in paths]
            found += [f"{who}: {path}" for path, answered in answers if secret in answered.text]
        again = {**body, "supersedes": made}
        found += [
            f"{who}: {kind}"
            for who in ("other", "annotator")
            if world.send(who, "POST", f"/api/v1/rlhf/{kind}", json=again).status_code < 300
        ]
    return found


def test_records_of_others_are_not_there(world: World) -> None:
    assert check_others(world) == []


def test_red_a_door_without_the_rule_about_ones_own_is_found(world: World, monkeypatch) -> None:
    monkeypatch.setattr(feedback_read, "reader", lambda caller: Reader(caller.user_id, own_only=False, texts=True))
    assert len(check_others(world)) >= 6


def test_ids_cannot_be_guessed_from_one_another(world: World) -> None:
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}
    ids = [world.send("clinician", "POST", "/api/v1/rlhf/feedback", json=body).json()["feedback_id"] for _ in range(50)]
    tails = {re.sub(r"\W", "", one)[-12:] for one in ids}  # 48 random bits at least, each time anew
    assert len(tails) == 50 and not [tail for tail in tails if f"{int(tail, 16) + 1:012x}" in tails]


# Class 14


def check_queries(ask: Callable[[str], Any], rows: Callable[[Any], int]) -> list[str]:
    """Payloads that broke the statement, told more than a plain word tells, or took long."""
    plain, found = rows(ask("plainword")), []
    for text in SQL:
        start = time.perf_counter()
        answered = ask(text)
        if answered.status_code >= 500 or rows(answered) > plain or time.perf_counter() - start > 3:
            found.append(text)
    return found


def count(answered: Any) -> int:
    if answered.status_code != 200 or "json" not in answered.headers["content-type"]:
        return 0
    said = answered.json()
    return len(said if isinstance(said, list) else said.get("items", said.get("jobs", [])))


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
            "session_id": text,
            "agent_name": text,
            "user_query": text,
            "agent_response": text,
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


# Class 16


def forged(key: str, other: str) -> list[str]:
    """Keys that are nearly good, and tokens of other kinds."""
    flipped = [f"{key[:n]}{'b' if key[n] != 'b' else 'c'}{key[n + 1 :]}" for n in range(len(key))]
    cut = [key[:n] for n in (0, 4, 8, 16, 17, 30, len(key) - 1)]
    mixed = [
        other[:17] + key[17:],
        key[:17] + other[17:],
        f"{key}x",
        f"x{key}",
        key.upper(),
        key.swapcase(),
        f"{key},{other}",
        f"{key}\t{key}",
        key * 2,
    ]
    tokens = ["eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ.", "eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoiYWRtaW4ifQ.x", "null", "undefined", "true", "0",
              "mlk_000000000000_" + "A" * 43, "*", "%", f"{key}%00", users.digest(key)]  # fmt: skip
    return [*flipped, *cut, *mixed, *tokens]


def check_keys(good: Callable[[str], bool], key: str, other: str) -> list[str]:
    assert good(key), "the good key must be good, else nothing is tested"
    return [text for text in forged(key, other) if good(text)]


def test_only_the_whole_key_is_a_key(world: World) -> None:
    def good(text: str) -> bool:
        headers = [(b"authorization", b"Bearer " + text.encode())]
        return world.client.get("/api/train", headers=headers).status_code == 200

    assert check_keys(good, world.keys["engineer"], world.keys["admin"]) == []


def test_only_the_whole_token_is_a_session(world: World) -> None:
    with open_store(world.settings) as store:
        tokens = [users.open_session(store, users.get_user(store, name), actor="test") for name in ("engineer", "admin")]
    good = lambda text: world.client.get("/api/train", headers={"Cookie": f"medloop_session={text}"}).status_code == 200  # noqa: E731
    found = [text for text in forged(*tokens) if text.isalnum() and good(text)]
    assert found == [] and good(tokens[0])


def test_red_a_twin_that_compares_beginnings_is_found(world: World) -> None:
    key = world.keys["engineer"]
    assert len(check_keys(lambda text: twins.prefix_key(key, text), key, world.keys["admin"])) >= 5


def check_timing(compare: Callable[[str], object], key: str, n: int) -> float:
    """Welch's |t| between keys whose secret is wrong at its start and at its end, the least of three tries; above 4.5 it leaks."""
    start, end = (f"{key[:at]}{'a' if key[at] != 'a' else 'b'}{key[at + 1 :]}" for at in (17, len(key) - 1))
    least = float("inf")
    for seed in range(3):
        order = [start, end] * n
        random.Random(seed).shuffle(order)
        took: dict[str, list[float]] = {start: [], end: []}
        for text in order:
            at = time.perf_counter_ns()
            compare(text)
            took[text].append(time.perf_counter_ns() - at)
        kept = [sorted(times)[: int(0.8 * n)] for times in took.values()]  # what the machine did besides is no signal
        means, spreads = [statistics.fmean(one) for one in kept], [statistics.variance(one) / len(one) for one in kept]
        least = min(least, abs(means[0] - means[1]) / max(sum(spreads), 1e-9) ** 0.5)
    return least


def test_how_long_a_wrong_key_takes_says_nothing_about_it(world: World) -> None:
    """A key is looked up by its SHA-256, so what is compared with what is stored is not the key."""
    with open_store(world.settings) as store:
        assert check_timing(lambda text: users.find_key(store, text), world.keys["engineer"], 300) < 4.5


def test_red_a_comparison_that_stops_early_is_found(world: World) -> None:
    key = world.keys["engineer"]
    assert check_timing(lambda text: twins.prefix_key(key, text), key, 2000) > 4.5


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
    found = []
    for headers in sent:
        headers = {"Content-Type": "application/json", **headers}
        answered = world.send("clinician", "POST", "/api/v1/rlhf/feedback", content=body, headers=headers)
        if answered.status_code not in (403, 415, 421):
            found.append(f"{headers} {answered.status_code}")
        if "access-control-allow-origin" in answered.headers:
            found.append(f"{headers}: CORS")
    for origin in ORIGINS:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        if "access-control-allow-origin" in world.client.options("/api/v1/rlhf/feedback", headers=asked).headers:
            found.append(f"{origin}: preflight")
    return found


def check_forms(world: World) -> list[str]:
    """Changes that a session makes without the token of its page."""
    with open_store(world.settings) as store:
        token = users.open_session(store, users.get_user(store, "clinician"), actor="test")
    cookie = {"Cookie": f"medloop_session={token}", "Origin": "http://127.0.0.1"}
    form = {"question": "q", "answer": "a", "thumb": "up", "csrf": "x" * 43}
    page = world.client.post("/web/rate", data=form, headers=cookie, follow_redirects=False)
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}
    api = world.client.post("/api/v1/rlhf/feedback", json=body, headers=cookie)
    return [name for name, one in (("page", page), ("api", api)) if one.status_code != 403]


def test_pages_of_other_sites_do_nothing_here(world: World) -> None:
    assert check_other_sites(world) == [] and check_forms(world) == []


def test_red_without_the_guard_and_without_the_token_other_sites_are_found(world: World, monkeypatch) -> None:
    async def fine(request, wanted) -> None:
        return None

    monkeypatch.setattr(guard.Guard, "_refuse", lambda *_: None)
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


def check_fields(ask: Callable[[dict], Any]) -> list[str]:
    return [name for name, value in RESERVED.items() if ask({name: value}).status_code < 300]


@pytest.mark.parametrize("path", BODIES)
def test_no_field_that_is_the_servers_is_taken_from_a_body(world: World, path: str) -> None:
    who, body = BODIES[path]
    assert check_fields(lambda extra: world.send(who, "POST", path, json={**body, **extra})) == []


def test_forms_do_not_set_what_is_the_servers(world: World) -> None:
    form = {"question": "q", "answer": "a", "thumb": "up", **{name: str(value) for name, value in RESERVED.items()}}
    world.send("clinician", "POST", "/web/rate", data=form)
    world.send(
        "admin", "POST", "/web/users", data={"name": "newcomer", **{n: str(v) for n, v in RESERVED.items()}, "role": "annotator"}
    )
    with open_store(world.settings) as store:
        roles = {user.name: user.role for user in users.list_users(store)}
        known = {user.user_id for user in users.list_users(store)} | {None}
        assert {one.recorded_by for one in records.iterate(store, Feedback)} <= known
        assert not {one.feedback_id for one in records.iterate(store, Feedback)} & {"fb_mine"}
    assert roles["clinician"] == "clinician" and roles["newcomer"] == "annotator"


def test_a_clinician_cannot_speak_for_another(world: World) -> None:
    who, body = BODIES["/api/v1/rlhf/feedback"]
    answered = world.send(who, "POST", "/api/v1/rlhf/feedback", json={**body, "clinician_id": "other"})
    if answered.status_code < 300:
        found = world.send(who, "GET", f"/api/v1/rlhf/feedback/{answered.json()['feedback_id']}").json()
        assert found["clinician_id"] != "other"


def test_red_a_twin_that_pours_bodies_over_records_is_found() -> None:
    user: dict[str, Any] = {"name": "li", "role": "clinician"}
    with client_of(twins.assigning(user)) as client:
        assert len(check_fields(lambda extra: client.post("/me", json=extra))) == len(RESERVED)
    assert user["role"] == "admin"
