"""What a newcomer meets: first steps by role, training runs of the keyboard, names instead of keys, tables that sort and filter."""

import fcntl
import json
from threading import Timer

import pytest
from web_world import trace

from medloop.contracts import EvalReport, GateCheck, GateResult, TrainRequest, sha256_id, utc_now
from medloop.contracts.evaluation import Difference, Interval, ModelResult
from medloop.jobs import keyboard_runs
from medloop.jobs.submit import submit_training
from medloop.store import catalog
from medloop.store.files import jsonl
from medloop.store.files.lock import locked_file
from medloop.store.records import gates, users
from medloop.store.records.quarantine import _texts
from medloop.train.runs.run import TrainingRun
from medloop.web.measures import check_name, stratum_name
from medloop.web.navigation import menu_of
from medloop.web.pages.home import FIRST_STEPS
from medloop.web.words import Translator

ZH = {"Accept-Language": "zh"}
START = "2026-02-03T12:00:00+00:00"


@pytest.mark.parametrize("role", users.ROLES)
def test_in_an_empty_workspace_each_role_is_told_its_first_steps_and_each_leads_somewhere(browse, role):
    me = browse(role)
    page, chinese = me.get("/web/").text, me.get("/web/", headers=ZH).text
    assert "First steps" in page and "Nothing is waiting for you" not in page and "第一步" in chinese
    for _, *where in FIRST_STEPS[role]:
        assert (where[-1] if len(where) == 1 else f'href="{where[-1]}"') in page
        if len(where) == 2:
            assert me.get(where[-1]).status_code == 200


def test_first_steps_go_away_with_the_first_record(browse, fill):
    fill(trace("Rest."))
    assert "First steps" not in browse("clinician").get("/web/").text


def test_who_governs_finds_these_pages_first():
    assert [menu_of(role)[0].name for role in ("auditor", "admin", "engineer")] == ["govern", "govern", "work"]


@pytest.fixture
def typed_run(settings):
    """A run of `medloop train`: no row in the queue."""
    folder = settings.workspace.jobs / "train_sft-clinic"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"identity": {"config": {}}, "started": START}))
    lines = (
        {"iter": 0, "phase": "METRICS", "extra": {"dev_loss": 0.5}}, {"iter": 1, "phase": "TRAINING", "loss": 0.75},
        {"iter": 2, "phase": "METRICS", "extra": {"dev_loss": 0.25}},
    )  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"ts": START, **line}) + "\n" for line in lines))
    return folder


def test_a_run_from_the_keyboard_is_on_the_page_with_its_loss_and_state(settings, browse, typed_run):
    me = browse("engineer")
    page = me.get("/web/run").text
    assert "train_sft-clinic" in page and "the same command continues it" in page and "0.250" in page
    assert "再次运行同一命令" in me.get("/web/run?job=train_sft-clinic", headers=ZH).text
    with locked_file(typed_run, wait_s=0):
        assert keyboard_runs.status_of("train_sft-clinic", settings).state == "running"
    result = settings.workspace.models / "lora" / "clinic"
    result.mkdir(parents=True)
    (result / "card.json").write_text(json.dumps({"started": START.replace("+00:00", "Z")}))
    assert keyboard_runs.status_of("train_sft-clinic", settings).state == "succeeded"
    assert me.get("/web/run?job=train_sft-other").status_code == 404
    assert me.get("/web/run?job=train_sft-..%2F..").status_code == 404


def test_the_newest_run_is_shown_whoever_started_it_and_a_damaged_one_hides_no_other(settings, browse, typed_run):
    data = settings.home / "data/processed/train.jsonl"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("{}\n")
    filed = submit_training(TrainRequest(stage="SFT", model_id="embedded:tiny"), settings).job_id
    old = settings.workspace.jobs / "train_grpo-damaged"
    old.mkdir()
    (old / "config.json").write_text(json.dumps({"identity": {}, "started": "2026-01-01T00:00:00+00:00"}))
    (old / "metrics.jsonl").write_text("nonsense\n{}\n")
    page = browse("engineer").get("/web/run").text
    assert page.index(filed) < page.index("train_sft-clinic") < page.index("train_grpo-damaged")
    assert "begins when a worker is free" in page and "medloop jobs work" in page  # it waits, and says for what
    start = json.dumps({"identity": {"config": {}}, "started": utc_now().replace(year=2100).isoformat()})
    (typed_run / "config.json").write_text(start)
    page = browse("engineer").get("/web/run").text
    assert page.index("train_sft-clinic") < page.index(filed)


def test_a_policy_that_learns_from_rewards_has_no_loss_that_is_better_when_lower(settings, browse, typed_run):
    lines = ({"iter": 1, "phase": "METRICS", "avg_reward": 0.5}, {"iter": 1, "phase": "TRAINING", "loss": -0.1})
    (typed_run / "metrics.jsonl").write_text("".join(json.dumps({"ts": START, **line}) + "\n" for line in lines))
    assert "lower is better" not in browse("engineer").get("/web/run").text


