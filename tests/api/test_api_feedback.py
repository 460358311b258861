"""The feedback service over HTTP: what is stored, what is refused, who sees what."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from medloop.api.limits import RateLimiter, RateLimitError, RequestLimits
from medloop.contracts import Feedback, Message, Trace
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.errors import NoSpaceError
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files import spreadsheet
from medloop.store.records import crud, review_queue, users
from medloop.store.records.write_request import NewRows, StoreUnavailableError, WriteRequest
from medloop.web.app import create_app

CANARY = "canary-腹痛-93b1"
TRACE = {
    "session_id": "sess", "agent_name": "triage", "model_version": "m@1",
    "messages": [{"role": "user", "content": f"{CANARY} since noon"}, {"role": "assistant", "content": "Drink tea."}],
}  # fmt: skip
RATED = {"session_id": "s", "agent_name": "a", "user_query": CANARY, "agent_response": "Rest.", "rating": 4}
CHOSEN = {"prompt": CANARY, "response_a": "a", "response_b": "b", "preferred": "a", "shown_first": "b"}
FIXED = {"prompt": CANARY, "original": "o", "golden": "g"}


@pytest.fixture
def api(settings: Settings):
    """The app, and a client for each of some users."""
    with open_store(settings) as store:
        accounts = {name: users.add_user(store, name, name.rstrip("12"), actor="test") for name in
                ("clinician1", "clinician2", "annotator", "engineer", "auditor", "admin")}  # fmt: skip
        keys = {name: users.new_key(store, user, actor="test") for name, user in accounts.items()}
    app = create_app(settings, supervise=False)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        doors = {name: Door(client, key) for name, key in keys.items()}
        yield SimpleNamespace(
            **doors, app=app, ids={name: user.user_id for name, user in accounts.items()}, nobody=Door(client, "")
        )


class Door:
    def __init__(self, client: TestClient, key: str) -> None:
        self.client, self.headers = client, {"Authorization": f"Bearer {key}"} if key else {}

    def post(self, path: str, body=None, key: str | None = None, **more):
        headers = self.headers | ({"Idempotency-Key": key} if key else {}) | more.pop("headers", {})
        given = {"content": more.pop("content")} if "content" in more else {"json": body}
        return self.client.post(f"/api/v1{path}", headers=headers, **given)

    def get(self, path: str, **params):
        return self.client.get(f"/api/v1{path}" if path != "/metrics" else path, headers=self.headers, params=params)

    def lines(self, *rows, key: str | None = None):
        content = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        return self.post("/rlhf/import", content=content, key=key, headers={"Content-Type": "application/x-ndjson"})


def test_the_example_body_is_stored_and_read_back(api) -> None:
    body = {
        "session_id": "sess_xyz789", "agent_name": "prescription_agent", "user_query": "Prescribe treatment for hypertension",
        "agent_response": "I recommend starting with lisinopril 10mg...", "rating": 5, "feedback_type": "positive",
        "clinician_id": 123, "comments": "Appropriate first-line treatment", "consent": ["training"],
    }  # fmt: skip
    store = api.app.state.store
    user, program = users.add_user(store, "123", "clinician", actor="test"), users.get_user(store, "engineer")
    key = users.new_key(store, program, speaks_for=[user], actor="test")
    response = Door(api.engineer.client, key).post("/rlhf/feedback", body)
    assert response.status_code == 201 and set(response.json()) == {"feedback_id", "timestamp", "quarantined"}
    stored = crud.get(api.app.state.store, Feedback, response.json()["feedback_id"])
    assert {name: getattr(stored, name) for name in body} == body | {"clinician_id": user.user_id, "consent": ("training",)}


def test_a_trace_then_thumbs_down_by_its_id(api) -> None:
    trace = api.engineer.post("/traces", TRACE).json()["trace_id"]
    response = api.clinician1.post("/rlhf/feedback", {"trace_id": trace, "thumb": "down", "critical": True})
    assert response.status_code == 201 and {"incident_id", "case_id"} <= set(response.json())
    seen = api.clinician1.get(f"/rlhf/feedback/{response.json()['feedback_id']}").json()
    assert (seen["agent_response"], seen["model_version"], seen["feedback_type"]) == ("Drink tea.", "m@1", "negative")


def test_unknown_traces_are_422_and_nothing_is_stored(api) -> None:
    refused = api.clinician1.post("/rlhf/feedback", {"trace_id": "0199-not-there", "thumb": "up"})
    assert refused.status_code == 422 and "no trace" in refused.json()["error"]
    assert crud.count(api.app.state.store, Feedback) == 0


def test_a_repeated_request_gets_its_first_answer(api) -> None:
    first, again = (api.clinician1.post("/rlhf/feedback", RATED, key="k1") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200) and first.json() == again.json()
    other = api.clinician1.post("/rlhf/feedback", RATED | {"rating": 1}, key="k1")
    elsewhere = api.clinician1.post("/rlhf/preference", CHOSEN, key="k1")
    assert (other.status_code, elsewhere.status_code) == (422, 422)
    assert api.clinician2.post("/rlhf/feedback", RATED | {"rating": 1}, key="k1").status_code == 201
    assert crud.count(api.app.state.store, Feedback) == 2


@pytest.mark.parametrize(
    "name", ["feedback_type", "timestamp", "received", "recorded_by", "processed", "role", "__proto__", "lc", "score"]
)
def test_what_the_server_sets_cannot_be_sent(api, name: str) -> None:
    assert api.engineer.post("/rlhf/feedback", RATED | {name: "x"}).status_code == 422


def test_errors_name_fields_and_never_values(api) -> None:
    for body in (RATED | {"rating": 9, "comments": CANARY}, RATED | {"thumb": CANARY}, RATED | {CANARY[:12]: 1}):
        refused = api.clinician1.post("/rlhf/feedback", body)
        assert refused.status_code == 422 and CANARY not in refused.text


def test_records_of_others_are_not_there(api) -> None:
    mine = api.clinician1.post("/rlhf/feedback", RATED).json()["feedback_id"]
    assert api.clinician1.get(f"/rlhf/feedback/{mine}").status_code == 200
    for other in (api.clinician2, api.annotator):
        assert other.get(f"/rlhf/feedback/{mine}").status_code == 404
        assert other.get("/rlhf/feedback").json()["items"] == []
        assert other.get("/rlhf/feedback", after=mine).status_code == 422
        assert mine not in other.get("/rlhf/export").text
    assert api.clinician1.get("/rlhf/preference/" + mine).status_code == 404


def test_an_annotator_opens_no_trace_by_its_id_but_only_what_the_queue_has_shown(api) -> None:
    trace = api.engineer.post("/traces", TRACE).json()["trace_id"]
    by_id = {"trace_id": trace, "rating": 2}
    for path, body in (("feedback", by_id), ("correction", {"trace_id": trace, "golden": "g"})):
        refused = api.annotator.post(f"/rlhf/{path}", body)
        assert refused.status_code == 422 and CANARY not in refused.text
        assert api.clinician1.post(f"/rlhf/{path}", body).status_code == 201
    store, messages = api.app.state.store, (Message(role="user", content=f"{CANARY} since noon"),)
    item = QueueItem(kind="rate", content=QueueContent(prompt=messages, answers=("Drink tea.",)), priority=0.9, trace_id=trace)
    review_queue.add_items(store, [item], actor="test")
    assert api.annotator.get("/queue/next").status_code == 200
    assert api.annotator.post("/rlhf/feedback", by_id).status_code == 201


@pytest.mark.parametrize(("path", "body"), [("feedback", RATED), ("preference", CHOSEN), ("correction", FIXED)])
def test_engineers_see_all_records_without_their_texts(api, path: str, body: dict) -> None:
    response = api.clinician1.post(f"/rlhf/{path}", body)
    assert response.status_code == 201
    for seen in (api.engineer.get(f"/rlhf/{path}"), api.admin.get("/rlhf/export", kind=path), api.engineer.get(f"/rlhf/{path}")):
        assert response.json()[f"{path}_id"] in seen.text and CANARY not in seen.text
    assert CANARY in api.clinician1.get(f"/rlhf/{path}").text
    assert api.auditor.get(f"/rlhf/{path}").status_code == 403


def test_reading_texts_leaves_an_audit_line_before_they_leave(api) -> None:
    for _ in range(3):
        feedback_id = api.clinician1.post("/rlhf/feedback", RATED).json()["feedback_id"]
    api.clinician1.get("/rlhf/feedback")
    api.clinician1.get(f"/rlhf/feedback/{feedback_id}")
    api.clinician1.get("/rlhf/export")
    api.engineer.get("/rlhf/feedback")
    lines = [line for line in audit.show(api.app.state.store, 99) if line["action"] == "rlhf_feedback.read"]
    assert [(line["actor"], line["subject"], line["detail"]["rows"]) for line in lines] == [
        (api.ids["clinician1"], "rlhf_feedback", 3), (api.ids["clinician1"], feedback_id, 1), (api.ids["clinician1"], "rlhf_feedback", 3),
    ]  # fmt: skip


def test_pages_follow_one_another_without_gaps_in_both_orders(api) -> None:
    feedback_ids = [api.clinician1.post("/rlhf/feedback", RATED).json()["feedback_id"] for _ in range(5)]
    for order, expected in (("newest", feedback_ids[::-1]), ("oldest", feedback_ids)):
        seen, after = [], {}
        while True:
            page = api.clinician1.get("/rlhf/feedback", limit=2, order=order, **after).json()
            seen += [item["feedback_id"] for item in page["items"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert seen == expected


def test_filters_are_choices(api) -> None:
    records = [
        api.clinician1.post("/rlhf/feedback", RATED | more).json()
        for more in ({}, {"rating": 1, "thumb": "down"}, {"critical": True})
    ]

    def listed(**params):
        return [item["feedback_id"] for item in api.clinician1.get("/rlhf/feedback", order="oldest", **params).json()["items"]]

    ids = [record["feedback_id"] for record in records]
    assert listed(rating=1) == listed(thumb="down") == [ids[1]] and listed(critical=True) == [ids[2]]
    assert listed(feedback_type="positive", critical=False) == [ids[0]] and listed(processed=True) == []
    assert listed(since=records[1]["timestamp"]) == ids[1:] and listed(until=records[1]["timestamp"]) == ids[:1]


@pytest.mark.parametrize(
    "params",
    [
        {"user_query__startswith": "a"}, {"rating": "4 OR 1=1"}, {"order": "timestamp; DROP TABLE users"}, {"sort": "rating"}, {"limit": 0},
        {"limit": 1000}, {"thumb": "up' --"}, {"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}, {"after": "' OR ''='"},
    ],
)  # fmt: skip
def test_filters_that_are_none_of_them_are_422(api, params: dict) -> None:
    assert api.clinician1.get("/rlhf/feedback", **params).status_code == 422
    assert api.clinician1.get("/rlhf/export", **{"user_query__startswith": "a"} | params).status_code == 422


def test_csv_cells_never_start_like_a_formula_and_come_back(api, tmp_path) -> None:
    texts = ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", '"quoted", and\nbroken', "plain"]
    for text in texts:
        assert api.clinician1.post("/rlhf/feedback", RATED | {"user_query": text}).status_code == 201
    sent = api.clinician1.get("/rlhf/export", format="csv")
    assert sent.headers["content-type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(sent.text.lstrip("\ufeff"), newline="")))
    assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")]
    path = tmp_path / "export.csv"
    path.write_bytes(sent.content)
    assert [cells["user_query"] for _, cells in spreadsheet.read_csv(path).rows] == texts


def test_an_export_crosses_pages(api, monkeypatch) -> None:
    monkeypatch.setattr("medloop.feedback.listing.EXPORT_PAGE", 2)
    feedback_ids = [api.clinician1.post("/rlhf/feedback", RATED).json()["feedback_id"] for _ in range(5)]
    lines = [json.loads(line) for line in api.clinician1.get("/rlhf/export").text.splitlines()]
    assert [line["feedback_id"] for line in lines] == feedback_ids and lines[0]["user_query"] == CANARY
    table = api.clinician1.get("/rlhf/export", format="csv").text
    assert (
        table.count("feedback_id") == 1
        and table.count("\ufeff") == 1
        and all(feedback_id in table for feedback_id in feedback_ids)
    )


def test_import_gives_every_line_its_own_result_and_resends_store_nothing_twice(api) -> None:
    rows = [
        {"kind": "feedback"} | RATED,
        "not json",
        {"kind": "shout"},
        {"kind": "preference"} | CHOSEN,
        {"kind": "feedback", "trace_id": "t9", "rating": 1},
    ]
    rows += [{"kind": "feedback"} | RATED | {"rating": 9}, "", {"kind": "trace"} | TRACE]
    first = api.engineer.lines(*rows, key="file-1").json()
    assert [(result["line"], result["status"]) for result in first["results"]] == [
        (1, 201), (2, 422), (3, 422), (4, 201), (5, 422), (6, 422), (8, 201),
    ]  # fmt: skip
    assert (first["stored"], first["repeated"], first["failed"]) == (3, 0, 4) and CANARY not in json.dumps(first)
    again = api.engineer.lines(*rows, key="file-1").json()
    assert (again["stored"], again["repeated"]) == (0, 3)
    assert crud.count(api.app.state.store, Feedback) == 1 and crud.count(api.app.state.store, Trace) == 1


def test_an_import_is_bounded(api, monkeypatch) -> None:
    assert api.engineer.lines("").status_code == 422
    monkeypatch.setattr("medloop.feedback.submit.batch.MAX_LINES", 3)
    assert api.engineer.lines(*["{}"] * 4).status_code == 422
    huge = api.engineer.post("/rlhf/import", content=b"{}\n" * 3_000_000, headers={"Content-Type": "application/x-ndjson"})
    assert huge.status_code == 413


def test_incidents_are_listed_without_texts_and_closed_by_two_people(api) -> None:
    feedback = api.clinician1.post("/rlhf/feedback", RATED | {"critical": True, "comments": CANARY}).json()
    listed = api.auditor.get("/rlhf/incidents", state="open", language="mixed")
    assert [incident["incident_id"] for incident in listed.json()["items"]] == [
        feedback["incident_id"]
    ] and CANARY not in listed.text
    path, note = f"/rlhf/incidents/{feedback['incident_id']}", {"note": "a rule was added"}
    assert [api.clinician1.post(f"{path}/close", {}).status_code, api.auditor.post(f"{path}/propose", note).status_code] == [
        409,
        403,
    ]
    assert api.engineer.post(f"{path}/propose", {}).status_code == 422
    assert [api.clinician1.post(f"{path}/propose", note).status_code for _ in range(2)] == [200, 409]
    for alone in (api.clinician1, api.engineer, api.admin):  # who proposed, or may not read the conversation
        assert alone.post(f"{path}/close", {}).status_code == 403
    assert len(api.auditor.get("/rlhf/incidents", state="proposed").json()["items"]) == 1
    assert [api.clinician2.post(f"{path}/close", {}).status_code for _ in range(2)] == [200, 409]
    assert api.engineer.post("/rlhf/incidents/inc_9/propose", note).status_code == 404
    assert api.auditor.get("/rlhf/incidents", state="open").json()["items"] == []


def test_an_incident_shows_its_conversation_to_clinicians_only_and_its_notes_to_all(api) -> None:
    feedback = api.clinician1.post("/rlhf/feedback", RATED | {"critical": True, "comments": CANARY}).json()
    path = f"/rlhf/incidents/{feedback['incident_id']}"
    api.engineer.post(f"{path}/propose", {"note": "Rule 12 added. Call +1 212 555 0142."})
    detail = api.clinician2.get(path).json()
    assert detail["reason"] == CANARY and [turn["content"] for turn in detail["messages"]] == [
        RATED["user_query"], RATED["agent_response"]
    ]  # fmt: skip
    assert detail["steps"][0]["note"].endswith("0142.") and detail["proposed_by"] == detail["steps"][0]["by"]
    for other in (api.engineer, api.auditor, api.admin):
        shown = other.get(path)
        assert CANARY not in shown.text and RATED["user_query"] not in shown.text and "0142" not in shown.text
        assert "Rule 12 added." in shown.json()["steps"][0]["note"]
    assert api.annotator.get(path).status_code == 403
    reads = [
        row
        for row in audit.page(api.app.state.store, audit.AuditFilter(action="rlhf_feedback.read"))
        if row["detail"]["purpose"] == "incident review"
    ]
    assert len(reads) == 1


def test_metrics_count_and_say_nothing_else(api) -> None:
    feedback = api.clinician1.post("/rlhf/feedback", RATED | {"critical": True}).json()
    api.clinician1.get(f"/rlhf/feedback/{feedback['feedback_id']}")
    api.clinician1.get(f"/rlhf/{CANARY}")
    assert api.nobody.get("/metrics").status_code == 401 and api.clinician1.get("/metrics").status_code == 403
    text = api.auditor.get("/metrics").text
    assert 'medloop_records_total{kind="rlhf_feedback"} 1' in text and "medloop_incidents_open 1" in text
    assert 'medloop_http_requests_total{method="GET",route="/api/v1/rlhf/feedback/{record_id}",status="200"} 1' in text
    assert "medloop_ingest_batch_size_count" in text and "medloop_ingest_waiting 0" in text
    assert not [secret for secret in (CANARY, feedback["feedback_id"], api.ids["clinician1"], "s", "a") if f'"{secret}"' in text]
    for name in (line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")):
        assert text.count(f"# TYPE {name} ") == 1


def test_a_key_over_its_rate_gets_429_and_others_go_on(settings: Settings) -> None:
    with open_store(settings) as store:
        user = users.add_user(store, "clinician", "clinician", actor="test")
        keys = [users.new_key(store, user, actor="test") for _ in range(2)]
    app = create_app(settings, supervise=False, limits=RequestLimits(rate=2))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        codes = [Door(client, keys[0]).post("/rlhf/feedback", RATED) for _ in range(6)]
        assert [response.status_code for response in codes][:4] == [201] * 4 and codes[-1].status_code == 429
        assert int(codes[-1].headers["retry-after"]) >= 1
        assert Door(client, keys[1]).post("/rlhf/feedback", RATED).status_code == 201
        assert crud.count(app.state.store, Feedback) == 5


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    buckets = RateLimiter(10, clock=lambda: now[0])
    for _ in range(20):
        buckets.take("k")
    with pytest.raises(RateLimitError):
        buckets.take("k")
    now[0] += 0.1
    buckets.take("k")
    with pytest.raises(RateLimitError):
        buckets.take("k")
    now[0] += 1000
    for _ in range(20):
        buckets.take("k")
    with pytest.raises(RateLimitError):
        buckets.take("k")


@pytest.mark.parametrize(("error", "code"), [(StoreUnavailableError("away"), 503), (NoSpaceError("full"), 507)])
def test_a_store_that_cannot_write_is_503_or_507(api, monkeypatch, error, code: int) -> None:
    async def failing(submission):
        raise error

    monkeypatch.setattr(api.app.state.writer, "submit", failing)
    refused = api.clinician1.post("/rlhf/feedback", RATED)
    assert refused.status_code == code and ("retry-after" in refused.headers) == (code == 503)
    assert api.clinician1.get("/rlhf/feedback").status_code == 200  # nothing to read, so nothing to write down


def test_every_write_has_examples_in_the_description(api) -> None:
    described = api.app.openapi()
    for path in ("traces", "rlhf/feedback", "rlhf/preference", "rlhf/correction"):
        post = described["paths"][f"/api/v1/{path}"]["post"]
        name = post["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        assert described["components"]["schemas"][name]["examples"]
        assert {"200", "201", "422", "429", "503", "507"} <= set(post["responses"])


def test_more_writes_than_fit_are_turned_away_before_they_are_read(settings: Settings) -> None:
    with open_store(settings) as store:
        key = users.new_key(store, users.add_user(store, "clinician", "clinician", actor="test"), actor="test")
    app = create_app(settings, supervise=False, limits=RequestLimits(in_flight=2))
    with TestClient(app, base_url="http://127.0.0.1") as client, ThreadPoolExecutor(2) as pool:
        door, go, there = Door(client, key), threading.Event(), threading.Event()

        def hold(known):
            there.set()
            assert go.wait(20)
            return NewRows({})

        threading.Thread(target=app.state.writer.submit_and_wait, args=(WriteRequest("u", hold),), daemon=True).start()
        assert there.wait(20)
        futures = [pool.submit(door.post, "/rlhf/feedback", RATED) for _ in range(2)]
        while app.state.writer.waiting < 2:
            time.sleep(0.01)
        refused = door.post("/rlhf/feedback", content=b"not even JSON", headers={"Content-Type": "application/json"})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1" and "hint" in refused.json()
        assert door.get("/rlhf/preference").status_code == 200  # reading goes on
        go.set()
        assert [future.result().status_code for future in futures] == [201, 201]
        assert door.post("/rlhf/feedback", RATED).status_code == 201


def test_a_full_disk_is_507_and_what_was_acknowledged_stays(api) -> None:
    store = api.app.state.store
    feedback_id = api.clinician1.post("/rlhf/feedback", RATED).json()["feedback_id"]

    def limit(connection, _record) -> None:
        connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0] + 2}")

    event.listen(store.engine, "connect", limit)
    store.engine.dispose()
    codes = [api.clinician1.post("/rlhf/feedback", RATED | {"user_query": "x" * 15_000}).status_code for _ in range(3)]
    assert codes[-1] == 507
    event.remove(store.engine, "connect", limit)
    store.engine.dispose()
    assert api.clinician1.post("/rlhf/feedback", RATED).status_code == 201
    assert crud.get(store, Feedback, feedback_id) is not None and audit.verify(store).ok
    assert crud.count(store, Feedback) == 2 + codes.count(201)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b'{"a":' * 50_000, b'{"rating": ' + b"9" * 5000 + b"}", b'{"rating": 1e999}', b'{"rating": NaN}', b"\xff\xfe{}",
        b'{"session_id": "\\ud800", "rating": 3}', b'{"session_id": "s", "session_id": "t"}', b"null", b"[]", b'"text"', b"",
    ],
    ids=range(12),
)  # fmt: skip
def test_hostile_json_is_refused_and_the_server_goes_on(api, content: bytes) -> None:
    for path, kind in (("/rlhf/feedback", "application/json"), ("/rlhf/import", "application/x-ndjson")):
        answer = api.engineer.post(path, content=content, headers={"Content-Type": kind})
        assert answer.status_code in (400, 422) or (path.endswith("import") and answer.json()["failed"] >= 1)
    assert api.engineer.post("/rlhf/feedback", RATED).status_code == 201
