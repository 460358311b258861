"""Classes 11, 12, 13 and 16: routes without a policy, roles, records of others, keys that are nearly good."""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import twins
from fastapi import FastAPI
from sec_world import World

from medloop.api import policy
from medloop.api.app import OPEN
from medloop.api.routes import feedback_read
from medloop.feedback.listing import Reader
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.web.app import create_app

ACCESS = Path(__file__).parents[2] / "docs/stages/access.md"

# Class 11


def routes_of(routes) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)
        else:
            yield route


def check_open(app: FastAPI) -> list[str]:
    """Routes that carry no policy and are not on the list of open ones."""
    problems = []
    for route in routes_of(app.routes):
        calls = route.dependant.dependencies if hasattr(route, "dependant") else []
        if route.path not in OPEN and not [dependency for dependency in calls if hasattr(dependency.call, "policy")]:
            problems.append(route.path)
    return problems


def test_every_route_has_a_policy(world: World) -> None:
    assert check_open(world.client.app) == []
    assert {"/healthz", "/widget.js", "/", "/web", "/web/login", "/web/language/{language}", "/web/static/{name}"} == OPEN


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
    problems = []
    for method, path, roles, _ in LINE.findall(ACCESS.read_text(encoding="utf-8").partition("<!-- routes")[2]):
        allowed = users.ROLES if roles == "all" else tuple(roles.replace(" ", "").split(","))
        for who in users.ROLES:
            if path in OPEN or who in allowed:
                continue
            answered = world.send(who, method, re.sub(r"\{\w+\}", "none", path))
            if answered.status_code not in (401, 403):
                problems.append(f"{who}: {method} {path} {answered.status_code}")
    return problems


def test_nobody_does_what_is_not_for_their_role(world: World) -> None:
    assert check_roles(world) == []


def test_red_a_door_that_knows_people_but_not_roles_is_found(world: World, monkeypatch) -> None:
    real = policy.credential_of

    async def anybody(request):
        result = await real(request)
        accepted = next(
            dependency.call.policy
            for dependency in request.scope["route"].dependant.dependencies
            if hasattr(dependency.call, "policy")
        )
        return result and replace(result, user=replace(result.user, role=min(accepted.roles)))

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
    problems = []
    for kind, body in bodies.items():
        record_id = world.send("clinician", "POST", f"/api/v1/rlhf/{kind}", json=body).json()[f"{kind}_id"]
        paths = [
            f"/api/v1/rlhf/{kind}/{record_id}",
            f"/web/{pages[kind]}?again={record_id}",
            f"/api/v1/rlhf/{kind}",
            f"/api/v1/rlhf/export?kind={kind}",
        ]
        for who in ("other", "annotator", "engineer", "admin"):
            answers = [(path, world.send(who, "GET", path)) for path in paths]
            problems += [f"{who}: {path}" for path, answered in answers if secret in answered.text]
        again = {**body, "supersedes": record_id}
        problems += [
            f"{who}: {kind}"
            for who in ("other", "annotator")
            if world.send(who, "POST", f"/api/v1/rlhf/{kind}", json=again).status_code < 300
        ]
    return problems


def test_records_of_others_are_not_there(world: World) -> None:
    assert check_others(world) == []


def test_red_a_door_without_the_rule_about_ones_own_is_found(world: World, monkeypatch) -> None:
    monkeypatch.setattr(feedback_read, "reader", lambda caller: Reader(caller.user_id, own_only=False, texts=True))
    assert len(check_others(world)) >= 6


def test_ids_cannot_be_guessed_from_one_another(world: World) -> None:
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}
    ids = [world.send("clinician", "POST", "/api/v1/rlhf/feedback", json=body).json()["feedback_id"] for _ in range(50)]
    tails = {re.sub(r"\W", "", record_id)[-12:] for record_id in ids}  # 48 random bits at least, each time anew
    assert len(tails) == 50 and not [tail for tail in tails if f"{int(tail, 16) + 1:012x}" in tails]


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
    accepted = [text for text in forged(*tokens) if text.isalnum() and good(text)]
    assert accepted == [] and good(tokens[0])


def test_red_a_twin_that_compares_beginnings_is_found(world: World) -> None:
    key = world.keys["engineer"]
    assert len(check_keys(lambda text: twins.prefix_key(key, text), key, world.keys["admin"])) >= 5


def check_timing(compare: Callable[[str], object], key: str, n: int) -> float:
    """Welch's |t| between keys whose secret is wrong at its start and at its end, the least of three tries; above 4.5 it leaks."""
    start, end = (f"{key[:index]}{'a' if key[index] != 'a' else 'b'}{key[index + 1 :]}" for index in (17, len(key) - 1))
    least = float("inf")
    for seed in range(3):
        order = [start, end] * n
        random.Random(seed).shuffle(order)
        took: dict[str, list[float]] = {start: [], end: []}
        for text in order:
            began = time.perf_counter_ns()
            compare(text)
            took[text].append(time.perf_counter_ns() - began)
        fastest = [sorted(times)[: int(0.8 * n)] for times in took.values()]  # what the machine did besides is no signal
        means, spreads = (
            [statistics.fmean(sample) for sample in fastest],
            [statistics.variance(sample) / len(sample) for sample in fastest],
        )
        least = min(least, abs(means[0] - means[1]) / max(sum(spreads), 1e-9) ** 0.5)
    return least


def test_how_long_a_wrong_key_takes_says_nothing_about_it(world: World) -> None:
    """A key is looked up by its SHA-256, so what is compared with what is stored is not the key."""
    with open_store(world.settings) as store:
        assert check_timing(lambda text: users.find_key(store, text), world.keys["engineer"], 300) < 4.5


def test_red_a_comparison_that_stops_early_is_found(world: World) -> None:
    key = world.keys["engineer"]
    assert check_timing(lambda text: twins.prefix_key(key, text), key, 2000) > 4.5
