"""Rate, compare, correct and the queue, as pages send them: what is stored, what is refused, what is never lost or said twice."""

import re
from html import unescape

import pytest
from web_world import BAD, GOOD, HIDDEN, QUESTION, item, trace

from medloop.contracts import Correction, Feedback, Preference
from medloop.store import audit
from medloop.store.records import crud, incident_rows, lineage, quarantine, users


def all_of(store, kind):
    return list(crud.iterate(store, kind))


def id_of(store, name):
    return users.get_user(store, name).user_id


def test_a_rating_of_a_trace_is_stored_as_it_was_said(browse, fill, store):
    fill(shown := trace(BAD))
    done = browse("clinician").fill_in(
        f"/web/rate?trace={shown.trace_id}",
        thumb="down",
        rating="2",
        axis_safety="1",
        comments="Misses\r\nthe red flag.",
        consent_training="yes",
    )
    (feedback,) = all_of(store, Feedback)
    assert done.url.path == "/web/rate" and "Saved." in done.text and "included in the next dataset" in done.text
    assert (feedback.user_query, feedback.agent_response, feedback.model_version, feedback.trace_id) == (
        QUESTION,
        BAD,
        "clinic@3",
        shown.trace_id,
    )
    assert (feedback.thumb, feedback.rating, feedback.axes, feedback.comments) == (
        "down",
        2,
        {"safety": 1},
        "Misses\nthe red flag.",
    )
    assert (
        feedback.consent == ("training",)
        and feedback.recorded_by == feedback.clinician_id == id_of(store, "clinician")
        and not feedback.critical
    )


def test_a_pasted_answer_can_be_rated(browse, store):
    browse("clinician").fill_in("/web/rate?own=true", question=QUESTION, answer=BAD, rating="1")
    (feedback,) = all_of(store, Feedback)
    assert (feedback.user_query, feedback.agent_response, feedback.agent_name, feedback.consent) == (QUESTION, BAD, "pasted", ())


def test_opening_an_answer_leaves_a_line_in_the_audit_log(browse, fill, store):
    fill(shown := trace(BAD))
    browse("clinician").get(f"/web/rate?trace={shown.trace_id}")
    last = audit.show(store, 1)[0]
    assert (last["action"], last["subject"], last["actor"]) == ("traces.read", shown.trace_id, id_of(store, "clinician"))


@pytest.mark.parametrize(
    ("path", "fields", "error"),
    [
        ("/web/rate?own=true", {"question": "Kept question", "answer": "Kept answer"}, "Answer yes/no, give an overall rating"),
        ("/web/rate?own=true", {"question": "Kept question", "thumb": "up"}, "Paste the assistant"),
        ("/web/rate?own=true", {"question": "Kept question", "answer": "x", "comments": "long" * 6000}, "Too long"),
        ("/web/correct?own=true", {"question": "Kept question", "answer": "x"}, "Write your answer"),
        ("/web/correct?own=true", {"question": "Kept question", "answer": "same", "golden": "same"}, "is identical"),
        (
            "/web/correct?own=true",
            {
                "question": "Kept question",
                "answer": "<think>Chest pain.</think>Rest now.\n\nDrink tea.",
                "golden": "Rest now.\nDrink tea.",
            },
            "is identical",
        ),
    ],
)
def test_a_mistake_is_told_beside_its_field_and_nothing_is_lost(browse, store, path, fields, error):
    answered = browse("clinician").fill_in(path, **fields)
    assert answered.status_code == 422 and error in answered.text and "Kept question" in answered.text
    assert re.search(r'<p class="error" id="e-\w+">', answered.text) and 'aria-invalid="true"' in answered.text
    assert not all_of(store, Feedback) and not all_of(store, Correction)
    assert all(value in unescape(answered.text) for value in fields.values())


def test_a_mended_form_goes_through(browse, store):
    someone = browse("clinician")
    page = someone.fill_in("/web/rate?own=true", question="q", answer="a").text
    assert someone.send(page, question="q", answer="a", thumb="up").url.params["saved"] == "no_consent"
    assert len(all_of(store, Feedback)) == 1


