"""In a real Chromium: pages that fit a phone and a desk in both languages, used by keyboard alone, under an enforced CSP."""

import re
from datetime import datetime
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from web_world import BAD, GOOD, PASSWORD, QUESTION, item, trace
from xss import PAYLOADS

from medloop.contracts import Correction, Feedback, Preference
from medloop.loop.trust import validate
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.trust import TrustConfig, bundled_cases
from medloop.store.records import crud, quarantine, users
from medloop.web import render
from medloop.web.markdown import TAGS

SHOTS = Path(__file__).parents[2] / "build/shots"  # to be looked at; not in the repository
SIZES = {"desk": {"width": 1200, "height": 800}, "phone": {"width": 390, "height": 844}}
PAGES = {
    "login": (None, "/web/login"),
    "home": ("clinician", "/web/"),
    "queue": ("annotator", "/web/queue"),
    "rate": ("clinician", "/web/rate"),
    "rate_own": ("clinician", "/web/rate?own=true"),
    "compare": ("clinician", "/web/compare"),
    "correct": ("clinician", "/web/correct"),
    "history": ("other", "/web/history"),
    "quarantine": ("clinician", "/web/quarantine"),
    "dashboard": ("engineer", "/web/dashboard"),
    "trust": ("engineer", "/web/trust"),
    "trust_judge": ("engineer", "/web/trust?judge=risk"),
    "audit": ("auditor", "/web/audit?check=true"),
    "users": ("admin", "/web/users"),
    "settings": ("admin", "/web/settings"),
    "incidents": ("clinician", "/web/incidents"),
    "home_admin": ("admin", "/web/"),
    "account": ("clinician", "/web/account"),
    "nothing": ("clinician", "/web/rate?trace=none"),
}


@pytest.fixture
def world(fill, browse, settings):
    """Answers to judge, a history of somebody who judged before, and a card of the trust meter."""
    validate(settings, bundled_cases(), build_mix(MixConfig()), config=TrustConfig())
    long = "1. Sit down and rest.\n2. Measure your blood pressure twice, five minutes apart.\n3. " + GOOD
    traces = [trace(BAD), trace(GOOD), trace(long)]
    fill(
        *traces,
        item("rate", QUESTION, long),
        item("compare", QUESTION, BAD, long),
        item("correct", "孩子发烧39度怎么办？", "多喝水。"),
    )
    other = browse("other")
    consent = {"consent_training": "yes"}
    other.fill_in(
        f"/web/rate?trace={traces[0].trace_id}", thumb="down", rating="1", critical="yes", sure="yes", comments="Could kill."
    )
    other.fill_in(f"/web/rate?trace={traces[1].trace_id}", thumb="up", rating="5", axis_safety="5", **consent)
    other.fill_in(f"/web/correct?trace={traces[0].trace_id}", golden=GOOD, reason="Red flag.", **consent)
    other.fill_in("/web/rate?own=true", question="Who am I?", answer="Mr Li Wei, 幺三八零零一三八零零零", rating="2", **consent)
    other.fill_in(f"/web/compare?a={traces[0].trace_id}&b={traces[1].trace_id}", better="first", **consent)
    clinician = browse("clinician")
    clinician.fill_in(f"/web/rate?trace={traces[0].trace_id}", thumb="down", rating="2", axis_safety="1")
    clinician.fill_in(f"/web/rate?trace={traces[1].trace_id}", thumb="up", rating="4", axis_safety="5")
    return traces


@pytest.mark.parametrize(
    ("size", "language"),
    [
        ("desk", "en-GB"),
        ("phone", "zh-CN"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("desk", "zh-CN"), ("phone", "en-GB"))),
    ],
)
def test_every_page_fits_the_screen_and_breaks_no_rule(world, visit, size, language):
    SHOTS.mkdir(parents=True, exist_ok=True)
    people = {}
    for name, (who, path) in PAGES.items():
        page = people.get(who) or visit(who, viewport=SIZES[size], locale=language, has_touch=size == "phone")
        people[who] = page
        page.console_lines.clear()
        page.goto(path)
        page.screenshot(path=SHOTS / f"{name}_{size}_{language[:2]}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the {size}"
        expected = [message for message in page.console_lines if "404" in message] if name == "nothing" else []
        assert page.console_lines == expected, name
        assert page.get_attribute("html", "lang") == ("zh-Hans" if language == "zh-CN" else "en")


def tab_to(page, selector: str) -> None:
    """Press Tab until this is reached, seeing the focus all the way."""
    for _ in range(80):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS_IS_SEEN), page.evaluate("document.activeElement.outerHTML")
        if page.evaluate("name => document.activeElement.matches(name)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached with Tab")