def test_a_run_starts_while_a_page_looks_at_it(tmp_path):
    run = TrainingRun(tmp_path / "jobs/train_sft-x", tmp_path / "models/lora/x", {})
    run.folder.mkdir(parents=True)
    with locked_file(run.folder, wait_s=0, shared=True) as looked:
        Timer(0.1, fcntl.flock, (looked, fcntl.LOCK_UN)).start()
        with run.lock():
            pass


def test_checks_and_groups_have_names_in_both_languages_and_own_ones_stay():
    zh, en = Translator("zh"), Translator("en")
    assert check_name("non_inferiority/red/undertriage", zh) == "不劣于基线 · 红队题集 · 分诊不足"
    assert check_name("under_triage/all/emergency", en) == "Emergencies taken too lightly · all sets · emergency advice"
    assert check_name("non_inferiority/our_ward/risk", en) == "Not worse than the baseline · our ward · risky advice"
    assert [stratum_name(name, zh) for name in ("language:en", "child", "ward")] == ["英文", "儿童", "ward"]


def test_an_evaluation_says_metric_set_and_group_in_words(settings, store, browse):
    worse = Interval(mean=-0.689, low=-0.794, high=-0.574, n=60)
    row = Difference(split="gold", metric="undertriage", first="a", second="b", difference=worse, separated=True, verdict="worse")
    results = tuple(ModelResult(label=name, metrics={"gold": {"undertriage": worse}}) for name in ("a", "b"))
    stratum = row.model_copy(update={"stratum": "language:zh"})
    rest = {"inputs": {}, "rules": {}, "config": {}, "timestamp": utc_now()}
    report = EvalReport(name="r", results=results, differences=(row,), stratum_differences=(stratum,), **rest)
    path = settings.workspace.reports / "eval_report.json"
    path.write_text(report.canonical_json())
    catalog.register_file(store, "evaluation", path, report.content_id(), {"name": "the ward's test"}, actor="test")
    page = browse("engineer").get(f"/web/evaluations/{report.content_id()}", headers=ZH).text
    assert (
        "标准题集" in page and "分诊不足" in page and "中文" in page and "language:zh" not in page and ">undertriage<" not in page
    )
    home = browse("clinician").get("/web/").text
    assert "the ward&#39;s test" in home and "eval_report.json" not in home


def test_technical_data_of_a_held_answer_are_lines_not_python():
    meta = {"arm": "champion", "guards": [{"confidence": 0.95, "drop": False, "finding": "call Anna"}], "passages": []}
    ((name, text),) = _texts("meta", meta)
    assert (name, text) == ("meta", "arm: champion\nguards 1 confidence: 0.95\nguards 1 drop: no\nguards 1 finding: call Anna")


def test_rules_of_a_site_are_reached_from_its_row(browse):
    page = browse("clinician").get("/web/codebook?state=active&site=ward-7")
    assert page.status_code == 200 and "Rules that hold only at ward-7." in page.text


def test_a_table_sorts_by_its_heads_filters_when_long_and_keeps_both_in_the_address(visit, settings):
    """In Chromium: the settings of the gate's policy, a table of thirty rows that the server does not sort."""
    page = visit("engineer")
    page.goto("/web/gate?rows1=triage")
    page.locator("details summary").first.click()
    field = page.get_by_role("searchbox", name="Filter these rows")
    assert field.input_value() == "triage" and "rows" in page.locator(".table-filter .hint").inner_text()
    field.fill("")
    names = page.locator("details table tbody tr td:first-child")
    before = names.all_inner_texts()
    head = page.get_by_role("button", name="Setting", exact=True)
    head.click()
    assert names.all_inner_texts() == sorted(before, key=str.lower) and "sort1=0a" in page.url
    head.press("Enter")  # by keyboard, the other way round
    assert page.locator("th[aria-sort=descending]").count() == 1
    page.reload()
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_days_and_numbers_of_a_table_sort_as_what_they_are(visit, settings):
    for day, cost in (("2026-01-09", 3.0), ("2026-01-10", 20.0), ("2026-02-02", 0.5)):
        jsonl.append(settings.workspace.logs / f"deepseek_teacher/{day}.jsonl", {"model": "m", "template": "judge", "cost": cost})
    page = visit("engineer")
    page.goto("/web/teacher")
    table = page.locator("main table").last
    for head, column, wanted in (("Day", 0, ["9 Jan", "10 Jan", "2 Feb"]), ("US dollars", 7, ["0.5", "3.0", "20.0"])):
        table.get_by_role("button", name=head, exact=True).click()
        cells = table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
        assert [cell.startswith(start) for cell, start in zip(cells, wanted, strict=True)] == [True] * 3, cells


def test_a_long_name_of_a_model_does_not_widen_a_phone(visit, store):
    hashes = {name: sha256_id(name) for name in ("artifact", "weights", "base", "baseline_artifact", "report", "config")}
    checks = (GateCheck(name="incidents", outcome="pass", reason="None."),)
    label = "embedded:tiny+recklesslyoverconfident"
    gate = gates.save_gate(store, GateResult(**hashes, label=label, baseline="tiny", outcome="pass", checks=checks), actor="test")
    page = visit("engineer", viewport={"width": 320, "height": 640})
    page.goto(f"/web/gate/{gate}")
    assert page.evaluate("document.documentElement.scrollWidth") == 320
