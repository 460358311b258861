"""The page of the codebook: from a correction on the page to a live rule, by role."""

import re

import pytest
from web_world import BAD, GOOD, QUESTION, item, trace

from medloop.contracts import Correction
from medloop.loop import codebook_trial
from medloop.loop.codebook import rules_for
from medloop.store.records import codebook, crud, users


@pytest.fixture
def quick_model(monkeypatch):
    monkeypatch.setattr(
        codebook_trial, "live_answers", lambda settings, store, site="all": ("test", lambda prompts: [BAD for _ in prompts])
    )


@pytest.fixture
def corrected(store):
    author = users.get_user(store, "clinician").user_id
    record = Correction(prompt=QUESTION, original=BAD, golden=GOOD, consent=("training",), recorded_by=author)
    crud.add(store, [record], actor="test")
    return record.correction_id


def test_a_correction_entered_on_the_page_changes_the_next_answer_after_approval(store, browse, fill, quick_model):
    fill(trace(BAD, trace_id="t1"), item("correct", QUESTION, BAD, trace_id="t1"))
    find = rules_for(store)
    sent = browse("clinician").fill_in("/web/correct", golden=GOOD, consent_training="yes")
    assert sent.status_code == 200, sent.text
    page = browse("clinician").get("/web/codebook")
    assert page.status_code == 200
    [entry] = codebook.entries(store, state="proposed")
    assert entry.evidence[0].startswith("cor_") and find(QUESTION).rules == ()
    label = re.compile(r'<label for="r-approve">(.*?)</label>')
    asked = [label.search(browse("other").get(f"/web/codebook/{entry.entry_id}", headers={"Accept-Language": language}).text)[1]
             for language in ("en", "zh")]  # fmt: skip
    assert asked == ["Reason (required if the trial got worse)", "理由（试用结果变差时必填）"]
    own = browse("clinician").get(f"/web/codebook/{entry.entry_id}")
    assert "another clinician has to approve" in own.text
    refused = browse("clinician").post(f"/web/codebook/{entry.entry_id}/approve", reason="")
    assert refused.status_code == 403 and find(QUESTION).rules == ()
    done = browse("other").post(f"/web/codebook/{entry.entry_id}/approve", reason="")
    assert done.status_code == 200 and "The next answer uses it" in done.text
    [used] = rules_for(store)(QUESTION).rules  # another process sees it within LOOK_S
    assert used.rule_id == entry.entry_id and used.first_sentence == "Call an ambulance now."
    assert entry.evidence[0] in browse("other").get(f"/web/codebook/{entry.entry_id}").text


def test_edit_retire_and_roll_back_on_the_page(store, browse, corrected, quick_model):
    other = browse("other")
    other.get("/web/codebook")
    [entry] = codebook.entries(store)
    other.post(f"/web/codebook/{entry.entry_id}/approve")
    shown = other.get(f"/web/codebook/{entry.entry_id}").text
    assert "your wording is not matched" in shown and "One per line;" in shown
    assert "questions that no rule comes from" in shown and "Also reaches" not in shown
    edited = other.post(
        f"/web/codebook/{entry.entry_id}/edit",
        text="Send to hospital first.",
        triggers="chest pain|胸痛|≈stroke",
        scope="emergency",
    )
    assert edited.status_code == 200 and "new revision waits" in edited.text
    assert "Also reaches" in edited.text and "舌头捋不直" in edited.text
    assert "do not reach" in edited.text and "after the stroke last year" in edited.text
    assert other.post(f"/web/codebook/{entry.entry_id}/retire").status_code == 422
    assert other.post(f"/web/codebook/{codebook.live(store).entries[0].revision_id}/retire", reason="Old.").status_code == 200
    assert codebook.live(store).entries == ()
    back = browse("admin").post("/web/codebook/rollback", version="1", reason="Needed.")
    assert back.status_code == 200 and len(codebook.live(store).entries) == 1
    assert browse("engineer").post("/web/codebook/rollback", version="0", reason="x").status_code == 403
    assert len(codebook.live(store).entries) == 1


def test_of_several_revisions_that_wait_the_list_has_the_last(store, browse, corrected):
    assert "Waiting (1)" in browse("other").get("/web/codebook").text
    again = Correction(prompt=QUESTION + " Now?", original=BAD, golden=GOOD, consent=("training",), recorded_by="usr_1")
    crud.add(store, [again], actor="test")
    assert "Waiting (1)" in browse("other").get("/web/codebook").text
    assert len({entry.entry_id for entry in codebook.entries(store)}) == 1 < len(codebook.entries(store, state="proposed"))


def test_roles_see_and_do_what_is_theirs(store, browse, corrected, quick_model):
    browse("other").get("/web/codebook")
    [entry] = codebook.entries(store)
    for role in ("auditor", "admin"):
        shown = browse(role).get(f"/web/codebook/{entry.entry_id}").text
        assert QUESTION not in shown and "Approve: the next answer uses it" not in shown
    assert QUESTION in browse("annotator").get(f"/web/codebook/{entry.entry_id}").text
    for role in ("annotator", "engineer", "auditor", "admin"):
        browse(role).post(f"/web/codebook/{entry.entry_id}/approve")
    assert codebook.live(store).entries == ()
    assert browse("auditor").post("/web/codebook", text="A rule").status_code == 403
    written = browse("annotator").post("/web/codebook", text="Ask for the weight first.", triggers="child|儿童")
    assert written.status_code == 200 and len(codebook.entries(store)) == 2
    named = browse("annotator").post("/web/codebook", text="王小明的电话是13800138000", triggers="*")
    assert named.status_code == 422 and "may name a person" in named.text


def test_a_rule_that_is_missing_too_long_over_or_never_fits_is_refused_with_the_reason(store, browse, corrected):
    rule = {"text": "Ask for the weight first.", "triggers": "child"}
    sentences = {
        "Write the rule.": {"text": " "},
        "The rule has more than 400 characters. Write it shorter.": {"text": "Ask 王小明. " * 1000},
        "The first sentence has more than 240 characters.": {"first_sentence": "Call now. " * 30},
        "Without a trigger this rule fits no question. Write a trigger, or * for every question.": {"triggers": " "},
        "The last day, 2020-01-01, is over. Choose a day in the future, or none.": {"expires": "2020-01-01"},
    }
    for sentence, wrong in sentences.items():
        refused = browse("annotator").post("/web/codebook", **rule | wrong)
        assert refused.status_code == 422 and sentence in refused.text, sentence
    [entry] = codebook.entries(store, state="proposed")
    edit = f"/web/codebook/{entry.entry_id}/edit"
    for wrong in ({"text": ""}, {"text": "Call.", "expires": "2020-01-01"}, {"text": "x" * 401}):
        assert browse("other").post(edit, **wrong).status_code == 422
    assert browse("other").post(edit, text="Call an ambulance.").status_code == 200, "it fits questions like its own"
