"""`/api/v1/rlhf/quarantine`: lists without text, single records with marks and an audit line, decisions of which the first counts."""

import threading

import pytest
from fastapi.testclient import TestClient

from medloop.contracts import Conversation, Correction, Feedback, Message, Preference, Trace
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.records import crud, quarantine, users
from medloop.web.app import create_app

SPELT = "电话是幺三八零零一三八零零零，头晕怎么办"
DOOR = "/api/v1/rlhf/quarantine"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """An app with two clinicians, and one held record of every kind that the first one sent."""
    home = tmp_path_factory.mktemp("held") / "clinic"
    init_workspace(home)
    settings = Settings(home=home, device="cpu", threads=1, offline=True)
    with open_store(settings) as store:
        people = {name: users.add_user(store, name, "clinician", actor="test") for name in ("sender", "looker", "third")}
        keys = {name: users.new_key(store, user, actor="test") for name, user in people.items()}
        with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1") as client:
            yield client, {name: {"Authorization": f"Bearer {key}"} for name, key in keys.items()}, store, people


@pytest.fixture
def held(world):
    _, _, store, people = world
    by = {"recorded_by": people["sender"].user_id}
    talk = Conversation(messages=(Message(role="user", content=SPELT), Message(role="assistant", content="Rest.")))
    records = [
        Feedback(session_id="s", agent_name="x", user_query=SPELT, agent_response="Rest.", rating=3, **by),
        Preference(prompt="q", response_a="a", response_b=SPELT, preferred="a", **by),
        Correction(prompt="q", original="a", golden="b", reason=SPELT, **by),
        Trace(session_id="s", agent_name="x", model_version="m", conversation=talk),
    ]
    crud.add(store, records, actor="test")
    with store.write() as conn:
        for record in records:
            quarantine.hold(
                conn, crud.id_of(record), crud.TABLES[type(record)].name, doubt=1.0, reasons=["a number"], actor="test"
            )
    return [crud.id_of(record) for record in records]


def decision(client, record_id, who, decision="release", reason="nobody", **more):
    return client.post(f"{DOOR}/{record_id}/decision", json={"decision": decision, "reason": reason, **more}, headers=who)


def test_the_list_is_paged_filtered_and_without_text(world, held):
    client, who, _, _ = world
    items, after = [], {}
    while True:
        page = client.get(DOOR, params={"limit": 3, **after}, headers=who["looker"])
        assert "幺三八" not in page.text and len(page.json()["items"]) <= 3
        items += page.json()["items"]
        if page.json()["next"] is None:
            break
        after = {"after": page.json()["next"]}
    assert [item["record_id"] for item in items][-4:] == held
    assert [item["kind"] for item in items][-4:] == ["feedback", "preference", "correction", "trace"]
    only = client.get(DOOR, params={"kind": "trace"}, headers=who["looker"]).json()["items"]
    assert {item["kind"] for item in only} == {"trace"} and set(only[0]) == {
        "record_id", "kind", "state", "doubt", "reasons", "decided_by", "decided", "timestamp",
    }  # fmt: skip


@pytest.mark.parametrize("bad", [{"after": "none"}, {"state": "x"}, {"limit": 0}, {"kind": "user"}, {"text": "1"}])
def test_a_filter_that_is_none_is_refused(world, bad):
    client, who, _, _ = world
    assert client.get(DOOR, params=bad, headers=who["looker"]).status_code == 422


@pytest.mark.parametrize("index", range(4))
def test_a_single_record_has_its_texts_with_marks_and_is_audited(world, held, index):
    client, who, store, people = world
    record = client.get(f"{DOOR}/{held[index]}", headers=who["looker"]).json()
    spelt = next(text for text in record["texts"] if "幺" in text["text"])
    (mark,) = [mark for mark in spelt["marks"] if mark["what"] == "doubt"]
    assert "幺三八零零一三八零零零" in spelt["text"][mark["start"] : mark["end"]]
    lines = [
        entry for entry in audit.page(store, audit.AuditFilter(actor=people["looker"].user_id)) if entry["subject"] == held[index]
    ]
    assert [entry["action"].endswith(".read") for entry in lines] == [True]


