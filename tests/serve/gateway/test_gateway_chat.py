"""The way of an answer: ids, versions, traces, the notice that comes first, feedback by the id alone, errors in OpenAI's shape."""

from __future__ import annotations

import pytest
from gateway_world import CHEST, COUGH, events_of, text_of

from medloop.contracts import Feedback, Trace
from medloop.contracts.assistant import Route
from medloop.serve.gateway.notices import notices
from medloop.serve.gateway.trace_counts import read_numbers
from medloop.store.db import open_store
from medloop.store.records import crud
from medloop.store.records.routes import add_route

EMERGENCY_EN, EMERGENCY_ZH = notices()["emergency"]


def stored(world, inference_id: str) -> Trace:
    world.client.portal.call(world.gateway.traces.ensure, inference_id)
    trace = crud.get(world.client.app.state.store, Trace, inference_id)
    assert trace is not None
    return trace


def test_an_answer_carries_its_ids_and_its_trace_is_stored(gateway_world) -> None:
    world = gateway_world()
    response = world.ask(COUGH)
    assert response.status_code == 200, response.text
    body, about = response.json(), response.json()["medloop"]
    assert body["choices"][0]["message"] == {"role": "assistant", "content": world.servers[0].answer}
    assert body["usage"]["total_tokens"] == 12 and body["model"] == "base" == about["version"]
    headers = {name: response.headers[f"x-medloop-{name}"] for name in ("inference", "episode", "version", "snapshot")}
    assert headers == {
        "inference": about["inference_id"],
        "episode": about["episode_id"],
        "version": "base",
        "snapshot": about["snapshot"],
    }
    trace = stored(world, about["inference_id"])
    assert trace.conversation.question == COUGH and trace.conversation.answer == world.servers[0].answer
    assert (trace.session_id, trace.model_version, trace.snapshot) == (about["episode_id"], "base", about["snapshot"])
    assert world.servers[0].requests[0]["messages"] == [{"role": "user", "content": COUGH}]


def test_a_stream_is_the_same_answer_and_the_same_trace(gateway_world) -> None:
    world = gateway_world()
    response = world.ask(COUGH, stream=True, stream_options={"include_usage": True})
    events = events_of(response)
    assert response.headers["content-type"].startswith("text/event-stream") and response.text.endswith("data: [DONE]\n\n")
    assert text_of(events) == world.servers[0].answer == world.ask(COUGH).json()["choices"][0]["message"]["content"]
    assert events[0]["medloop"]["inference_id"] == response.headers["x-medloop-inference"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop" and events[-1]["usage"]["total_tokens"] == 12
    assert stored(world, response.headers["x-medloop-inference"]).conversation.answer == world.servers[0].answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("question", "first"), [(CHEST, EMERGENCY_EN), ("我爸突然胸口剧痛，出冷汗，左胳膊发麻", EMERGENCY_ZH)])
def test_the_emergency_notice_comes_first_whatever_the_model_says(gateway_world, stream: bool, question: str, first: str) -> None:
    world = gateway_world()
    world.servers[0].answer = "That is nothing. Drink tea."
    response = world.ask(question, stream=stream)
    text = text_of(events_of(response)) if stream else response.json()["choices"][0]["message"]["content"]
    assert text == f"{first}\n\n Drink tea."  # what calms is taken out
    trace = stored(world, response.headers["x-medloop-inference"])
    assert trace.meta["guards"][0]["guard"] == "emergency" and trace.conversation.answer == text


def test_a_red_flag_of_an_earlier_message_still_counts(gateway_world) -> None:
    world = gateway_world()
    body = world.ask(CHEST, "Call an ambulance.", "Thanks. And what about his cough?").json()
    assert body["choices"][0]["message"]["content"].startswith(EMERGENCY_EN)
    assert body["medloop"]["guards"] == [{"guard": "emergency", "finding": "emergent"}]


@pytest.mark.parametrize("stream", [False, True])
def test_the_notice_is_shown_also_when_no_model_answers(gateway_world, stream: bool) -> None:
    world = gateway_world(backends="http://127.0.0.1:9")
    response = world.ask(CHEST, stream=stream)
    text = text_of(events_of(response)) if stream else response.json()["choices"][0]["message"]["content"]
    assert response.status_code == 200 and text == f"{EMERGENCY_EN}\n\n{notices()['unavailable'][0]}"
    assert world.ask(COUGH, stream=stream).status_code == 503


def test_a_guard_that_crashes_leaves_its_notice(gateway_world) -> None:
    world = gateway_world()

    def crash(texts):
        raise RuntimeError("no")

    from dataclasses import replace

    guards = world.gateway.parts.input_guards
    world.gateway.parts.input_guards = tuple(
        replace(guard, guard=crash) if guard.name == "emergency" else guard for guard in guards
    )
    body = world.ask(COUGH).json()
    assert body["choices"][0]["message"]["content"].startswith(EMERGENCY_EN)
    assert {"guard": "emergency", "finding": "crashed"} in body["medloop"]["guards"]