def test_a_critical_flag_is_confirmed_first_and_then_opens_an_incident(browse, fill, store):
    fill(shown := trace(BAD))
    someone, path = browse("clinician"), f"/web/rate?trace={shown.trace_id}"
    response = someone.fill_in(path, rating="1", critical="yes", comments="Could kill.")
    assert "Report a critical failure?" in response.text and "Could kill." in response.text and not all_of(store, Feedback)
    taken_back = someone.send(response.text, rating="1", critical="yes", comments="Could kill.", sure="no")
    assert "Could kill." in taken_back.text and not re.search(r'name="critical"[^>]*checked', taken_back.text)
    done = someone.send(response.text, rating="1", critical="yes", comments="Could kill.", sure="yes")
    (feedback,) = all_of(store, Feedback)
    assert "incident is open" in done.text and feedback.critical and incident_rows.count_incidents(store).open == 1


def test_the_same_form_sent_twice_is_one_record(browse, store):
    someone = browse("clinician")
    page = someone.get("/web/rate?own=true").text
    for _ in range(2):
        assert someone.send(page, question="q", answer="a", thumb="up").url.params["saved"] == "no_consent"
    assert len(all_of(store, Feedback)) == 1


def test_the_same_form_with_other_words_is_not_a_second_record(browse, store):
    someone = browse("clinician")
    page = someone.get("/web/rate?own=true").text
    someone.send(page, question="q", answer="a", thumb="up")
    again = someone.send(page, question="q", answer="a", thumb="down", comments="No, wait.")
    assert again.status_code == 422 and "already sent" in again.text and "No, wait." in again.text
    assert [feedback.thumb for feedback in all_of(store, Feedback)] == ["up"]


@pytest.mark.parametrize("choice", ["first", "second"])
def test_the_order_is_drawn_recorded_and_means_the_same_answer(browse, fill, store, choice):
    fill(*(item("compare", f"Question {n}?", BAD, GOOD, raters=1) for n in range(12)))
    someone = browse("annotator")
    for _ in range(12):
        page = someone.get("/web/compare").text
        answers = re.findall(r'<div class="message assistant"[^>]*><p>(.*?)</p>\s*</div>', page, re.S)
        chosen = answers[0 if choice == "first" else 1]
        someone.send(page, better=choice, axis_safety="first", axis_clarity="tie")
        last = all_of(store, Preference)[-1]
        assert {"a": last.response_a, "b": last.response_b}[last.preferred] == chosen
        assert {"a": last.response_a, "b": last.response_b}[last.shown_first] == answers[0] and last.axes[
            "safety"
        ] == last.shown_first
        assert last.axes["clarity"] == "tie"
    assert {preference.shown_first for preference in all_of(store, Preference)} == {"a", "b"}  # 2 of 4096 draws would fail


def test_two_traces_are_compared_in_a_drawn_order_that_cannot_be_forged(browse, fill, store):
    fill(first := trace(BAD), second := trace(GOOD))
    someone, path = browse("clinician"), f"/web/compare?a={first.trace_id}&b={second.trace_id}"
    pages = [someone.get(path).text for _ in range(20)]
    firsts = {dict(HIDDEN.findall(page))["first"] for page in pages}
    assert firsts == {"a", "b"}
    other = {"a": "b", "b": "a"}[dict(HIDDEN.findall(pages[0]))["first"]]
    assert someone.send(pages[0], better="first", first=other).status_code == 404
    assert someone.send(pages[0], better="first").url.params["saved"] == "no_consent"
    (preference,) = all_of(store, Preference)
    assert (preference.response_a, preference.response_b, preference.model_a) == (BAD, GOOD, "clinic@3")


def test_answers_to_two_questions_are_not_compared(browse, fill):
    fill(first := trace(BAD), second := trace(GOOD, "Another question?"))
    for b in (second.trace_id, first.trace_id, "none"):
        assert browse("clinician").get(f"/web/compare?a={first.trace_id}&b={b}").status_code == 404


def test_a_correction_is_stored_with_its_reason(browse, fill, store):
    fill(shown := trace(BAD))
    browse("clinician").fill_in(f"/web/correct?trace={shown.trace_id}", golden=GOOD, reason="Red flag.")
    (correction,) = all_of(store, Correction)
    assert (correction.prompt, correction.original, correction.golden, correction.reason) == (QUESTION, BAD, GOOD, "Red flag.")


