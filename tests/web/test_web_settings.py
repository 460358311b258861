"""Settings that an admin changes on a page, and the same from the command line."""

import re

from typer.testing import CliRunner
from web_world import BAD, QUESTION, item

from medloop.cli import app as cli
from medloop.store import audit
from medloop.store.records.workspace_settings import consent_default


def ticked(page: str) -> list[str]:
    return re.findall(r'name="consent_(\w+)" value="yes" checked', page)


def test_an_admin_chooses_the_consent_default_and_each_change_is_audited(browse, store):
    admin = browse("admin")
    assert ticked(admin.get("/web/settings").text) == [] == list(consent_default(store))
    page = admin.post("/web/settings", consent_training="yes", consent_publication="yes").text
    assert ticked(page) == ["training"] and "Saved." in page and consent_default(store) == ("training",)
    admin.post("/web/settings", consent_training="yes")  # the same again is no change
    admin.post("/web/settings")
    changes = [(row["subject"], row["detail"]) for row in audit.page(store, audit.AuditFilter(action="settings.change"))]
    assert changes == [
        ("feedback.consent_default", {"old": "training", "new": "none"}),
        ("feedback.consent_default", {"old": "none", "new": "training"}),
    ]
    assert browse("engineer").post("/web/settings", consent_training="yes").status_code == 403


def test_the_command_line_sets_the_same_default(store, workspace):
    run = CliRunner()
    args = ["--home", str(workspace), "consent", "default"]
    assert "training, evaluation" in run.invoke(cli, [*args, "--purpose", "evaluation", "--purpose", "training"]).output
    assert consent_default(store) == ("training", "evaluation")
    assert run.invoke(cli, [*args, "--purpose", "teacher"]).exit_code != 0 and consent_default(store) == (
        "training",
        "evaluation",
    )
    assert "nothing" in run.invoke(cli, [*args, "--none"]).output and consent_default(store) == ()


def test_an_admin_edits_the_guidelines_every_version_stays_and_each_change_is_audited(browse, fill, store):
    fill(item("rate", QUESTION, BAD))
    admin, rater, address = browse("admin"), browse("annotator"), "/web/settings/guidelines"
    assert "Order of importance" in admin.get(address).text and "Order of importance" in rater.get("/web/queue").text
    assert "# Ours" in admin.post(address, language="en", was="0", text="# Ours\n\n**Safety** first.", preview="yes").text
    assert "Order of importance" in rater.get("/web/queue").text  # a preview changes nothing
    assert "Saved." in admin.post(address, language="en", was="0", text="# Ours\n\n**Safety** first.").text
    assert "<strong>Safety</strong> first." in rater.get("/web/queue").text
    late = admin.post(address, language="en", was="0", text="# Late")
    assert late.status_code == 409 and "# Late" in late.text and "somebody else has saved" in late.text
    admin.post(address, language="en", was="1", text="")
    assert "Order of importance" in rater.get("/web/queue").text and "Safety" in admin.get(f"{address}?version=1").text
    changes = [
        (row["subject"], row["detail"]["version"]) for row in audit.page(store, audit.AuditFilter(action="guidelines.change"))
    ]
    assert changes == [("guidelines.en", 2), ("guidelines.en", 1)]
    assert browse("clinician").post(address, language="en", was="2", text="x").status_code == 403


def test_an_admin_chooses_the_criteria_and_the_forms_and_the_door_follow(browse, fill, store):
    fill(item("rate", QUESTION, BAD))
    admin, rater = browse("admin"), browse("clinician")
    assert "correctness\nsafety" in admin.get("/web/settings").text and 'name="axis_clarity"' in rater.get("/web/rate").text
    bad = admin.post("/web/settings", axes="safety\nBedside Manner!")
    assert bad.status_code == 422 and "small letters" in bad.text and "Bedside" in bad.text
    assert "Saved." in admin.post("/web/settings", axes="safety\r\nbedside_manner\r\n").text
    page = rater.get("/web/rate").text
    assert 'name="axis_bedside_manner"' in page and 'name="axis_clarity"' not in page and 'name="axis_risk"' in page
    assert rater.fill_in("/web/rate", rating="4", axis_clarity="4").status_code == 422  # a page from before the change
    assert "Saved" in rater.fill_in("/web/rate", rating="4", axis_bedside_manner="4", consent_training="yes").text
    changes = [row["detail"]["new"] for row in audit.page(store, audit.AuditFilter(action="settings.change"))]
    assert changes == ["safety,bedside_manner"]
