"""The page of training runs: alarms first, then the reward and the weights; for those who may see jobs."""

import inspect
import json
import re

import pytest

from medloop.contracts import TrainRequest, utc_now
from medloop.evaluate.hacking import panel
from medloop.jobs import queue
from medloop.jobs.job_row import JobRow
from medloop.reward import relevance
from medloop.store.files import jsonl
from medloop.teacher import component, usage
from medloop.web import run_samples
from medloop.web.pages import teacher as teacher_page
from medloop.web.words import table

ZH = {"Accept-Language": "zh"}

LINES = [
    {"iter": 0, "phase": "HELD_OUT", "avg_reward": -0.25, "extra": {"held_out": {}}},
    {"iter": 1, "phase": "METRICS", "avg_reward": 0.5, "weights": {"rel": 1.0, "faith": 1.25}, "extra": {}},
    {"iter": 1, "phase": "HELD_OUT", "avg_reward": 0.125, "extra": {"alarms": ["Answers are <b>twice</b> as long."]}},
    {"iter": 2, "phase": "METRICS", "avg_reward": 0.75, "weights": {"rel": 0.875, "faith": 1.375}, "extra": {}},
]


@pytest.fixture
def job_id(settings) -> str:
    row = JobRow(job_id="train", stage="IRS", state="queued", submitted=utc_now(), changed=utc_now())
    job_id = queue.put(TrainRequest(stage="IRS"), row, settings)
    lines = "".join(json.dumps({"ts": "2026-02-03T12:00:00Z", **line}) + "\n" for line in LINES)
    (settings.workspace.jobs / job_id / "metrics.jsonl").write_text(lines)
    return job_id


def test_the_run_page_shows_alarms_first_then_reward_and_weights_of_each_iteration(job_id, browse):
    page = browse("engineer").get(f"/web/run?job={job_id}").text
    alarm = page.index("Answers are &lt;b&gt;twice&lt;/b&gt; as long.")
    assert alarm < page.index("<svg") and page.count("<svg") == 2
    for cells in (("0", "–", "-0.250"), ("2", "0.750", "–"), ("1", "1.000", "1.250"), ("2", "0.875", "1.375")):
        row = f"<td>{cells[0]}</td>" + "".join(f'<td class="number">{cell}</td>' for cell in cells[1:])
        assert row in page, row
    assert job_id in browse("admin").get("/web/run").text  # without a name: the newest


def test_held_out_has_its_interval_kl_its_target_and_the_parts_a_curve(job_id, browse, settings):
    folder = settings.workspace.jobs / job_id
    (folder / "config.json").write_text(json.dumps({"identity": {"config": {"target_kl": 6.0}}}))
    with (folder / "metrics.jsonl").open("a") as file:
        for step, low, risk in ((4, 0.1, 0.4), (8, 0.3, 0.1)):
            held_out = {"parts": {"chain": 0.5, "risk": risk}, "reward_interval": [low, low + 0.2]}
            extra = {"held_out": held_out, "kl": step / 4}
            line = {"ts": "2026-02-03T12:00:00Z", "iter": step, "phase": "HELD_OUT", "avg_reward": low + 0.1, "extra": extra}
            file.write(json.dumps(line) + "\n")
    page = browse("engineer").get(f"/web/run?job={job_id}").text
    assert page.count("<polygon") == 1 and "held-out, 8: 0.4 (0.3 to 0.5)" in page and "0.400 (0.300 – 0.500)" in page
    assert "target 6" in page and "95 % interval" in page and "risky advice, 8: 0.1" in page
    zh = browse("engineer").get(f"/web/run?job={job_id}", headers=ZH).text
    assert "95% 置信区间" in zh and "目标 6" in zh and "风险" in zh


def test_a_run_without_a_reward_is_not_said_to_wait_for_the_panel(browse, settings):
    texts = {}
    for stage in ("SFT", "IRS"):
        row = JobRow(job_id="train", stage=stage, state="queued", submitted=utc_now(), changed=utc_now())
        texts[stage] = browse("engineer").get(f"/web/run?job={queue.put(TrainRequest(stage=stage), row, settings)}").text
    assert ["has not checked this run yet" in text for text in texts.values()] == [False, True]


def test_the_run_page_is_empty_without_jobs_and_closed_to_raters(browse):
    assert "No training has run yet." in browse("engineer").get("/web/run").text
    assert browse("clinician").get("/web/run").status_code == 403
    assert browse("engineer").get("/web/run?job=train_20200101T000000Z").status_code == 404


def test_a_run_that_lacks_a_part_of_its_reward_says_so_before_everything_else(job_id, browse, settings):
    training, held_out = {"answers": 8, "missing_parts": {"teacher": 3}}, {"answers": 4, "missing_parts": {"teacher": 2}}
    with (settings.workspace.jobs / job_id / "metrics.jsonl").open("a") as file:
        for phase, extra in (("METRICS", training), ("HELD_OUT", {"held_out": held_out})):
            file.write(json.dumps({"ts": "2026-02-03T12:00:00Z", "iter": 3, "phase": phase, "extra": extra}) + "\n")
    page = browse("engineer").get(f"/web/run?job={job_id}").text
    assert page.index("5 of 12 answers have no score from teacher") < page.index("Answers are &lt;b&gt;twice")
    assert "12 个回答中有 5 个没有 teacher 的评分" in browse("engineer").get(f"/web/run?job={job_id}", headers=ZH).text


