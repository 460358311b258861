"""Login, session and language: what a browser keeps, what ends it, what another site cannot do."""

import hashlib
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from web_world import HIDDEN, PASSWORD, Browser

from medloop.api.auth import LoginAttempts
from medloop.contracts import utc_now
from medloop.store import audit, passwords, tables
from medloop.store.records import users
from medloop.web.app import create_app

COOKIE = "medloop_session"


def login(client, name="clinician", password=PASSWORD, **more):
    return client.post("/web/login", data={"name": name, "password": password, **more}, follow_redirects=False)


def test_without_a_session_a_page_leads_to_the_login_and_back(browse):
    nobody = browse(None)
    answered = nobody.get("/web/rate?trace=x", follow_redirects=False)
    assert answered.status_code == 303 and answered.headers["location"].startswith("/web/login?")
    page = nobody.get("/web/rate?trace=x").text
    back = dict(HIDDEN.findall(page))["next"]
    assert login(nobody.client, next=back).headers["location"] == "/web/rate?trace=x"


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example",
        "/web//evil.example",
        "/web/\\evil",
        "javascript:alert(1)",
        "/web/\n",
        "/api/x",
        "/web/login",
    ],
)
def test_the_login_leads_nowhere_else(browse, path):
    assert login(browse(None).client, next=path).headers["location"] == "/web/"
    assert browse(None).get("/web/language/zh", params={"next": path}, follow_redirects=False).headers["location"] in (
        "/web/",
        "/web/login",
    )


def test_no_script_and_no_other_site_gets_at_the_cookie(browse):
    cookie = login(browse(None).client).headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie and "domain" not in cookie


def test_behind_a_tls_proxy_the_cookie_is_bound_to_the_host(settings):
    app = create_app(settings, supervise=False, hosts=("feedback.example",))
    with TestClient(app, base_url="https://feedback.example") as client:
        cookie = login(client).headers["set-cookie"]
        assert cookie.startswith("__Host-medloop_session=") and "Secure" in cookie
        assert client.get("/web/", follow_redirects=False).status_code == 200


def test_a_session_is_kept_only_as_a_hash(browse, store):
    token = browse("clinician").client.cookies[COOKIE]
    with store.read() as conn:
        rows = str(conn.execute(tables.sessions.select()).all())
    assert token not in rows and users.digest(token) in rows


def test_logging_in_again_ends_the_session_before(browse):
    someone = browse("clinician")
    first = someone.client.cookies[COOKIE]
    login(someone.client)
    assert someone.client.cookies[COOKIE] != first
    someone.client.cookies.set(COOKIE, first, domain="127.0.0.1", path="/")
    assert someone.get("/web/", follow_redirects=False).status_code == 303


def test_a_token_from_elsewhere_is_not_taken_over_at_login(browse):
    someone = browse(None)
    someone.client.cookies.set(COOKIE, "chosen-by-an-attacker", domain="127.0.0.1", path="/")
    assert "chosen-by-an-attacker" not in login(someone.client).headers["set-cookie"]


def test_logout_ends_it_on_the_server(browse):
    someone = browse("clinician")
    token = someone.client.cookies[COOKIE]
    assert someone.post("/web/logout", follow=False).status_code == 303
    someone.client.cookies.set(COOKIE, token, domain="127.0.0.1", path="/")
    assert someone.get("/web/", follow_redirects=False).status_code == 303


@pytest.mark.parametrize(("column", "value"), [("expires", timedelta(seconds=-1)), ("created", -users.LONGEST)])
def test_an_idle_or_old_session_is_over(app, browse, store, column, value):
    someone = browse("clinician")
    with store.write() as conn:
        conn.execute(tables.sessions.update().values({column: utc_now() + value}))
    app.state.authenticator.forget()
    assert someone.get("/web/", follow_redirects=False).status_code == 303


