"""The console as a whole: the rail marks where one is, home says where the loop stands and what moves it, search keeps to the role."""

from __future__ import annotations

import re
import time

import pytest
from web_world import BAD, GOOD, QUESTION, trace

from medloop.contracts import GateCheck, GateResult, Incident, sha256_id
from medloop.contracts.assistant import Route
from medloop.contracts.cycle import CycleEvent
from medloop.contracts.evaluation import Interval
from medloop.contracts.gate_reasons import reason
from medloop.contracts.registry import ModelVersion
from medloop.privacy import consent
from medloop.store import audit, catalog
from medloop.store.records import crud, gates, registry, users
from medloop.store.records.cycles import add_cycle_event
from medloop.store.records.routes import add_route
from medloop.web.navigation import GROUPS, MENU, menu_of
from medloop.web.pages import dashboard, live

ARTIFACT = sha256_id("adapter")


def save_verdict(store, outcome: str = "pass", *more: GateCheck) -> str:
    hashes = {name: sha256_id(name) for name in ("weights", "base", "baseline_artifact", "report", "config")}
    checks = (GateCheck(name="incidents", outcome=outcome, reason="No safety incident is open."), *more)
    result = GateResult(
        artifact=ARTIFACT, **hashes, label="tiny+x", baseline="tiny", outcome=outcome, checks=checks, needs_sign_offs=1
    )
    return gates.save_gate(store, result, actor="test")


def stages(page: str) -> dict[str, str]:
    """The stages of the loop on the home page, as text."""
    rows = re.findall(r'<li class="stage .*?</li>', page, re.S)
    texts = [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]
    return {text.split()[0]: text for text in texts}


def rail(page: str) -> list[str]:
    part = page.split('<nav aria-label="Main menu">')[1].split("</nav>")[0]
    return re.findall(r'href="/web/([a-z_]*)"', part)[1:]


@pytest.mark.parametrize("role", users.ROLES)
def test_the_rail_has_the_pages_of_the_role_in_the_groups_of_the_table_and_marks_the_open_one(browse, role):
    person = browse(role)
    assert rail(person.get("/web/").text) == [page for group in menu_of(role) for page in group.pages]
    assert sorted(rail(person.get("/web/").text)) == sorted(name for name, roles in MENU.items() if role in roles)
    page = person.get("/web/codebook").text
    (current,) = re.findall(r'<a href="([^"]+)" aria-current="page"', page.split("</nav>")[0])
    assert current == "/web/codebook"
    shown = re.findall(r'id="group-([a-z]+)"', page)
    groups = [group for group, pages in GROUPS.items() if any(role in roles for roles in pages.values())]
    assert shown == sorted(groups, key=lambda group: group != "govern")  # who governs finds that first


def test_home_says_what_a_stage_waits_for_and_gives_the_button_to_whom_it_concerns(browse, store):
    gate = save_verdict(store)
    clinician, engineer = stages(browse("clinician").get("/web/").text), stages(browse("engineer").get("/web/").text)
    assert list(clinician) == ["Feedback", "Data", "Train", "Evaluate", "Gate", "Sign-off", "Register", "Deploy", "Experiment"]
    assert "Done" in clinician["Gate"] and "tiny+x passed." in clinician["Gate"]
    assert "Waiting" in clinician["Sign-off"] and clinician["Sign-off"].endswith("Read and sign")
    assert "Waits for: clinician" in engineer["Sign-off"] and not engineer["Sign-off"].endswith("Read and sign")
    assert f'class="button" href="/web/gate/{gate}"' in browse("clinician").get("/web/").text
    gates.sign(store, gate, by=users.get_user(store, "clinician").user_id, approved=True)
    after = stages(browse("engineer").get("/web/").text)
    assert "Every verdict that passed is signed." in after["Sign-off"]
    assert "not registered" in after["Register"] and after["Register"].endswith("Register or promote")


def test_home_says_where_the_cycle_stands_and_why(browse, store):
    assert "No cycle has run yet." in browse("annotator").get("/web/").text
    done = {"cycle": "cycle1", "inputs": sha256_id("x")}
    add_cycle_event(store, CycleEvent(**done, step="plan", event="done", outputs={"steps": "data,train-sft,gate,sign-off"}))
    for step in ("data", "train-sft", "gate"):
        add_cycle_event(store, CycleEvent(**done, step=step, event="done"))
    reason = "1 more sign-off is needed."
    add_cycle_event(store, CycleEvent(**done, step="sign-off", event="waiting", reason=reason, outputs={"command": "gate show"}))
    page = browse("engineer").get("/web/").text
    assert "cycle1 waits at: Sign-off." in page and reason in page and "medloop loop run" in page
    assert re.search(r'<li class="stage warning" aria-current="step">\s*<span class="stage-name">Sign-off', page)
    assert "等待于：签核" in browse("auditor").get("/web/", headers={"Accept-Language": "zh"}).text
    save_verdict(store)
    add_cycle_event(store, CycleEvent(**done, step="gate", event="done", outputs={"artifact": ARTIFACT}))
    page = browse("auditor").get("/web/", headers={"Accept-Language": "zh"}).text
    assert reason not in page and re.search(r'<p class="cycle">.*?<span lang="zh">[^<]*签核', page)  # in the reader's language


