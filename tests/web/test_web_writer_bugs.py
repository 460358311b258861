"""A bug behind a page, in the writer or anywhere else: the person who sent the form gets an error page, and soon."""

import httpx
import pytest
from pydantic import TypeAdapter
from web_world import HIDDEN, PASSWORD

from medloop.store.records import crud


def invalid(*_, **__):
    TypeAdapter(int).validate_python("the patient Li Wei")


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server, headers={"Origin": server}, timeout=10) as browser:
        browser.post("/web/login", data={"name": "clinician", "password": PASSWORD})
        yield browser


def rate(client: httpx.Client) -> httpx.Response:
    hidden = dict(HIDDEN.findall(client.get("/web/rate?own=true").text))
    return client.post("/web/rate", data={**hidden, "question": "Typed by hand", "answer": "Tea.", "thumb": "up"})


@pytest.mark.parametrize("broken", [invalid, lambda *_, **__: next(iter(()))], ids=["pydantic", "StopIteration"])
def test_an_unexpected_error_in_the_writer_is_a_page_with_500_and_what_was_typed(client, monkeypatch, caplog, broken):
    with monkeypatch.context() as patch:
        patch.setattr(crud, "insert_in", broken)
        answered = rate(client)
        assert answered.status_code == 500 and "Something went wrong" in answered.text and "Typed by hand" in answered.text
    assert "Li Wei" not in answered.text + caplog.text and rate(client).status_code == 303  # the writer goes on
