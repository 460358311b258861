"""The gate over HTTP and on its page: verdicts with reasons, sign-offs, and a waiver that needs a second person."""

from __future__ import annotations

from datetime import timedelta

import pytest

from medloop.contracts import GateCheck, GateResult, Incident, sha256_id, utc_now
from medloop.contracts.evaluation import Interval
from medloop.contracts.gate import Waiver
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_reasons import reason
from medloop.contracts.release import Ancestor, SafetyLedger
from medloop.jobs import queue
from medloop.loop import gate_policy
from medloop.store import catalog
from medloop.store.files.artifacts import new_artifact
from medloop.store.records import crud, gates, lineage, users
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
    for wrong, sentence in (
        ({"text": " "}, "The reason is missing."),
        ({"text": "x" * 4001}, "The reason has more than 4000 characters."),
        ({"until": "2020-01-01"}, "The waiver would already have expired. Choose a day in the future."),
        ({"until": "soon"}, "The last day is not a date."),
        ({"check": "incidents"}, "The check &#39;incidents&#39; cannot be waived."),
    ):
        refused = browse("engineer").post(f"/web/gate/{gate}/waive", **{**asked, **wrong})
        assert refused.status_code == 422 and sentence in refused.text
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


def test_a_failed_verdict_names_every_check_before_the_incidents_and_nobody_signs_it(browse, store, gate):
    failed = ("non_inferiority/red/undertriage", "text_shape", "incidents")
    result = gates.get_gate(store, gate)
    checks = tuple(GateCheck.because(name, "fail", reason("metric_optional")) for name in failed)
    gate = gates.save_gate(store, result.model_copy(update={"checks": checks}), actor="test")
    crud.add(store, [Incident(record_id="fb_1", opened_by="usr_1")], actor="test")
    page = browse("clinician").get(f"/web/gate/{gate}").text
    box = page.split('class="box bad"')[1].split("</div>")[0]
    named = "Not worse than the baseline · red-team set · under-triage, Shape of the texts, No open safety incidents"
    assert box.index(named) < box.index("There are open safety incidents (1)")
    assert 'sign"' not in page and "Nobody can sign this verdict" in page
    signed = browse("clinician").post(f"/web/gate/{gate}/sign", text="")
    assert signed.status_code == 409 and "This verdict cannot be signed: checks did not pass (3)" in signed.text
    assert gates.sign_offs_of(store, gate) == []
    box = browse("auditor").get(f"/web/gate/{gate}", headers={"Accept-Language": "zh"}).text.split('class="box bad"')[1]
    assert "有 3 项检查未通过：不劣于基线 · 红队题集 · 分诊不足、回答文字形态、无未关闭的安全事件。" in box


def test_a_second_sign_off_by_one_person_is_refused_with_the_reason(browse, store, gate):
    passed = gates.get_gate(store, gate).model_copy(
        update={"outcome": "pass", "needs_sign_offs": 2, "checks": (GateCheck(name="texts", outcome="pass", reason="Fine."),)}
    )
    gate = gates.save_gate(store, passed, actor="test")
    assert "Your sign-off is stored." in browse("clinician").post(f"/web/gate/{gate}/sign", text="").text
    again = browse("clinician").post(f"/web/gate/{gate}/sign", text="")
    assert again.status_code == 409 and "You have signed this verdict already." in again.text and "1 / 2" in again.text
    assert len(gates.sign_offs_of(store, gate)) == 1


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
    refusals = "20% of the answers refuse to help (1% in the first round; {}, 56 pairs)."
    checks = (
        GateCheck.because("incidents", "pass", reason("incidents_none")),
        GateCheck.because("critical_failures", "fail", reason("critical_failed", n=3, most=0, named="triage/<i>x")),
        GateCheck.because("text_shape", "fail", reason("panel_alarm", words=alarm)),
        GateCheck.because("panel/1", "fail", reason("panel_alarm", words=refusals.format("all questions"))),
        GateCheck.because("panel/2", "fail", reason("panel_alarm", words=refusals.format("en, emergency"))),
        GateCheck.because("together", "pass", reason("loss_together", suites="gold, red")),
        GateCheck.because("strata", "pass", reason("strata_small", names="child, elderly, emergency, language:en")),
        GateCheck.because("judges", "pass", reason("judges_supported", names="chain, emergency, risk, my.rule:Own")),
    )
    hashes = {name: sha256_id(name) for name in ("weights", "base", "baseline_artifact", "report", "config")}
    result = GateResult(artifact=ARTIFACT, **hashes, label="tiny+rl", baseline="tiny", outcome="fail", checks=checks)
    gate = gates.save_gate(store, result, actor="test")
    zh = browse("auditor").get(f"/web/gate/{gate}", headers={"Accept-Language": "zh"}).text
    assert "检查项“critical_failures”未通过：新增 3 例严重失败（最多允许 0 例）：triage/&lt;i&gt;x。" in zh
    assert "没有未关闭的安全事件。" in zh and "safety incident" not in zh and "50% 的回答没有得到奖励分。" in zh
    assert "全部问题，56 对" in zh and "英文、急症，56 对" in zh and "标准题集、红队题集 合计" in zh
    assert "儿童、老年、急症、英文" in zh and "chain, emergency" not in zh and "my.rule:Own。" in zh
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
    assert f'name="waiting" value="{waiting.policy}"' not in page, "their own"
    own = browse("clinician").post("/web/gate/policy", waiting=waiting.policy)
    assert own.status_code == 422 and "You asked for these settings yourself." in own.text
    assert gate_policy.policy_of(store).config.margin == 0.05, "nobody is two people"
    page = browse("other").get("/web/gate").text
    assert f'value="{waiting.policy}"' in page and "0.05 → 0.2" in page
    page = browse("other").post("/web/gate/policy", waiting=waiting.policy).text
    assert "These settings are the policy now." in page and "Adopted by clinician and other" in page
    assert gate_policy.policy_of(store).config == GateConfig(sign_offs=2, margin=0.2) and gate_policy.proposals(store) == []
    zh = browse("engineer").get("/web/gate", headers={"Accept-Language": "zh"}).text
    assert "准入标准" in zh and "由 clinician、other 于" in zh


