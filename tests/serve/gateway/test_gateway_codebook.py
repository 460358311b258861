"""A correction changes the very next answer through the codebook, and that answer leads back to the correction."""

import pytest
from gateway_world import events_of, text_of

from medloop.contracts import CodebookEntry, EntryText, Trace
from medloop.loop import codebook_trial
from medloop.store.records import codebook, crud, users

QUESTION = "My mother takes metoprolol and feels fine. Can she stop taking it?"
GOLDEN = "Do not stop metoprolol on your own. Ask her doctor first, because stopping suddenly is dangerous."


@pytest.fixture
def quick_model(monkeypatch):
    monkeypatch.setattr(
        codebook_trial, "live_answers", lambda settings, store, site="all": ("test", lambda prompts: ["Rest."] * len(prompts))
    )


def test_a_correction_changes_the_very_next_answer_and_is_traced_back(gateway_world, quick_model):
    world = gateway_world(trace_share=1.0)
    store = world.client.app.state.store
    first = world.ask(QUESTION).json()
    before = first["choices"][0]["message"]["content"]
    body = {"prompt": QUESTION, "original": before, "golden": GOLDEN, "consent": ["training"]}
    sent = world.client.post("/api/v1/rlhf/correction", json=body)
    assert sent.status_code == 201, sent.text
    source = sent.json()["correction_id"]
    entry = world.client.post("/api/v1/codebook", json={"correction_id": source}).json()
    assert world.ask(QUESTION).json()["choices"][0]["message"]["content"] == before, "a proposal changes nothing"
    own = world.client.post(f"/api/v1/codebook/{entry['entry_id']}/approve", json={})
    assert own.status_code == 403, "the author does not approve a rule about medicine"
    other = users.add_user(store, "dr.wu", "clinician", actor="test")
    if other.waits:
        users.approve_user(store, other, actor="second")
    key = users.new_key(store, other, actor="test")
    approved = world.client.post(
        f"/api/v1/codebook/{entry['entry_id']}/approve", json={}, headers={"Authorization": f"Bearer {key}"}
    )
    assert approved.json()["state"] == "live", approved.text

    answer = world.ask("Is it ok if I come off my metoprolol?").json()
    text = answer["choices"][0]["message"]["content"]
    assert text.startswith(entry["content"]["first_sentence"]) and text.endswith(before) and text != before
    prompt = world.servers[0].requests[-1]["messages"][0]
    assert prompt["role"] == "system" and entry["content"]["text"] in prompt["content"]
    assert answer["medloop"]["snapshot"] != first["medloop"]["snapshot"]

    world.client.portal.call(world.gateway.traces.ensure, answer["medloop"]["inference_id"])
    trace = crud.get(store, Trace, answer["medloop"]["inference_id"])
    assert trace is not None and trace.meta["rules"] == [entry["entry_id"]]
    assert codebook.get_entry(store, entry["entry_id"]).evidence == (source,)

    codebook.retire(store, entry["entry_id"], by=other.user_id, reason="Tried it.")
    assert world.ask(QUESTION).json()["choices"][0]["message"]["content"] == before


def test_a_rule_takes_forbidden_sentences_out_of_answers_and_streams_and_the_trace_names_it(gateway_world, quick_model):
    world = gateway_world(trace_share=1.0)
    world.servers[0].answer = "It is a cold. You can stop the tablets now. Rest."
    store = world.client.app.state.store
    plain = world.ask(QUESTION).json()["choices"][0]["message"]["content"]
    assert "stop the tablets" in plain
    author = users.add_user(store, "dr.li", "clinician", actor="test")
    if author.waits:
        users.approve_user(store, author, actor="second")
    entry = CodebookEntry(
        content=EntryText(text="Never.", triggers=("metoprolol",), first_sentence="Ask first.", forbids=("stops_medicine",)),
        author="usr_x",
    )
    codebook.propose(store, entry, actor="test")
    codebook_trial.approve_entry(world.settings, store, entry, by=author.user_id)
    body = world.ask(QUESTION).json()
    assert body["choices"][0]["message"]["content"] == "Ask first.\n\nIt is a cold. Rest."
    assert {"guard": "rule", "finding": "stops_medicine", "rule": entry.entry_id} in body["medloop"]["guards"]
    assert body["medloop"]["rules"] == [entry.entry_id]
    world.client.portal.call(world.gateway.traces.ensure, body["medloop"]["inference_id"])
    trace = crud.get(store, Trace, body["medloop"]["inference_id"])
    assert any(act.get("rule") == entry.entry_id and act["drop"] for act in trace.meta["guards"])
    assert text_of(events_of(world.ask(QUESTION, stream=True))) == "Ask first.\n\nIt is a cold. Rest."
