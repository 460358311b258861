"""Users, the audit log and errors, as an admin, an auditor and a stranger meet them."""

import csv
import io
import json
import re

import pytest
from typer.testing import CliRunner
from web_world import BAD, PASSWORD, Browser, trace

from medloop.api.limits import RateLimitError
from medloop.cli import app as cli
from medloop.store import audit, catalog
from medloop.store.audit import AuditFilter
from medloop.store.files.artifacts import new_artifact
from medloop.store.records import users


def secret(page: str) -> str:
    return re.search(r'<p class="secret">([^<]+)</p>', page)[1]


def test_a_new_password_is_shown_once_and_changed_before_anything_else(browse, store):
    admin, user = browse("admin"), users.get_user(store, "clinician")
    someone = browse("clinician")
    password = secret(admin.post(f"/web/users/{user.user_id}/password").text)
    assert someone.get("/web/", follow_redirects=False).status_code == 303  # the old session ended
    assert password not in admin.get("/web/users").text and "has not chosen a password yet" in admin.get("/web/users").text
    assert users.get_user(store, "clinician").waits
    users.approve_user(store, users.get_user(store, "clinician"), actor="test")
    client = browse(None).client
    client.post("/web/login", data={"name": "clinician", "password": password})
    for page in ("/web/", "/web/queue", "/web/incidents"):
        assert client.get(page, follow_redirects=False).headers["location"] == "/web/account?first=true"
    page = client.get("/web/account?first=true").text
    assert "An admin set your password" in page
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)[1]
    client.post("/web/account", data={"csrf": csrf, "now": password, "new": PASSWORD + "!", "again": PASSWORD + "!"})
    assert client.get("/web/queue", follow_redirects=False).status_code == 200
    assert not users.get_user(store, "clinician").must_change
    assert "users.password" in [row["action"] for row in audit.page(store, AuditFilter(subject=user.user_id))]


def test_a_role_is_changed_and_the_sessions_end(browse, store):
    admin, user = browse("admin"), users.get_user(store, "other")
    someone = browse("other")
    page = admin.post(f"/web/users/{user.user_id}/role", role="auditor").text
    assert "other has a new role" in page and users.get_user(store, "other").role == "auditor"
    assert someone.get("/web/queue", follow_redirects=False).status_code == 303
    log = len(audit.page(store, limit=500))
    same = admin.post(f"/web/users/{user.user_id}/role", role="auditor").text
    assert "other has this role already (auditor). Nothing was changed." in same and len(audit.page(store, limit=500)) == log
    waits = admin.post(f"/web/users/{user.user_id}/role", role="clinician").text
    assert "other has a new role, which a second admin has to approve" in waits and users.get_user(store, "other").waits
    admin.client.headers["Accept-Language"] = "zh"
    refused = admin.post(f"/web/users/{user.user_id}/role", role="root")
    assert refused.status_code == 422 and "请选择角色。" in refused.text
    own = admin.post(f"/web/users/{users.get_user(store, 'admin').user_id}/role", role="auditor")
    assert own.status_code == 403 and "您不能在此更改自己的账号" in own.text and users.get_user(store, "admin").role == "admin"


def test_users_are_found_sorted_and_paged_by_the_address(browse, store):
    for n in range(30):
        users.add_user(store, f"nurse{n:02d}", "annotator", actor="test")
    admin = browse("admin")

    def listed(query: str) -> list[str]:
        return re.findall(r'<td data-label="User name">([^<]+)</td>', admin.get(f"/web/users{query}").text)

    assert len(listed("")) == 25 and listed("?page=2")[-1] == "other"
    assert listed("?q=NURSE1") == [f"nurse1{n}" for n in range(10)]
    assert listed("?role=auditor") == ["auditor"] and listed("?state=disabled") == []
    assert listed("?sort=created")[0] == "clinician" and listed("?sort=name")[0] == "admin"
    assert "No users match this filter." in admin.get("/web/users?q=zzz").text


@pytest.fixture
def logged(fill, browse, store) -> Browser:
    """An auditor's browser, on a log with something in it."""
    fill(trace(BAD))
    users.add_user(store, "dr.li", "clinician", actor="user:root")
    return browse("auditor")


def actions(page: str) -> list[str]:
    return re.findall(r'<td data-label="Action">([^<]+)</td>', page)