def test_use_keeps_a_session_alive(app, browse, store):
    someone = browse("clinician")
    with store.write() as conn:
        conn.execute(tables.sessions.update().values(expires=utc_now() + timedelta(minutes=5)))
    app.state.authenticator.forget()
    someone.get("/web/alive")
    with store.read() as conn:
        assert conn.execute(tables.sessions.select()).one().expires > utc_now() + timedelta(minutes=25)


def test_a_new_password_a_new_role_and_being_disabled_end_all_sessions(app, browse, store):
    for change in ("password", "role", "disable"):
        someone, user = browse("clinician"), users.get_user(store, "clinician")
        if change == "password":
            users.set_password(store, user, PASSWORD, actor="test")
        else:
            users.change_user(store, user, actor="test", **{"role": {"role": "clinician"}, "disable": {"disabled": True}}[change])
        app.state.authenticator.forget()
        assert someone.get("/web/", follow_redirects=False).status_code == 303, change


def test_five_tries_a_minute_and_one_answer_for_every_reason(browse):
    answers = {
        login(browse(None).client, name, "wrong password").text.replace(name, "") for name in ("clinician", "nobody", "auditor")
    }
    assert len(answers) == 1
    client = browse(None).client
    codes = [login(client, "engineer", "wrong password").status_code for _ in range(5)]
    assert codes == [401] * 5
    refused = login(client, "engineer", PASSWORD)
    assert refused.status_code == 429 and COOKIE not in refused.cookies


def test_tries_are_forgotten_after_a_minute_and_bounded_in_memory():
    now = [0.0]
    tries = LoginAttempts(lambda: now[0])
    assert [tries.allowed("li", "::1") for _ in range(6)] == [True] * 5 + [False]
    now[0] = 61.0
    assert tries.allowed("li", "::1")
    for n in range(20_000):
        tries.allowed(f"name{n}", f"10.0.{n % 256}.{n // 256}")
    assert len(tries._times) <= 10_001


def test_those_who_log_in_do_not_use_up_the_tries_of_their_neighbours():
    tries = LoginAttempts(lambda: 0.0)
    for n in range(100):
        assert tries.allowed(f"nurse{n}", "10.0.0.1")
        tries.succeeded(f"nurse{n}", "10.0.0.1")
    assert [tries.allowed(f"guess{n}", "10.0.0.1") for n in range(31)] == [True] * 30 + [False]


def test_an_unknown_name_takes_the_same_work_as_a_wrong_password(store, monkeypatch):
    work: list[dict[str, int]] = []
    scrypt = hashlib.scrypt

    def counted(password: bytes, **given: Any) -> bytes:
        work.append({name: given[name] for name in ("n", "r", "p", "dklen")})
        return scrypt(password, **given)

    monkeypatch.setattr(hashlib, "scrypt", counted)
    for name in ("clinician", "nobody"):
        assert users.check_password(store, name, "wrong password") is None
    known, unknown = work
    assert known == unknown


def test_a_password_is_hashed_at_the_cost_that_owasp_names(cheap_passwords, monkeypatch):
    monkeypatch.setattr(passwords, "COST", cheap_passwords)
    assert passwords.hash_password(PASSWORD).startswith("scrypt$32768$8$3$")


def test_a_refused_login_of_a_known_name_is_audited(browse, store):
    login(browse(None).client, "clinician", "wrong password")
    login(browse(None).client, "hunter2 in the wrong field", "x")
    last = audit.show(store, 1)[0]
    assert last["action"] == "sessions.refused" and "hunter2" not in str(audit.show(store, 5))


@pytest.mark.parametrize("path", ["/web/logout", "/web/queue/skip", "/web/rate", "/web/compare", "/web/correct"])
@pytest.mark.parametrize("csrf", [None, "", "wrong"])
def test_a_form_without_its_token_changes_nothing(browse, path, csrf):
    someone = browse("clinician")
    fields = {"question": "q", "answer": "a", "thumb": "up"} | ({} if csrf is None else {"csrf": csrf})
    answered = someone.client.post(path, data=fields, follow_redirects=False)
    assert answered.status_code == 403
    assert someone.get("/web/", follow_redirects=False).status_code == 200 and "Nothing yet" in someone.get("/web/history").text