def test_the_queue_hands_out_finishes_and_skips(browse, fill, store):
    fill(
        item("rate", QUESTION, BAD, raters=1), item("correct", "Headache?", BAD, raters=1), item("rate", "Cough?", GOOD, raters=1)
    )
    someone = browse("annotator")
    page = someone.get("/web/queue").text
    assert "3 left for you today." in page and "high risk" not in page
    held = dict(HIDDEN.findall(page))["item"]
    assert dict(HIDDEN.findall(someone.get("/web/queue").text))["item"] == held
    someone.post("/web/queue/skip", item=held)
    page = someone.get("/web/queue").text
    assert dict(HIDDEN.findall(page))["item"] != held and "2 left for you today." in page
    done = someone.send(page, rating="2", golden="Better.")
    assert done.url.path == "/web/queue" and "Saved." in done.text and "This is the last one for you today." in done.text
    assert dict(HIDDEN.findall(done.text))["item"] not in (held, dict(HIDDEN.findall(page))["item"])
    assert len(all_of(store, Feedback)) + len(all_of(store, Correction)) == 1


def test_a_rater_judges_only_what_they_were_handed(browse, fill, store):
    fill(shown := trace(BAD), item("rate", QUESTION, BAD, raters=1))
    page = browse("other").get("/web/queue").text
    held = dict(HIDDEN.findall(page))["item"]
    annotator = browse("annotator")
    assert annotator.post("/web/rate", item=held, rating="1").status_code == 404
    assert annotator.post("/web/queue/skip", item=held).status_code == 404
    assert annotator.get(f"/web/rate?trace={shown.trace_id}").status_code == 404
    assert annotator.post("/web/rate", trace=shown.trace_id, rating="1").status_code == 404
    assert annotator.post("/web/rate", question="q", answer="a", rating="1").status_code == 404
    assert not all_of(store, Feedback)


def test_history_says_what_became_of_each_record(browse, fill, store):
    someone = browse("clinician")
    for question in ("Used?", "Held?", "Refused?", "Waiting?"):
        someone.fill_in("/web/rate?own=true", question=question, answer="a", thumb="up", consent_training="yes")
    someone.fill_in("/web/rate?own=true", question="No consent?", answer="a", rating="4")
    ids = {feedback.user_query: feedback.feedback_id for feedback in all_of(store, Feedback)}
    with store.write() as conn:
        lineage.add_records(conn, "sha256:" + "ab" * 32, [ids["Used?"]])
        for question in ("Held?", "Refused?"):
            quarantine.hold(conn, ids[question], "rlhf_feedback", doubt=1.0, reasons=["name"], actor="test")
    quarantine.decide(store, ids["Refused?"], "refused", actor="test")
    page = someone.get("/web/history").text
    fates = dict(re.findall(r'class="question"[^>]*>([^<]+)</p>.*?</span> ([^<·]+)', page, re.S))
    assert {q: fate.strip() for q, fate in fates.items()} == {
        "No consent?": "Stored but not used: no use was allowed",
        "Waiting?": "Can be included in the next dataset",
        "Refused?": "Rejected in the privacy review: it identifies a person",
        "Held?": "Held for privacy review: it may identify a person",
        "Used?": "In dataset abababababab",
    }


@pytest.mark.parametrize(
    ("path", "first", "then"),
    [
        ("/web/rate", {"rating": "5", "comments": "Fine."}, {"rating": "1", "comments": "Not fine."}),
        ("/web/correct", {"golden": "First words."}, {"golden": "Second words."}),
    ],
)
def test_what_was_said_can_be_said_anew_and_takes_the_place_of_the_old(browse, store, path, first, then):
    someone = browse("clinician")
    someone.fill_in(f"{path}?own=true", question="q", answer="a", **first)
    change = re.search(r'href="(/web/\w+\?again=[^"]+)"', someone.get("/web/history").text)[1]
    page = someone.get(change).text
    assert all(value in page for value in first.values())
    assert someone.send(page, **then).url.path == "/web/history"
    old, new = all_of(store, Feedback if path == "/web/rate" else Correction)
    assert new.supersedes == (old.feedback_id if path == "/web/rate" else old.correction_id)
    assert "Replaced by your newer version" in someone.get("/web/history").text


