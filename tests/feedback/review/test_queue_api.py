"""The queue over HTTP: take, rate, name the verdict; others' items are not there; roles are kept apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from queue_desk import fill, item

from medloop.feedback.review.queue import QueueConfig
from medloop.loop.feedback import fill_queue
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.web.app import create_app

NAMES = {"ann": "annotator", "ben": "annotator", "doc": "clinician", "eng": "engineer", "aud": "auditor"}


@pytest.fixture
def people(workspace: Path) -> Iterator[dict[str, Any]]:
    """A function per person that calls the API as them."""
    init_workspace(workspace)
    settings = Settings(home=workspace, device="cpu", offline=True)
    with open_store(settings) as store:
        keys = {
            name: users.new_key(store, users.add_user(store, name, role, actor="t"), actor="t") for name, role in NAMES.items()
        }
        fill(store, item(1), item(2, "compare", priority=0.4))
    with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1") as client:

        def as_(name: str) -> Any:
            headers = {"Authorization": f"Bearer {keys[name]}"}
            return lambda method, path, **more: client.request(method, f"/api/v1{path}", headers=headers, **more)

        yield {name: as_(name) for name in NAMES}


def rate(call: Any, **values: Any) -> str:
    body = {"session_id": "s", "agent_name": "a", "user_query": "question 1", "agent_response": "answer 1", **values}
    answer = call("POST", "/rlhf/feedback", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["feedback_id"])


def test_take_rate_finish_and_settle_a_dispute(people: dict[str, Any]) -> None:
    states = []
    for name, stars in (("ann", 1), ("ben", 5), ("doc", 2)):
        held = people[name]("GET", "/queue/next?kind=rate").json()
        assert held["adjudicates"] is (name == "doc") and held["content"]["prompt"][0]["content"] == "question 1"
        done = people[name]("POST", f"/queue/{held['item_id']}/done", json={"record_id": rate(people[name], rating=stars)})
        states.append(done.json()["state"])
    assert states == ["open", "disputed", "done"]
    deadline = time.monotonic() + 20  # the complaints about the answer become a correction by themselves
    while (stats := people["eng"]("GET", "/queue/stats").json())["open_by_kind"] != {"compare": 1, "correct": 1}:
        assert time.monotonic() < deadline, stats
        time.sleep(0.05)
    assert stats["states"]["done"] == 1


def test_a_skipped_item_is_gone_and_an_empty_queue_says_204(people: dict[str, Any]) -> None:
    held = people["ann"]("GET", "/queue/next?kind=compare").json()
    assert held["shown_first"] in ("a", "b") and len(held["content"]["answers"]) == 2
    assert people["ann"]("POST", f"/queue/{held['item_id']}/skip").status_code == 204
    assert people["ann"]("GET", "/queue/next?kind=compare").status_code == 204


def test_anothers_item_is_not_there_and_anothers_record_is_no_verdict(people: dict[str, Any]) -> None:
    held = people["ann"]("GET", "/queue/next?kind=rate").json()["item_id"]
    people["ben"]("GET", "/queue/next?kind=compare")
    mine = rate(people["doc"], rating=3)
    assert people["ben"]("POST", f"/queue/{held}/done", json={"record_id": mine}).status_code == 404
    assert people["ben"]("POST", f"/queue/{held}/skip").status_code == 404
    assert people["ann"]("POST", f"/queue/{held}/done", json={"record_id": mine}).status_code == 422
    assert people["ann"]("POST", f"/queue/{held}/done", json={"record_id": mine, "state": "done"}).status_code == 422


def test_engineers_see_numbers_and_no_items(people: dict[str, Any]) -> None:
    rate(people["doc"], rating=4)
    assert people["eng"]("GET", "/queue/next").status_code == 403
    assert people["ann"]("GET", "/rlhf/metrics").status_code == 403
    numbers = people["aud"]("GET", "/rlhf/metrics?days=1").json()
    assert numbers["feedback"] == 1 and numbers["stars"]["4"] == 1
    assert "question 1" not in str(numbers)


def test_an_annotator_gets_no_name_no_number_and_nothing_out_of_quarantine(people: dict[str, Any], workspace: Path) -> None:
    for question in ("I am Mary Johnson, call 13800138000 about my cough", "电话是幺三八零零一三八零零零，头晕怎么办"):
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": "Rest, Mary Johnson."}]
        body = {"session_id": "s", "agent_name": "a", "model_version": "m", "messages": turns}
        assert people["eng"]("POST", "/traces", json=body).status_code == 201
    settings = Settings(home=workspace, device="cpu", offline=True)
    with open_store(settings) as store:
        assert fill_queue(settings, store, config=QueueConfig()).added == 1
    texts = ""
    while (held := people["ann"]("GET", "/queue/next")).status_code == 200:
        texts += held.text
        people["ann"]("POST", f"/queue/{held.json()['item_id']}/skip")
    assert "about my cough" in texts and "[NAME_1]" in texts
    assert not any(word in texts for word in ("Mary", "Johnson", "13800138000", "幺"))


def test_what_an_annotator_says_of_a_trace_brings_them_no_more_of_it_than_they_saw(
    people: dict[str, Any], workspace: Path
) -> None:
    turns = [{"role": "user", "content": "I am Mary Johnson, my chest hurts"}, {"role": "assistant", "content": "Rest."}]
    body = {"session_id": "s", "agent_name": "a", "model_version": "m", "messages": turns}
    trace_id = people["eng"]("POST", "/traces", json=body).json()["trace_id"]
    settings = Settings(home=workspace, device="cpu", offline=True)
    with open_store(settings) as store:
        fill_queue(settings, store, config=QueueConfig())
    while (held := people["ann"]("GET", "/queue/next").json())["trace_id"] != trace_id:
        people["ann"]("POST", f"/queue/{held['item_id']}/skip")
    sent = [("feedback", {"rating": 1}), ("correction", {"golden": "Call 112, [NAME_1]."})]
    for kind, values in sent:
        record_id = people["ann"]("POST", f"/rlhf/{kind}", json={"trace_id": trace_id, **values}).json()[f"{kind}_id"]
        own = people["ann"]("GET", f"/rlhf/{kind}/{record_id}").json()
        assert "Johnson" not in str(own) and "I am [NAME_1], my chest hurts" in str(own) and own["trace_id"] == trace_id