@pytest.mark.parametrize("text", [
    "now: 12% of the answers have no reward.", "now: 40% of the answers are mostly the same text, whatever the question.",
    "now: answers are 80% longer (20 to 36 words).", "now: answers are 80% shorter (20 to 4 words).",
    "now: rel alone contributes 90% of the reward (40% in the first round).",
])  # fmt: skip
def test_alarms_are_in_the_language_of_the_page(job_id, browse, settings, text):
    line = {"ts": "2026-02-03T12:00:00Z", "iter": 3, "phase": "HELD_OUT", "avg_reward": 0.1, "extra": {"alarms": [text]}}
    with (settings.workspace.jobs / job_id / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    (alarm,) = re.findall(
        r"<ul><li lang=\"zh\">(.*?)</li></ul>", browse("engineer").get(f"/web/run?job={job_id}", headers=ZH).text
    )
    assert set(re.findall(r"[0-9]+", text)) == set(re.findall(r"[0-9]+", alarm)) and re.search("[一-龥]{3}", alarm)
    assert text.removeprefix("now: ").replace("rel ", "relevance ") in browse("engineer").get(f"/web/run?job={job_id}").text
    assert "rel " not in alarm, "a part has the name of the charts"


def test_every_alarm_and_note_that_medloop_writes_has_words_on_the_page():
    """The fixed part of each sentence is in the sources and in words/run.yaml, so that neither is changed alone."""
    keys = [key for key in table() if key.startswith(("run_alarm_", "run_note_"))]
    panel_source, *reward_sources = (inspect.getsource(module) for module in (panel, relevance, component))
    reward_source = "".join(reward_sources)
    fixed = [max(words.split("{now}"), key=len) for words in panel.WORSE.values()]
    ends = [" have no reward.", "whatever the question.", "not the held-out judge.", "lowest held-out scores (", " words).",
            "repeats what it said before (", "are allowed.", " are truncated.", *fixed, "of the reward (", "it should earn nothing.", "they know no synonyms.",
            "compare shared words only.", "ranks of two checks cannot be compared.", "reads both, where it is installed.", "less exact than a cross-encoder ("]  # fmt: skip
    assert all(any(end in table()[key][0] for key in keys) and end in panel_source + reward_source for end in ends)


def test_answers_before_and_after_and_the_cost_are_on_the_page_without_identifiers(job_id, browse, settings):
    folder = settings.workspace.jobs / job_id
    rows = [
        {
            "iter": step,
            "prompt_id": f"p{n}",
            "question": f"Is {n} mg enough?",
            "answer": f"<think>Dose {n}?</think>{word} {n}. Call 13812345678.",
            "reward": n / 8 if step == 2 else 0.375,
        }
        for step, word in ((0, "Rest"), (1, "Wait"), (2, "See a doctor"))
        for n in range(1, 6)
    ]
    (folder / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (folder / "metrics.jsonl").open("a") as file:
        extra = {"answers": 8, "length": 12.5, "teacher": {"calls": 1200, "tokens": 90000, "usd": 0.0321}}
        file.write(json.dumps({"ts": "2026-02-03T12:30:00Z", "iter": 3, "phase": "METRICS", "extra": extra}) + "\n")
    page = browse("engineer").get(f"/web/run?job={job_id}").text
    assert "Rest 1." in page and "See a doctor 1." in page and "Wait 1." not in page and page.count('class="pair"') == 4
    shown = re.findall(r"See a doctor (\d)\.", page)
    assert shown == ["5", "1", "4", "2"]  # rose most, fell most, and so on; question 3 has not changed
    assert "&lt;think" not in page and page.count('<details class="reasoning">') == 8
    assert "13812345678" not in page and "iterations 0 and 2" in page
    assert "30.0 minutes, 8 answers sampled, about 100 tokens written." in page
    assert "Teacher in this run: 1,200 requests, 90,000 tokens, 0.0321 USD." in page
    chinese = browse("engineer").get(f"/web/run?job={job_id}", headers=ZH).text
    assert "1,200 次请求" in chinese
    assert "前后回答对照" in chinese and "30.0 分钟，采样 8 个回答，约生成 100 个词元。" in chinese


def test_an_open_page_reads_the_answers_again_only_when_the_file_has_changed(tmp_path, monkeypatch):
    reads, read = [], run_samples.jsonl.read
    monkeypatch.setattr(run_samples.jsonl, "read", lambda path: reads.append(path) or read(path))
    row = {"iter": 0, "prompt_id": "p", "question": "Is 5 mg enough?", "answer": "Rest.", "reward": 0.5}
    assert run_samples.samples_of(tmp_path) is None
    with (tmp_path / "held_out.jsonl").open("w") as file:
        for step in (0, 1):
            file.write(json.dumps(row | {"iter": step}) + "\n")
            file.flush()
            assert [run_samples.samples_of(tmp_path).last for _ in range(3)] == [step] * 3 and len(reads) == step + 1


def test_what_the_teacher_cost_stands_by_job_and_by_day_on_pages_and_in_the_list_of_jobs(job_id, browse, settings, command_line):
    """Whatever asked: a job of any kind counts by its id, and the day has everything."""
    row = {
        "model": "m",
        "template": "judge",
        "outcome": "ok",
        "hit_tokens": 10,
        "miss_tokens": 5,
        "completion_tokens": 5,
        "cost": 0.25,
    }
    with usage.for_job(job_id):
        mine = {**row, **usage.current_job()}
    assert usage.current_job() == {}  # at the command line nothing is a job's
    path = usage.log_path(settings.workspace.logs / "deepseek_teacher")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in (mine, mine, {**row, "template": "reflect"})))
    page = browse("engineer").get("/web/run").text
    assert "3 requests, 60 tokens, 0.7500 USD" in page and '<td class="number">0.5000</td>' in page
    teacher = browse("engineer").get("/web/teacher").text
    assert "By job" in teacher and job_id in teacher and "0.7500" in teacher
    listed = command_line("--home", settings.home, "jobs", "list")
    assert listed.code == 0 and "0.5000" in listed.out and "3 requests, 60 tokens, 0.7500 USD" in listed.out
    assert json.loads(command_line("--home", settings.home, "jobs", "list", "--json").out)["jobs"][0]["teacher"]["requests"] == 2
    for name in ("2026-01-01.jsonl", path.name):  # a damaged line hides no job, and no line behind it
        lines = path.read_text() if name == path.name else ""
        path.with_name(name).write_text('{"cost": 0.1, "jo\n' + lines)
    assert "3 requests, 60 tokens, 0.7500 USD" in browse("engineer").get("/web/run").text
    assert "0.5000" in command_line("--home", settings.home, "jobs", "list").out
    assert "2 requests, 40 tokens, 0.5000 USD" in command_line("--home", settings.home, "jobs", "status", job_id).out
    teacher = browse("engineer").get("/web/teacher")
    assert (
        teacher.status_code == 200
        and "2 lines of the log cannot be read" in teacher.text
        and "2026-01-01.jsonl:1" in teacher.text
    )
    assert "有 2 行无法读取" in browse("engineer").get("/web/teacher", headers=ZH).text
    refused = command_line("--home", settings.home, "teacher", "usage")  # the table for the books leaves nothing out
    assert refused.code == 3 and "2026-01-01.jsonl" in refused.err
    used = {"calls": 1, "tokens": 20, "usd": 0.25}  # of what went into the model; the log has what was paid
    with (settings.workspace.jobs / job_id / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"ts": "2026-02-03T12:30:00Z", "iter": 3, "phase": "METRICS", "extra": {"teacher": used}}) + "\n")
    assert "Teacher in this run: 2 requests, 40 tokens, 0.5000 USD." in browse("engineer").get(f"/web/run?job={job_id}").text
    assert "2 requests, 40 tokens, 0.5000 USD" in command_line("--home", settings.home, "jobs", "status", job_id).out


