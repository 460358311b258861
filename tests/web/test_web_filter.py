"""The page of the data filter: the count with the form and alone, the graph with its numbers, both languages, engineers only."""

from __future__ import annotations

import re

from web_world import BAD, trace

from medloop.api.limits import RateLimiter
from medloop.data.feedback.build import FeedbackConfig
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
    assert "6 of 9 records fit." in part and "<form" not in part
    assert "means nothing" in browse("engineer").get("/web/filter?f11=stars&v11=five").text
    build_from_feedback(store, FeedbackConfig(test_share=0), seed=1, actor="t")
    drawn = browse("engineer").get("/web/filter").text
    svg = re.search(r"<svg.*?</svg>", drawn, re.S)[0]
    assert "Corrections" in svg and "sft_train.jsonl" in svg and ">3</text>" in svg
    assert re.search(r"Traces → Ratings</td><td class=\"number\">1<", drawn)
    zh = browse("engineer").get(f"/web/filter?{ASKED}", headers={"Accept-Language": "zh"}).text
    assert "9 条记录中有 6 条符合" in zh and "从对话追踪到数据集" in zh
    assert browse("clinician").get("/web/filter").status_code == 403


def test_counts_have_a_rate_and_the_page_alone_has_none(app, browse, monkeypatch) -> None:
    engineer = browse("engineer")
    monkeypatch.setattr(app.state, "rate_limiter", RateLimiter(0.5, clock=lambda: 0.0))
    assert [engineer.get(f"/web/filter?{ASKED}&part=count").status_code for _ in range(2)] == [200, 429]
    assert engineer.get("/web/filter").status_code == 200
