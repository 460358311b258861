"""The gate over HTTP and on its page: verdicts with reasons, sign-offs, and a waiver that needs a second person."""

from __future__ import annotations

from datetime import timedelta

import pytest

from medloop.contracts import GateCheck, GateResult, Incident, sha256_id, utc_now
from medloop.contracts.evaluation import Interval
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_reasons import reason
from medloop.jobs import queue
from medloop.loop import gate_policy
from medloop.store.records import crud, gates, users
from medloop.testing.models import tiny_adapter, tiny_model

ARTIFACT = sha256_id("adapter")


@pytest.fixture
def gate(store) -> str:
    value = Interval(mean=-0.12, low=-0.2, high=-0.04, n=200)
    checks = (
        GateCheck(name="language/zh", outcome="fail", reason="Half of the answers are not in Chinese.", value=value, bound=-0.05),
        GateCheck(name="incidents", outcome="pass", reason="No safety incident is open."),
    )
    hashes = {name: sha256_id(name) for name in ("weights", "base", "baseline_artifact", "report", "config")}
    result = GateResult(
        artifact=ARTIFACT, **hashes, label="tiny+<b>x", baseline="tiny", outcome="fail", checks=checks, needs_sign_offs=1
    )
    return gates.save_gate(store, result, actor="test")


def test_the_page_shows_reasons_and_takes_two_people_to_lift_a_check(browse, store, gate):
    page = browse("engineer").get(f"/web/gate/{gate}").text
    assert "Half of the answers are not in Chinese." in page and "-0.120 [-0.200, -0.040]" in page and "<b>x" not in page
    assert (
        "This model may not be promoted now." in page and 'action="/web/gate/' + gate.replace(":", "%3A") + '/sign"' not in page
    )
    until = f"{utc_now() + timedelta(days=9):%Y-%m-%d}"
    asked = {"check": "language/zh", "until": until, "text": "The patients of this clinic speak English."}
    for wrong in ({"text": " "}, {"until": "2020-01-01"}, {"until": "soon"}, {"check": "incidents"}):
        assert browse("engineer").post(f"/web/gate/{gate}/waive", **{**asked, **wrong}).status_code == 422
    assert "A clinician other than you has to approve it" in browse("clinician").post(f"/web/gate/{gate}/waive", **asked).text
    (waiver,) = gates.waiver_rows(store, ARTIFACT)
    assert browse("clinician").post(f"/web/gate/{gate}/approve", waiver=waiver.waiver_id).status_code == 403, "their own"
    assert "(waived)" in browse("other").post(f"/web/gate/{gate}/approve", waiver=waiver.waiver_id).text
    assert browse("engineer").post(f"/web/gate/{gate}/sign", text="").status_code == 403
    page = browse("clinician").post(f"/web/gate/{gate}/sign", text="Read.").text
    assert "0 of 1 sign-offs" in page, "nobody signs for their own waiver"
    page = browse("other").post(f"/web/gate/{gate}/sign", text="Read.").text
    assert "This model may be promoted." in page and "other signed." in page
    zh = browse("auditor").get(f"/web/gate/{gate}", headers={"Accept-Language": "zh"}).text
    assert "该模型可以晋升。" in zh and "申请豁免 回答语言与提问一致 · 中文" in zh and "clinician 已签核。" in zh
    assert gates.promotion_refusal(store, ARTIFACT) is None
    for address in ("/web/gate", f"/web/gate/{gate}"):  # a verdict that people let pass is not merely a failed one
        assert "let pass by waiver (1)" in browse("engineer").get(address).text
    assert 'href="/web/incidents"' not in page.split("<main")[1]
    crud.add(store, [Incident(record_id="fb_1", opened_by=users.get_user(store, "clinician").user_id)], actor="test")
    page = browse("clinician").get(f"/web/gate/{gate}").text.split("<main")[1]
    assert "open safety incidents (1)" in page and 'href="/web/incidents"' in page, "the next step is a click away"