def test_the_token_of_another_session_does_not_fit(browse):
    first, second = browse("clinician"), browse("other")
    assert first.client.post("/web/logout", data={"csrf": second.csrf()}, follow_redirects=False).status_code == 403


def test_a_session_that_calls_the_api_needs_its_token_too(browse):
    someone = browse("clinician")
    body = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "thumb": "up"}
    assert someone.client.post("/api/v1/rlhf/feedback", json=body).status_code == 403
    headers = {"X-CSRF-Token": someone.csrf()}
    assert someone.client.post("/api/v1/rlhf/feedback", json=body, headers=headers).status_code == 201


def test_a_wrong_key_is_not_made_good_by_a_session(browse):
    someone = browse("clinician")
    assert someone.get("/web/", headers={"Authorization": "Bearer x"}, follow_redirects=False).status_code == 303


def test_what_was_typed_comes_back_when_the_session_has_ended(browse):
    someone = browse("clinician")
    fields = {"csrf": someone.csrf(), "golden": "Call <b>112</b> now, and stay on the line."}
    someone.client.cookies.clear()
    answered = someone.client.post("/web/correct", data=fields)
    assert answered.status_code == 401 and "Call &lt;b&gt;112&lt;/b&gt; now" in answered.text


def test_an_expired_form_a_wrong_role_and_a_wrong_address_are_told_apart(browse):
    someone = browse("clinician")
    expired = someone.client.post("/web/correct", data={"csrf": "old", "golden": "Call 112."})
    assert expired.status_code == 403 and "This form has expired" in expired.text and "Call 112." in expired.text
    role = someone.get("/web/users")
    assert (
        role.status_code == 403 and "Access denied" in role.text and "Your role (clinician) cannot open this page." in role.text
    )
    assert "您的角色（临床医生）无权访问此页面。" in someone.get("/web/users", headers={"Accept-Language": "zh"}).text
    sent = someone.post("/web/users", name="x", role="admin")
    assert sent.status_code == 403 and "Your role (clinician) cannot do this." in sent.text
    sent = browse("annotator").post("/web/inspect/draw", follow=False)
    assert sent.status_code == 403 and "Your role (annotator) cannot do this. It is for: clinician." in sent.text
    invalid = someone.get("/web/traces?before=yesterday")
    assert invalid.status_code == 422 and "<h1>Invalid address</h1>" in invalid.text and "Not found" not in invalid.text
    invalid = someone.get("/web/traces?before=yesterday", headers={"Accept-Language": "zh"})
    assert "<h1>网址无效</h1>" in invalid.text
    lost = someone.get("/web/nothing")
    assert lost.status_code == 404 and "This page or record does not exist, or you do not have access to it." in lost.text


@pytest.mark.parametrize(
    ("accept", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh-Hans"),
        ("en,zh;q=0.5", "en"),
        ("fr,zh;q=0.2", "zh-Hans"),
        ("de", "en"),
        ("zh;q=0,en;q=0.1", "en"),
        (";q=x", "en"),
    ],
)
def test_the_browser_chooses_the_language(browse, accept, language):
    assert f'<html lang="{language}">' in browse(None).get("/web/login", headers={"Accept-Language": accept}).text


def test_the_switch_wins_over_the_browser(browse):
    someone = browse("clinician")
    switch = re.search(r'href="(/web/language/zh[^"]*)"', someone.get("/web/history").text)
    page = someone.get(switch[1], headers={"Accept-Language": "en"})
    assert page.url.path == "/web/history" and "我的记录" in page.text


