"""Every page of the console under axe-core, for every role, in light and dark, at desk and phone width: nothing serious.

make test-axe installs axe-core's script and runs this.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from web_world import BAD, GOOD, item, trace

from medloop.store.records import users
from medloop.web.navigation import MENU

pytestmark = pytest.mark.slow
SERIOUS = ("serious", "critical")
SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}, "small": {"width": 320, "height": 640}}
RUN = "() => axe.run(document, { resultTypes: ['violations'] })"


@pytest.fixture(scope="module")
def axe() -> str:
    path = os.environ.get("AXE_JS")
    if not path or not Path(path).is_file():
        pytest.skip("axe-core is not installed: make test-axe")
    return Path(path).read_text(encoding="utf-8")


def findings(page, axe: str) -> list[str]:
    page.evaluate(axe)  # by the browser's debugger, so that the page's content security policy stays as it is
    violations = [found for found in page.evaluate(RUN)["violations"] if found["impact"] in SERIOUS]
    return [f"{found['id']}: {node['html'][:120]}" for found in violations for node in found["nodes"]]


@pytest.fixture
def world(browse, fill) -> str:
    fill(shown := trace(BAD), trace(GOOD), item("rate", "Is it flu?", "Yes."), item("compare", "Is it flu?", "Yes.", "No."))
    browse("other").fill_in(f"/web/rate?trace={shown.trace_id}", rating="1", critical="yes", sure="yes", comments="Harm.")
    return f"/web/traces/{shown.trace_id}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_page_has_a_serious_finding_or_is_wider_than_the_screen(world, visit, axe, scheme, size):
    problems = {}
    for role in users.ROLES:
        locale = "zh-CN" if scheme == "dark" else "en-GB"
        page = visit(role, viewport=SIZES[size], color_scheme=scheme, locale=locale, reduced_motion="reduce")
        pages = [f"/web/{name}" for name, roles in MENU.items() if role in roles]
        refused = "/web/users" if role != "admin" else "/web/queue"  # the page of somebody who may not
        for path in ("/web/", "/web/account", "/web/search?q=a", *pages, refused, *([world] if "traces" in str(pages) else [])):
            page.goto(path)
            if found := findings(page, axe):
                problems[role, path] = found
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                problems[role, path] = [*problems.get((role, path), []), "wider than the screen"]
    assert not problems


def test_red_a_planted_mistake_is_found(visit, axe):
    page = visit("clinician")
    page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"/web/static/icon.svg\">')")
    assert any(found.startswith("image-alt") for found in findings(page, axe))
