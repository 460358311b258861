"""The console in a real browser: home moves by itself and says when it cannot, the drawer needs no script, keys lead to pages."""

from __future__ import annotations

import pytest
from test_web_console import save_verdict

pytestmark = pytest.mark.slow
PHONE = {"width": 390, "height": 844}


def test_home_moves_by_itself_and_keeps_the_focus(visit, store):
    page = visit("engineer")
    page.wait_for_selector(".stage >> text=No model has been examined.")
    page.focus("#live a[href='/web/deployments']")
    save_verdict(store)
    page.wait_for_selector(".stage >> text=tiny+x passed.", timeout=60_000)
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/web/deployments"
    assert page.locator("#lost").is_hidden() and page.console_lines == []


def test_a_lost_connection_is_said(visit):
    page = visit("engineer")
    page.wait_for_selector(".stage")
    page.context.set_offline(True)
    page.wait_for_selector("#lost:visible", timeout=60_000)
    page.context.set_offline(False)
    page.wait_for_selector("#lost", state="hidden", timeout=60_000)


def test_the_drawer_opens_and_closes_without_scripts(visit):
    page = visit("clinician", viewport=PHONE, java_script_enabled=False)
    link = page.locator(".rail a[href='/web/codebook']")
    assert link.is_hidden()
    page.click(".drawer-open")
    assert link.is_visible()
    page.click(".drawer-close")
    assert link.is_hidden()
    page.click(".drawer-open")
    link.click()
    assert page.url.endswith("/web/codebook") and link.is_hidden()


def test_keys_search_help_and_go(visit):
    page = visit("clinician")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("codebook")
    page.keyboard.press("Enter")
    page.wait_for_url("**/web/search?q=codebook")
    page.keyboard.press("?")
    assert page.locator("#page-keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url("**/web/incidents")
    assert page.get_attribute(".rail a[href='/web/incidents']", "aria-current") == "page"
