"""The widget: a script for other origins, a key that may do nothing else, and CORS for the pages that are allowed alone."""

from __future__ import annotations

from gateway_world import COUGH

from medloop.contracts import Feedback
from medloop.store.db import open_store
from medloop.store.records import crud, users

PAGE = "https://chat.example.org"
ADDRESS = "/api/v1/widget/feedback"


def narrow_key(world) -> str:
    with open_store(world.settings) as store:
        user = users.add_user(store, "chat-page", "engineer", actor="test")
        return users.new_key(store, user, scopes=("widget",), actor="test")


def test_a_page_of_an_allowed_origin_sends_feedback_with_a_narrow_key_and_nothing_else(gateway_world) -> None:
    world = gateway_world(widget_origins=f"{PAGE}, https://other.example.org")
    inference = world.ask(COUGH).json()["medloop"]["inference_id"]
    key = narrow_key(world)
    headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", "Authorization": f"Bearer {key}"}
    asked = world.client.options(ADDRESS, headers={"Origin": PAGE, "Access-Control-Request-Method": "POST"})
    assert asked.status_code == 204 and asked.headers["access-control-allow-origin"] == PAGE
    assert (
        "authorization" in asked.headers["access-control-allow-headers"]
        and "access-control-allow-credentials" not in asked.headers
    )
    sent = world.client.post(
        ADDRESS, json={"inference_id": inference, "thumb": "down", "comments": "Too short."}, headers=headers
    )
    assert sent.status_code == 201, sent.text
    assert sent.headers["access-control-allow-origin"] == PAGE and sent.headers["cross-origin-resource-policy"] == "cross-origin"
    feedback = crud.get(world.client.app.state.store, Feedback, sent.json()["feedback_id"])
    assert feedback is not None and (feedback.trace_id, feedback.user_query, feedback.comments) == (
        inference,
        COUGH,
        "Too short.",
    )
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/api/v1/rlhf/feedback"), ("POST", "/api/v1/rlhf/feedback")):
        own = {"Authorization": f"Bearer {key}"}
        assert world.client.request(method, path, json={} if method == "POST" else None, headers=own).status_code == 403, path


def test_other_origins_broad_keys_and_cookies_are_refused(gateway_world) -> None:
    world = gateway_world(widget_origins=PAGE)
    inference = world.ask(COUGH).json()["medloop"]["inference_id"]
    body = {"inference_id": inference, "thumb": "up"}
    key = narrow_key(world)
    stranger = world.client.post(ADDRESS, json=body, headers={"Origin": "https://evil.example", "Authorization": f"Bearer {key}"})
    assert stranger.status_code == 403 and "access-control-allow-origin" not in stranger.headers
    broad = world.client.post(ADDRESS, json=body, headers={"Origin": PAGE})
    assert broad.status_code == 403 and "--scope widget" in broad.json()["hint"]
    cookie = world.client.post(ADDRESS, json=body, headers={"Origin": PAGE, "Cookie": "medloop_session=x"})
    assert cookie.status_code == 403
    elsewhere = world.client.post("/api/v1/rlhf/feedback", json=body, headers={"Origin": PAGE, "Authorization": f"Bearer {key}"})
    assert elsewhere.status_code == 403 and "access-control-allow-origin" not in elsewhere.headers


def test_the_script_loads_from_any_origin_and_other_files_do_not(gateway_world) -> None:
    world = gateway_world()
    script = world.client.get("/widget.js")
    assert script.status_code == 200 and script.headers["cross-origin-resource-policy"] == "cross-origin"
    assert (
        "innerHTML" not in script.text
        and "eval(" not in script.text
        and script.headers["content-type"].startswith("text/javascript")
    )
    assert world.client.get("/web/static/app.js").headers["cross-origin-resource-policy"] == "same-origin"
