"""Every page in Chinese, of a workspace where something has happened: no sentence of ours is English.

What people wrote, ids, names, commands and the texts of models stay as they are; they are known here, so that anything else that
looks like an English sentence is a finding.
"""

import html
import re

import pytest
from web_world import BAD, GOOD, PASSWORD, item, trace

from medloop.contracts.assistant import Route
from medloop.contracts.cycle import CycleEvent
from medloop.contracts.deploy import DeployEvent
from medloop.store.records import deploy_events, sites, users
from medloop.store.records.cycles import add_cycle_event
from medloop.store.records.routes import add_route
from medloop.web.navigation import MENU
from medloop.web.told import told
from medloop.web.words import Translator

ZH = {"Accept-Language": "zh"}
NOT_READ = re.compile(r"<(script|style|code|pre|kbd|textarea|template|svg|option)\b.*?</\1>", re.S)
SENTENCE = re.compile(r"(?:[A-Za-z][a-z'’-]*[ ,;:]+){3,}[A-Za-z]+")
FLAGS = "critical_flags: 2 people flagged its answers as critical."
THEIRS = (BAD, GOOD, "chest pain", "Is it flu", "med-v", "medloop ", "Harm.")  # texts of people and models, names, commands


def english(page: str) -> list[str]:
    pieces = (html.unescape(piece).strip() for piece in re.split(r"<[^>]+>", NOT_READ.sub(" ", page)))
    facts = re.compile(r"[a-z_0-9]+: ")  # of a line of the audit log: `purpose: trace page, rows: 1`, as it is stored
    mine = (piece for piece in pieces if not facts.match(piece) and not any(known in piece for known in THEIRS))
    return [piece for piece in mine if SENTENCE.search(piece)]


@pytest.fixture
def world(store, browse, fill):
    """Ratings, an incident, a rollback, a failed cycle, a site, a text that may name somebody."""
    sites.assign(store, users.add_user(store, "dr.ward", "clinician", password=PASSWORD, actor="test"), "ward-7", actor="test")
    shown = trace(BAD, meta={"guards": [{"guard": "dose", "finding": "out_of_range"}, {"guard": "route", "finding": "crashed"}]})
    fill(shown, trace(GOOD), item("rate", "Is it flu?", "Yes."), item("compare", "Is it flu?", "Yes.", "No."))
    browse("other").fill_in(f"/web/rate?trace={shown.trace_id}", rating="1", critical="yes", sure="yes", comments="Harm.")
    browse("other").fill_in("/web/correct?own=true", question="Is it flu, 王小明?", answer="No.", golden="See a doctor.")
    block = {"served_name": "med-v2", "artifact": "sha256:" + "b" * 64, "version": 2, "reason": FLAGS, "changed_by": "medloop"}
    deploy_events.add_event(store, DeployEvent(event_id=deploy_events.new_event_id(), kind="block", **block))
    add_route(store, Route(served_name="med-v1", model="med", version=1, reason=FLAGS, changed_by="medloop"))
    about = {"cycle": "cycle-1", "inputs": "sha256:" + "a" * 64}
    add_cycle_event(store, CycleEvent(step="plan", event="done", outputs={"steps": "data"}, **about))
    add_cycle_event(store, CycleEvent(step="data", event="failed", reason="ConfigError", **about))
    return f"/web/traces/{shown.trace_id}"


def test_no_page_in_chinese_has_an_english_sentence_of_ours(world, browse):
    found = {}
    for role in users.ROLES:
        me = browse(role)
        pages = [f"/web/{name}" for name, roles in MENU.items() if role in roles]
        for path in ("/web/", "/web/account", *pages, *([world] if role in MENU["traces"] else [])):
            answer = me.get(path, headers=ZH)
            assert answer.status_code == 200, path
            if lines := english(answer.text):
                found[role, path] = lines
    assert not found
    assert english("<p>The gate refused the model.</p>"), "red: an English sentence is found"


def test_a_rollback_says_which_version_its_reason_is_about(world, browse):
    page = browse("engineer").get("/web/deployments").text
    assert "in place of version 2, which was taken back: " in page
    chinese = browse("engineer").get("/web/deployments", headers=ZH).text
    assert "代替已回退的版本 2：" in chinese and "2 人将其回答标记为严重错误" in chinese


def test_a_failed_step_is_a_sentence_on_the_home_page(world, browse):
    assert "It failed (ConfigError). The command says why" in browse("engineer").get("/web/").text
    assert "步骤失败（ConfigError）" in browse("engineer").get("/web/", headers=ZH).text


@pytest.mark.parametrize(
    "text",
    [
        "med@2 cannot go live: 2 safety incidents are open; two people have to close them.",
        "A rollback needs a reason. Say why, for the audit log.",
        "Nobody belongs to the site 'wrad-7'. Sites are main, ward-7; a new one begins with: medloop site assign USER wrad-7.",
        "dr.li is to be auditor at ward-7; only clinicians and engineers can belong to a site."
        " The other roles are central staff: medloop site assign dr.li main.",
        "The experiment is planned, not running. 'medloop experiment list' shows all experiments.",
        "The method irs trains no value head",
        "Internal error (ValueError). See train.log of the job.",
        "The result is models/lora/sft.",
        "it is the champion now",
    ],
)
def test_errors_have_a_chinese_form(text):
    chinese = told(text, Translator("zh"))
    assert chinese.language == "zh" and not SENTENCE.search(re.sub(r"medloop [a-z]+ [\w ./-]+", "", chinese.text)), chinese.text
