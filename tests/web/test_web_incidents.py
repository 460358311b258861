"""Safety incidents on their page and on the command line: who reads what, and that two people close one."""

import re

import pytest
from typer.testing import CliRunner
from web_world import BAD, GOOD, PASSWORD, QUESTION, item, trace

from medloop.cli import app as cli
from medloop.contracts import Message, Trace
from medloop.contracts.chat import Conversation
from medloop.store import audit
from medloop.store.records import crud, users
from medloop.store.records.incident_rows import list_incidents

FLAG = {"rating": "1", "critical": "yes", "sure": "yes", "comments": "Misses a heart attack."}


@pytest.fixture
def flagged(browse, fill, store) -> str:
    """The address of an incident that a clinician opened."""
    fill(shown := trace(BAD))
    browse("clinician").fill_in(f"/web/rate?trace={shown.trace_id}", **FLAG)
    return f"/web/incidents/{list_incidents(store)[0].incident_id}"


def test_two_people_close_an_incident_and_the_notes_stay_visible(browse, flagged, store):
    engineer, clinician, other = browse("engineer"), browse("clinician"), browse("other")
    page = engineer.get(flagged).text
    assert QUESTION not in page and BAD not in page and "cannot read patient text" in page
    assert engineer.post(f"{flagged}/propose", note=" ").status_code == 422
    assert "Proposed." in engineer.post(f"{flagged}/propose", note="Rule 12 added.").text
    assert engineer.post(f"{flagged}/close").status_code == 403
    page = clinician.get(flagged).text
    assert all(text in page for text in (QUESTION, BAD, FLAG["comments"], "engineer proposed to close", "Rule 12 added."))
    assert "Declined." in clinician.post(f"{flagged}/decline", note="Not in Chinese.").text
    assert "Proposed." in clinician.post(f"{flagged}/propose", note="Now it is.").text
    refused = clinician.post(f"{flagged}/close", note="I agree with myself.")
    assert refused.status_code == 403 and "I agree with myself." not in str(list_incidents(store))
    assert "Closed." in other.post(f"{flagged}/close", note="Agreed.").text
    page = clinician.get(flagged).text
    assert all(text in page for text in ("Rule 12 added.", "Not in Chinese.", "Now it is.", "Agreed.", BAD, "other confirmed"))
    assert other.post(f"{flagged}/close").status_code == 409
    actions = [
        row["action"] for row in audit.page(store) if row["action"].startswith("incidents.") and "add" not in row["action"]
    ]
    assert actions == [f"incidents.{name}" for name in ("close", "propose", "decline", "propose")]


def test_a_lone_clinician_is_told_that_a_second_one_is_needed(browse, flagged, store):
    users.change_user(store, users.get_user(store, "other"), disabled=True, actor="test")
    page = browse("clinician").post(f"{flagged}/propose", note="Done.").text
    assert "A second clinician is needed" in page
    page = browse("clinician").get(flagged, headers={"accept-language": "zh"}).text
    assert "需要另一位临床医生确认" in page


def test_the_list_filters_by_state_language_and_day_and_keeps_it_in_the_address(browse, fill, store):
    talk = Conversation(messages=(Message(role="user", content="胸口压痛一小时了"), Message(role="assistant", content="喝茶。")))
    fill(english := trace(BAD), chinese := trace(BAD, conversation=talk))
    for shown in (english, chinese):
        browse("clinician").fill_in(f"/web/rate?trace={shown.trace_id}", **FLAG)
    auditor = browse("auditor")
    first, second = (row.incident_id for row in list_incidents(store))

    def listed(query: str) -> list[str]:
        return re.findall(r'href="/web/incidents/(inc_[^"]+)"', auditor.get(f"/web/incidents{query}").text)

    assert listed("") == [first, second] and listed("?order=newest") == [second, first]
    assert listed("?language=zh") == [second] and listed("?state=closed") == [] == listed("?until=2020-01-01")
    assert listed("?since=2020-01-01&state=all") == [first, second]
    page = auditor.get("/web/incidents?state=closed&language=zh").text
    assert "No incidents match this filter." in page and '<option value="zh" selected>' in page
    assert browse("annotator").get("/web/incidents").status_code == 403