def test_the_sender_finds_nothing_to_review(world, held):
    client, who, store, _ = world
    mine = client.get(DOOR, headers=who["sender"]).json()["items"]
    assert {item["kind"] for item in mine} <= {"trace"}  # which other tests sent
    for record_id in held[:3]:
        answers = client.get(f"{DOOR}/{record_id}", headers=who["sender"]), decision(client, record_id, who["sender"])
        assert [response.status_code for response in answers] == [404, 404] and "幺" not in answers[0].text
        assert quarantine.get(store, record_id).state == "waiting"


def test_the_sender_of_a_trace_finds_nothing_to_review(world):
    client, who, store, _ = world
    body = {"session_id": "s", "agent_name": "x", "model_version": "m"}
    body["messages"] = [{"role": "user", "content": SPELT}, {"role": "assistant", "content": "Rest."}]
    sent = client.post("/api/v1/traces", json=body, headers=who["sender"]).json()
    record_id = sent["trace_id"]
    assert sent["quarantined"] and client.get(f"{DOOR}/{record_id}", headers=who["sender"]).status_code == 404
    assert decision(client, record_id, who["sender"]).status_code == 404
    listed = {name: record_id in client.get(DOOR, params={"limit": 200}, headers=who[name]).text for name in ("sender", "looker")}
    assert listed == {"sender": False, "looker": True} and quarantine.get(store, record_id).state == "waiting"
    assert decision(client, record_id, who["looker"]).status_code == 200


def test_feedback_on_a_held_trace_is_released_after_it_and_says_so(world, held):
    client, who, _, _ = world
    sent = client.post("/api/v1/rlhf/feedback", json={"trace_id": held[3], "rating": 4}, headers=who["sender"]).json()
    record_id = sent["feedback_id"]
    assert sent["quarantined"] and client.get(f"{DOOR}/{record_id}", headers=who["looker"]).json()["first"] == held[3]
    early = decision(client, record_id, who["looker"])
    assert early.status_code == 409 and held[3] in early.json()["error"]
    assert decision(client, held[3], who["looker"]).status_code == 200
    assert client.get(f"{DOOR}/{record_id}", headers=who["looker"]).json()["first"] is None
    assert decision(client, record_id, who["looker"]).status_code == 200


def test_a_decision_counts_and_the_next_one_is_told(world, held):
    client, who, store, people = world
    first = decision(client, held[0], who["looker"], "refuse", "contact")
    assert first.status_code == 200 and first.json()["state"] == "refused"
    late = decision(client, held[0], who["third"])
    assert (
        late.status_code == 409
        and "Somebody else has already decided" in late.json()["error"]
        and "it is refused" in late.json()["error"]
    )
    assert quarantine.get(store, held[0]).decided_by == people["looker"].user_id
    turned = decision(client, held[0], who["third"], was="refused")
    assert turned.status_code == 200 and turned.json()["state"] == "released"


def test_of_eight_at_once_one_decides(world, held):
    client, who, store, _ = world
    codes: list[int] = []
    start = threading.Barrier(8)

    def decide(n: int) -> None:
        start.wait()
        codes.append(
            decision(
                client, held[1], who["looker" if n % 2 else "third"], *(("release", "nobody"), ("refuse", "name"))[n % 2]
            ).status_code
        )

    threads = [threading.Thread(target=decide, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] + [409] * 7
    lines = [line for line in audit.page(store) if line["subject"] == held[1] and line["action"].startswith("quarantine.re")]
    assert len(lines) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"decision": "release", "reason": "name"},
        {"decision": "refuse", "reason": "medical_term"},
        {"decision": "release"},
        {"decision": "free", "reason": "nobody"},
        {"decision": "release", "reason": "nobody", "actor": "admin"},
        {"decision": "release", "reason": "Li Wei is named here"},
    ],
)
def test_a_reason_is_one_of_the_list_and_never_repeated(world, held, body):
    client, who, store, _ = world
    answered = client.post(f"{DOOR}/{held[2]}/decision", json=body, headers=who["looker"])
    assert answered.status_code == 422 and "Li Wei" not in answered.text
    assert quarantine.get(store, held[2]).state == "waiting"


def test_an_unknown_record_is_not_there(world):
    client, who, _, _ = world
    assert client.get(f"{DOOR}/none", headers=who["looker"]).status_code == 404
    assert decision(client, "none", who["looker"]).status_code == 404


def test_the_body_takes_every_reason_of_the_table():
    from medloop.api.routes.quarantine import DecisionBody

    every = set(DecisionBody.model_json_schema()["properties"]["reason"]["enum"])
    assert every == {reason for some in quarantine.REASONS.values() for reason in some}
