"""The home page: what waits for somebody comes first, and what has changed since their last visit."""

import re

from web_world import BAD, item, trace

from medloop.store.records.workspace_settings import set_consent_default


def tasks(page: str) -> list[str]:
    part = page.split('class="cards tasks"')[1].split("</ul>")[0] if "cards tasks" in page else ""
    return [re.sub(r"<[^>]+>", "", text).strip("⚠ ") for text in re.findall(r"<strong>(.*?)</strong>", part)]


def test_each_role_sees_what_waits_for_it_first(browse, fill):
    fill(shown := trace(BAD), item("rate", "Is it flu?", "Yes."))
    assert tasks(browse("engineer").get("/web/").text) == [] and "Nothing is waiting" in browse("engineer").get("/web/").text
    browse("clinician").fill_in(f"/web/rate?trace={shown.trace_id}", rating="1", critical="yes", sure="yes", comments="Bad.")
    incident = re.search(r"/web/incidents/inc_[^\"]+", browse("engineer").get("/web/incidents").text)[0]
    browse("engineer").post(f"{incident}/propose", note="Rule added.")
    clinician = tasks(browse("other").get("/web/").text)
    assert clinician[:2] == ["Incidents that wait for a second person: 1", "Open safety incidents: 1"]
    assert any(text.startswith("Answers in the review queue for you:") for text in clinician)
    assert tasks(browse("engineer").get("/web/").text) == ["Open safety incidents: 1"]
    browse("clinician").post(f"{incident}/decline", note="Not yet.")
    browse("other").post(f"{incident}/propose", note="Now.")  # nobody confirms what they proposed
    for name, first in (("other", "Open safety incidents: 1"), ("clinician", "Incidents that wait for a second person: 1")):
        assert tasks(browse(name).get("/web/").text)[0] == first
    assert [text.split(":")[0] for text in tasks(browse("annotator").get("/web/").text)] == [
        "Answers in the review queue for you"
    ]


def test_the_queue_counts_what_is_left_for_this_person(browse, fill):
    fill(*(item("rate", question, "Yes.", raters=2) for question in ("Is it flu?", "Is it a cold?")))
    someone = browse("annotator")
    assert tasks(someone.get("/web/").text) == ["Answers in the review queue for you: 2"]
    sent = someone.fill_in("/web/queue", rating="4").text
    assert "This is the last one for you today." in sent
    assert tasks(someone.get("/web/").text) == ["Answers in the review queue for you: 1"]


def test_what_changed_since_the_last_visit_is_told_to_those_it_concerns(browse, store):
    assert "Since your last visit" not in browse("annotator").get("/web/").text
    set_consent_default(store, ("training",), actor="test")
    assert "Changes to the settings: 1." in browse("annotator").get("/web/").text
    assert "Changes to the settings" not in browse("annotator").get("/web/").text  # seen at the login before