def test_a_policy_with_names_that_nothing_has_is_refused_at_its_field(browse, store):
    sentences = {
        ("splits", "[foo]"): "&#39;foo&#39; is not known in splits. Choose from dev, test, gold, red.",
        ("suites", "[triage, nothing]"): "&#39;nothing&#39; is not known in suites.",
        ("rules", "[chian]"): "&#39;chian&#39; is not known in rules.",
        ("required_strata", "[babies]"): "&#39;babies&#39; is not known in required_strata.",
        ("critical_by_chance", "[purple]"): "&#39;purple&#39; is not known in critical_by_chance.",
        ("margin", "much"): "margin is &#39;much&#39;: must be a number.",
        ("margin", "7"): "margin is 7: must be less than 1.",
    }
    for (setting, value), sentence in sentences.items():
        refused = browse("clinician").post("/web/gate/policy", setting=setting, value=value)
        at_field = refused.text.split('id="e-value"')[1].split("</div>")[0]
        assert refused.status_code == 422 and sentence in at_field and 'aria-invalid="true"' in refused.text
    assert gate_policy.proposals(store) == []
    wanted = GateConfig(suites=("triage", "clinic.suites:Politeness"), required_suites=("gold", "red", "triage", "politeness"))
    gate_policy.check_names(wanted, GateConfig())  # a suite of one's own has a name that only it knows


def test_who_asked_for_a_weaker_policy_takes_it_back(browse, store):
    for name in ("clinician", "other"):
        browse(name).post("/web/gate/policy", setting="margin", value="0.2" if name == "other" else "0.3")
    mine, theirs = gate_policy.proposals(store)
    page = browse("clinician").get("/web/gate").text
    assert f'name="withdraw" value="{mine.policy}"' in page and f'name="withdraw" value="{theirs.policy}"' not in page
    assert browse("clinician").post("/web/gate/policy", withdraw=theirs.policy).status_code == 422
    assert "Your request is taken back." in browse("clinician").post("/web/gate/policy", withdraw=mine.policy).text
    assert gate_policy.proposals(store) == [theirs] and gate_policy.policy_of(store).config == GateConfig()
    assert browse("clinician").post("/web/gate/policy", withdraw=mine.policy).status_code == 422
    browse("other").post("/web/gate/policy", setting="margin", value="0.3")
    assert gate_policy.policy_of(store).config == GateConfig(), "a word that was taken back is no second one"


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


