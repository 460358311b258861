"""What a refusal says: what happened, with which value, and what to do; never more than the caller knows."""

import pytest

from medloop.api.json_route import _character
from medloop.store.db import open_store
from medloop.store.records import users

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", ["/api/train", "/api/v1/rlhf/feedback"])
@pytest.mark.parametrize(("body", "character"), [(b"x", 1), (b'{"thumb": up}', 11), ('{"a": "发烧",\n b}'.encode(), 14)])
def test_broken_json_is_named_with_its_place(client, path, body, character):
    answered = client.post(path, content=body, headers=JSON)
    message = f"The body is not valid JSON (at character {character})."
    assert answered.status_code == 422 and answered.json()["error"] == message
    assert answered.json()["fields"] == [{"field": "body", "problem": message}]


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 5000, b""])
def test_a_body_that_is_no_text_at_all_is_refused(client, body):
    assert client.post("/api/v1/rlhf/feedback", content=body, headers=JSON).status_code == 422


def test_the_place_counts_characters_over_lines():
    text = '{\n"问": x}'
    assert _character(text.encode(), 2, len('"问": x'.encode())) == text.index("x")


def test_allowed_values_are_quoted_as_they_are(client):
    listed = client.get("/api/v1/rlhf/feedback", params={"order": "Newest"})
    assert listed.json()["fields"] == [{"field": "order", "problem": "must be 'newest' or 'oldest'"}]


def test_words_of_a_body_are_accepted_in_either_case_and_others_are_refused(client):
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "consent": ["Training"]}
    assert client.post("/api/v1/rlhf/feedback", json={**body, "thumb": "UP"}).status_code in (200, 201, 202)
    assert [row["thumb"] for row in client.get("/api/v1/rlhf/feedback").json()["items"]] == ["up"]
    refused = client.post("/api/v1/rlhf/feedback", json={**body, "thumb": "sideways"}).json()
    assert refused["fields"] == [{"field": "thumb", "problem": "must be 'up' or 'down'"}]


def test_a_stage_is_accepted_in_either_case_and_others_are_named_as_spelled(client):
    refused = client.post("/api/train", json={"stage": "irs", "irs_config": {"n_iterations": 0}}).json()
    assert refused["fields"] == [{"field": "irs_config.n_iterations", "problem": "must be at least 1"}], "not the stage"
    (problem,) = client.post("/api/train", json={"stage": "irsx"}).json()["fields"]
    assert problem["field"] == "stage" and "'IRS'" in problem["problem"] and "nput should" not in problem["problem"]


def test_a_missing_and_a_wrong_key_are_told_apart_and_nothing_more(stranger, settings, key):
    with open_store(settings) as store:
        users.change_user(store, users.get_user(store, "tester"), disabled=True, actor="test")
    stranger.app.state.authenticator.forget()
    missing = stranger.get("/api/train").json()
    assert missing["error"] == "An API key is required." and "Bearer" in missing["hint"]
    wrong = [
        stranger.get("/api/train", headers={"Authorization": value}).json() for value in ("Bearer x", f"Bearer {key}", "Basic x")
    ]
    assert {answer["error"] for answer in wrong} == {"Invalid or expired API key."} and len(
        {str(answer) for answer in wrong}
    ) == 1


def test_a_wrong_role_and_a_missing_scope_say_what_is_needed(stranger, settings, key):
    with open_store(settings) as store:
        clinician = users.new_key(store, users.add_user(store, "li", "clinician", actor="test"), actor="test")
        narrow = users.new_key(store, users.get_user(store, "tester"), scopes=("metrics",), actor="test")
    role = stranger.get("/api/train", headers={"Authorization": f"Bearer {clinician}"})
    assert role.status_code == 403 and role.json() == {
        "error": "Access denied: your role (clinician) cannot do this.",
        "hint": "Allowed roles: admin, engineer.",
    }
    scope = stranger.get("/api/train", headers={"Authorization": f"Bearer {narrow}"})
    assert scope.status_code == 403 and scope.json()["error"] == "Your key lacks the scope 'jobs'."


def test_an_unsupported_content_type_says_which_one_to_send(client):
    answered = client.post("/api/v1/rlhf/feedback", content=b"<x/>", headers={"Content-Type": "text/xml"})
    assert answered.status_code == 415 and answered.json()["error"] == "Unsupported Content-Type; send application/json."


@pytest.mark.parametrize(("method", "path", "code"), [("GET", "/api/nothing", 404), ("PATCH", "/api/train", 405)])
def test_an_unknown_endpoint_leads_to_the_list_of_all(client, method, path, code):
    answered = client.request(method, path)
    assert answered.status_code == code and "/api/openapi.json" in answered.json()["hint"]