FOCUS_IS_SEEN = """() => {
  const seen = (element) => element && getComputedStyle(element).outlineStyle !== "none" && parseFloat(getComputedStyle(element).outlineWidth) >= 2;
  return seen(document.activeElement) || seen(document.activeElement.closest("label"));
}"""


def test_an_answer_is_rated_with_the_keyboard_alone(visit, store):
    page = visit(None)
    page.goto("/web/login")
    page.keyboard.type("clinician")  # the first field has the focus
    tab_to(page, "#password")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/web/")
    tab_to(page, "a[href='/web/rate']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/web/rate")
    tab_to(page, "#f-question")
    page.keyboard.type(QUESTION)
    tab_to(page, "#f-answer")
    page.keyboard.type(BAD)
    tab_to(page, "[name=rating]")
    page.keyboard.press("Space")
    tab_to(page, "[name=thumb]")
    page.keyboard.press("ArrowRight")  # from the first, not chosen, to the second
    tab_to(page, "[name=critical]")
    page.keyboard.press("Space")
    tab_to(page, "#f-comments")
    page.keyboard.type("Misses the red flag.")
    tab_to(page, "summary")
    page.keyboard.press("Enter")
    tab_to(page, "[name=axis_safety]")
    page.keyboard.press("ArrowRight")
    tab_to(page, "button[type=submit]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sure")
    page.screenshot(path=SHOTS / "critical_desk_en.png", full_page=True)
    tab_to(page, "button[value=yes]")
    page.keyboard.press("Enter")
    assert "a safety incident is open" in page.inner_text("[role=status]")
    page.screenshot(path=SHOTS / "saved_desk_en.png")
    (feedback,) = crud.iterate(store, Feedback)
    assert (feedback.thumb, feedback.rating, feedback.axes, feedback.comments, feedback.critical) == (
        "down",
        1,
        {"safety": 1},
        "Misses the red flag.",
        True,
    )


def test_two_answers_are_compared_on_a_phone_by_touch(visit, fill, store):
    fill(item("compare", QUESTION, BAD, GOOD, raters=1))
    page = visit("annotator", viewport=SIZES["phone"], has_touch=True, locale="zh-CN")
    page.tap(".drawer-open")
    page.tap("a[href='/web/queue'] >> nth=0")
    page.wait_for_selector(".pair")
    assert page.evaluate(
        "[...document.querySelectorAll('main label, main button')].filter(e => e.offsetHeight && e.closest('.options, .buttons')).every(e => e.offsetHeight >= 40)"
    )
    first = page.inner_text(".pair .message >> nth=0")
    page.tap("label:has([value=first]) >> nth=0")
    page.tap(".bar button >> nth=0")
    page.wait_for_selector("[role=status]")
    (preference,) = crud.iterate(store, Preference)
    assert {"a": preference.response_a, "b": preference.response_b}[preference.preferred] == first


def test_a_correction_starts_from_the_old_words(visit, fill, store):
    fill(shown := trace(BAD))
    page = visit("clinician")
    page.goto(f"/web/correct?trace={shown.trace_id}")
    page.click("button[data-copy]")
    assert page.input_value("#f-golden") == BAD
    page.keyboard.press("Control+End")
    page.keyboard.type(" No: call an ambulance.")
    page.dblclick("main form button[type=submit]")
    page.wait_for_selector("[role=status]")
    (correction,) = crud.iterate(store, Correction)
    assert correction.golden == f"{BAD} No: call an ambulance."


def hold(store, text: str, by: str = "other") -> str:
    """A record of somebody in quarantine; returns its id."""
    user = users.get_user(store, by).user_id
    feedback = Feedback(session_id="s", agent_name="x", user_query=text, agent_response=text, rating=3, recorded_by=user)
    crud.add(store, [feedback], actor="test")
    with store.write() as conn:
        quarantine.hold(conn, feedback.feedback_id, "rlhf_feedback", doubt=1.0, reasons=[text[:60]], actor="test")
    return feedback.feedback_id


