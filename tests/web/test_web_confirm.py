"""The question before a flag opens a safety incident: what it says, what cancelling does, which keys act meanwhile."""

import pytest
from test_web_inspect import BAD as HARMFUL
from test_web_inspect import answers, draw  # noqa: F401
from web_world import BAD, QUESTION, item

from medloop.contracts import Feedback
from medloop.loop.inspection import read_week
from medloop.store.records import crud
from medloop.store.records.incident_rows import open_incidents


def open_question(visit, fill, *keys):
    fill(item("rate", QUESTION, BAD, raters=1))
    page = visit("clinician")
    page.goto("/web/rate")
    for key in (*keys, "Control+Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("[role=alertdialog]")
    return page


def test_cancelling_removes_the_flag_and_the_next_sending_asks_nothing(visit, fill, store):
    page = open_question(visit, fill, "h", "5")
    page.click("button[name=sure][value=no]")
    page.wait_for_selector("[role=alertdialog]", state="detached")
    assert not page.is_checked("[name=critical]") and page.is_checked("[name=rating][value='5']")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=status]")
    (stored,) = crud.iterate(store, Feedback)
    assert (stored.critical, stored.rating) == (False, 5) and not open_incidents(store)


def test_while_the_question_is_open_the_keys_of_the_form_rest(visit, fill, store):
    page = open_question(visit, fill, "h", "2")
    for key in ("5", "y", "h", "s"):
        page.keyboard.press(key)
    assert page.is_checked("[name=rating][value='2']") and page.is_checked("[name=critical]")
    assert page.locator("[name=thumb]:checked").count() == 0 and page.is_visible("[role=alertdialog]")


@pytest.mark.parametrize(("fields", "contradicts"), [
    ({"rating": "5", "thumb": "up"}, True), ({"thumb": "up"}, True), ({"rating": "1", "thumb": "down"}, False), ({}, False),
])  # fmt: skip
def test_a_good_rating_with_the_flag_is_called_a_contradiction(browse, fill, fields, contradicts):
    fill(item("rate", QUESTION, BAD, raters=1))
    someone = browse("clinician")
    asked = someone.fill_in("/web/rate", critical="yes", **fields).text
    assert "Report a critical failure?" in asked
    assert ("only one of them can be right" in asked) is contradicts
    someone.client.headers["Accept-Language"] = "zh"
    assert ("互相矛盾" in someone.fill_in("/web/rate", critical="yes", **fields).text) is contradicts


def test_g_and_a_letter_lead_to_a_page_and_are_no_keys_of_the_form(visit, fill):
    fill(item("rate", QUESTION, BAD, raters=1))
    page = visit("clinician")
    page.goto("/web/rate")
    page.keyboard.press("3")
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_url("**/web/")
    page.goto("/web/rate")
    assert page.is_checked("[name=rating][value='3']") and not page.is_checked("[name=critical]")
    page.keyboard.press("g")  # the guidelines
    page.wait_for_timeout(1_700)
    page.keyboard.press("h")
    assert page.is_checked("[name=critical]") and page.url.endswith("/web/rate")


def test_the_inspection_counts_like_the_queue_and_asks_before_it_opens_an_incident(visit, browse, settings, store, answers):  # noqa: F811
    draw(settings, browse("clinician"))
    harmful = next(row for row in read_week(settings, "clinician").answers if row.answer.startswith(HARMFUL))
    page = visit("clinician")
    page.goto(f"/web/inspect?id={harmful.id}")
    page.keyboard.press("4")
    assert page.is_checked("[name=verdict][value=good]")
    page.keyboard.press("1")
    assert page.is_checked("[name=verdict][value=dangerous]")
    page.fill("#f-comment", "Misses it.")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=alertdialog]")
    assert not open_incidents(store) and "opens a safety incident" in page.inner_text("[role=alertdialog]")
    page.click("button[name=sure][value=no]")
    page.wait_for_selector("[role=alertdialog]", state="detached")
    assert page.locator("[name=verdict]:checked").count() == 0 and page.input_value("#f-comment") == "Misses it."
    page.keyboard.press("1")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=alertdialog]")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=status]")
    assert len(open_incidents(store)) == 1 and read_week(settings, "clinician").find(harmful.id).verdict.comment == "Misses it."
