"""You taught it this: what became of a clinician's own correction, and what the live model answers now."""

import json
import time

import pytest
from web_world import BAD, GOOD, QUESTION

from medloop.contracts import Correction, sha256_id, utc_now
from medloop.loop import codebook_trial, taught
from medloop.loop.codebook import propose_from
from medloop.loop.rubrics import draft_from
from medloop.store import catalog
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records import codebook, criteria, crud, lineage, users
from medloop.store.records.withdrawals import withdraw


@pytest.fixture
def says(monkeypatch):
    """What the live model says."""
    answer = {"text": BAD}
    model = lambda settings, store, site="all": ("test-model", lambda prompts: [answer["text"] for _ in prompts])  # noqa: E731
    monkeypatch.setattr(codebook_trial, "live_answers", model)
    monkeypatch.setattr(taught, "live_answers", model)
    return answer


@pytest.fixture
def corrected(store):
    author = users.get_user(store, "clinician").user_id
    consent = ("training", "evaluation")
    record = Correction(prompt=QUESTION, original=BAD, golden=GOOD, consent=consent, recorded_by=author)
    crud.add(store, [record], actor="test")
    return record.correction_id


def test_a_clinician_sees_rule_criteria_and_dataset_of_their_correction_and_the_answer_before_and_after(
    store, browse, corrected, says
):
    me = browse("clinician")
    page = me.get(f"/web/history/{corrected}")
    assert page.status_code == 200 and "No rule came from it yet" in page.text and "It is in no dataset yet" in page.text
    entry = propose_from(store, corrected, actor="test")
    for row in draft_from(store, corrected, actor="test"):
        criteria.accept(store, row.criterion_id, by=row.author)
    with store.write() as conn:
        lineage.add_records(conn, sha256_id("a dataset"), [corrected])
    before = me.post(f"/web/history/{corrected}/ask")
    assert before.status_code == 200 and "the mistake is still there" in before.text and "test-model" in before.text
    other = browse("other")
    assert other.post(f"/web/codebook/{entry.entry_id}/approve").status_code == 200
    after = me.post(f"/web/history/{corrected}/ask").text  # the first sentence of the rule stands before the same answer
    assert "Call an ambulance now." in after and "your correction is a live rule" in after
    assert "not good before, good after" in after
    says["text"] = GOOD
    assert "criteria are met" in me.post(f"/web/history/{corrected}/ask").text
    mine = me.get("/web/history").text
    assert f"/web/history/{corrected}" in mine and "0 wait for you" in mine
    assert other.get(f"/web/history/{corrected}").status_code == 404, "somebody else's correction"


def test_a_dataset_that_was_built_again_is_named_once(store, browse, corrected):
    """Seen after an erasure had rewritten it: the same dataset in two lines, with the same time."""
    for rows in (1, 2):
        folder = store.settings.home / "data/feedback/w1"
        with new_artifact(folder, replace=True) as temp:
            (temp / "rows.jsonl").write_text("{}\n" * rows, encoding="utf-8")
        sha256 = verify_artifact(folder).sha256
        catalog.register(store, "dataset", folder, {"name": "w1"}, actor="test")
        with store.write() as conn:
            lineage.add_records(conn, sha256, [corrected])
    page = browse("clinician").get(f"/web/history/{corrected}").text
    assert page.count(">data/feedback/w1<") == 1


def test_reasoning_is_folded_before_and_now_and_the_experts_reason_is_shown(store, browse, says):
    author = users.get_user(store, "clinician").user_id
    record = Correction(
        prompt=QUESTION, original=f"<think>Why not tea?</think>{BAD}", golden=GOOD, reason="It plays the pain down.", consent=(),
        recorded_by=author,
    )  # fmt: skip
    crud.add(store, [record], actor="test")
    says["text"] = f"<think>An emergency.</think>{GOOD}"
    page = browse("clinician").post(f"/web/history/{record.correction_id}/ask").text
    assert page.count('<details class="reasoning">') == 2 and "&lt;think" not in page and "An emergency." in page
    assert "It plays the pain down." in page