def test_history_is_ones_own_and_comes_in_pages(browse, store):
    someone = browse("clinician")
    once = "x"
    for n in range(23):
        page = someone.get("/web/rate?own=true").text
        someone.send(page, question=f"Question {n:02d}.", answer="a", thumb="up", once=f"{once}{n}")
    first = someone.get("/web/history").text
    older = re.search(r'href="(/web/history\?before=[^"]+)"', first)[1]
    rest = someone.get(older).text
    numbers = re.findall(r"Question (\d\d)\.", first) + re.findall(r"Question (\d\d)\.", rest)
    assert numbers == [f"{n:02d}" for n in range(22, -1, -1)]
    assert "Question" not in browse("other").get("/web/history").text


def test_the_dashboard_counts_and_names_the_open_incidents(browse, fill, store):
    fill(shown := trace(BAD))
    for name in ("clinician", "other"):
        browse(name).fill_in(f"/web/rate?trace={shown.trace_id}", rating="1", critical="yes", sure="yes")
    engineer = browse("engineer")
    page = engineer.get("/web/dashboard").text
    assert (
        "<strong>2</strong> records" in page
        and "<strong>2</strong> open incidents" in page
        and "<svg" in page
        and BAD not in page
    )
    assert re.findall(r'href="(/web/incidents/inc_[^"]+)"', page) and BAD not in browse("auditor").get("/web/dashboard").text


def test_the_auditor_reads_filters_and_checks_the_log(browse, fill, store):
    fill(trace(BAD))
    page = browse("auditor").get("/web/audit?action=traces.add&check=true").text
    assert "The log is intact" in page and page.count("<tr>") == 2
    assert "sessions.login" in browse("auditor").get("/web/audit?actor=auditor").text
    with store.write() as conn:
        conn.exec_driver_sql("UPDATE audit_log SET actor = 'nobody' WHERE seq = 2")
    assert "The log is damaged" in browse("auditor").get("/web/audit?check=true").text


def test_the_admin_lets_people_in_and_keeps_them_out(browse, store):
    admin = browse("admin")
    page = admin.post("/web/users", name="e.li", role="engineer").text
    password = re.search(r'<p class="secret">([^<]+)</p>', page)[1]
    assert users.check_password(store, "e.li", password) and password not in admin.get("/web/users").text
    assert admin.post("/web/users", name="e.li", role="engineer").status_code == 422
    assert admin.post("/web/users", name="x y", role="root").status_code == 422
    user = users.get_user(store, "e.li")
    admin.post(f"/web/users/{user.user_id}/disable")
    assert users.check_password(store, "e.li", password) is None
    refused = admin.post(f"/web/users/{id_of(store, 'admin')}/disable")
    assert refused.status_code == 403 and "You cannot change your own account here." in refused.text


@pytest.mark.parametrize(
    ("name", "role", "en", "zh"),
    [
        ("dr wu", "clinician", "Invalid user name: use letters, digits", "用户名无效：仅限字母、数字"),
        ("admin", "clinician", "There is already a user named admin.", "用户名 admin 已存在。"),
        ("dr.wu", "", "Choose a role.", "请选择角色。"),
    ],
)
def test_why_a_user_cannot_be_added_is_said_in_the_language_of_the_page(browse, name, role, en, zh):
    admin = browse("admin")
    assert en in admin.post("/web/users", name=name, role=role).text
    admin.client.headers["Accept-Language"] = "zh"
    page = admin.post("/web/users", name=name, role=role).text
    assert zh in page and "medloop users" not in page


def test_ticked_faults_are_stored_as_axes_kept_on_changing_and_named_in_the_history(browse, fill, store):
    fill(shown := trace(BAD))
    someone = browse("clinician")
    someone.fill_in(f"/web/rate?trace={shown.trace_id}", rating="1", axis_emergency="1", axis_false_reassurance="1")
    (feedback,) = all_of(store, Feedback)
    assert feedback.axes == {"false_reassurance": 1, "emergency": 1}
    form = someone.get(f"/web/rate?again={feedback.feedback_id}").text
    assert re.search(r'name="axis_emergency"[^>]*checked', form) and not re.search(r'name="axis_risk"[^>]*checked', form)
    assert "Misses an emergency" in someone.get("/web/history").text