def test_the_jobs_that_asked_last_stand_first(browse, settings, monkeypatch):
    monkeypatch.setattr(teacher_page, "MOST", 2)
    folder = settings.workspace.logs / "deepseek_teacher"
    jobs = (("2026-01-01", "train_b"), ("2026-01-02", "train_a"), ("2026-01-02", "eval_x"), ("2026-01-03", "gate_y"))
    for hour, (day, job) in enumerate(jobs):
        row = {"model": "m", "template": "judge", "job": job, "cost": 0.1, "time": f"{day}T{hour:02}:00:00+00:00"}
        jsonl.append(folder / f"{day}.jsonl", row)
    page = browse("engineer").get("/web/teacher").text
    assert "train_a" not in page and "train_b" not in page and page.index("gate_y") < page.index("eval_x")


def test_days_that_are_over_are_read_once(tmp_path, monkeypatch):
    reads, read = [], usage.jsonl.read
    monkeypatch.setattr(usage.jsonl, "read", lambda path, skipped=None: reads.append(path.stem) or read(path, skipped=skipped))
    row = {"model": "m", "template": "judge", "job": "j", "cost": 0.5}
    jsonl.append(tmp_path / "2026-01-01.jsonl", row)
    for count in (1, 2):
        jsonl.append(tmp_path / "2026-01-02.jsonl", row)
        for _ in range(2):
            assert usage.by_job(tmp_path)["j"].usd == 0.5 + 0.5 * count
            assert [line.requests for line in usage.totals(tmp_path)] == [1, count]
    assert reads == ["2026-01-01", "2026-01-02", "2026-01-02"]