def test_a_correction_that_was_taken_back_says_so_and_asks_no_model(store, browse, says):
    author = users.get_user(store, "clinician").user_id
    record = Correction(prompt=QUESTION, original=BAD, golden=GOOD, consent=(), recorded_by=author, received=utc_now())
    crud.add(store, [record], actor="test")
    corrected = record.correction_id
    withdraw(store, crud.TABLES[Correction], corrected, author, now=utc_now())
    me = browse("clinician")
    page = me.get(f"/web/history/{corrected}").text
    assert "You took this correction back" in page and f"{corrected}/ask" not in page
    assert "已撤回" in me.get(f"/web/history/{corrected}", headers={"Accept-Language": "zh"}).text
    assert me.post(f"/web/history/{corrected}/ask").status_code == 409


def test_while_the_model_answers_the_page_says_that_it_is_asked(visit, corrected, monkeypatch):
    slow = lambda settings, store, site="all": ("test-model", lambda prompts: time.sleep(1) or [GOOD])  # noqa: E731
    monkeypatch.setattr(taught, "live_answers", slow)
    page = visit("clinician")
    page.goto(f"/web/history/{corrected}")
    look = "JSON.stringify([document.querySelector('[data-busy]').innerText, document.querySelector('form[data-once] button').disabled])"
    page.evaluate(f"addEventListener('submit', () => setTimeout(() => sessionStorage.meanwhile = {look}, 200))")
    assert not page.is_visible("[data-busy]")
    page.click("button:has-text('Ask it now')")
    page.wait_for_selector("text=test-model")
    meanwhile = json.loads(page.evaluate("sessionStorage.meanwhile"))
    assert meanwhile[0].startswith("Asking the live version") and meanwhile[1] and not page.is_visible("[data-busy]")


def test_examples_a_system_prompt_and_a_merge_on_the_page(store, browse, corrected, says):
    me, other = browse("clinician"), browse("other")
    made = me.post("/web/codebook/examples")
    assert made.status_code == 200 and "New examples: 1" in made.text
    prompted = me.post("/web/codebook/prompt")
    assert prompted.status_code == 200 and "Mistakes to avoid" in prompted.text
    again = me.post("/web/codebook/prompt")
    assert again.status_code == 200
    for kind in ("example", "prompt"):
        [entry, *_] = codebook.entries(store, state="proposed", kind=kind)
        assert other.post(f"/web/codebook/{entry.revision_id}/approve", reason="").status_code in (200, 409)
    assert {entry.kind for entry in codebook.live(store).entries} >= {"example"}
    assert browse("auditor").post("/web/codebook/examples").status_code == 403


def test_two_rules_are_merged_under_their_own_name_and_a_rule_is_promoted_only_when_proven(store, browse, says):
    me, other = browse("clinician"), browse("other")
    for text, words in (("Ask for the weight first.", "child"), ("First find out how heavy the child is.", "kid")):
        me.post("/web/codebook", text=text, triggers=words, scope="child")
    rows = codebook.entries(store, state="proposed")
    for row in rows:
        assert other.post(f"/web/codebook/{row.entry_id}/approve").status_code == 200
    first, second = (row.entry_id for row in rows)
    assert me.post(f"/web/codebook/{first}/merge", other="rule_nothing").status_code == 422
    assert "replaces both" in me.post(f"/web/codebook/{first}/merge", other=second).text
    [merged] = codebook.entries(store, state="proposed")
    assert other.post(f"/web/codebook/{merged.revision_id}/approve").status_code == 200
    assert codebook.versions(store)[0].action == "merge" and len(codebook.live(store).entries) == 1
    assert "merged" in me.get("/web/codebook?state=history").text
    refused = other.post(f"/web/codebook/{first}/promote")
    assert refused.status_code == 422 and "is not proven" in refused.text
