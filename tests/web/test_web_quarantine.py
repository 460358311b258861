"""The privacy review: one held record at a time, with what is doubted marked; released or refused with a reason, by somebody else."""

import re

import pytest
from web_world import HIDDEN

from medloop.contracts import Conversation, Feedback, Message, Trace
from medloop.feedback.review.quarantine_marks import QuarantineMark, marks
from medloop.privacy.phi.scrub import assess
from medloop.store import audit
from medloop.store.records import crud, quarantine, users
from medloop.web.pages import quarantine as quarantine_page
from medloop.web.words import Translator

SPELT = "我邻居的电话是幺三八零零一三八零零零，最近总是头晕"  # a number that the scrubber cannot take out
FORM = re.compile(r'<form class="decision (\w+)".*?</form>', re.S)


@pytest.fixture
def hold(store):
    """Put a record of somebody into quarantine; returns its id."""

    def put(question: str = SPELT, by: str = "other", answer: str = "Rest.") -> str:
        user = users.get_user(store, by).user_id
        feedback = Feedback(
            session_id="s",
            agent_name="x",
            user_query=question,
            agent_response=answer,
            rating=3,
            recorded_by=user,
            clinician_id=user,
        )
        crud.add(store, [feedback], actor="test")
        with store.write() as conn:
            quarantine.hold(
                conn,
                feedback.feedback_id,
                "rlhf_feedback",
                doubt=1.0,
                reasons=["characters that may be a Chinese name"],
                actor="test",
            )
        return feedback.feedback_id

    return put


def lines_of(store, action: str) -> list[dict]:
    return audit.page(store, audit.AuditFilter(action=action))


def decided(someone, page: str, decision: str, reason: str, follow: bool = True):
    """Send the form of this decision as the page has it."""
    form = next(match[0] for match in FORM.finditer(page) if match[1] == decision)
    fields = {**dict(HIDDEN.findall(form)), "decision": decision, "reason": reason}
    return someone.client.post("/web/quarantine", data=fields, follow_redirects=follow)


def test_a_text_is_shown_with_its_doubts_after_the_reading_is_audited(browse, hold, store):
    record_id = hold()
    page = browse("clinician").get("/web/quarantine").text
    assert "<mark>幺三八零零一三八零零零<sup>1</sup></mark>" in page and "could not be removed" in page
    assert "characters that may be a Chinese name" in page
    (line,) = [entry for entry in lines_of(store, "rlhf_feedback.read") if entry["subject"] == record_id]
    assert line["detail"] == {"purpose": "quarantine review", "rows": 1}


def test_marks_split_a_text_and_lose_nothing_of_it():
    text = f"Mr Li Wei, call +86 13800138000.\n{SPELT}"
    (text_marks,) = marks([text])
    (part,) = quarantine_page.marked_texts([("user_query", text)], [text_marks], Translator("zh"))
    assert "".join(piece.text for piece in part.pieces) == text
    assert {piece.label for piece in part.pieces if piece.what == "out"} >= {"电话"} and part.doubts == ("无法去除的号码或地址",)


def test_one_reason_is_told_once_and_one_that_is_new_as_it_is():
    text_marks = [
        QuarantineMark(0, 2, "doubt", "something new"),
        QuarantineMark(3, 5, "doubt", "something new"),
        QuarantineMark(6, 8, "taken_out", "NEWKIND"),
    ]
    (part,) = quarantine_page.marked_texts([("other", "ab cd ef")], [text_marks], Translator("zh"))
    assert part.doubts == ("something new",) and [piece.number for piece in part.pieces if piece.what == "doubt"] == [1, 1]
    assert part.name == "other" and part.pieces[-1].label == "NEWKIND"


@pytest.mark.parametrize("text", [SPELT, "Пациент жалуется на боль в груди", "\ud800 a"])
def test_every_reason_of_the_scan_has_its_words(text):
    (reason,) = assess(text).reasons
    assert reason in quarantine_page.DOUBTS and Translator("zh")(quarantine_page.DOUBTS[reason]) != reason


def test_a_decision_leads_to_the_next_one_and_is_kept_with_its_reason(browse, hold, store):
    first, second = hold(), hold("Second?")
    someone = browse("clinician")
    answered = decided(someone, someone.get("/web/quarantine").text, "refuse", "contact")
    assert "Rejected. It will not enter any dataset." in answered.text and "Second?" in answered.text
    assert f"/web/quarantine?record={first}" in answered.text  # the way back
    assert [quarantine.get(store, record_id).state for record_id in (first, second)] == ["refused", "waiting"]
    (line,) = lines_of(store, "quarantine.refused")
    me = users.get_user(store, "clinician").user_id
    assert (line["actor"], line["subject"], line["detail"]) == (me, first, {"reason": "contact"})


def test_a_decision_can_be_turned_round(browse, hold, store):
    record_id = hold()
    someone = browse("clinician")
    decided(someone, someone.get("/web/quarantine").text, "refuse", "name")
    page = someone.get(f"/web/quarantine?record={record_id}").text
    assert "Status: rejected, decided by clinician" in page and "decision refuse" not in page
    decided(someone, page, "release", "nobody")
    assert quarantine.get(store, record_id).state == "released"