def test_the_log_is_filtered_by_person_action_object_and_day(logged, store):
    everything = len(audit.page(store, limit=1000))
    assert set(actions(logged.get("/web/audit?action=users.").text)) == {"users.add"}
    assert "waits: no" in logged.get("/web/audit?action=users.").text
    assert "waits: 否" in logged.get("/web/audit?action=users.", headers={"Accept-Language": "zh"}).text
    assert set(actions(logged.get("/web/audit?actor=auditor").text)) == {"sessions.login"}
    page = logged.get("/web/audit?subject=dr.li").text
    assert actions(page) == ["users.add"] and "root (command line)" in page and users.get_user(store, "dr.li").user_id not in page
    assert len(actions(logged.get("/web/audit?since=2020-01-01").text)) == min(50, everything)
    page = logged.get("/web/audit?until=2020-01-01").text
    assert actions(page) == [] and "No entries match this filter." in page and 'value="2020-01-01"' in page


def test_the_command_line_filters_the_log_and_names_people(logged, workspace):
    def shown(*options: str) -> str:
        return CliRunner().invoke(cli, ["--home", str(workspace), "audit", "show", *options]).output

    rows = [json.loads(line) for line in shown("--object", "dr.li", "--json").splitlines()]
    assert [row["action"] for row in rows] == ["users.add"] and "dr.li" in shown("--action", "users.", "--last", "1")
    assert '"action"' not in shown("--until", "2020-01-01", "--json") and "sessions.login" in shown("--actor", "auditor")


def test_what_is_filtered_is_exported_and_the_export_is_audited(logged, store):
    answered = logged.get("/web/audit/export?form=jsonl&action=users.add")
    rows = [json.loads(line) for line in answered.text.splitlines()]
    assert {row["action"] for row in rows} == {"users.add"} and rows[0]["subject_name"] == "dr.li" and "hash" in rows[0]
    table = list(csv.DictReader(io.StringIO(logged.get("/web/audit/export?form=csv&action=users.add").text.lstrip("\ufeff"))))
    assert [row["seq"] for row in table] == [str(row["seq"]) for row in rows]
    noted = audit.page(store, AuditFilter(action="audit.export"))
    assert [row["detail"] for row in noted] == [{"form": form, "action": "users.add"} for form in ("csv", "jsonl")]
    assert logged.get("/web/audit/export?form=exe").status_code == 422


def test_the_verdict_on_the_log_is_in_words_of_the_page(logged, store):
    assert "The log is intact" in logged.get("/web/audit?check=true").text
    with store.write() as conn:
        conn.exec_driver_sql("UPDATE audit_log SET actor = 'nobody' WHERE seq = 2")
    assert "Entry 2 was changed after it was written" in logged.get("/web/audit?check=true").text
    page = logged.get("/web/audit?check=true", headers={"Accept-Language": "zh"}).text
    assert "日志已损坏。第 2 条记录在写入后被更改或移动过。" in page


def put_trained(store, model: dict[str, float], policy: dict[str, float]) -> None:
    cards = (("reward model", "rm", "reward", model), ("adapter", "clinic-rl", "ppo", policy))
    for kind, name, method, metrics in cards:
        folder = store.settings.workspace.models / kind.split()[0] / name
        with new_artifact(folder) as building:
            (building / "weights").write_text(kind)
        catalog.register(store, kind, folder, {"name": name, "method": method, "metrics": metrics}, actor="test")


def test_one_held_out_pair_is_said_as_one_and_is_no_certainty(browse, store):
    one = {"test_accuracy": 1.0, "test_accuracy_low": 1.0, "test_accuracy_high": 1.0, "test_pairs": 1}
    put_trained(store, one, {"held_out_gain": 0.5, "held_out": 1})
    page = browse("admin").get("/web/dashboard?days=7").text
    assert "1 held-out pairs" not in page and "the one held-out pair" in page and "95 % interval: 21% to 100%." in page
    assert "on one held-out question" in page


def test_the_dashboard_shows_what_came_of_the_feedback(browse, store):
    assert "No such model has been trained yet." in browse("engineer").get("/web/dashboard").text
    put_trained(store, {"test_accuracy": 0.8125, "test_pairs": 64}, {"held_out_gain": -0.0625, "held_out": 40})
    page = browse("admin").get("/web/dashboard?days=7").text
    assert "<strong>81%</strong>" in page and "<strong>-0.062</strong>" in page and "clinic-rl (ppo)" in page
    assert "64 held-out pairs" in page and '<li class="bad"><span>Policy gain</span>' in page