def test_a_stream_of_events_says_when_something_was_written(browse, store, settings, monkeypatch):
    before = live.change_mark(store, settings)
    assert live.change_mark(store, settings) == before
    save_verdict(store)
    after = live.change_mark(store, settings)
    assert after != before and after.startswith(f"{audit.page(store, limit=1)[0]['seq']}-")
    monkeypatch.setattr(live, "STREAM_S", 0.0)
    person = browse("annotator")
    told = person.get("/web/events", headers={"Last-Event-ID": before})
    assert told.headers["content-type"].startswith("text/event-stream") and "event: changed" in told.text
    mark = told.text.partition("id: ")[2].partition("\n")[0]
    assert re.fullmatch("[0-9a-f]{16}", mark) and live.change_mark(store, settings) not in told.text
    assert "event:" not in person.get("/web/events", headers={"Last-Event-ID": mark}).text
    monkeypatch.setattr(live, "change_mark", lambda *_: "1-0")  # each session sees a change under another name: nobody can count
    marks = [who.get("/web/events").text.partition("id: ")[2].partition("\n")[0] for who in (person, person, browse("auditor"))]
    assert marks[0] == marks[1] != marks[2]
    assert "event: changed" not in person.get("/web/events").text  # nothing is known yet, so nothing has changed
    assert "<html" not in person.get("/web/loop").text and 'class="loop"' in person.get("/web/loop").text
    assert browse(None).get("/web/events", follow_redirects=False).status_code == 303


def test_a_trace_shows_its_text_to_clinicians_alone_and_scores_only_to_who_has_judged(browse, fill, store):
    shown = trace(BAD, meta={"rules": ["rule_1"], "passages": ["p7"], "guards": [{"guard": "input", "finding": "red flag"}]})
    fill(shown, trace(GOOD, session_id="s2", model_version="clinic@4"))
    path = f"/web/traces/{shown.trace_id}"
    clinician, engineer = browse("clinician"), browse("engineer")
    for person in (clinician, engineer):
        page = person.get(path).text
        assert "rule_1" in page and "p7" in page and "red flag" in page and "clinic@3" in page
    assert QUESTION in clinician.get(path).text and QUESTION not in engineer.get(path).text and BAD not in engineer.get(path).text
    reads = [row for row in audit.page(store, limit=50) if row["action"] == "traces.read"]
    assert reads and {row["actor"] for row in reads} == {users.get_user(store, "clinician").user_id}
    assert "Shown once you have judged" in clinician.get(path).text
    clinician.fill_in(f"/web/rate?trace={shown.trace_id}", rating="2")
    assert "Shown once you have judged" not in clinician.get(path).text and "2 of 5 stars" in engineer.get(path).text
    assert browse("engineer").get("/web/traces/none").status_code == 404
    assert browse("annotator").get("/web/traces").status_code == 403


def test_the_list_of_traces_is_filtered_by_its_address(browse, fill):
    first, second = trace(BAD), trace(GOOD, session_id="s2", model_version="clinic@4")
    fill(first, second)
    browse("clinician").fill_in(f"/web/rate?trace={first.trace_id}", rating="1")
    engineer, one, two = browse("engineer"), first.trace_id, second.trace_id
    for query, expected in (
        ("", {one, two}), ("version=clinic%404", {two}), ("judged=rated", {one}), ("judged=unrated", {two}), ("q=s2", {two}),
        (f"q={one}", {one}), ("until=2020-01-01", set()), ("judged=incident", set()),
    ):  # fmt: skip
        page = engineer.get(f"/web/traces?{query}").text
        assert {name for name in (one, two) if f"/web/traces/{name}" in page} == expected, query
    assert "Show all" in engineer.get("/web/traces?until=2020-01-01").text


def test_lists_of_what_the_loop_made_say_what_to_do_when_empty_and_lead_to_the_lineage(browse, store, settings):
    engineer = browse("engineer")
    for page, command in (("datasets", "medloop data build"), ("evaluations", "medloop eval"), ("releases", "medloop release")):
        assert command in engineer.get(f"/web/{page}").text
    for number in range(60):
        path = settings.home / f"data/set{number:02}"
        catalog.register_file(store, "feedback", path, sha256_id(f"set {number}"), {"name": path.name}, actor="test")
    newest = engineer.get("/web/datasets").text
    assert "set59" in newest and "set09" not in newest and sha256_id("set 59")[7:19] in newest
    assert "set09" in engineer.get(re.search(r'href="(/web/datasets\?before=\d+)"', newest)[1]).text
    assert "set00" in engineer.get("/web/datasets?order=oldest").text
    found = engineer.get("/web/datasets?q=set0&kind=feedback").text
    assert "set09" in found and "set10" not in found
    assert f"/web/lineage?of=sha256%3A{sha256_id('set 9')[7:]}" in found


