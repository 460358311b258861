"""What somebody who has never seen the pages needs: what to do, what happens next, the way on and back, in their language."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from web_world import BAD, GOOD, QUESTION, item, trace

from medloop.contracts import Feedback, Incident, Preference, utc_now
from medloop.store.records import crud, users
from medloop.web.words import Translator

SPELT = "电话是幺三八零零一三八零零零"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rating": "4", "consent_training": "yes"}, "It can be included in the next dataset"),
        ({"rating": "4", "consent_evaluation": "yes"}, "to test the assistant, but not to train it"),
        ({"rating": "4"}, "stored but not used"),
        ({"rating": "4", "consent_training": "yes", "comments": SPELT}, "A colleague will review it before it is used"),
        (
            {"critical": "yes", "sure": "yes", "consent_training": "yes"},
            "a safety incident is open",
        ),
    ],
)
def test_after_sending_a_page_says_what_happens_now_and_leads_on_and_back(browse, store, fields, expected):
    done = browse("clinician").fill_in("/web/rate?own=true", question="q", answer="a", **fields)
    (feedback,) = crud.iterate(store, Feedback)
    assert "Saved" in done.text and expected in done.text
    for link in (f"/web/rate?again={feedback.feedback_id}", "/web/history", "/web/"):
        assert re.search(rf'href="{re.escape(link)}(#f-consent)?"', done.text), link


@pytest.mark.parametrize(
    "query", ["saved=<b>&kind=<i>&record=x", "saved=waiting&kind=rate&record=%22%3E<script>", "saved=erased&kind=rate", "saved=waiting&kind=<i>"]
)  # fmt: skip
def test_the_address_chooses_what_was_saved_among_our_sentences_only(browse, query):
    page = browse("clinician").get(f"/web/queue?{query}").text
    assert not re.search(r"<(b|i|script)>", page)
    assert ("It can be included in the next dataset" in page) == ("saved=waiting&kind=rate" in query)


def test_an_empty_queue_offers_what_the_reader_may_do(browse):
    clinician, annotator = browse("clinician").get("/web/queue").text, browse("annotator").get("/web/queue").text
    assert 'href="/web/rate?own=true"' in clinician and "paste an answer to rate" in clinician
    assert "own=true" not in annotator and "paste an answer" not in annotator and "Come back later." in annotator


@pytest.mark.parametrize("kind", ["rate", "correct"])
def test_a_form_to_paste_into_says_why_it_is_empty(browse, kind):
    someone = browse("clinician")
    assert f"The queue has nothing to {kind} right now" in someone.get(f"/web/{kind}").text
    asked_for = someone.get(f"/web/{kind}?own=true").text
    assert "The queue has nothing" not in asked_for and "Paste a question" in asked_for


def test_why_an_item_was_chosen_is_said_only_after_judging_in_both_languages(browse, fill):
    chosen = item("rate", QUESTION, BAD).model_copy(
        update={"reasons": {"novelty": 0.05, "thumbs_down": 1.0, "explore": 0.9, "risk": 0.3}}
    )
    fill(chosen)
    someone = browse("annotator")
    page = someone.get("/web/queue").text
    assert not any(word in page for word in ("thumbs", "random", "high risk", "disagree", "Why it"))
    done = someone.send(page, rating="2")
    assert "Why it was in the queue: a user gave it a thumbs-down, picked at random." in " ".join(done.text.split())
    again = someone.get(f"{done.url.path}?{done.url.query.decode()}", headers={"Accept-Language": "zh"}).text
    assert "入选原因：用户点了踩、随机抽取。" in again


def test_a_rating_needs_one_thing_and_the_page_says_so_before(browse):
    page = browse("clinician").get("/web/rate?own=true").text
    assert "Answer at least one" in page
    for question in ("Would you give this answer to a patient?", "How good is it overall?"):
        assert f"<legend>{question}</legend>" in page  # neither required nor optional by itself


@pytest.fixture
def disagreement(store):
    """Sixty choices by one rater for the first answer, and twenty pairs of ratings that are far apart."""
    people = [users.get_user(store, name).user_id for name in ("clinician", "other")]
    records = [
        Preference(
            prompt=f"q{n}",
            response_a="a",
            response_b="b",
            preferred="a",
            shown_first="a",
            clinician_id=people[0],
            recorded_by=people[0],
        )
        for n in range(60)
    ]
    for n in range(20):
        crud.add(store, [rated_trace := trace(GOOD, f"q{n}?")], actor="test")
        shared = {
            "session_id": "s",
            "agent_name": "x",
            "user_query": "q",
            "agent_response": "a",
            "trace_id": rated_trace.trace_id,
        }
        records += [
            Feedback(**shared, rating=5 if n % 2 == who else 1, clinician_id=people[who], recorded_by=people[who])
            for who in (0, 1)
        ]
    crud.add(store, records, actor="test")


def test_what_is_worth_a_look_is_said_in_the_readers_language_by_person(browse, disagreement):
    engineer = browse("engineer")
    en, zh = (engineer.get("/web/dashboard", headers={"Accept-Language": language}).text for language in ("en", "zh"))
    assert "the answer shown first is preferred in 100% of the comparisons" in en and "先显示的回答在 100% 的比较中被选中" in zh
    assert "gave 100.0% of the preferences (more than 20%)" in en and "提交了 100.0% 的比较（超过 20%）" in zh
    listed = re.search(r'<ul class="alerts">.*?\n</ul>', zh, re.S)[0]
    assert not re.search(r"[a-z]{4,} [a-z]{3,}", listed.replace("kappa", ""))  # nothing is left in English
    assert listed.count("<strong>clinician</strong>") == 1


def test_a_picture_is_read_out_and_has_its_table(browse, disagreement):
    page = browse("engineer").get("/web/dashboard").text
    day = Translator("en").day(utc_now().date())
    assert f'aria-label="Records per day: {day} – {day}: rating 40, comparison 60, correction 0"' in page
    assert f"<td>{day}</td>" in page and 'aria-label="Stars: 1 ★ 20, 2 ★ 0, 3 ★ 0, 4 ★ 0, 5 ★ 20"' in page


def test_times_are_readable_and_name_their_zone():
    moment = datetime(2026, 2, 3, 1, 5, 9, tzinfo=timezone(timedelta(hours=8)))
    assert Translator("en").when(moment) == "2 Feb 2026, 17:05 UTC" and Translator("zh").when(moment) == "2026年2月2日 17:05 UTC"
    assert Translator("en").when(moment.astimezone(UTC).isoformat(), seconds=True) == "2 Feb 2026, 17:05:09 UTC"
    assert (
        Translator("en").day("2026-11-15", year=False) == "15 Nov"
        and Translator("zh").day("2026-11-15", year=False) == "11月15日"
    )


def test_what_the_queue_scrubbed_stays_scrubbed_in_the_history_and_in_the_record(browse, fill, store):
    fill(named := trace(GOOD, question="My name is Daniel Okafor. My knee hurts."))
    fill(item("rate", "My name is [NAME_1]. My knee hurts.", GOOD, trace_id=named.trace_id))
    clinician = browse("clinician")
    clinician.fill_in("/web/queue", rating="2")
    change = re.search(r'href="(/web/rate\?again=[^"#]+)', clinician.get("/web/history").text)[1]
    clinician.fill_in(change, rating="1")
    history = clinician.get("/web/history").text
    assert history.count("My name is [NAME_1]. My knee hurts.") == 2 and "Okafor" not in history
    assert {feedback.user_query for feedback in crud.iterate(store, Feedback)} == {"My name is [NAME_1]. My knee hurts."}


def test_allowing_the_use_of_a_flagged_record_opens_no_second_incident(browse, fill, store):
    fill(item("compare", QUESTION, BAD, GOOD))
    clinician = browse("clinician")
    clinician.fill_in("/web/compare", better="first", critical_first="yes", sure="yes")
    link = re.search(r'href="(/web/compare\?again=[^"]+)"', clinician.get("/web/history").text)[1]
    assert link.endswith("#f-consent")  # the boxes that the link is about are in view
    page = clinician.get(link.partition("#")[0]).text
    assert "You are changing what you sent" in page and 'id="f-consent"' in page
    done = clinician.send(page, better="first", critical_first="yes", consent_training="yes")
    assert "It can be included in the next dataset" in done.text and "Report a critical failure?" not in done.text
    assert crud.count(store, Incident) == 1 and done.text.count("incident open") == 2
    newest = re.search(r'href="(/web/compare\?again=[^"]+)"', done.text.partition("<ol")[2])[1]
    asked = clinician.fill_in(newest, better="first", critical_first="yes", critical_second="yes")
    assert "Report a critical failure?" in asked.text  # the second answer is flagged only now
    clinician.send(asked.text, better="first", critical_first="yes", critical_second="yes", sure="yes")
    assert crud.count(store, Incident) == 2


def test_a_notice_that_asks_for_something_stays(browse):
    someone = browse("clinician")
    unused = someone.fill_in("/web/rate?own=true", question="q", answer="a", rating="4").text
    assert 'data-notice="stays"' in unused and "#f-consent" in unused
    used = someone.fill_in("/web/rate?own=true", question="q", answer="b", rating="4", consent_training="yes").text
    assert "data-notice>" in used and "#f-consent" not in used
