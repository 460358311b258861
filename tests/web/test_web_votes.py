"""What people see of votes and triggers: who votes, why a rating did not count, when the next training starts; in zh and en."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import update
from web_world import BAD, GOOD, QUESTION, item, trace

from medloop.contracts import Feedback, utc_now
from medloop.feedback.trigger import TriggerConfig, trigger_if_due
from medloop.store.records import crud, triggers, users
from medloop.store.tables import queue_turns


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_dashboard_says_who_votes_and_when_the_next_training_starts(browse, store, language):
    people = {name: users.get_user(store, name).user_id for name in ("clinician", "annotator")}
    shared = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r"}
    records = [
        Feedback(**shared, trace_id=f"t{n}", thumb="up" if (n % 2 == 0 or who == "annotator") else "down", clinician_id=user)
        for n in range(60)
        for who, user in [*people.items(), ("third", "usr_3")]
    ]
    crud.add(store, [*records, Feedback(**shared, critical=True, clinician_id=people["clinician"])], actor="t")
    engineer = browse("engineer")
    engineer.get(f"/web/language/{language}")
    page = engineer.get("/web/dashboard").text
    words = {
        "en": (
            "1 of 3 new critical flags, by 1 of at least 2 raters.",
            "Who votes on the training data",
            "no better than chance",
        ),
        "zh": ("新增严重标记 1 个（3 个时触发），来自 1 名评审者（至少需 2 名）。", "谁决定训练数据", "不优于随机，不计入"),
    }[language]
    assert all(word in page for word in words)
    annotator = browse("annotator")
    annotator.get(f"/web/language/{language}")
    told = {"en": "Your votes do not count in datasets at the moment", "zh": "目前您的投票不计入数据集"}[language]
    assert told in annotator.get("/web/history").text and told not in browse("clinician").get("/web/history").text


def test_the_dashboard_says_when_the_last_trigger_ran(browse, store):
    shared = {"session_id": "s", "agent_name": "a", "agent_response": "r", "rating": 3, "consent": ("training",)}
    crud.add(store, [Feedback(**shared, user_query=f"q{n}") for n in range(10)], actor="t")
    trigger = trigger_if_due(store, config=TriggerConfig(every=10, cooldown_hours=0))
    triggers.set_jobs(store, trigger.trigger_id, ["train_1"], actor="t")
    page = browse("engineer").get("/web/dashboard").text
    ran = re.search('No training now: retrain-1 ran at <time datetime=.([^"]+)', page)
    assert ran is not None and ran[1] == trigger.timestamp.isoformat() and "long ago" not in page
    zh = browse("engineer").get("/web/dashboard", headers={"Accept-Language": "zh"}).text
    assert "暂不训练：retrain-1 已于 <time" in zh


def test_the_dashboard_names_the_reason_why_training_is_due(browse, store):
    """Seen: "There is a reason to train again" below "485 of 1,000" records and "2 of 3" flags; it was the schedule."""
    shared = {"session_id": "s", "agent_name": "a", "agent_response": "r", "rating": 3, "consent": ("training",)}
    old = utc_now() - timedelta(days=30)
    people = [users.get_user(store, name).user_id for name in ("clinician", "other")]
    rows = [Feedback(**shared, user_query=f"q{n}", recorded_by=people[n % 2], timestamp=old, received=old) for n in range(60)]
    crud.add(store, rows, actor="t")
    page = browse("engineer").get("/web/dashboard").text
    assert "60 of 1,000 new usable records." in page and "It is time to train again (some days with fewer records)" in page
    assert (
        "已满足再训练条件（间隔已久，记录虽少）"
        in browse("engineer").get("/web/dashboard", headers={"Accept-Language": "zh"}).text
    )


def test_a_rater_is_told_when_a_rating_does_not_settle_the_item(browse, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    slow, quick = browse("annotator"), browse("clinician")
    form = slow.get("/web/rate").text
    with store.write() as conn:  # an hour passes
        conn.execute(update(queue_turns).values(until=utc_now() - timedelta(hours=1)))
    assert "It does not settle" not in quick.fill_in("/web/rate", rating="1").text
    assert "It does not settle the item" in slow.send(form, rating="2").text
    assert crud.count(store, Feedback) == 2


def test_an_annotator_cannot_rate_a_trace_by_its_address(browse, store):
    crud.add(store, [trace(GOOD, trace_id="t1")], actor="t")
    assert browse("annotator").get("/web/rate?trace=t1").status_code == 404
