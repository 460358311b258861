"""The page of training runs: alarms first, then the reward and the weights; for those who may see jobs."""

import json

import pytest

from medloop.contracts import TrainRequest, utc_now
from medloop.jobs import queue
from medloop.jobs.job_row import JobRow

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


def test_the_run_page_is_empty_without_jobs_and_closed_to_raters(browse):
    assert "There are no training jobs yet." in browse("engineer").get("/web/run").text
    assert browse("clinician").get("/web/run").status_code == 403
    assert browse("engineer").get("/web/run?job=train_20200101T000000Z").status_code == 404
