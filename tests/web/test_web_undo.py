"""Undo: what was sent a moment ago is taken back, counts nowhere, and its form is there again. Without scripts."""

import re
from datetime import timedelta
from html import unescape

import pytest
from sqlalchemy import update
from web_world import BAD, GOOD, HIDDEN, QUESTION, item, trace

from medloop.contracts import Feedback, RedTeamCase
from medloop.data.text.risk import strata_of
from medloop.feedback.review import queue
from medloop.feedback.review.complaints import queue_complaints
from medloop.store import audit
from medloop.store.records import crud, review_queue, users
from medloop.store.records.incident_rows import list_incidents
from medloop.store.records.marks import iterate_marks
from medloop.store.tables import rlhf_feedback

UNDO = re.compile(r'<form method="post" action="/web/queue/undo".*?</form>', re.S)


def undo(someone, page: str):
    (form,) = UNDO.findall(page)
    fields = {name: unescape(value) for name, value in HIDDEN.findall(form)}
    return someone.client.post("/web/queue/undo", data=fields, follow_redirects=True)


@pytest.mark.parametrize(("kind", "answers", "fields"), [
    ("rate", [BAD], {"rating": "4", "comments": "No red flag."}), ("compare", [BAD, GOOD], {"better": "tie", "comments": "Same."}),
    ("correct", [BAD], {"golden": "Call an ambulance."}),
])  # fmt: skip
def test_undo_takes_a_judgement_back_and_opens_its_item_with_what_was_typed(browse, fill, store, kind, answers, fields):
    fill(item(kind, QUESTION, *answers, raters=1))
    someone = browse("clinician")
    sent = someone.fill_in("/web/queue", **fields).text
    assert len([*iterate_marks(store)]) == 1 and queue.stats(store).states == {"done": 1}
    back = undo(someone, sent)
    assert back.url.path == f"/web/{kind}" and "Taken back." in back.text and [*fields.values()][-1] in back.text
    assert not [*iterate_marks(store)] and queue.stats(store).states == {"open": 1}
    assert "You took it back" in someone.get("/web/history").text
    again = someone.send(back.text, **fields)
    assert "Saved." in again.text and len([*iterate_marks(store)]) == 1 and queue.stats(store).states == {"done": 1}
    assert sum(line["action"].endswith(".withdraw") for line in audit.show(store, 50)) == 1


def test_undo_of_a_complaint_removes_what_the_queue_made_of_it(browse, fill, store):
    fill(shown := trace(BAD))
    someone = browse("clinician")
    sent = someone.fill_in(f"/web/rate?trace={shown.trace_id}", thumb="down").text
    queue_complaints(store, strata_of)
    assert [row.reasons["thumbs_down"] for row in review_queue.list_items(store)] == [1.0]
    undo(someone, sent)
    queue_complaints(store, strata_of)
    assert not review_queue.list_items(store)
    someone.fill_in(f"/web/rate?trace={shown.trace_id}", thumb="down")
    queue_complaints(store, strata_of)  # unless the server's own thread was faster
    assert len(review_queue.list_items(store)) == 1  # a later complaint about it counts


def test_undo_of_a_newer_version_lets_the_older_one_count_again(browse, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    someone = browse("clinician")
    someone.fill_in("/web/queue", rating="2")
    (first,) = crud.iterate(store, Feedback)
    sent = someone.fill_in(f"/web/rate?again={first.feedback_id}", rating="4").text
    assert [mark.rating for mark in iterate_marks(store)] == [4]
    undo(someone, sent)
    assert [mark.rating for mark in iterate_marks(store)] == [2]


def test_after_ten_seconds_it_counts_and_another_person_cannot_undo_it(browse, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    someone, other = browse("clinician"), browse("other")
    sent = someone.fill_in("/web/queue", rating="2").text
    (record,) = crud.iterate(store, Feedback)
    assert other.post("/web/queue/undo", kind="rate", record=record.feedback_id).status_code in (404, 422)
    with store.write() as conn:
        conn.execute(update(rlhf_feedback).values(received=record.received - timedelta(seconds=16)))
    assert "Too late to undo." in undo(someone, sent).text and len([*iterate_marks(store)]) == 1


def test_undo_of_a_critical_flag_leaves_the_incident_to_two_people(browse, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    someone = browse("clinician")
    sent = someone.fill_in("/web/queue", critical="yes", sure="yes").text
    assert "a safety incident is open" in sent
    assert "The safety incident stays open until two people close it." in undo(someone, sent).text
    assert users.get_user(store, "clinician") and "Taken back" not in someone.get("/web/incidents").text


@pytest.mark.parametrize(("kind", "answers", "fields"), [
    ("rate", [BAD], {"critical": "yes", "sure": "yes"}), ("compare", [BAD, GOOD], {"better": "both_bad", "critical_first": "yes", "sure": "yes"}),
])  # fmt: skip
def test_a_flag_that_was_taken_back_and_sent_again_stays_one_incident(browse, fill, store, kind, answers, fields):
    fill(item(kind, QUESTION, *answers, raters=1))
    someone = browse("clinician")
    back = undo(someone, someone.fill_in("/web/queue", **fields, comments="Too late.").text)
    (first,), (flagged,) = list_incidents(store), [*crud.iterate(store, RedTeamCase)]
    someone.send(back.text, **fields, comments="No word about an ambulance.")
    (again,) = list_incidents(store)
    assert again.incident_id == first.incident_id and again.state == "open" and again.red_team_case == first.red_team_case
    assert again.record_id != first.record_id  # the judgement that counts
    (case,) = crud.iterate(store, RedTeamCase)
    assert case.record_id == again.record_id and (case.prompt, case.answer) == (flagged.prompt, flagged.answer)
    assert "ambulance" in case.reason
    assert [line["subject"] for line in audit.show(store, 50) if line["action"] == "incidents.flag_again"] == [again.incident_id]
