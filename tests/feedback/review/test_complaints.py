"""Thumbs down, critical flags and disagreement fill the review queue by themselves, whichever door they come through."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from queue_desk import thumb, trace
from sqlalchemy import update

from medloop.contracts import Correction, Feedback, Preference
from medloop.data.text.risk import strata_of
from medloop.feedback.review.complaints import queue_complaints
from medloop.feedback.review.queue import next_item
from medloop.loop.feedback import queue_new_complaints
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, erasing, quarantine, review_queue, users
from medloop.store.records.review_queue import QueueItemSummary
from medloop.store.tables import traces
from medloop.web.app import create_app

NAMES = {"doc": "clinician", "wu": "clinician", "bot": "engineer"}
TRACE = {
    "session_id": "s", "agent_name": "a", "model_version": "m",
    "messages": [{"role": "user", "content": "My knee hurts after running."}, {"role": "assistant", "content": "Run more."}],
}  # fmt: skip


def summaries(store: Store) -> list[QueueItemSummary]:
    return review_queue.list_items(store, limit=100)


def add(store: Store, *records: Any) -> None:
    crud.add(store, records, actor="t")


def rating(name: str | None, rater: str, **values: Any) -> Feedback:
    base = {"session_id": "s", "agent_name": "a", "user_query": "My knee hurts.", "agent_response": "Run.", "trace_id": name}
    return Feedback.model_validate({**base, "clinician_id": rater, **values})


@pytest.mark.parametrize(
    ("ratings", "kind", "reasons"),
    [
        ([rating("t1", "ann", thumb="down")], "correct", {"thumbs_down"}),
        ([rating("t1", "ann", rating=2)], "correct", {"thumbs_down"}),
        ([rating("t1", "ann", rating=5, critical=True)], "correct", {"thumbs_down", "critical"}),
        ([rating("t1", "ann", thumb="up"), rating("t1", "ben", thumb="down")], "correct", {"thumbs_down", "raters_disagree"}),
        ([rating("t1", "ann", rating=5), rating("t1", "ben", rating=3)], "rate", {"raters_disagree"}),
        ([rating(None, "ann", thumb="down")], "correct", {"thumbs_down"}),
        ([rating("t1", "ann", thumb="up"), rating("t1", "ben", rating=5)], None, set()),
        ([rating("t1", "ann", rating=1), rating("t1", "ann", rating=5)], None, set()),  # the rater's last word counts
    ],
)  # fmt: skip
def test_complaints_and_disagreement_are_queued_once(store: Store, ratings: list[Feedback], kind: str, reasons: set[str]) -> None:
    add(store, trace("t1", "My knee hurts after running.", "Run more."), *ratings)
    queue_new_complaints(store)
    assert queue_new_complaints(store) == []
    items = summaries(store)
    assert [item.kind for item in items] == ([kind] if kind else [])
    assert all(set(item.reasons) - {"risk"} == reasons for item in items)


def test_a_critical_flag_raises_an_item_that_waits_and_comes_before_a_thumb(store: Store) -> None:
    add(store, *(trace(f"t{n}", f"My knee hurts, question {n}.", "Run more.") for n in range(2)))
    add(store, thumb("t0", "ann", up=False), thumb("t1", "ann", up=False))
    queue_new_complaints(store)
    add(store, rating("t1", "ben", critical=True))
    assert queue_new_complaints(store) == []
    first, second = summaries(store)
    assert (first.trace_id, second.trace_id) == ("t1", "t0") and first.priority > 0.95 > second.priority


def test_a_corrected_answer_needs_no_other_correction_but_harm_gets_a_second_opinion(store: Store) -> None:
    add(store, *(trace(f"t{n}", f"My knee hurts, question {n}.", "Run more.") for n in range(3)))
    add(store, thumb("t0", "ann", up=False), thumb("t1", "ann", up=False), rating("t2", "ann", critical=True))
    for name in ("t1", "t2"):
        add(store, Correction(trace_id=name, prompt="q", original="o", golden="g"))
    queue_new_complaints(store)
    assert {(item.trace_id, item.kind) for item in summaries(store)} == {("t0", "correct"), ("t2", "rate")}
    add(store, Correction(trace_id="t0", prompt="q", original="o", golden="g"), thumb("t0", "ben", up=True))
    queue_new_complaints(store)
    assert [item.trace_id for item in summaries(store) if item.state == "open"] == ["t2"]


def test_a_correction_outside_the_queue_closes_the_item(store: Store) -> None:
    add(store, trace("t1", "My knee hurts after running.", "Run more."), thumb("t1", "ann", up=False))
    queue_new_complaints(store)
    add(store, Correction(trace_id="t1", prompt="q", original="o", golden="g"))
    queue_new_complaints(store)
    assert [item.state for item in summaries(store)] == ["done"]


@pytest.mark.parametrize(
    ("choice", "answers"), [({"preferred": "a", "critical": ("b",)}, {"Run."}), ({"preferred": "both_bad"}, {"Rest."}), ({"preferred": "a"}, set())]
)  # fmt: skip
def test_a_harmful_answer_of_two_and_two_bad_ones_are_queued(store: Store, choice: dict[str, Any], answers: set[str]) -> None:
    pair = {"prompt": "My knee hurts.", "response_a": "Rest.", "response_b": "Run.", "clinician_id": "ann"}
    add(store, Preference.model_validate({**pair, **choice}))
    items = queue_new_complaints(store)
    assert {item.content.answers[0] for item in items} == answers and all(item.kind == "correct" for item in items)
    assert all(("critical" in item.reasons) is ("critical" in choice) for item in items)


def test_what_quarantine_holds_back_is_queued_when_it_is_released(store: Store) -> None:
    add(store, trace("t1", "My knee hurts after running.", "Run more."))
    with store.write() as conn:
        quarantine.hold(conn, "t1", "traces", doubt=1.0, reasons=["a name"], actor="t")
    add(store, thumb("t1", "ann", up=False))
    queue_new_complaints(store)
    assert summaries(store) == []
    quarantine.decide(store, "t1", "released", actor="t")
    assert [item.trace_id for item in queue_new_complaints(store)] == ["t1"]


def test_names_are_scrubbed_and_an_erasure_takes_the_item_of_a_record_without_a_trace(store: Store) -> None:
    record = rating(None, "ann", thumb="down", user_query="My name is Daniel Okafor, MRN 4471902. My knee hurts.")
    add(store, record)
    queue_new_complaints(store)
    held = next_item(store, "ben")
    assert held is not None and "Okafor" not in held.content.prompt[0].content
    ids, _ = erasing.find_by_ids(store, [record.feedback_id])
    assert erasing.find_derived(store, ids)["queue_items"] == {held.item_id}


def test_a_long_backlog_is_worked_off_page_by_page_and_a_kill_between_loses_nothing(store: Store) -> None:
    add(store, *(trace(f"t{n}", f"Question {n} about a knee.", f"Answer {n}.") for n in range(7)))
    add(store, *(thumb(f"t{n}", "ann", up=False) for n in range(7)))
    looks = [queue_complaints(store, strata_of, rows=3) for _ in range(4)]
    assert [(look.looked, look.more) for look in looks] == [(3, True), (3, True), (1, False), (0, False)]
    assert len(summaries(store)) == 7


def test_a_damaged_record_does_not_stop_the_queue(store: Store) -> None:
    add(store, *(trace(f"t{n}", f"Question {n} about a knee.", f"Answer {n}.") for n in range(3)))
    add(store, *(thumb(f"t{n}", "ann", up=False) for n in range(3)))
    with store.write() as conn:
        conn.execute(update(traces).where(traces.c.trace_id == "t1").values(conversation=b"x" * 64))
    queue_new_complaints(store)
    assert {item.trace_id for item in summaries(store)} == {"t0", "t2"} and queue_new_complaints(store) == []


@pytest.fixture
def people(workspace: Path) -> Iterator[dict[str, Callable[..., Any]]]:
    init_workspace(workspace)
    settings = Settings(home=workspace, device="cpu", offline=True)
    with open_store(settings) as opened:
        keys = {n: users.new_key(opened, users.add_user(opened, n, role, actor="t"), actor="t") for n, role in NAMES.items()}
    with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1") as client:

        def caller(name: str) -> Callable[..., Any]:
            headers = {"Authorization": f"Bearer {keys[name]}"}
            return lambda method, path, **more: client.request(
                method, f"/api/v1{path}", headers=headers | more.pop("headers", {}), **more
            )

        yield {name: caller(name) for name in NAMES}


def next_within(call: Callable[..., Any], seconds: float = 10.0) -> Any:
    """The next item for this person, as soon as there is one."""
    deadline = time.monotonic() + seconds
    while (answer := call("GET", "/queue/next")).status_code == 204 and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


@pytest.mark.parametrize("door", ["single", "import"])
def test_a_thumbs_down_over_http_is_the_next_item_of_another_clinician(people: dict[str, Any], door: str) -> None:
    trace_id = people["bot"]("POST", "/traces", json=TRACE).json()["trace_id"]
    body = {"trace_id": trace_id, "thumb": "down"}
    if door == "single":
        assert people["doc"]("POST", "/rlhf/feedback", json=body).status_code == 201
    else:
        line = json.dumps({"kind": "feedback", **body})
        more = {"content": line, "headers": {"Content-Type": "application/x-ndjson"}}
        assert people["doc"]("POST", "/rlhf/import", **more).json()["stored"] == 1
    item = next_within(people["wu"]).json()
    assert (item["kind"], item["trace_id"], item["reasons"]) == ("correct", trace_id, {"thumbs_down": 1.0})
    golden = people["wu"]("POST", "/rlhf/correction", json={"trace_id": trace_id, "golden": "Rest the knee."}).json()
    done = people["wu"]("POST", f"/queue/{item['item_id']}/done", json={"record_id": golden["correction_id"]})
    assert done.json()["state"] == "done"