def test_the_command_line_follows_the_same_rule(flagged, store, workspace):
    incident_id, run = flagged.rsplit("/", 1)[1], CliRunner()

    def take(step: str, user: str, password: str = PASSWORD, *more: str):
        args = ["--home", str(workspace), "incidents", step, incident_id, "--user", user, *more]
        return run.invoke(cli, args, input=f"{password}\n", standalone_mode=False)

    note = ("--note", "Rule 12 added.")
    assert take("propose", "clinician", "wrong password", *note).exception.what.startswith("Wrong user name")
    assert "Waiting for one of: other." in take("propose", "clinician", PASSWORD, *note).output
    assert "somebody else has to confirm" in take("close", "clinician").exception.what
    assert "cannot close an incident" in take("close", "engineer").exception.what
    assert "closed by other" in take("close", "other").output and list_incidents(store)[0].state == "closed"


def test_two_people_close_an_incident_in_two_browsers(flagged, visit):
    """By the pages alone: one proposes on a phone in Chinese, the other one finds it from home and confirms."""
    first = visit("clinician", viewport={"width": 390, "height": 844}, locale="zh-CN", has_touch=True)
    first.goto(flagged)
    first.fill("#n-propose", "已加规则十二。")
    first.get_by_role("button", name="提议关闭").click()
    first.wait_for_url("**?done=propose")
    assert first.get_by_role("button", name="确认并关闭").count() == 0
    assert first.evaluate("document.documentElement.scrollWidth <= innerWidth") and first.console_lines == []
    second = visit("other", locale="en-GB")
    second.goto("/web/")
    second.get_by_role("link", name="Incidents that wait for a second person: 1").click()
    second.get_by_role("link", name="View", exact=True).click()
    assert BAD in second.inner_text("main") and "已加规则十二。" in second.inner_text("main")
    second.get_by_role("button", name="Confirm and close").click()
    second.wait_for_url("**?done=close")
    assert "other confirmed and closed the incident" in second.inner_text("main") and second.console_lines == []


def test_a_comparison_opens_an_incident_for_each_flagged_answer_and_clinicians_read_both(browse, fill, store):
    fill(item("compare", QUESTION, BAD, GOOD, raters=1))
    browse("clinician").fill_in(
        "/web/queue", better="both_bad", critical_first="yes", critical_second="yes", sure="yes", comments="No red flag."
    )
    pages = [browse("other").get(f"/web/incidents/{row.incident_id}").text for row in list_incidents(store)]
    assert len(pages) == 2 and all(QUESTION in page and "No red flag." in page for page in pages)
    assert sorted(answer for page in pages for answer in (BAD, GOOD) if answer in page) == sorted((BAD, GOOD))


def test_the_list_is_searched_by_words_and_only_clinicians_search_the_texts(browse, fill, store):
    fill(trace(BAD), aspirin := trace("Take aspirin twice.", "Headache?", model_version="clinic@4"))
    for shown in crud.iterate(store, Trace):
        browse("clinician").fill_in(f"/web/rate?trace={shown.trace_id}", critical="yes", sure="yes")
    reader, engineer = browse("other"), browse("engineer")
    links = re.compile(r'href="/web/incidents/(inc_[^"]+)"')
    assert len(links.findall(reader.get("/web/incidents?q=clinician").text)) == 2
    (hit,) = links.findall(reader.get("/web/incidents?q=ASPIRIN+headache").text)
    assert hit in links.findall(engineer.get("/web/incidents?q=clinic@4").text) and aspirin
    assert (
        not links.findall(engineer.get("/web/incidents?q=aspirin").text)
        and "No incident" in reader.get("/web/incidents?q=zzz").text
    )
    details = [row["detail"] for row in audit.page(store) if row["action"] == "red_team_cases.read"]
    assert details and "aspirin" not in str(details).lower()
