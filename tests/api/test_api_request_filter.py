"""What is refused before any route sees it: kinds of bodies by address, foreign pages, plain http behind a TLS proxy."""

import pytest
from fastapi.testclient import TestClient

from medloop.api import admission
from medloop.web.app import create_app

PROXY = {"Host": "feedback.example"}


@pytest.fixture
def proxied(settings, key):
    app = create_app(settings, supervise=False, hosts=("127.0.0.1", "feedback.example"))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
def test_the_api_takes_no_body_that_a_foreign_form_could_send(client, kind):
    headers = {"Content-Type": kind} if kind else {}
    assert client.post("/api/train", content=b'{"stage": "GRPO"}', headers=headers).status_code == 415


def test_pages_take_forms_and_no_json(client):
    assert client.post("/web/login", json={}).status_code == 415
    multipart = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post("/web/login", content=b"--x--", headers=multipart).status_code == 415


def test_only_the_import_takes_a_large_body(client):
    large = b"[" + b" " * (4 * 2**20) + b"]"
    headers = {"Content-Type": "application/json"}
    assert client.post("/api/v1/rlhf/import", content=large, headers=headers).status_code != 413
    assert client.post("/api/v1/rlhf/feedback", content=large, headers=headers).status_code == 413
    assert client.post("/api/v1/rlhf/import", content=large * 2 + b"  ", headers=headers).status_code == 413


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_that_says_it_comes_from_elsewhere_changes_nothing(client, site):
    assert client.post("/api/train", json={"stage": "GRPO"}, headers={"Sec-Fetch-Site": site}).status_code == 403
    assert client.get("/healthz", headers={"Sec-Fetch-Site": site}).status_code == 200


def test_behind_a_proxy_only_https_pages_are_ours(proxied):
    assert proxied.get("/healthz", headers={**PROXY, "Origin": "http://feedback.example"}).status_code == 403
    answered = proxied.get("/healthz", headers={**PROXY, "Origin": "https://feedback.example"})
    assert answered.status_code == 200 and "max-age" in answered.headers["strict-transport-security"]
    assert "strict-transport-security" not in proxied.get("/healthz", headers={"Host": "127.0.0.1:80"}).headers


def test_a_body_that_never_ends_is_given_up(client, monkeypatch):
    import anyio

    async def dripping(*_):
        await anyio.sleep(5)

    monkeypatch.setattr(admission, "BODY_S", 0.05)
    monkeypatch.setattr(admission, "_read", dripping)
    assert client.post("/api/train", json={}).status_code == 408