def test_the_api_says_the_same_and_refuses_other_roles(running, store, gate):
    def call(name: str, method: str, path: str, **body):
        key = users.new_key(store, users.get_user(store, name), scopes=("gate",), actor="test")
        return running.request(method, f"/api/v1/gate{path}", json=body or None, headers={"Authorization": f"Bearer {key}"})

    assert [row["gate"] for row in call("auditor", "GET", "").json()["items"]] == [gate]
    detail = call("engineer", "GET", f"/{gate[7:19]}").json()
    assert detail["checks"][0]["name"] == "language/zh" and "'language/zh' failed" in detail["refusal"]
    assert call("annotator", "GET", "").status_code == 403 and call("engineer", "GET", "/ffffffffffff").status_code == 404
    assert call("engineer", "POST", f"/{gate}/sign", approved=True).status_code == 403
    assert call("clinician", "POST", f"/{gate}/sign", approved=False).status_code == 422, "a refusal needs a comment"
    assert call("clinician", "POST", f"/{gate}/sign", approved=False, comment="No.").json()["approved"] is False
    expires = (utc_now() + timedelta(days=1)).isoformat()
    waiver = call("admin", "POST", f"/{gate}/waivers", check="language/zh", reason="English clinic.", expires=expires).json()
    assert call("clinician", "POST", f"/waivers/{waiver['waiver_id']}/approve").json()["check"] == "language/zh"
    assert call("other", "POST", f"/waivers/{waiver['waiver_id']}/approve").status_code == 409
    assert "A clinician refused this model" in call("auditor", "GET", f"/{gate}").json()["refusal"]


def test_reasons_and_refusals_are_chinese_on_a_chinese_page(browse, store):
    alarm = "50% of the answers have no reward."
    checks = (
        GateCheck.because("incidents", "pass", reason("incidents_none")),
        GateCheck.because("critical_failures", "fail", reason("critical_failed", n=3, most=0, named="triage/<i>x")),
        GateCheck.because("text_shape", "fail", reason("panel_alarm", words=alarm)),
    )
    hashes = {name: sha256_id(name) for name in ("weights", "base", "baseline_artifact", "report", "config")}
    result = GateResult(artifact=ARTIFACT, **hashes, label="tiny+rl", baseline="tiny", outcome="fail", checks=checks)
    gate = gates.save_gate(store, result, actor="test")
    zh = browse("auditor").get(f"/web/gate/{gate}", headers={"Accept-Language": "zh"}).text
    assert "检查项“critical_failures”未通过：新增 3 例严重失败（最多允许 0 例）：triage/&lt;i&gt;x。" in zh
    assert "没有未关闭的安全事件。" in zh and "safety incident" not in zh and "50% 的回答没有得到奖励分。" in zh
    en = browse("auditor").get(f"/web/gate/{gate}").text
    assert (
        "3 new critical failures (at most 0 are accepted): triage/&lt;i&gt;x." in en
        and alarm in en
        and "检查项" not in en.split("<main")[1]
    )


def test_an_engineer_starts_a_run_on_the_page_and_others_see_it(browse, settings, gate):
    tiny_adapter(settings.home / "models/lora/a", tiny_model(settings.home / "models/full/random"))
    assert 'action="/web/gate/runs"' not in browse("clinician").get("/web/gate").text
    page = browse("engineer").get("/web/gate").text
    assert 'action="/web/gate/runs"' in page and f'<option value="{settings.model}+a">' in page
    refused = browse("engineer").post("/web/gate/runs", model="embedded:tiny+nobody")
    assert refused.status_code == 422 and "has no such model" in refused.text and 'value="embedded:tiny+nobody"' in refused.text
    assert browse("clinician").post("/web/gate/runs", model="models/full/random+a").status_code == 403
    assert queue.ids(settings) == []
    page = browse("engineer").post("/web/gate/runs", model="models/full/random+a", baseline="").text
    (job_id,) = queue.ids(settings)
    assert "The run waits for its turn." in page and job_id in page
    request = queue.task_of(queue.folder_of(job_id, settings)).config
    assert (request["model"], request["settings"]) == ("models/full/random+a", GateConfig().model_dump(mode="json"))
    zh = browse("clinician").get("/web/gate", headers={"Accept-Language": "zh"}).text
    assert job_id in zh and "等待中" in zh


