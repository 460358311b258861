"""The widget in a real browser, on a page of a foreign origin with a strict policy of its own."""

from __future__ import annotations

import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from medloop.contracts import Correction, Feedback
from medloop.settings import Settings
from medloop.store.records import crud, users
from medloop.testing.chat_double import ChatDouble

SHOTS = Path(__file__).parents[2] / "build/shots"  # to be looked at; not in the repository
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Some hospital's chat</title>
<h1>Some hospital's chat</h1><div data-medloop-inference="{inference}">Rest, and drink enough.</div>
<script src="{medloop}/widget.js" data-key="{key}" defer></script></html>"""


class ForeignSite:
    """A page of somebody else, on a port and under a host name of its own."""

    def __init__(self) -> None:
        site = self
        self.html, self.policy = "", ""

        class ForeignPage(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.html.encode() if self.path == "/" else b""
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Security-Policy", site.policy)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), ForeignPage)
        self._http.daemon_threads = True
        self.origin = f"http://localhost:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def site():
    opened = ForeignSite()
    yield opened
    opened.close()


@pytest.fixture
def settings(workspace: Path, template: Path, site: ForeignSite) -> Settings:
    shutil.copytree(template, workspace, dirs_exist_ok=True)
    with ChatDouble() as model:
        section = {"backends": model.url, "widget_origins": site.origin}
        yield Settings.model_validate(
            {"home": workspace, "device": "cpu", "threads": 1, "offline": True, "gateway": section}
        )  # fmt: skip


def test_feedback_is_sent_from_a_page_of_another_origin(visit, store, server, site: ForeignSite) -> None:
    engineer = users.get_user(store, "engineer")
    chat, narrow = (users.new_key(store, engineer, scopes=(scope,), actor="test") for scope in ("chat", "widget"))
    body = {"messages": [{"role": "user", "content": "I have had a mild cough for two weeks."}]}
    answer = httpx.post(f"{server}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {chat}"}, timeout=60)
    inference = answer.json()["medloop"]["inference_id"]
    site.policy = f"default-src 'none'; script-src {server}; connect-src {server}"  # nothing inline, no style, no image
    site.html = PAGE.format(inference=inference, medloop=server, key=narrow)
    page = visit(None, viewport={"width": 390, "height": 700})
    page.goto(site.origin)
    page.click("button[aria-label='Bad answer']")
    page.wait_for_selector("[role=status]:has-text('Saved')")
    page.click("summary")
    page.fill("textarea >> nth=0", "Misses the fever.")
    page.fill("textarea >> nth=1", "Rest. See a doctor today if you have a fever.")
    page.check("input[type=checkbox]")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "widget_foreign_phone.png", full_page=True)
    page.click("button:has-text('Send')")
    page.wait_for_function(
        "() => document.querySelector('.medloop-widget').shadowRoot.querySelector('[role=status]').textContent.includes('Saved')"
    )
    deadline = 60_000
    while deadline and len(list(crud.iterate(store, Correction))) < 1:
        page.wait_for_timeout(100)
        deadline -= 100
    records = list(crud.iterate(store, Feedback))
    assert {record.trace_id for record in records} == {inference} and any(record.critical for record in records)
    assert [record.comments for record in records if record.comments] == ["Misses the fever."]
    assert not [line for line in page.console_lines if line.startswith("error") and "favicon" not in line], page.console_lines


def test_a_page_that_is_not_allowed_sends_nothing(visit, store, server, site: ForeignSite) -> None:
    narrow = users.new_key(store, users.get_user(store, "engineer"), scopes=("widget",), actor="test")
    site.html = PAGE.format(inference="0199c0de-0000-7000-8000-000000000000", medloop=server, key=narrow)
    site.policy = f"default-src 'none'; script-src {server}; connect-src {server}"
    page = visit(None)
    page.goto(site.origin.replace("localhost", "127.0.0.1"))  # another origin than the allowed one
    page.click("button[aria-label='Good answer']")
    page.wait_for_selector("[role=status]:has-text('Not saved')")
    assert not list(crud.iterate(store, Feedback))
