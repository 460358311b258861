"""Erasures that need two people, on the page: what they remove in ids and counts, who asked, until when; approve or refuse."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from web_world import BAD, QUESTION, trace

from medloop.contracts import Feedback
from medloop.errors import InputError
from medloop.jobs import queue as jobs
from medloop.jobs.worker import work
from medloop.privacy.erasure.approval import request_approval
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import SecondPersonNeededError, erase
from medloop.store.records import crud, erasure_requests, users

PAGE = "/web/approvals"


@pytest.fixture
def asked(store, fill) -> tuple[str, str]:
    """The id of a request by the admin, and of the rating with a critical flag that it would remove."""
    told = trace(BAD)
    fill(told)
    flag = Feedback(
        session_id="s", agent_name="a", user_query=QUESTION, agent_response=BAD, trace_id=told.trace_id, critical=True,
        recorded_by=users.get_user(store, "clinician").user_id,
    )  # fmt: skip
    crud.add(store, [flag], actor="test")
    request, admin = ErasureRequest("asked on 3 May", None, (told.trace_id,)), users.get_user(store, "admin").user_id
    with pytest.raises(SecondPersonNeededError) as needed:
        erase(store, request, actor=admin)
    return request_approval(store, request, needed.value, by=admin), flag.feedback_id


def decide(browser, request_id: str, decision: str, note: str = ""):
    return browser.post(f"{PAGE}/{request_id}/{decision}", note=note)


def test_the_page_shows_what_would_go_without_any_text(browse, store, asked):
    request_id, flag = asked
    page = browse("clinician").get(PAGE).text
    expires = erasure_requests.get_request(store, request_id).expires
    for shown in ("requested by admin", "asked on 3 May", "critical flags: 1", "Ratings: 1", "Conversations: 1", flag):
        assert shown in page
    assert f"{expires:%Y-%m-%d}" in page and QUESTION not in page and BAD not in page
    zh = browse("clinician").get(PAGE, headers={"Accept-Language": "zh"}).text
    assert all(shown in zh for shown in ("admin 申请的删除", "严重标记 1 个", "评分：1 条", "批准并删除", "有效期至"))
    assert "Erasures that wait for your approval: 1" in browse("clinician").get("/web/").text
    assert "Erasures that wait" not in browse("admin").get("/web/").text, "it is their own"


def test_a_second_person_approves_and_the_records_are_erased(browse, store, settings, asked):
    request_id, flag = asked
    page = decide(browse("clinician"), request_id, "approve", "Checked with the ward.")
    assert page.status_code == 200 and "The erasure has started" in page.text
    (row,) = [row for row in jobs.rows(settings) if row.stage == "ERASE"]
    assert f"approved, waits for its turn (job {row.job_id})" in page.text and "Approve and erase" not in page.text
    work(row.job_id, settings)
    assert "No erasure waits for an approval or is unfinished" in browse("clinician").get(PAGE).text
    assert crud.get(store, Feedback, flag) is None
    assert decide(browse("other"), request_id, "refuse", "Too late.").status_code == 409


def test_who_requested_it_cannot_approve_but_takes_it_back(browse, store, settings, asked):
    request_id, flag = asked
    admin = browse("admin")
    assert "clinician, other" in admin.get(PAGE).text and "Approve and erase" not in admin.get(PAGE).text
    refused = decide(admin, request_id, "approve")
    assert refused.status_code == 403 and "somebody else has to approve it" in refused.text
    assert "Nothing was removed" in decide(admin, request_id, "refuse", "Asked by mistake.").text
    assert crud.get(store, Feedback, flag) is not None and not list(jobs.rows(settings))
    assert decide(browse("clinician"), request_id, "approve").status_code == 409


@pytest.mark.parametrize("note", ["", "   ", "Call 13800138000 first", "患者张伟，电话13800138000", "x" * 201])
def test_a_refusal_says_why_and_names_nobody(browse, store, asked, note):
    request_id, _ = asked
    page = decide(browse("clinician"), request_id, "refuse", note)
    assert page.status_code == 422 and "leave out names, numbers and dates" in page.text
    assert [waiting.request_id for waiting in erasure_requests.waiting(store)] == [request_id]


def test_a_request_that_nobody_decides_is_over(browse, store, asked, monkeypatch):
    request_id, _ = asked
    monkeypatch.setattr(erasure_requests, "WAITS", timedelta(0))
    assert "No erasure waits" in browse("clinician").get(PAGE).text
    assert decide(browse("clinician"), request_id, "approve").status_code == 409
    with pytest.raises(InputError, match="is over"):
        erasure_requests.approve(store, request_id, by=users.get_user(store, "clinician").user_id)


@pytest.mark.parametrize("role", ["annotator", "engineer", "auditor"])
def test_the_page_is_for_those_who_may_decide(browse, asked, role):
    assert browse(role).get(PAGE).status_code == 403
    assert decide(browse(role), asked[0], "approve").status_code == 403
    assert not re.search(r'href="/web/approvals"', browse(role).get("/web/").text)


def test_a_request_whose_records_have_changed_is_not_approved_and_the_page_says_so_at_once(browse, store, settings, asked):
    request_id, flag = asked
    late = Feedback(
        session_id="s", agent_name="a", user_query=QUESTION, agent_response=BAD, critical=True,
        trace_id=crud.get(store, Feedback, flag).trace_id,
    )  # fmt: skip
    crud.add(store, [late], actor="test")
    page = decide(browse("clinician"), request_id, "approve")
    assert page.status_code == 409 and "have changed since it was requested" in page.text and "has started" not in page.text
    assert list(jobs.rows(settings)) == [] and erasure_requests.get_request(store, request_id).approved_by is None
    assert request_id in page.text and "waits for a second person" in page.text, "it can still be refused"


def test_a_second_approval_starts_nothing_new_and_one_that_failed_is_listed_and_continued(browse, store, settings, asked):
    request_id, flag = asked
    decide(browse("clinician"), request_id, "approve")
    again = decide(browse("other"), request_id, "approve")
    assert again.status_code == 409 and "its job has not ended" in again.text and "You requested" not in again.text
    (row,) = jobs.rows(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("medloop.privacy.erasure.erase.carry_out", lambda *_: 1 / 0)
        work(row.job_id, settings)
    page = browse("other").get(PAGE).text
    assert "approved, but NOT finished" in page and "approved by clinician" in page and "Continue the erasure" in page
    assert "The erasure has started" in decide(browse("other"), request_id, "approve").text
    work(next(jobs.rows(settings)).job_id, settings)
    assert crud.get(store, Feedback, flag) is None and "is unfinished" in browse("other").get(PAGE).text
    done = decide(browse("other"), request_id, "approve")
    assert done.status_code == 409 and "has been carried out" in done.text


def test_an_approval_of_yesterday_is_over_and_the_page_gives_that_reason(browse, store, settings, asked, monkeypatch):
    request_id, _ = asked
    erasure_requests.approve(store, request_id, by=users.get_user(store, "clinician").user_id)
    monkeypatch.setattr(erasure_requests, "VALID", timedelta(0))
    page = browse("other").get(PAGE).text
    assert "not carried out within a day" in page and "Continue the erasure" not in page
    late = decide(browse("other"), request_id, "approve")
    assert late.status_code == 409 and "more than a day ago" in late.text and "You requested" not in late.text
