"""`medloop users`, `medloop api keys` and the first start of the server, as somebody types them."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest
from typer.testing import CliRunner

from medloop.cli import app, login
from medloop.errors import InputError, MedloopError
from medloop.loop.workspace import init_workspace
from medloop.store import audit
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import users


@pytest.fixture
def run(settings):
    def typed(*words: str, **more):
        return CliRunner().invoke(app, ["--home", str(settings.home), *words], **more)

    return typed


def test_a_user_is_added_with_a_password_that_is_shown_once(run, settings):
    output = run("users", "add", "dr.li", "--role", "clinician").output
    password = re.search(r"Password: (\S+)", output)[1]
    with open_store(settings) as store:
        assert users.check_password(store, "dr.li", password).role == "clinician"
    assert password not in run("users", "list").output and "dr.li" in run("users", "list").output


def test_a_password_can_be_typed_and_changed(run, settings):
    assert run("users", "add", "li", "--role", "auditor", "--ask", input="correct horse battery\n" * 2).exit_code == 0
    assert run("users", "password", "li", "--ask", input="another good password\n" * 2).exit_code == 0
    with open_store(settings) as store:
        assert users.check_password(store, "li", "correct horse battery") is None
        assert users.check_password(store, "li", "another good password") is not None


def test_roles_change_and_users_are_kept_out_and_let_in(run, settings):
    run("users", "add", "bot", "--role", "engineer", "--no-password")
    run("users", "role", "bot", "auditor")
    run("users", "disable", "bot")
    assert "auditor" in run("users", "list").output and "disabled" in run("users", "list").output
    run("users", "disable", "bot", "--undo")
    with open_store(settings) as store:
        assert not users.get_user(store, "bot").disabled


def test_a_key_is_made_listed_by_id_and_revoked(run, settings):
    run("users", "add", "bot", "--role", "engineer", "--no-password")
    output = run("api", "keys", "new", "bot", "--scope", "jobs", "--scope", "metrics", "--days", "90").output
    text = re.search(r"mlk_([0-9a-f]{12})_\S+", output)
    with open_store(settings) as store:
        assert users.find_key(store, text[0]).scopes == {"jobs", "metrics"}
    listed = run("api", "keys", "list").output
    assert text[1] in listed and text[0] not in listed and "jobs, metrics" in listed
    assert run("api", "keys", "revoke", text[1]).exit_code == 0 and "revoked" in run("api", "keys", "list").output
    with open_store(settings) as store:
        assert users.find_key(store, text[0]) is None


def test_a_key_that_the_first_login_would_revoke_says_so(run):
    """Seen: a key made as the server's first lines say stopped working when its user logged in."""
    run("users", "add", "eng", "--role", "engineer")
    run("users", "add", "bot", "--role", "engineer", "--no-password")
    said = "eng has not logged in yet: choosing a password at the first login revokes this key. Make another one then."
    assert said in run("api", "keys", "new", "eng").output
    assert "revokes this key" not in run("api", "keys", "new", "bot").output


@pytest.mark.parametrize(
    "words",
    [
        ("users", "add", "li", "--role", "root"),
        ("users", "add", "a b", "--role", "admin"),
        ("users", "password", "nobody"),
        ("api", "keys", "new", "nobody"),
        ("api", "keys", "revoke", "0123456789ab"),
        ("api", "keys", "new", "tester", "--scope", "everything"),
        ("api", "serve", "--name", "https://feedback.example"),
    ],
)
def test_what_cannot_be_is_one_sentence(run, key, words):
    failed = run(*words)
    assert failed.exit_code != 0 and str(failed.exception).endswith(".")


def test_the_first_start_says_how_to_log_in(workspace):
    """That the second does not: test_jobs_outlive_a_killed_server_and_the_next_one_finds_them, which starts two."""
    init_workspace(workspace)
    command = [sys.executable, "-u", "-m", "medloop", "--home", str(workspace), "api", "serve", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "MEDLOOP_OFFLINE": "true"}
    )
    try:
        output = ""
        while "Serving" not in output:
            line = process.stdout.readline()
            assert line, "the server did not start"
            output += line
        url, password = re.search(r"http://127\.0\.0\.1:\d+", output)[0], re.search(r"the password: (\S+)", output)[1]
        with httpx.Client(base_url=url, transport=httpx.HTTPTransport(retries=20), follow_redirects=True) as client:
            assert client.get("/").url.path == "/web/login"
            page = client.post("/web/login", data={"name": "admin", "password": password})
            assert page.url.path == "/web/account" and "An admin set your password" in page.text
    finally:
        process.terminate()
        process.communicate(timeout=15)


def _served(run, monkeypatch) -> str:
    """What `api serve` prints before it serves."""
    monkeypatch.setattr("medloop.cli.api._serve", lambda settings, listener, names, **_: listener.close())
    started = run("api", "serve", "--port", "0")
    assert started.exit_code == 0, started.exception
    return started.output


def test_users_who_came_first_do_not_keep_the_admin_away(run, settings, monkeypatch):
    run("users", "add", "dr.li", "--role", "clinician")
    output = _served(run, monkeypatch)
    assert "Log in on the page below as 'admin' with the password: " in output
    password = re.search(r"the password: (\S+)", output)[1]
    with open_store(settings) as store:
        admin = users.check_password(store, "admin", password)
        assert (admin.role, admin.must_change, admin.waits) == ("admin", True, False)
        added = [row for row in audit.show(store, 50) if row["action"] == "users.add" and row["subject"] == admin.user_id]
        assert [row["actor"] for row in added] == [actor()]
    assert "password" not in _served(run, monkeypatch)  # the second start