def test_a_held_record_is_decided_with_the_keyboard_alone(visit, store):
    first, second = hold(store, "Пациент жалуется на боль в груди"), hold(store, "Second?")
    page = visit("clinician")
    page.goto("/web/quarantine")
    assert "боль" in "".join(page.locator(".read mark").all_inner_texts())
    tab_to(page, ".refuse [name=reason]")
    page.keyboard.press("ArrowDown")  # from the first, not chosen, to the second
    tab_to(page, "button[value=refuse]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/web/quarantine?done=refused*")
    assert "Second?" in page.inner_text("main") and "Rejected." in page.inner_text("[role=status]")
    assert [quarantine.get(store, record_id).state for record_id in (first, second)] == ["refused", "waiting"]


def test_a_held_record_is_decided_without_scripts(visit, store):
    record_id = hold(store, "Пациент жалуется на боль в груди")
    page = visit("clinician", java_script_enabled=False, viewport=SIZES["phone"])
    page.goto("/web/quarantine")
    page.check("[name=reason][value=nobody]")
    page.click("button[value=release]")
    assert "Released." in page.inner_text("[role=status]") and quarantine.get(store, record_id).state == "released"


def test_everything_works_without_scripts(visit, store):
    page = visit("clinician", java_script_enabled=False)
    page.goto("/web/rate?own=true")
    page.click("main form button[type=submit]")
    assert page.is_visible("#e-thumb") and page.is_visible("#e-question")
    page.screenshot(path=SHOTS / "mistake_desk_en.png", full_page=True)
    page.fill("#f-question", QUESTION)
    page.fill("#f-answer", BAD)
    page.check("[name=rating][value='1']")
    page.check("[name=critical]")
    page.click("main form button[type=submit]")
    page.click("button[value=yes]")
    assert "incident" in page.inner_text("[role=status]") and len(list(crud.iterate(store, Feedback))) == 1


def test_a_problem_gets_the_focus_and_leads_to_its_field(visit):
    page = visit("clinician")
    page.goto("/web/rate?own=true")
    page.click("main form button[type=submit]")
    page.wait_for_selector("[role=alert]")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "alert"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash.startsWith('#f-')")
    assert page.evaluate("document.getElementById('f-question').getAttribute('aria-describedby').includes('e-question')")


@pytest.mark.parametrize("code", ["const s = document.createElement('script'); s.text = 'window.hit = 1'; document.body.append(s)",
                                  "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\">')",
                                  "const s = document.createElement('script'); s.src = 'data:text/javascript,window.hit=1'; document.body.append(s)"])  # fmt: skip
def test_the_browser_enforces_the_policy(visit, code):
    page = visit("clinician")
    page.evaluate(f"() => {{ {code} }}")
    page.wait_for_timeout(200)
    assert page.evaluate("window.hit") is None and any("Content Security Policy" in message for message in page.console_lines)


FOUND = """() => ({
  hit: window.hit ?? null,
  handlers: [...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => a.name.startsWith('on'))).length,
  inside: document.querySelectorAll('.read *:not(mark, s.out, span.tag, sup), .message.user *, .message.system *, textarea *, .question *, td.id *, .fate *:not(.hint)').length,
  rendered: [...document.querySelectorAll('.message *')].filter((e) => !TAGS.includes(e.localName) || [...e.attributes].some((a) => a.name !== 'start')).length,
  scripts: [...document.scripts].filter((s) => !s.src.startsWith(location.origin)).length,
  links: [...document.links].filter((a) => a.protocol === 'javascript:').length,
})""".replace("TAGS", str(sorted(TAGS)))
CLEAN = {"hit": None, "handlers": 0, "inside": 0, "rendered": 0, "scripts": 0, "links": 0}


