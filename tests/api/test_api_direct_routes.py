"""Routes that are found by their path answer as the router would, and are counted under their name."""

import pytest
from fastapi.testclient import TestClient

from medloop.api.app import NO_TELEMETRY
from medloop.api.json_route import DirectRoutes

PATH = "/api/v1/rlhf/feedback"
RATING = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "rating": 4, "consent": ["training"]}
KEYS = ("Authorization", "Idempotency-Key")


def answers(client: TestClient, key: str) -> list[tuple[int, object, str]]:
    """What the route says to good and bad requests: status, body without ids and times, and the headers of a refusal."""
    bearer = {"Authorization": f"Bearer {key}"}
    sent = [
        client.post(PATH, json=RATING, headers=bearer),
        client.post(PATH, json=RATING),
        client.post(PATH, json=RATING, headers={"Authorization": "Bearer wrong"}),
        client.post(PATH, json={**RATING, "raiting": 1}, headers=bearer),
        client.post(PATH, json={**RATING, "trace_id": "nowhere"}, headers=bearer),
        client.post(PATH, content=b"{", headers={**bearer, "Content-Type": "application/json"}),
        client.post(PATH, json=RATING, headers={**bearer, "Idempotency-Key": "two words"}),
        client.post("/api/v1/widget/feedback", json={"thumb": "up"}, headers=bearer),
        client.delete(PATH, headers=bearer),
        client.get(f"{PATH}/", headers=bearer),
    ]
    said = [(response.status_code, response.json(), response.headers.get("www-authenticate", "")) for response in sent]
    return [(code, sorted(body) if code == 201 else body, header) for code, body, header in said]


def test_a_direct_route_answers_as_the_router_does(stranger: TestClient, key: str) -> None:
    direct = stranger.app.router.middleware_stack
    assert isinstance(direct, DirectRoutes)
    assert ("POST", PATH) in direct._routes and ("POST", "/api/v1/rlhf/import") not in direct._routes
    directly = answers(stranger, key)
    direct._routes.clear()
    assert directly == answers(stranger, key)
    assert [code for code, _, _ in directly] == [201, 401, 401, 422, 422, 422, 422, 422, 405, 404]


def test_requests_are_counted_under_the_route_and_a_bug_is_a_500(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.post(PATH, json=RATING).status_code == 201

    async def broken(request: object) -> None:
        raise ValueError("patient text")

    monkeypatch.setattr(client.app.state.writer, "submit", broken)
    answered = client.post(PATH, json=RATING)
    assert answered.status_code == 500 and "patient" not in answered.text
    requests = client.app.state.http_counts.requests
    assert {status: count for (_, route, status), count in requests.items() if route == PATH} == {201: 1, 500: 1}


def test_fastapi_tells_no_collector_what_went_wrong(stranger: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records of exceptions have their messages, in which patients' words may be."""
    asgi = pytest.importorskip("fastapi.telemetry._asgi")
    monkeypatch.setattr(asgi, "_unconfigured", lambda provider: False)  # as with a collector in the environment
    assert not any(NO_TELEMETRY.values()) and not stranger.app._native_telemetry.enabled()