def test_what_stands_in_brackets_of_a_reason_is_chinese_too(browse, store):
    untrusted = "risk (recall 0.61 [0.40, 0.80] of 40 may be below 0.7); my.rule:Own (emergencies called routine 0.3 [0.2, 0.4] of 50 may be above 0.1)"
    tainted = {"flag": "tainted", "reason": "trained on data erased in er_1a2b"}
    checks = (
        GateCheck.because("judges", "fail", reason("judges_untrusted", names=untrusted)),
        GateCheck.because("erasure", "fail", reason("erasure_model", **tainted), reason("erasure_parent", name="sft", **tainted)),
    )
    hashes = {name: sha256_id(name) for name in ("weights", "base", "baseline_artifact", "report", "config")}
    result = GateResult(artifact=ARTIFACT, **hashes, label="tiny+rl", baseline="tiny", outcome="fail", checks=checks)
    gate = gates.save_gate(store, result, actor="test")
    zh = browse("auditor").get(f"/web/gate/{gate}", headers={"Accept-Language": "zh"}).text
    assert "危险建议（召回率 0.61 [0.40, 0.80]（40 例），可能低于 0.7）；my.rule:Own（急症判为常规的比例 0.3" in zh
    assert "该模型已被标记为“受数据删除影响”（训练所用数据已在删除 er_1a2b 中删除）。" in zh and "may be" not in zh
    with store.write() as conn:
        lineage.flag_artifact(conn, ARTIFACT, "tainted", tainted["reason"], actor="test")
    zh = browse("auditor").get(f"/web/gate/{gate}", headers={"Accept-Language": "zh"}).text
    assert "受数据删除影响（训练所用数据已在删除 er_1a2b 中删除），请用" in zh and "trained on" not in zh


def test_a_policy_adopted_after_a_verdict_of_unknown_settings_is_told_without_english_brackets(browse, store, gate):
    passed = (GateCheck(name="texts", outcome="pass", reason="Fine."),)
    update = {"outcome": "pass", "needs_sign_offs": 1, "checks": passed, "changed_settings": {"n": "70"}}
    gate = gates.save_gate(store, gates.get_gate(store, gate).model_copy(update=update), actor="test")
    gate_policy.adopt(store, GateConfig(margin=0.01), by=users.get_user(store, "clinician").user_id)
    address = f"/web/gate/{gate}"
    zh = browse("auditor").get(address, headers={"Accept-Language": "zh"}).text
    assert "结论已有 0 个签核，共需 2 个。此处无法得知其设置" in zh and "<dd>0 / 2</dd>" in zh and "not known here" not in zh
    assert "Its settings are not known here" in browse("auditor").get(address).text


def test_home_waits_for_the_signatures_on_a_verdict_that_two_people_let_pass(browse, store, gate):
    """Seen: "was refused" and "No verdict waits for a signature", while two clinicians had to sign it."""
    assert "was refused; what serves today stays" in browse("clinician").get("/web/").text
    people = [users.get_user(store, name).user_id for name in ("clinician", "other")]
    until = utc_now() + timedelta(days=9)
    waiver = gates.request_waiver(store, ARTIFACT, check="language/zh", reason="English clinic.", author=people[0], expires=until)
    assert "was refused" in browse("other").get("/web/").text, "one person alone lifts nothing"
    gates.approve_waiver(store, waiver, by=people[1])
    page = browse("other").get("/web/").text
    assert "did not pass; two people let it pass." in page and "was refused" not in page and "Read and sign" in page
    assert "People who read the verdict have to sign it: 1." in page
    gates.sign(store, gate, by=people[0], approved=True, comment="")
    assert "Read and sign" in browse("other").get("/web/").text, "nobody signs for their own waiver"
    gates.sign(store, gate, by=people[1], approved=True, comment="")
    page = browse("other").get("/web/").text
    assert "Every verdict that passed is signed." in page and "Read and sign" not in page


@pytest.mark.parametrize("waived", [False, True])
def test_the_page_of_a_release_says_that_two_people_let_its_model_pass(browse, store, gate, waived):
    """Seen: a red "Failed", while the model was released by waiver and with its signatures."""
    h = sha256_id("x")
    lifted = Waiver(
        waiver_id="w1",
        artifact=ARTIFACT,
        check="language/zh",
        reason="English.",
        author="usr_1",
        approver="usr_2",
        expires=utc_now(),
    )
    ledger = SafetyLedger(
        release="v1", base="tiny", base_sha256=h, adapter="models/lora/sft", artifact=ARTIFACT, fingerprint=h, method="sft",
        ancestors=(Ancestor(path="models/lora/sft", method="sft", artifact=ARTIFACT, finished=utc_now()),), gate_id=gate,
        gate=gates.get_gate(store, gate), waivers=(lifted,) if waived else (), made_by="test",
    )  # fmt: skip
    folder = store.settings.workspace.models / "rl/v1"
    with new_artifact(folder) as temp:
        (temp / "safety_ledger.json").write_text(ledger.canonical_json(), encoding="utf-8")
    entry = catalog.register(store, "release", folder, {"name": "v1"}, actor="test")
    page = browse("auditor").get(f"/web/releases/{entry.sha256}").text
    assert ("let pass by waiver (1)" in page) is waived
    if waived:
        assert (
            "经豁免放行（1 项）" in browse("auditor").get(f"/web/releases/{entry.sha256}", headers={"Accept-Language": "zh"}).text
        )