def send_everywhere(someone, fill, store, text: str) -> list[str]:
    """The text in every field there is; returns the pages that show it."""
    fill(shown := trace(text, text, model_version=text[:150]), other := trace(f"{text} ", text))
    fill(
        item("rate", f"{text} 1", text, raters=5),
        item("compare", f"{text} 2", text, f"b{text}", raters=5),
        item("correct", f"{text} 3", text, raters=5),
    )
    someone.fill_in("/web/rate?own=true", question=text, answer=text, comments=text, rating="1")
    someone.fill_in(f"/web/rate?trace={shown.trace_id}", comments=text, critical="yes", sure="yes")
    someone.fill_in(f"/web/compare?a={shown.trace_id}&b={other.trace_id}", better="first", comments=text)
    someone.fill_in("/web/correct?own=true", question=text, answer=text, golden=f"{text}.", reason=text)
    axes = Feedback(session_id="s", agent_name=text[:150], user_query=text, agent_response=text, axes={text[:60]: 3}, recorded_by=users.get_user(store, "clinician").user_id)  # fmt: skip
    crud.add(store, [axes], actor=text[:100])
    change = re.findall(r'href="(/web/\w+\?again=[^"]+)"', someone.get("/web/history").text)
    hold(store, text)
    named = [f"/web/{page}" for page in ("queue", "rate", "compare", "correct", "history", "quarantine")]
    return [*named, f"/web/rate?trace={shown.trace_id}", *change]


def test_a_hundred_payloads_in_every_field_stay_text(visit, browse, fill, store):
    text = "\n".join(PAYLOADS)
    pages = send_everywhere(browse("clinician"), fill, store, text)
    clinician = visit("clinician")
    clinician.on("dialog", lambda dialog: clinician.console_lines.append("dialog") or dialog.dismiss())
    for path in pages:
        clinician.goto(path)
        assert clinician.evaluate(FOUND) == CLEAN, path
    assert len(pages) >= 10 and clinician.console_lines == []
    for who, path in (("engineer", "/web/dashboard"), ("auditor", "/web/audit")):
        page = visit(who)
        page.goto(path)
        assert page.evaluate(FOUND) == CLEAN and page.console_lines == [], path


def test_payloads_in_addresses_and_at_the_login_stay_text(visit):
    page = visit(None)
    for text in PAYLOADS[::10]:
        page.goto(f"/web/login?next={quote(text)}&why={quote(text)}")
        page.fill("#name", text[:64])
        page.fill("#password", text)
        page.click("main button[type=submit]")
        assert page.evaluate(FOUND) == CLEAN, text
    page = visit("auditor")
    for text in PAYLOADS[::10]:
        page.goto(f"/web/audit?actor={quote(text)}&action={quote(text[:60])}")
        assert page.evaluate(FOUND) == CLEAN, text


@pytest.mark.slow
def test_each_payload_alone_stays_text(visit, browse, fill, store):
    page, someone = visit("clinician"), browse("clinician")
    for text in PAYLOADS:
        # the history, what is held, the trace, and the newest four to be said anew
        for path in send_everywhere(someone, fill, store, text)[4:11]:
            page.goto(path)
            assert page.evaluate(FOUND) == CLEAN, f"{path}: {text}"


def test_a_page_that_forgets_to_escape_would_be_found(visit, browse, fill, store, monkeypatch):
    """The planted twin: with autoescape off the same look at the same pages finds what got in; the policy still lets nothing run."""
    pages = send_everywhere(
        browse("clinician"), fill, store, '<img src=x onerror="window.hit=1"><a href="javascript:window.hit=1">x</a>'
    )
    monkeypatch.setattr(render._environment(), "autoescape", False)
    render._environment().cache.clear()
    page = visit("clinician")
    page.goto(pages[-1])
    page.wait_for_timeout(200)
    problems = page.evaluate(FOUND)
    render._environment().cache.clear()
    assert problems["handlers"] and problems["inside"] and problems["links"] and problems["hit"] is None


def test_times_are_the_readers_own_with_utc_on_hover(visit, browse):
    browse("clinician").fill_in("/web/rate?own=true", question="q", answer="a", thumb="up")
    for zone, locale in (("Asia/Shanghai", "zh-CN"), ("America/New_York", "en-GB")):
        page = visit("clinician", timezone_id=zone, locale=locale)
        page.goto("/web/history")
        shown, hover, stamp = page.evaluate("(e => [e.textContent, e.title, e.dateTime])(document.querySelector('time'))")
        local = datetime.fromisoformat(stamp).astimezone(ZoneInfo(zone))
        assert f"{local:%H:%M}" in shown and str(local.day) in shown and "UTC" not in shown
        assert f"{datetime.fromisoformat(stamp):%H:%M} UTC" in hover