def test_the_policy_is_shown_and_a_weaker_one_takes_two_clinicians(browse, store):
    page = browse("auditor").get("/web/gate").text
    assert "The policy is the defaults of medloop" in page and 'action="/web/gate/policy"' not in page
    assert browse("engineer").post("/web/gate/policy", setting="sign_offs", value="2").status_code == 403
    assert (
        "These settings are the policy now." in browse("clinician").post("/web/gate/policy", setting="sign_offs", value="2").text
    )
    assert gate_policy.policy_of(store).config == GateConfig(sign_offs=2)
    for wrong in ({"setting": "margin", "value": "much"}, {"setting": "nothing", "value": "1"}, {"waiting": "sha256:0"}):
        assert browse("clinician").post("/web/gate/policy", **wrong).status_code == 422
    page = browse("clinician").post("/web/gate/policy", setting="margin", value="0.2").text
    assert (
        "Your request is stored. The policy stays as it was until a second clinician adopts the same settings" in page
        and gate_policy.policy_of(store).config.margin == 0.05
    )
    (waiting,) = gate_policy.proposals(store)
    assert f'value="{waiting.policy}"' not in page, "their own"
    browse("clinician").post("/web/gate/policy", waiting=waiting.policy)
    assert gate_policy.policy_of(store).config.margin == 0.05, "nobody is two people"
    page = browse("other").get("/web/gate").text
    assert f'value="{waiting.policy}"' in page and "0.05 → 0.2" in page
    page = browse("other").post("/web/gate/policy", waiting=waiting.policy).text
    assert "These settings are the policy now." in page and "Adopted by clinician and other" in page
    assert gate_policy.policy_of(store).config == GateConfig(sign_offs=2, margin=0.2) and gate_policy.proposals(store) == []
    zh = browse("engineer").get("/web/gate", headers={"Accept-Language": "zh"}).text
    assert "准入标准" in zh and "由 clinician、other 于" in zh


def test_the_policy_over_http(running, store):
    def call(name: str, method: str, **body):
        key = users.new_key(store, users.get_user(store, name), scopes=("gate",), actor="test")
        return running.request(method, "/api/v1/gate/policy", json=body or None, headers={"Authorization": f"Bearer {key}"})

    before = call("auditor", "GET").json()
    assert call("annotator", "GET").status_code == 403 and call("admin", "POST", settings={"n": 800}).status_code == 403
    assert call("clinician", "POST", settings={"margin": 7}).status_code == 422
    assert call("clinician", "POST", settings={"sign_offs": 3}).json() == {"waits": False, "weaker": []}
    n = before["settings"]["n"] + 100
    assert call("clinician", "POST", settings={"n": n}).json() == {"waits": False, "weaker": []}
    asked = call("clinician", "POST", settings={"n": 5}).json()
    assert asked == {"waits": True, "weaker": [{"name": "n", "value": "5", "policy": str(n)}]}
    shown = call("engineer", "GET").json()
    assert shown["settings"]["n"] == n and [row["settings"]["n"] for row in shown["waiting"]] == [5]
    assert call("other", "POST", settings={"n": 5}).json()["waits"] is False
    shown = call("engineer", "GET").json()
    assert shown["settings"]["n"] == 5 and shown["changed"]["n"] == "5" and len(shown["adopted_by"]) == 2 and not shown["waiting"]
    assert (shown["settings"]["sign_offs"], before["settings"]["sign_offs"]) == (3, 1), "what is not named stays"
