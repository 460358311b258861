"""Weak passwords are refused in words, one-time passwords are changed first, and no key outlives a change of its user."""

import re

import pytest
from typer.testing import CliRunner
from web_world import PASSWORD

from medloop.cli import app as cli
from medloop.store.records import users
from medloop.store.weak_passwords import weakness

GOOD = "kettle moss and seven lamps"


@pytest.mark.parametrize(
    ("new", "en", "zh"),
    [
        ("Passw0rd2026!", "easy to guess", "该密码容易被猜到"),
        ("1q2w3e4r5t6y", "easy to guess", "该密码容易被猜到"),
        ("my-clinician-lamp-9", "contains your user name", "密码中包含您的用户名"),
        ("tea lamp 9", "12 to 256", "12 至 256"),
        (PASSWORD, "your current password", "新密码与当前密码相同"),
    ],
)
def test_a_weak_password_is_refused_on_the_page_with_the_reason(browse, store, new, en, zh):
    for language, text in (("en", en), ("zh", zh)):
        someone = browse("clinician")
        someone.client.headers["Accept-Language"] = language
        answered = someone.post("/web/account", now=PASSWORD, new=new, again=new)
        assert answered.status_code == 422 and text in answered.text
    assert users.check_password(store, "clinician", PASSWORD) is not None


def test_the_command_line_refuses_weak_passwords_too(settings, store):
    words = ["--home", str(settings.home), "users", "add", "dr.li", "--role", "auditor", "--ask"]
    refused = CliRunner().invoke(cli, words, input="Hospital2026!\n" * 2)
    assert "easy to guess" in str(refused.exception) and "dr.li" not in [user.name for user in users.list_users(store)]


@pytest.mark.parametrize("password", ["aaaaaaaaaaaa", "adminadmin123", "woaini1314520", "Welcome12345!", "13912345678901"])
def test_what_people_try_first_is_weak(password):
    assert weakness(password, "x") == "common"


@pytest.mark.parametrize("password", [GOOD, "tj8-quarz-lampe", "心脏跳动的绿色茶杯与门前小河流", "Sunshine!Kettle7"])
def test_a_few_random_words_are_not_weak(password):
    assert weakness(password, "dr.li") is None


def test_a_password_from_the_command_line_is_changed_before_anything_else(settings, browse):
    output = CliRunner().invoke(cli, ["--home", str(settings.home), "users", "password", "clinician"]).output
    client = browse(None).client
    client.post("/web/login", data={"name": "clinician", "password": re.search(r"Password: (\S+)", output)[1]})
    assert client.get("/web/queue", follow_redirects=False).headers["location"] == "/web/account?first=true"


def test_the_first_login_shows_one_thing_to_do_also_after_a_mistake(browse):
    """Every link of the menu would lead back to the same page."""
    someone = browse("clinician")
    first = someone.get("/web/account?first=true").text
    wrong = someone.post("/web/account", now="not the password", new=GOOD, again=GOOD, first="true")
    for page in (first, wrong.text):
        assert "An admin set your password" in page
        assert 'href="/web/queue"' not in page and 'name="first"' in page
    assert 'href="/web/queue"' in someone.get("/web/account").text


def by_own_hand(browse, user_id):
    return browse("clinician").post("/web/account", now=PASSWORD, new=GOOD, again=GOOD)


@pytest.mark.parametrize("change", [by_own_hand, "password", "role", "disable"])
def test_keys_and_sessions_end_with_the_password_the_role_and_the_account(browse, store, app, change):
    user = users.get_user(store, "clinician")
    key, session = users.new_key(store, user, actor="test"), browse("clinician")
    headers = {"Authorization": f"Bearer {key}"}
    assert browse(None).get("/api/v1/queue/stats", headers=headers).status_code == 200
    if callable(change):
        assert "API keys that have stopped working: 1." in change(browse, user.user_id).text
    else:
        browse("admin").post(f"/web/users/{user.user_id}/{change}", role="auditor")
    assert browse(None).get("/api/v1/queue/stats", headers=headers).status_code == 401
    assert session.get("/web/", follow_redirects=False).status_code == 303
    browse("admin").post(f"/web/users/{user.user_id}/enable")
    users.approve_user(store, users.get_user(store, "clinician"), actor="test") if users.get_user(
        store, "clinician"
    ).waits else None
    app.state.authenticator.forget()
    assert browse(None).get("/api/v1/queue/stats", headers=headers).status_code == 401  # for good
