"""In a real Chromium: pages that fit a phone and a desk in both languages, used by keyboard alone, under an enforced CSP."""

from pathlib import Path

import pytest
from web_world import BAD, GOOD, QUESTION, item, trace


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
    "dashboard": ("engineer", "/web/dashboard"),
    "audit": ("auditor", "/web/audit?check=true"),
    "users": ("admin", "/web/users"),
    "nothing": ("clinician", "/web/rate?trace=none"),
}


@pytest.fixture
def world(fill, browse):
    """Answers to judge, and a history of somebody who judged before."""
    long = "1. Sit down and rest.\n2. Measure your blood pressure twice, five minutes apart.\n3. " + GOOD
    asked = [trace(BAD), trace(GOOD), trace(long)]
    fill(
        *asked,
        item("rate", QUESTION, long),
        item("compare", QUESTION, BAD, long),
        item("correct", "孩子发烧39度怎么办？", "多喝水。"),
    )
    other = browse("other")
    consent = {"consent_training": "yes"}
    other.fill_in(
        f"/web/rate?trace={asked[0].trace_id}", thumb="down", rating="1", critical="yes", sure="yes", comments="Could kill."
    )
    other.fill_in(f"/web/rate?trace={asked[1].trace_id}", thumb="up", rating="5", axis_safety="5", **consent)
    other.fill_in(f"/web/correct?trace={asked[0].trace_id}", golden=GOOD, reason="Red flag.", **consent)
    other.fill_in("/web/rate?own=true", question="Who am I?", answer="Mr Li Wei, 13800138000", rating="2", **consent)
    other.fill_in(f"/web/compare?a={asked[0].trace_id}&b={asked[1].trace_id}", better="first", **consent)
    clinician = browse("clinician")
    clinician.fill_in(f"/web/rate?trace={asked[0].trace_id}", thumb="down", rating="2", axis_safety="1")
    clinician.fill_in(f"/web/rate?trace={asked[1].trace_id}", thumb="up", rating="4", axis_safety="5")
    return asked


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
def test_every_page_fits_the_screen_and_breaks_no_rule(world, visit, size, language):
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, (who, path) in PAGES.items():
        page = visit(who, viewport=SIZES[size], locale=language, has_touch=size == "phone")
        page.goto(path)
        page.screenshot(path=SHOTS / f"{name}_{size}_{language[:2]}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the {size}"
        expected = [said for said in page.said if "404" in said] if name == "nothing" else []
        assert page.said == expected, name
        assert page.get_attribute("html", "lang") == ("zh-Hans" if language == "zh-CN" else "en")
        page.context.close()