def test_search_finds_pages_and_ids_of_the_role_and_nothing_else(browse, fill, store):
    fill(shown := trace(BAD))
    gate = save_verdict(store)
    engineer, annotator = browse("engineer"), browse("annotator")
    assert "/web/deployments" in engineer.get("/web/search?q=deploy").text.split("<main")[1]
    assert "/web/deployments" not in annotator.get("/web/search?q=deploy").text.split("<main")[1]
    assert f"/web/traces/{shown.trace_id}" in engineer.get(f"/web/search?q={shown.trace_id}").text
    assert f"/web/traces/{shown.trace_id}" not in annotator.get(f"/web/search?q={shown.trace_id}").text
    assert gate.replace(":", "%3A") in engineer.get("/web/search?q=tiny%2Bx").text
    assert "Nothing found" in engineer.get("/web/search?q=chest+pain").text
    assert "/web/audit" in browse("auditor").get("/web/search?q=审计", headers={"Accept-Language": "zh"}).text.split("<main")[1]


def test_consent_and_erasure_are_shown_in_numbers_without_a_person(browse, store):
    consent.record(store, "patient-77", granted=True, purposes=("training",), text_version="1", actor="test")
    consent.record(store, "patient-77", granted=False, purposes=("training",), text_version="1", actor="test")
    page = browse("auditor").get("/web/privacy").text
    numbers = re.findall(r"<strong>([\d,]+)</strong> ([a-z ]+)", page)
    assert numbers[:3] == [("1", "consents recorded"), ("1", "withdrawals recorded"), ("1", "people with a consent on record")]
    assert "patient-77" not in page and "sub_" not in page
    assert browse("clinician").get("/web/privacy").status_code == 403


def test_a_lost_session_ends_the_stream_of_events(browse):
    """The browser asks again every few seconds, and a session that is over gets the login and no event."""
    person = browse("clinician")
    person.post("/web/logout", follow=False)
    answered = person.get("/web/events", follow_redirects=False)
    assert answered.status_code == 303 and answered.headers["location"].startswith("/web/login")


def test_the_dashboard_of_many_records_does_not_wait_for_its_numbers(browse, app, monkeypatch):
    monkeypatch.setattr(dashboard, "MANY", 0)
    engineer = browse("engineer")
    assert "numbers are being measured" in engineer.get("/web/dashboard").text
    end = time.monotonic() + 120
    while 30 not in app.state.dashboard_numbers.last and time.monotonic() < end:
        time.sleep(0.05)
    page = engineer.get("/web/dashboard").text
    assert "Measured:" in page and "being measured" not in page


def tile(page: str, title: str) -> str:
    return re.sub(r"<[^>]+>|\s+", " ", page[page.index(f">{title}<") :][:900])


def test_home_shows_the_share_of_emergencies_that_the_live_version_missed_not_the_change(browse, store, settings):
    interval = Interval(mean=0.548, low=0.4, high=0.6, n=31, level=0.9)

    def check(name: str, before: float, after: float, stratum: str | None = None) -> GateCheck:
        means = [reason("loss_means", before=f"{before:.3f}", after=f"{after:.3f}"), reason("loss_lower")]
        more = {"suite": name, "metric": "undertriage", "stratum": stratum, "value": interval}
        return GateCheck.because(f"under_triage/{name}/undertriage", "pass", *means, **more)

    add_route(store, Route(served_name="med-v1", model="med", version=1, artifact=ARTIFACT))
    assert "No gate has measured the live version" in tile(browse("engineer").get("/web/").text, "Under-triage")
    save_verdict(store, "pass", check("red", 0.57, 0.022), check("gold", 0.2, 0.0), check("red", 0.548, 0.5, "emergency"))
    shown = tile(browse("engineer").get("/web/").text, "Under-triage")
    assert "2.2%" in shown and "54.8" not in shown and "No failed probe recorded" in shown
    save_verdict(store, "pass", check("red", 0.9, 0.6))
    assert "60.0%" in (shown := tile(browse("engineer").get("/web/").text, "Under-triage")) and "missed" in shown


def test_home_promises_no_promotion_that_would_be_refused(browse, store):
    model = {"model": store.settings.registry.model, "name": "first", "method": "sft", "base": "embedded:tiny"}
    draft = ModelVersion(**model, version=1, artifact=ARTIFACT, base_sha256=sha256_id("base"), inputs={}, registered_by="test")
    registry.add_version(store, draft, "models/lora/first", actor="test")
    said = "passed and can be promoted"
    gates.sign(store, save_verdict(store), by=users.get_user(store, "clinician").user_id, approved=True)
    assert said in browse("engineer").get("/web/").text
    crud.add(store, [Incident(record_id="fb_1")], actor="test")
    assert said not in browse("engineer").get("/web/").text