def test_of_two_reviewers_the_second_is_told_and_changes_nothing(browse, hold, store):
    record_id = hold(by="annotator")
    first, second = browse("clinician"), browse("other")
    pages = [someone.get("/web/quarantine").text for someone in (first, second)]
    decided(first, pages[0], "refuse", "name")
    late = decided(second, pages[1], "release", "nobody")
    assert late.status_code == 409 and "Somebody else has already decided on this record: it is rejected." in late.text
    assert quarantine.get(store, record_id).state == "refused" and len(lines_of(store, "quarantine.released")) == 0


@pytest.mark.parametrize(("decision", "reason"), [("release", ""), ("release", "name"), ("refuse", "nobody"), ("", "name")])
def test_without_a_reason_that_fits_nothing_is_decided(browse, hold, store, decision, reason):
    record_id = hold()
    someone = browse("clinician")
    answered = someone.post("/web/quarantine", record=record_id, decision=decision, reason=reason)
    assert answered.status_code == 422 and "Choose a reason." in answered.text and SPELT[:5] in answered.text
    assert quarantine.get(store, record_id).state == "waiting"


def test_what_one_sent_oneself_is_for_somebody_else(browse, hold, store):
    record_id = hold()
    sender = browse("other")
    assert "Nothing to review." in sender.get("/web/quarantine").text
    assert sender.get(f"/web/quarantine?record={record_id}").status_code == 404
    assert sender.post("/web/quarantine", record=record_id, decision="release", reason="nobody").status_code == 404
    assert quarantine.get(store, record_id).state == "waiting"
    assert not [entry for entry in lines_of(store, "rlhf_feedback.read") if entry["subject"] == record_id]


def test_later_goes_on_and_comes_round_again(browse, hold):
    first = hold("First?")
    hold("Second?")
    someone = browse("clinician")
    page = someone.get(f"/web/quarantine?after={first}").text
    assert "Second?" in page and "First?" not in page
    behind = re.search(r"/web/quarantine\?after=([^\"]+)", page)[1]
    end = someone.get(f"/web/quarantine?after={behind}").text
    assert "That was the last one. Still open: 2." in end and "First?" not in end
    assert "First?" in someone.get("/web/quarantine?after=unknown").text


def test_a_record_that_was_erased_meanwhile_is_not_there(browse, hold, store):
    record_id = hold()
    with store.write() as conn:
        table = crud.TABLES[Feedback]
        conn.execute(table.delete().where(table.c.feedback_id == record_id))
    assert browse("clinician").get(f"/web/quarantine?record={record_id}").status_code == 404


def test_feedback_on_a_held_trace_leads_to_the_trace_and_cannot_be_released_before(browse, store):
    talk = Conversation(messages=(Message(role="user", content=SPELT), Message(role="assistant", content="Rest.")))
    trace = Trace(session_id="s", agent_name="x", model_version="m", conversation=talk)
    other = users.get_user(store, "other").user_id
    feedback = Feedback(
        session_id="s", agent_name="x", user_query="q", agent_response="a", rating=3, trace_id=trace.trace_id, recorded_by=other
    )
    crud.add(store, [trace, feedback], actor=other)
    with store.write() as conn:
        for record_id, kind in ((feedback.feedback_id, "rlhf_feedback"), (trace.trace_id, "traces")):
            quarantine.hold(conn, record_id, kind, doubt=1.0, reasons=[], actor="test")
    someone = browse("clinician")
    page = someone.get(f"/web/quarantine?record={feedback.feedback_id}").text
    assert f"/web/quarantine?record={trace.trace_id}" in page and "decision refuse" in page and "decision release" not in page
    early = someone.post("/web/quarantine", record=feedback.feedback_id, decision="release", reason="nobody")
    assert early.status_code == 409 and "Decide on the conversation first" in early.text
    assert quarantine.get(store, feedback.feedback_id).state == "waiting"
    decided(someone, someone.get(f"/web/quarantine?record={trace.trace_id}").text, "release", "nobody")
    assert "decision release" in someone.get(f"/web/quarantine?record={feedback.feedback_id}").text
    assert "Nothing to review" in browse("other").get("/web/quarantine").text  # the sender of both


def test_times_are_those_of_the_reader(browse, hold):
    hold()
    page = browse("clinician").get("/web/quarantine").text
    assert re.search(r'was held on <time datetime="[^"]+">[^<]+ UTC</time>\.', page)


@pytest.mark.parametrize("is_doubted", [True, False])
def test_the_assistants_reasoning_is_folded_unless_it_names_somebody(browse, hold, is_doubted):
    hold(question="Cough?" if is_doubted else SPELT, answer=f"<think>{SPELT if is_doubted else 'A cough.'}</think>Rest.")
    page = browse("clinician").get("/web/quarantine").text
    assert "&lt;think" not in page and page.count('<details class="reasoning"') == 1
    assert ('<details class="reasoning" open>' in page) is is_doubted
    reasoning = page.partition('<details class="reasoning"')[2].partition("</details>")[0]
    assert "Rest." not in reasoning and ("<mark>" in reasoning) is is_doubted
