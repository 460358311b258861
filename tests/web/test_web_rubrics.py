"""The page of rubrics: from a correction on the page to an accepted criterion, by role."""

import pytest
from web_world import BAD, GOOD, QUESTION, item, trace

from medloop.contracts import Correction
from medloop.store.records import criteria, crud, users


@pytest.fixture
def corrected(store):
    author = users.get_user(store, "clinician").user_id
    record = Correction(prompt=QUESTION, original=BAD, golden=GOOD, consent=("evaluation",), recorded_by=author)
    crud.add(store, [record], actor="test")
    return record.correction_id


def test_a_correction_on_the_page_becomes_criteria_that_its_author_accepts(store, browse, fill):
    fill(trace(BAD, trace_id="t1"), item("correct", QUESTION, BAD, trace_id="t1"))
    me = browse("clinician")
    assert me.fill_in("/web/correct", golden=GOOD, consent_training="yes").status_code == 200
    page = me.get("/web/rubrics")
    assert page.status_code == 200 and "Sends the patient to emergency care now" in page.text and "wait for you" in page.text
    drafts = criteria.list_criteria(store, state="draft")
    urgent = next(row for row in drafts if row.content.detector == "urges_care_now")
    refused = browse("other").post(f"/web/rubrics/{urgent.criterion_id}/accept", state="draft")
    assert refused.status_code == 403 and "Somebody else wrote this correction" in refused.text
    done = me.post(f"/web/rubrics/{urgent.criterion_id}/accept", state="draft")
    assert done.status_code == 200 and "check it from now on" in done.text
    assert criteria.get_criterion(store, urgent.criterion_id).state == "accepted"


def test_change_and_drop_on_the_page(store, browse, corrected):
    me = browse("clinician")
    me.get("/web/rubrics")
    first = criteria.list_criteria(store)[0]
    fields = {"criterion": "Names the ambulance", "points": "4", "check": "mentions:", "words": "ambulance|120"}
    assert me.post(f"/web/rubrics/{first.criterion_id}/edit", **(fields | {"points": "many"})).status_code == 422
    assert me.post(f"/web/rubrics/{first.criterion_id}/edit", **(fields | {"check": "magic"})).status_code == 422
    for text, sentence in ((" ", "Write the criterion."), ("Ask 王小明. " * 50, "The criterion has more than 300 characters.")):
        refused = me.post(f"/web/rubrics/{first.criterion_id}/edit", **(fields | {"criterion": text}))
        assert refused.status_code == 422 and sentence in refused.text
    assert "The check above decides" not in me.get("/web/rubrics?state=draft").text
    assert me.post(f"/web/rubrics/{first.criterion_id}/edit", **fields).status_code == 200
    page = me.get("/web/rubrics?state=accepted").text
    assert "mentions the words" in page and "The check above decides, not these words" in page
    assert "not derived from the words" in page
    [edited] = criteria.list_criteria(store, state="accepted")
    assert (edited.content.detector, edited.points, edited.critical) == ("mentions:ambulance|120", 4, False)
    assert me.post(f"/web/rubrics/{edited.criterion_id}/drop", state="accepted").status_code == 200
    assert me.post(f"/web/rubrics/{edited.criterion_id}/drop").status_code == 409
    assert criteria.list_criteria(store, state="accepted") == []


def test_auditors_see_no_question_and_decide_nothing(store, browse, corrected):
    browse("clinician").get("/web/rubrics")
    [row, *_] = criteria.list_criteria(store)
    seen = browse("auditor").get("/web/rubrics")
    assert seen.status_code == 200 and QUESTION not in seen.text and row.text in seen.text
    assert browse("auditor").post(f"/web/rubrics/{row.criterion_id}/accept").status_code == 403
