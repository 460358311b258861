"""An admin alone cannot make an account that reads patients' words: whatever way they try, a second person has to approve."""

import re

import pytest
from typer.testing import CliRunner
from web_world import PASSWORD

from medloop.cli import app as cli
from medloop.store import audit
from medloop.store.audit import AuditFilter
from medloop.store.records import users


def secret(page: str) -> str:
    return re.search(r'<p class="secret">([^<]+)</p>', page)[1]


def log_in(browse, name: str, password: str):
    client = browse(None).client
    return client.post("/web/login", data={"name": name, "password": password}, follow_redirects=False)


@pytest.fixture
def second(browse, store):
    users.add_user(store, "second", "admin", password=PASSWORD, actor="test")
    return browse("second")


def ways(admin, store):
    """Every way in which an admin gets at a password of somebody who reads text, or of somebody who can approve."""
    by_name = {user.name: user.user_id for user in users.list_users(store)}
    yield "new", secret(admin.post("/web/users", name="new", role="clinician").text)
    yield "helper", secret(admin.post("/web/users", name="helper", role="admin").text)
    yield "clinician", secret(admin.post(f"/web/users/{by_name['clinician']}/password").text)
    password = secret(admin.post("/web/users", name="later", role="engineer").text)
    admin.post(f"/web/users/{users.get_user(store, 'later').user_id}/role", role="annotator")
    yield "later", password
    admin.post(f"/web/users/{by_name['other']}/disable")
    admin.post(f"/web/users/{by_name['other']}/enable")
    yield "other", PASSWORD


def test_one_admin_alone_gets_into_no_account_that_reads_text(browse, store):
    admin = browse("admin")
    for name, password in ways(admin, store):
        refused = log_in(browse, name, password)
        assert refused.status_code == 403 and "A second admin has to approve your account" in refused.text, name
        own = admin.post(f"/web/users/{users.get_user(store, name).user_id}/approve", role=users.get_user(store, name).role)
        assert own.status_code == 403 and "Another admin has to approve this" in own.text, name
        key = users.new_key(store, users.get_user(store, name), actor="test")
        assert users.find_key(store, key) is None, name
    zh = browse("admin").get("/web/users", headers={"Accept-Language": "zh"}).text
    assert "待批准" in zh and "没有第二位管理员" in zh and "medloop users approve new" in zh


def test_a_second_admin_approves_and_both_are_in_the_log(browse, store, second):
    password = secret(browse("admin").post("/web/users", name="new", role="clinician").text)
    user = users.get_user(store, "new")
    assert "Accounts that wait for your approval: 1" in second.get("/web/").text
    assert "wait for your approval" not in browse("admin").get("/web/").text
    assert "requested by admin" in second.get("/web/users?state=waits").text
    changed = second.post(f"/web/users/{user.user_id}/approve", role="annotator")  # not what is asked for now
    assert changed.status_code == 403 and users.get_user(store, "new").waits
    assert "new is approved and can log in." in second.post(f"/web/users/{user.user_id}/approve", role="clinician").text
    answered = log_in(browse, "new", password)
    assert answered.status_code == 303
    rows = {row["action"]: row for row in audit.page(store, AuditFilter(subject=user.user_id))}
    ids = {user.name: user.user_id for user in users.list_users(store)}
    assert (rows["users.add"]["actor"], rows["users.approve"]["actor"]) == (ids["admin"], ids["second"])
    assert rows["users.add"]["detail"]["waits"] is True and rows["users.approve"]["detail"]["requested_by"] == ids["admin"]
    again = second.post(f"/web/users/{user.user_id}/approve", role="clinician")
    assert again.status_code == 403 and "does not wait for an approval any more" in again.text


def test_over_http_the_second_admin_approves_and_the_first_is_refused(browse, running, store, second):
    password = secret(browse("admin").post("/web/users", name="new", role="clinician").text)
    keys = {
        name: users.new_key(store, users.get_user(store, name), scopes=("users",), actor="test") for name in ("admin", "second")
    }

    def call(who: str, method: str, path: str = "", **body: str):
        return running.request(
            method, f"/api/v1/users{path}", json=body or None, headers={"Authorization": f"Bearer {keys[who]}"}
        )

    row = next(row for row in call("second", "GET").json()["users"] if row["name"] == "new")
    assert (row["role"], row["state"], row["requested_by"]) == ("clinician", "waits", "admin")
    own = call("admin", "POST", "/new/approve", role="clinician")
    assert own.status_code == 403 and "Another admin has to approve this" in own.json()["error"]
    assert call("second", "POST", "/new/approve", role="annotator").status_code == 422, "not what is asked for"
    assert call("second", "POST", "/nobody/approve", role="clinician").status_code == 422
    assert log_in(browse, "new", password).status_code == 403
    assert call("second", "POST", "/new/approve", role="clinician").json() == {
        "name": "new",
        "role": "clinician",
        "state": "active",
    }
    assert log_in(browse, "new", password).status_code == 303
    ids = {user.name: user.user_id for user in users.list_users(store)}
    (entry,) = [row for row in audit.page(store, AuditFilter(subject=ids["new"])) if row["action"] == "users.approve"]
    assert entry["actor"] == ids["second"] and entry["detail"]["requested_by"] == ids["admin"]


def test_a_workspace_with_one_admin_approves_on_the_command_line_and_that_is_recorded(browse, store, settings):
    password = secret(browse("admin").post("/web/users", name="new", role="clinician").text)
    run = lambda *words: CliRunner().invoke(cli, ["--home", str(settings.home), "users", *words])  # noqa: E731
    assert "waits for approval" in run("list").output
    assert "new is approved as clinician." in run("approve", "new").output and run("approve", "new").exit_code != 0
    assert log_in(browse, "new", password).status_code == 303
    (row,) = audit.page(store, AuditFilter(action="users.approve"))
    assert row["actor"].startswith("user:")


def test_engineers_and_auditors_need_no_second_admin(browse, store):
    password = secret(browse("admin").post("/web/users", name="new", role="auditor").text)
    assert log_in(browse, "new", password).status_code == 303