def test_pages_carry_the_policy_that_allows_no_inline_script_or_style(browse):
    policy = browse("clinician").get("/web/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy


def test_static_files_are_a_closed_list(browse):
    nobody = browse(None)
    assert nobody.get("/web/static/app.js").headers["content-type"].startswith("text/javascript")
    for name in (
        "../words/login.yaml",
        "..%2fwords%2flogin.yaml",
        "%2e%2e/words/login.yaml",
        "login.yaml",
        "app.js%00",
        "/etc/passwd",
    ):
        assert nobody.get(f"/web/static/{name}", follow_redirects=False).status_code in (303, 404), name


def test_errors_on_pages_are_pages_without_details(app, browse, monkeypatch, caplog):
    def broken(*_, **__):
        raise KeyError("patient Li Wei")

    monkeypatch.setattr("medloop.web.pages.history.own_records", broken)
    answered = Browser(browse("clinician").client).get("/web/history")
    assert answered.status_code == 500 and "Something went wrong" in answered.text and "Li Wei" not in answered.text + caplog.text


def test_a_session_is_no_key_and_a_key_no_session(browse, store):
    someone = browse("clinician")
    token = someone.client.cookies[COOKIE]
    assert someone.get("/web/").status_code == 200  # remembered now
    assert browse(None).get("/api/openapi.json", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    nobody = browse(None)
    nobody.client.cookies.set(
        COOKIE, users.new_key(store, users.get_user(store, "clinician"), actor="test"), domain="127.0.0.1", path="/"
    )
    assert nobody.get("/web/", follow_redirects=False).status_code == 303


def test_a_credential_read_just_before_it_was_withdrawn_is_not_remembered(app, browse, store, monkeypatch):
    access, token = app.state.authenticator, browse("clinician").client.cookies[COOKIE]
    session = users.find_session(store, token)
    monkeypatch.setattr(users, "find_session", lambda *_: access.forget() or session)
    assert access.find("session", token) is session and not access._cache


def test_a_form_with_a_hundred_thousand_fields_costs_nothing(browse):
    someone = browse("clinician")
    body = "&".join(f"f{n}=1" for n in range(60_000))
    started = time.perf_counter()
    answered = someone.client.post(
        "/web/rate", content=body[: 500 * 1024], headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert answered.status_code == 403 and time.perf_counter() - started < 5.0


def test_neither_keys_nor_passwords_nor_what_people_write_enter_the_log(browse, store, caplog):
    import logging

    caplog.set_level(logging.DEBUG)
    key = users.new_key(store, users.get_user(store, "clinician"), actor="test")
    someone = browse("clinician")
    someone.fill_in("/web/rate?own=true", question="canary of a patient", answer="a", thumb="up")
    login(browse(None).client, "clinician", "canary of a password")
    someone.get("/api/v1/rlhf/feedback/none", headers={"Authorization": f"Bearer {key}"})
    someone.get("/web/nothing-canary-here")
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore", "asyncio"))]
    text = " ".join(record.getMessage() for record in ours)
    assert "canary of" not in text and key not in text and someone.client.cookies[COOKIE] not in text


def test_people_change_their_own_password_and_stay_logged_in_here_alone(browse, store):
    someone, elsewhere = browse("clinician"), browse("clinician")
    changed = someone.post("/web/account", now=PASSWORD, new="a few random words", again="a few random words")
    assert "has been changed" in changed.text and someone.get("/web/", follow_redirects=False).status_code == 200
    assert elsewhere.get("/web/", follow_redirects=False).status_code == 303
    assert users.check_password(store, "clinician", "a few random words") is not None


@pytest.mark.parametrize(
    ("now", "new", "again", "expected"),
    [
        ("wrong password", "a few random words", "a few random words", "Current password is incorrect"),
        (PASSWORD, "short", "short", "12 to 256"),
        (PASSWORD, "a few random words", "a few random wordz", "do not match"),
    ],
)
def test_a_password_is_changed_only_with_the_old_one_and_typed_twice(browse, store, now, new, again, expected):
    answered = browse("clinician").post("/web/account", now=now, new=new, again=again)
    assert answered.status_code == 422 and expected in answered.text
    assert users.check_password(store, "clinician", PASSWORD) is not None