def test_an_admin_of_another_name_is_enough(run, settings, monkeypatch):
    run("users", "add", "chen", "--role", "admin")
    assert "password" not in _served(run, monkeypatch)
    with open_store(settings) as store:
        assert [user.name for user in users.list_users(store)] == ["chen"]


def test_a_disabled_admin_does_not_come_back_by_a_start(run, settings, monkeypatch):
    """A start changes no account that exists: it says what to type."""
    _served(run, monkeypatch)
    run("users", "disable", "admin")
    output = _served(run, monkeypatch)
    assert "password" not in output
    assert "No admin is active. Add one: medloop" in output and "users add NAME --role admin" in output
    with open_store(settings) as store:
        assert users.get_user(store, "admin").disabled


def test_of_two_starts_at_once_one_creates_the_admin_and_both_serve(run, settings, monkeypatch):
    """Seen: the other one ended with "There is already a user 'admin'"."""
    add = users.add_user

    def late(store, *args, **kwargs):
        monkeypatch.setattr(users, "add_user", add)
        add(store, *args, **kwargs)
        return add(store, *args, **kwargs)

    monkeypatch.setattr(users, "add_user", late)
    assert "password" not in _served(run, monkeypatch)
    with open_store(settings) as store:
        assert [user.name for user in users.list_users(store)] == ["admin"]


OWN = "violet tractor lantern moss"


@pytest.fixture
def newcomer(run):
    """The one-time password of dr.li, whom somebody has just added."""
    return re.search(r"Password: (\S+)", run("users", "add", "dr.li", "--role", "clinician").output)[1]


def _typed(monkeypatch, *words: str, terminal: bool = True) -> list[str]:
    """What somebody types when asked; what they were asked."""
    asked: list[str] = []

    def answer(text: str, **_: object) -> str:
        asked.append(text)
        return words[len(asked) - 1]

    monkeypatch.setattr("medloop.cli.login.typer.prompt", answer)
    monkeypatch.setattr("medloop.cli.login.sys.stdin", SimpleNamespace(isatty=lambda: terminal))
    return asked


def test_a_newcomer_chooses_a_password_where_a_command_asks_for_one(settings, newcomer, monkeypatch, capsys):
    asked = _typed(monkeypatch, newcomer, "password1234", "dr.li tractor lantern", newcomer, OWN)
    with open_store(settings) as store:
        person = login.logged_in(store, "dr.li")
        assert (person.name, person.must_change) == ("dr.li", False)
        assert users.check_password(store, "dr.li", newcomer) is None and users.check_password(store, "dr.li", OWN) == person
        changed = [row for row in audit.show(store, 50) if row["action"] == "users.password"]
        assert [row["actor"] for row in changed] == [person.user_id]  # as the page writes it: they proved who they are
    assert asked == ["Password of dr.li", *["New password"] * 4]
    said = capsys.readouterr().out
    assert "easy to guess" in said and "contains the user name" in said and "This is your current password" in said
    assert newcomer not in said and OWN not in said


def test_who_does_not_know_the_password_chooses_none(settings, newcomer, monkeypatch):
    asked = _typed(monkeypatch, "not the password", OWN)
    with open_store(settings) as store, pytest.raises(InputError, match="Wrong user name or password"):
        login.logged_in(store, "dr.li")
    assert asked == ["Password of dr.li"]


def test_without_a_terminal_a_newcomer_is_told_where_to_choose(settings, newcomer, monkeypatch):
    asked = _typed(monkeypatch, newcomer, OWN, terminal=False)
    with open_store(settings) as store:
        with pytest.raises(InputError) as refused:
            login.logged_in(store, "dr.li")
        assert users.get_user(store, "dr.li").must_change
    assert "medloop api serve" in str(refused.value) and "http://127.0.0.1:8000/web/login" in str(refused.value)
    assert asked == ["Password of dr.li"]


WRONG_SERVERS = [
    ("backends", "http://[erased]:8001", "gateway.backends: 'http://[erased]:8001' is not a URL of a model server"),
    ("fallback", "127.0.0.1:8001", "'127.0.0.1:8001' is not a URL of a model server"),
    ("backends", "http://8.8.8.8:80", "8.8.8.8 is not in a private network"),
    ("backends", "http://li:secret@[x]:80", "not a URL of a model server"),
    ("backends", "http://127.0.0.1:8001/v1?api_key=secret", "'http://127.0.0.1:8001/v1' is not a URL of a model server"),
    ("prompt_file", "nowhere.txt", "nowhere.txt"),
]


@pytest.mark.parametrize(("name", "value", "problem"), WRONG_SERVERS)
def test_a_wrong_setting_of_the_assistant_is_one_line_before_the_server_starts(run, settings, monkeypatch, name, value, problem):
    (settings.home / "medloop.yaml").write_text(f"gateway:\n  {name}: '{value}'\n")
    monkeypatch.setattr("medloop.cli.api._serve", lambda *_, **__: pytest.fail("the server has started"))
    failed = run("api", "serve", "--port", "0")
    assert isinstance(failed.exception, MedloopError) and problem in str(failed.exception)
    assert "password" not in failed.output and "secret" not in str(failed.exception)
    with open_store(settings) as store:
        assert users.list_users(store) == []  # a password that is shown once is not shown by a start that fails