def test_each_refusal_says_its_own_cause_in_the_language_of_the_page(browse, app, monkeypatch):
    someone = browse("clinician")
    someone.client.headers["Accept-Language"] = "zh"
    role = someone.get("/web/audit")
    assert role.status_code == 403 and "您的角色（临床医生）无权访问此页面。此功能仅供审计员使用。" in role.text
    assert "/web/queue" in role.text  # the menu is there
    wrong = browse("admin").get("/web/users?page=zero", headers={"Accept-Language": "zh"})
    assert wrong.status_code == 422 and "此网址中有无效的值" in wrong.text
    foreign = someone.client.post("/web/correct", data={"golden": "x"}, headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403 and "该请求来自本站以外的地址" in foreign.text
    huge = someone.client.post("/web/correct", data={"golden": "x" * 600_000})
    assert huge.status_code == 413 and "提交的内容过大" in huge.text

    def refuse(*_, **__):
        raise RateLimitError(7)

    monkeypatch.setattr(app.state.rate_limiter, "take", refuse)
    fast = someone.post("/web/incidents/inc_1/propose", note="已加规则十二。")
    assert fast.status_code == 429 and "请等待 7 秒后重试" in fast.text and "已加规则十二。" in fast.text
    assert fast.headers["Retry-After"] == "7"


def test_the_audit_page_names_changed_rows_by_id(logged, store):
    user = users.get_user(store, "dr.li")
    assert "other tables are unchanged" in logged.get("/web/audit?check=true").text
    with store.write() as conn:  # plain SQL gets no MAC
        conn.exec_driver_sql("UPDATE users SET role = 'admin' WHERE name = 'dr.li'")
    page = logged.get("/web/audit?check=true").text
    assert "added without medloop: 1 (" in page and f"users {user.user_id}" in page
    logged.client.headers["Accept-Language"] = "zh"
    assert "有 1 行在 medloop 之外" in logged.get("/web/audit?check=true").text


def test_a_key_is_shown_once_works_and_is_refused_once_it_is_revoked(browse, store):
    admin = browse("admin")
    assert "There is no such" not in admin.get("/web/keys").text
    page = admin.post("/web/keys", **{"name": "engineer", "may:metrics": "yes", "days": "30"}).text
    text = secret(page)
    assert users.KEY.fullmatch(text) and text not in admin.get("/web/keys").text
    [key] = users.list_keys(store)
    assert (key.user, key.scopes, round((key.expires - key.created).total_seconds() / 86400)) == ("engineer", ("metrics",), 30)
    program, bearer = browse(None).client, {"Authorization": f"Bearer {text}"}
    assert program.get("/api/v1/rlhf/metrics", headers=bearer).status_code == 200
    assert program.get("/api/v1/deploy", headers=bearer).status_code == 403
    assert "revokes this key" not in page
    users.add_user(store, "new.eng", "engineer", password=PASSWORD, actor="test", temporary=True)
    new = admin.post("/web/keys", **{"name": "new.eng", "may:metrics": "yes", "days": "30"}).text
    assert "new.eng has not logged in yet: choosing a password at the first login revokes this key" in new
    assert "refuses it from now on" in admin.post("/web/keys/revoke", id=key.api_key_id).text
    assert program.get("/api/v1/rlhf/metrics", headers=bearer).status_code == 401
    again = admin.post("/web/keys/revoke", id=key.api_key_id)
    assert again.status_code == 404 and "no such active key" in again.text
    assert key.api_key_id not in admin.get("/web/keys").text and key.api_key_id in admin.get("/web/keys?ended=true").text
    actions = [row["action"] for row in audit.page(store, AuditFilter(subject=key.api_key_id))]
    assert set(actions) == {"api_keys.add", "api_keys.revoke"}


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"name": "clinician", "may:metrics": "yes", "days": "30"}, "Choose an active engineer or auditor."),  # reads text
        ({"name": "admin", "may:users": "yes", "days": "30"}, "Choose an active engineer or auditor."),
        ({"name": "nobody", "may:metrics": "yes", "days": "30"}, "Choose an active engineer or auditor."),
        ({"name": "engineer", "days": "30"}, "Tick at least one thing"),
        ({"name": "engineer", "may:root": "yes", "days": "30"}, "Tick at least one thing"),
        ({"name": "engineer", "may:metrics": "yes", "days": "0"}, "from 1 to 730"),
        ({"name": "engineer", "may:metrics": "yes", "days": "٣"}, "from 1 to 730"),
    ],
)
def test_no_key_is_made_for_whoever_reads_text_nor_without_an_end(browse, store, form, said):
    refused = browse("admin").post("/web/keys", **form)
    assert refused.status_code == 422 and said in refused.text and users.list_keys(store) == []
