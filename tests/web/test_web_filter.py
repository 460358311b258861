"""The page of the data filter: the count with the form and alone, the graph with its numbers, both languages, engineers only."""

from __future__ import annotations

import re

from web_world import BAD, trace

from medloop.api.limits import RateLimiter
from medloop.data.feedback.build import FeedbackConfig
from medloop.jobs import queue
from medloop.loop.feedback import build_from_feedback
from medloop.store.records import crud, users
from medloop.testing.feedback import make_correction, make_thumb

ASKED = "f11=language&t11=equals&v11=en&j2=any&f21=kind&v21=correction&f22=liked&v22=no"


def test_an_engineer_counts_by_a_tree_and_sees_the_way_to_the_dataset(store, browse) -> None:
    doctor = {user.name: user.user_id for user in users.list_users(store)}["clinician"]
    by = {"recorded_by": doctor, "clinician_id": doctor}
    about = trace(BAD, trace_id="t1")
    records = [make_correction(n, "Run.", f"Rest {n} days and see a doctor.", **by) for n in range(3)]
    thumbs = [make_thumb(n, "Walk.", n > 4, **by) for n in range(3, 8)]
    crud.add(store, [about, *records, *thumbs, make_thumb(9, "No.", False, trace_id="t1", **by)], actor="t")
    page = browse("engineer").get(f"/web/filter?{ASKED}").text
    assert "<strong>6 of 9 records fit.</strong>" in page and "correction 3, rating 3" in page
    assert "field: language" in page and "any:" in page and "style=" not in page and "<script>" not in page
    part = browse("engineer").get(f"/web/filter?{ASKED}&part=count").text
    assert "6 of 9 records fit." in part and 'id="filter"' not in part
    for asked, sentence in (
        ("f11=stars&v11=five", "&#39;five&#39; is not a number; stars needs one."),
        ("f11=day&v11=yesterday", "&#39;yesterday&#39; is not a date; write it as 2026-11-18."),
        ("f11=kind&v11=<script>", "&#39;&lt;script&gt;&#39; is not a value of kind; choose rating, choice, correction."),
        ("f11=rater&t11=at_least&v11=li", "Only stars, reward, axes and day are ordered"),
    ):
        page = browse("engineer").get(f"/web/filter?{asked}").text
        assert sentence in page and "records fit" not in page and "filter.yaml" not in page
    none = browse("engineer").get("/web/filter?f11=rater&v11=nobody").text
    assert "0 of 9 records fit." in none and "filter.yaml" not in none and 'action="/web/filter/build"' not in none
    assert 'list="words-kind"' in browse("engineer").get("/web/filter?f11=kind&v11=rating").text
    build_from_feedback(store, FeedbackConfig(test_share=0), seed=1, actor="t")
    drawn = browse("engineer").get("/web/filter").text
    svg = re.search(r"<svg.*?</svg>", drawn, re.S)[0]
    assert '<div class="plot scroll" tabindex="0" role="region"' in drawn, "its letters are too small in a column"
    assert "Corrections" in svg and "sft_train.jsonl" in svg and ">3</text>" in svg
    assert re.search(r"Traces → Ratings</td><td class=\"number\">1<", drawn)
    zh = browse("engineer").get(f"/web/filter?{ASKED}", headers={"Accept-Language": "zh"}).text
    assert (
        "9 条记录中有 6 条符合" in zh
        and "按类型：更正 3、评分 3 · 按语言：英文 6" in zh
        and ">风险分层</option>" in zh
        and "从对话追踪到数据集" in zh
    )
    assert browse("clinician").get("/web/filter").status_code == 403


def test_counts_have_a_rate_and_the_page_alone_has_none(app, browse, monkeypatch) -> None:
    engineer = browse("engineer")
    monkeypatch.setattr(app.state, "rate_limiter", RateLimiter(0.5, clock=lambda: 0.0))
    assert [engineer.get(f"/web/filter?{ASKED}&part=count").status_code for _ in range(2)] == [200, 429]
    assert engineer.get("/web/filter").status_code == 200


def test_a_button_queues_the_build_of_what_fits(settings, store, browse) -> None:
    doctor = {user.name: user.user_id for user in users.list_users(store)}["clinician"]
    crud.add(store, [make_thumb(1, "Walk.", True, recorded_by=doctor, clinician_id=doctor)], actor="t")
    engineer = browse("engineer")
    page = engineer.get("/web/filter?f11=kind&t11=equals&v11=rating").text
    assert 'action="/web/filter/build"' in page and '<input type="hidden" name="v11" value="rating">' in page
    assert engineer.post("/web/filter/build", f11="day", v11="yesterday").status_code == 422
    queued = engineer.post("/web/filter/build", f11="kind", t11="equals", v11="rating")
    assert queued.status_code == 200 and "The build waits for its turn." in queued.text
    (job_id,) = queue.ids(settings)
    config = queue.task_of(queue.folder_of(job_id, settings)).config
    assert config["settings"]["filter"]["all"][0]["equals"] == "rating" and config["settings"]["name"] == "filtered"
    assert browse("clinician").post("/web/filter/build", f11="kind", v11="rating").status_code == 403