def test_the_live_route_decides_which_model_is_asked_and_named(gateway_world) -> None:
    world = gateway_world()
    world.servers[0].models += ["m-v2", "m-v3"]
    seen = []
    for version in (2, 3):
        with open_store(world.settings) as store:
            add_route(
                store, Route(served_name=f"m-v{version}", model="m", version=version, artifact="sha256:" + f"{version}" * 64)
            )
        world.client.portal.call(world.gateway.parts.refresh_route)
        about = world.ask(COUGH).json()["medloop"]
        assert about["version"] == f"m@{version}" and world.servers[0].requests[-1]["model"] == f"m-v{version}"
        seen.append(about["snapshot"])
    assert seen[0] != seen[1] and world.ask(COUGH, model="m@3").status_code == 200
    refused = world.ask(COUGH, model="m@2")
    assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
    assert [entry["id"] for entry in world.client.get("/v1/models").json()["data"]] == ["medloop", "m@3"]


def test_a_version_that_was_taken_away_is_asked_for_no_more(gateway_world) -> None:
    """The route changed between the look at it and the question: the live version answers, not an error."""
    world = gateway_world()
    with open_store(world.settings) as store:
        add_route(store, Route(served_name="m-v1", model="m", version=1))
        world.client.portal.call(world.gateway.parts.refresh_route)
        add_route(store, Route(served_name="base", model="m", version=2, previous="m-v1"))
    assert world.ask(COUGH).json()["medloop"]["version"] == "m@2"


def test_feedback_needs_only_the_id_of_the_answer(gateway_world) -> None:
    world = gateway_world(trace_share=0.0)  # also for a trace that sampling had left out
    about = world.ask(COUGH).json()["medloop"]
    assert crud.get(world.client.app.state.store, Trace, about["inference_id"]) is None
    sent = world.client.post("/api/v1/rlhf/feedback", json={"trace_id": about["inference_id"], "thumb": "down"})
    assert sent.status_code == 201, sent.text
    feedback = crud.get(world.client.app.state.store, Feedback, sent.json()["feedback_id"])
    assert feedback is not None and (feedback.user_query, feedback.agent_response) == (COUGH, world.servers[0].answer)
    assert (feedback.model_version, feedback.session_id, feedback.thumb) == ("base", about["episode_id"], "down")


def test_an_episode_goes_on_under_its_id_and_the_person_is_a_hash(gateway_world) -> None:
    world = gateway_world()
    first = world.ask(COUGH, user="patient 4711").json()["medloop"]
    second = world.ask(COUGH, metadata={"episode_id": first["episode_id"]}).json()["medloop"]
    assert second["episode_id"] == first["episode_id"] and second["inference_id"] != first["inference_id"]
    assert (stored(world, first["inference_id"]).user_hash or "").startswith("sub_")
    refused = world.ask(COUGH, metadata={"episode_id": "tel 13812345678"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "metadata.episode_id"


def test_a_trace_that_may_name_somebody_waits_in_quarantine(gateway_world) -> None:
    world = gateway_world()
    about = world.ask("我咳嗽两周了，手机一三八零零一三八零零零").json()["medloop"]
    stored(world, about["inference_id"])
    sent = world.client.post("/api/v1/rlhf/feedback", json={"trace_id": about["inference_id"], "thumb": "up"})
    assert sent.json()["quarantined"] is True


BAD = [
    (b"{", None), (b"[]", None), (b'{"messages": []}', "messages"), (b'{"messages": [{"role": "tool", "content": "x"}]}', "messages.0.role"),
    (b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}', "messages.0.content"),
    (b'{"messages": [{"role": "user", "content": null}]}', "messages.0.content"),
    (b'{"messages": [{"role": "assistant", "content": "x"}]}', "messages"),
    (b'{"messages": [{"role": "user", "content": "x"}], "tools": []}', "tools"),
    (b'{"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ x }}"}', "chat_template"),
    (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', "n"),
    (b'{"messages": [{"role": "user", "content": "x"}], "temperature": 9}', "temperature"),
    (b'{"messages": [{"role": "user", "content": "x"}], "logprobs": true}', "logprobs"),
]  # fmt: skip


def test_a_malformed_body_is_a_400_in_openais_shape_and_never_reaches_a_model(gateway_world) -> None:
    world = gateway_world()
    for body, param in BAD:
        response = world.client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        error = response.json()["error"]
        assert response.status_code == 400 and error["param"] == param and error["message"], (body, response.text)
        assert set(error) == {"message", "type", "param", "code"}
    assert world.servers[0].requests == []


def test_refusals_below_v1_have_openais_shape(gateway_world) -> None:
    world = gateway_world()
    nobody = world.client.post("/v1/chat/completions", json={}, headers={"Authorization": "Bearer mlk_no"})
    assert nobody.status_code == 401 and nobody.json()["error"]["code"] == "invalid_api_key"
    large = world.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x" * 600_000}]})
    assert large.status_code == 413 and large.json()["error"]["code"] == "too_large"
    form = world.client.post("/v1/chat/completions", data={"a": "b"})
    assert form.status_code == 415 and "message" in form.json()["error"]
    assert "message" in world.client.get("/v1/none").json()["error"]


def test_a_share_of_the_traces_is_stored_and_counted(gateway_world) -> None:
    world = gateway_world(trace_share=0.5)
    for _ in range(12):
        world.ask(COUGH)
    numbers = world.gateway.traces.counts.numbers
    assert 0 < numbers.accepted < 12 and numbers.dropped == 0
    world.ask(CHEST)  # an answer in which a guard acted is always stored
    assert world.gateway.traces.counts.numbers.accepted == numbers.accepted + 1
    assert read_numbers(world.settings.workspace.logs / "trace_counts.bin").accepted == numbers.accepted + 1
