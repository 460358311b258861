"""Who may judge what, over HTTP and on both databases: a verdict is about its item, raters are users, nobody trains alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from clinic import CHOICE, GOOD, HARMFUL, QUESTION, Clinic
from queue_desk import fill, item

from medloop.api.limits import heavy_read
from medloop.contracts import Feedback
from medloop.feedback.review.queue import QueueConfig
from medloop.feedback.trigger import check_trigger, trigger_config, trigger_if_due
from medloop.jobs import job_row
from medloop.jobs import queue as jobs
from medloop.jobs.retrain import Retrainer, file_jobs
from medloop.jobs.supervisor import Supervisor
from medloop.loop.feedback import fill_queue
from medloop.settings import Settings
from medloop.store.records import crud, triggers, users
from medloop.store.records.shown_items import contents_shown_to, trace_shown_to
from medloop.store.records.workspace_settings import set_axes
from medloop.store.tables import idempotency_keys
from medloop.testing.feedback import PARTS

# B3: a queue item is closed by ratings of something else


def test_an_item_is_not_closed_by_a_rating_of_something_else(clinic: Clinic) -> None:
    trace_id = clinic.trace("question 1", "answer 1")
    fill(clinic.store, item(1, trace_id=trace_id, raters=1))
    held = clinic.call("dr-wu", "GET", "/queue/next").json()
    texts = {"session_id": "s1", "agent_name": "triage"}
    others = [
        clinic.sent("dr-wu", "feedback", **texts, user_query="Something else?", agent_response="Yes.", thumb="up"),
        clinic.sent("dr-wu", "feedback", **texts, user_query="question 1", agent_response="another answer", thumb="up"),
        clinic.sent("dr-wu", "feedback", **texts, user_query="question 1", agent_response="answer 1", thumb="up"),  # of no trace
        clinic.sent("dr-wu", "feedback", trace_id=clinic.trace("question 1", "answer 1 too"), thumb="up"),
    ]
    refused = [clinic.call("dr-wu", "POST", f"/queue/{held['item_id']}/done", record_id=name) for name in others]
    assert [answer.status_code for answer in refused] == [422] * 4 and "another answer" not in str([a.text for a in refused])
    assert clinic.call("bot", "GET", "/queue/stats").json()["states"] == {"open": 1}
    own = clinic.sent("dr-wu", "feedback", trace_id=trace_id, thumb="up")
    assert clinic.call("dr-wu", "POST", f"/queue/{held['item_id']}/done", record_id=own).json()["state"] == "done"


def test_a_comparison_is_closed_only_by_a_choice_between_its_answers(clinic: Clinic) -> None:
    fill(clinic.store, item(1, "compare", raters=1))
    held = clinic.call("dr-wu", "GET", "/queue/next").json()
    shared = {"preferred": "a", "shown_first": held["shown_first"]}
    other = clinic.sent("dr-wu", "preference", prompt="question 1", response_a="two", response_b="one", **shared)
    assert clinic.call("dr-wu", "POST", f"/queue/{held['item_id']}/done", record_id=other).status_code == 422
    own = clinic.sent("dr-wu", "preference", prompt="question 1", response_a="one", response_b="two", **shared)
    assert clinic.call("dr-wu", "POST", f"/queue/{held['item_id']}/done", record_id=own).json()["state"] == "done"


def test_texts_that_come_with_a_trace_are_those_of_the_trace(clinic: Clinic) -> None:
    """Otherwise a correction of something else would take the trace's complaint out of the queue."""
    trace_id = clinic.trace()
    for who in ("dr-wu", "bot"):
        body = {"trace_id": trace_id, "prompt": "Something else?", "original": "Yes.", "golden": "No."}
        answer = clinic.call(who, "POST", "/rlhf/correction", **body)
        assert answer.status_code == 422 and answer.json()["error"] == "Question and answer are not those of the trace."
        rating = {"trace_id": trace_id, "user_query": QUESTION, "agent_response": "Something else.", "thumb": "up"}
        assert clinic.call(who, "POST", "/rlhf/feedback", **rating).status_code == 422
        clinic.sent(who, "feedback", **rating | {"agent_response": f" {GOOD}\n"})


# B4: three critical flags by one annotator file training jobs


def test_critical_flags_of_one_person_start_no_training_and_those_of_two_do(clinic: Clinic) -> None:
    for number in range(5):
        clinic.sent("dr-wu", "feedback", trace_id=clinic.trace(f"Question {number}?"), critical=True)
    assert trigger_if_due(clinic.store, clinic.settings) is None
    status = clinic.call("bot", "GET", "/rlhf/trigger").json()
    assert (status["reason"], status["critical"], status["critical_raters"]) == (None, 5, 1)
    assert "which come from 1 of the 2 raters" in status["words"]
    clinic.sent("dr-li", "feedback", trace_id=clinic.trace("Another question?"), critical=True)
    trigger = trigger_if_due(clinic.store, clinic.settings)
    assert trigger is not None and (trigger.reason, trigger.evidence["critical_raters"]) == ("critical", 2)


def test_a_flag_that_was_replaced_is_no_reason(clinic: Clinic) -> None:
    for who in ("dr-wu", "dr-li", "dr-xu"):
        flag = clinic.sent(who, "feedback", trace_id=clinic.trace(f"Question of {who}?"), critical=True)
        clinic.sent(who, "feedback", trace_id=clinic.trace(f"Question of {who}?"), thumb="down", supersedes=flag)
    assert clinic.call("bot", "GET", "/rlhf/trigger").json()["critical"] == 0


def trigger_of_two(clinic: Clinic, day: int) -> Any:
    for who in ("dr-wu", "dr-li", "dr-xu"):
        clinic.sent(who, "feedback", trace_id=clinic.trace(f"Question of {who} on day {day}?"), critical=True)
    return trigger_if_due(clinic.store, clinic.settings)


def test_many_records_of_one_person_start_no_training_and_those_of_two_do(clinic: Clinic) -> None:
    few = clinic.settings.model_copy(update={"feedback": clinic.settings.feedback.model_copy(update={"retrain_every": 6})})
    clinic.client.app.state.settings = few  # type: ignore[attr-defined]

    def rate(who: str, times: int) -> None:
        for number in range(times):
            clinic.sent(who, "feedback", trace_id=clinic.trace(f"Question {number} of {who}?"), thumb="up", consent=["training"])

    rate("dr-wu", 7)
    assert trigger_if_due(clinic.store, few) is None
    status = clinic.call("bot", "GET", "/rlhf/trigger").json()
    assert (status["reason"], status["usable"], status["by_one_rater"]) == (None, 7, 7)
    assert "7 of the records are by one rater, so 0 count" in status["words"]
    alone = few.model_copy(update={"feedback": few.feedback.model_copy(update={"retrain_raters": 1})})
    assert check_trigger(clinic.store, trigger_config(alone), write=False).reason == "volume"
    rate("dr-li", 2)
    assert trigger_if_due(clinic.store, few) is None, "two records of a second rater make four"
    rate("dr-li", 1)
    trigger = trigger_if_due(clinic.store, few)
    assert trigger is not None and (trigger.reason, trigger.evidence["by_one_rater"]) == ("volume", 7)


def write_pairs(settings: Settings) -> None:
    (settings.workspace.preferences / "preferences.jsonl").write_text(json.dumps({"prompt": "q", "chosen": "a", "rejected": "b"}))


def test_after_a_trigger_there_is_none_until_its_job_has_ended_and_a_day_is_over(clinic: Clinic) -> None:
    write_pairs(clinic.settings)
    assert trigger_of_two(clinic, 1) is not None and trigger_of_two(clinic, 2) is None
    (filed,) = file_jobs(clinic.store, clinic.settings, actor="t")
    status = clinic.call("bot", "GET", "/rlhf/trigger").json()
    assert (status["reason"], status["waits"], status["last_jobs"]) == ("critical", "pending", [filed.job_id])
    assert not Retrainer(clinic.store, clinic.settings).is_due()
    jobs.cancel(filed.job_id, clinic.settings)
    status = clinic.call("bot", "GET", "/rlhf/trigger").json()
    assert status["waits"] == "cooldown" and status["waits_until"] > status["last_time"]
    assert not Retrainer(clinic.store, clinic.settings).is_due()
    soon = clinic.settings.model_copy(
        update={"feedback": clinic.settings.feedback.model_copy(update={"retrain_cooldown_hours": 0})}
    )
    assert Retrainer(clinic.store, soon).is_due() and triggers.newest_trigger(clinic.store).trigger_id == "retrain-2"


def test_jobs_of_a_trigger_take_no_place_of_the_engineers_and_start_after_theirs(clinic: Clinic) -> None:
    settings = clinic.settings.model_copy(update={"jobs": clinic.settings.jobs.model_copy(update={"max_waiting": 1})})
    write_pairs(settings)
    assert trigger_of_two(clinic, 1) is not None
    (filed,) = file_jobs(clinic.store, settings, actor="t")
    assert job_row.read(jobs.folder_of(filed.job_id, settings)).submitter == job_row.TRIGGER
    clinic.client.app.state.settings = settings  # type: ignore[attr-defined]
    headers = {"Authorization": f"Bearer {clinic.keys['bot']}"}
    wanted = {"stage": "REWARD", "config": {"name": "mine"}}
    answers = [clinic.client.post("/api/train", headers=headers, json=wanted) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429], answers[0].text
    mine = answers[0].json()["job_id"]
    started: list[str] = []

    def start(job_id: str, _: Settings) -> Any:
        started.append(job_id)
        return type("P", (), {"poll": lambda self: None})()

    Supervisor(settings, slots=1, start=start).poll()
    assert started == [mine]
    Supervisor(settings, slots=3, start=start).poll()
    assert sorted(started[1:]) == sorted([mine, filed.job_id])


# B5: one key with invented clinician_ids outvotes two clinicians


def test_one_key_outvotes_nobody_however_many_it_names(clinic: Clinic) -> None:
    for who in ("dr-wu", "dr-li"):
        clinic.sent(who, "preference", **CHOICE, preferred="a")
    for name in ("dr-wu", "dr-li", "dr-xu", "ann", "ben", "root"):
        answer = clinic.call("bot", "POST", "/rlhf/preference", **CHOICE, preferred="b", clinician_id=name)
        assert answer.status_code == 422 and answer.json()["error"] == "Your key may not speak for this clinician_id."
    for _ in range(5):
        clinic.sent("bot", "preference", **CHOICE, preferred="b")
    (pair,) = clinic.pairs()
    assert (pair["chosen"], pair["rejected"]) == (GOOD, HARMFUL)


def test_a_key_that_an_admin_allowed_speaks_for_the_named_clinicians_only(clinic: Clinic) -> None:
    program, clinicians = clinic.users["bot"], [clinic.users["dr-wu"]]
    clinic.keys["bot"] = users.new_key(clinic.store, program, speaks_for=clinicians, actor="t")
    stored = clinic.sent("bot", "preference", **CHOICE, preferred="a", clinician_id="dr-wu")
    assert clinic.call("bot", "GET", f"/rlhf/preference/{stored}").json()["clinician_id"] == clinic.users["dr-wu"].user_id
    assert clinic.call("bot", "POST", "/rlhf/preference", **CHOICE, preferred="a", clinician_id="dr-li").status_code == 422
    unknown = clinic.call("bot", "POST", "/rlhf/preference", **CHOICE, preferred="a", clinician_id="dr-nobody")
    assert unknown.json()["error"] == "clinician_id names nobody: there is no such user."


@pytest.mark.parametrize(("owner", "named"), [("dr-wu", "dr-li"), ("bot", "ann"), ("bot", "root")])
def test_no_key_speaks_for_annotators_and_no_person_for_another(clinic: Clinic, owner: str, named: str) -> None:
    with pytest.raises(users.InputError):
        users.new_key(clinic.store, clinic.users[owner], speaks_for=[clinic.users[named]], actor="t")


def test_a_clinician_whom_no_second_admin_approved_has_no_voice(clinic: Clinic) -> None:
    """Otherwise one admin could invent clinicians and let a key speak for them."""
    invented = users.add_user(clinic.store, "dr-invented", "clinician", actor=clinic.users["root"].user_id)
    assert invented.waits
    with pytest.raises(users.InputError, match="not approved yet"):
        users.new_key(clinic.store, clinic.users["bot"], speaks_for=[invented], actor="t")
    weights = {row["name"]: row["weight"] for row in clinic.call("bot", "GET", "/rlhf/raters").json()}
    assert weights["dr-invented"] < weights["ann"] < weights["dr-wu"]


def test_annotators_judge_only_what_the_queue_shows_them(clinic: Clinic) -> None:
    texts = {"session_id": "s1", "agent_name": "triage", "user_query": "question 1", "agent_response": "answer 1"}
    assert clinic.call("ann", "POST", "/rlhf/feedback", **texts, thumb="up").status_code == 422
    assert clinic.call("ann", "POST", "/rlhf/feedback", session_id="s1", agent_name="triage", rating=5).status_code == 422
    assert clinic.call("ann", "POST", "/rlhf/preference", **CHOICE, preferred="b").status_code == 422
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    body = {"session_id": "s1", "agent_name": "triage", "model_version": "m", "messages": turns}
    assert clinic.call("ann", "POST", "/traces", **body).status_code == 403
    fill(clinic.store, item(1, raters=1), item(2, "compare", priority=0.1))
    held = clinic.call("ann", "GET", "/queue/next?kind=rate").json()
    other = clinic.call("ann", "POST", "/rlhf/feedback", **texts | {"agent_response": "answer 2"}, thumb="up")
    assert other.status_code == 422 and "that the queue showed you" in other.json()["error"]
    own = clinic.sent("ann", "feedback", **texts, thumb="up")
    assert clinic.call("ann", "POST", f"/queue/{held['item_id']}/done", record_id=own).json()["state"] == "done"
    clinic.sent("ann", "feedback", **texts, thumb="down", supersedes=own)  # a change of mind about the same answer


def test_what_takes_seconds_to_read_is_read_by_one_at_a_time(clinic: Clinic) -> None:
    """Seen: 45 requests for the metrics with one key stopped all ratings."""
    with heavy_read():
        busy = clinic.call("bot", "GET", "/rlhf/metrics")
    assert busy.status_code == 429 and int(busy.headers["Retry-After"]) >= 1
    assert clinic.call("bot", "GET", "/rlhf/metrics").status_code == 200


def test_an_answer_that_a_clinician_flagged_is_never_the_better_one(clinic: Clinic) -> None:
    for who in ("dr-wu", "dr-li"):
        clinic.sent(who, "preference", **CHOICE, preferred="b")
    clinic.sent("dr-xu", "preference", **CHOICE, preferred="a", critical=["b"])
    clinic.sent("dr-xu", "correction", prompt="Another question?", original="One.", golden="Two.", consent=["training"])
    assert [pair["chosen"] for pair in clinic.pairs()] == ["Two."]


# B6: names are stored in clear and unscanned; and invented axes slow metrics

NAMED = [
    ("session_id", "张三"), ("session_id", "Zhang San"), ("session_id", "13800138000"), ("session_id", "li.wei@example.org"),
    ("session_id", "chat-11010519491231002X"), ("agent_name", "王医生的助手"), ("agent_name", "mrn-4471902"),
    ("model_version", "for Mary Johnson"), ("session_id", "x" * 129), ("feedback_id", "fb 李四"),
    ("session_id", "138-0013-8000"), ("session_id", "s13800138000"), ("session_id", "id11010519491231002X"),
    ("session_id", "li.wei@example.org/1"), ("session_id", "110105-19491231-002X"), ("agent_name", "a_138.0013.8000_b"),
    ("session_id", "call:+44-20-7946-0958"), ("session_id", "010-62345678"), ("model_version", "m-4111-1111-1111-1111"),
    *(("session_id", name) for name in (
        "4111111111111111", "card4111111111111111", "5500-0000-0000-0004", "378282246310005", "pay_6222021234567894", "s:2223003122003222",
        "13812345678abcde", "abcde13812345678", "5f2a13812345678", "13812345678_abcdef0123", "0086-138-0013-8000", "86.13800138000", "+86138-00138000",
        "x+44-20-7946-0958", "user+14155550100", "tel+442079460958", "u020-7946-0958", "138-00138000", "1380013-8000", "440524188001010014",
        "440524-1880-01-01-0014", "130503670401001", "130503-670401-001", "x415-555-0100", "123-45-6789", "patient-12345",
    )),
]  # fmt: skip


def test_names_that_are_stored_in_clear_say_nothing_about_a_person(clinic: Clinic) -> None:
    for field, value in NAMED:
        body = {"session_id": "s1", "agent_name": "triage", "rating": 4, field: value}
        answer = clinic.call("dr-wu", "POST", "/rlhf/feedback", **body)
        assert answer.status_code == 422 and field in answer.text and value not in answer.text, value


def test_names_that_systems_make_up_are_taken(clinic: Clinic) -> None:
    for name in ("sess_xyz789", "0199c0de-0000-7000-8000-000000000001", "demo-3", "1731752900123", "chat:2026-11-16T10:55Z",
                 "9f13800138000ab4c5d6e7f801234567", "1b4e28ba-2fa1-11d2-883f-138001380004", "v1.2.3+20261115", "192.168.0.1:8000",
                 "sess-1752480000-1", "1752480000-1", "sess_1752480000123_7", "15-20260714-1", "chat-16-11-2026-105", "20261116-105500-13",
                 "run-20261116105500-138", "build+1752480000", "v2+20261115105500", "1.5.20260714.1", "00f067aa0ba902b7",
                 "4bf92f3577b34da6a3ce929d0e0e4736", "507f1f77bcf86cd799439011", "1541815603606036480", "4111111111111112", "1752480000123456",
                 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "conv/18/2026/07/14/0001", "10.250.138.17:54321"):  # fmt: skip
        model = "Qwen/Qwen2.5-0.5B@3"
        body = {"session_id": name, "agent_name": "prescription_agent", "model_version": model, "rating": 4}
        assert clinic.call("dr-wu", "POST", "/rlhf/feedback", **body).status_code == 201, name


@pytest.mark.parametrize("version", ["13800138000", "Zhang San", "张三", "id11010519491231002X", "li.wei@example.org"])
def test_the_version_of_a_consent_text_names_nobody(clinic: Clinic, version: str) -> None:
    body = {"subject": "4711", "purposes": ["training"]}
    refused = clinic.call("dr-wu", "POST", "/consent", **body, text_version=version)
    assert refused.status_code == 422 and "text_version" in refused.text and version not in refused.text
    assert "2026-01" in refused.text or "letters, digits" in refused.text  # what is allowed
    assert clinic.call("dr-wu", "POST", "/consent", **body, text_version="2026-01_zh.v2").status_code == 201


def test_an_idempotency_key_is_stored_as_a_hash_and_still_works(clinic: Clinic) -> None:
    headers = {"Authorization": f"Bearer {clinic.keys['dr-wu']}", "Idempotency-Key": "patient-13800138000"}
    body = {"session_id": "s1", "agent_name": "triage", "rating": 4}
    answers = [clinic.client.post("/api/v1/rlhf/feedback", headers=headers, json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200] and answers[0].json() == answers[1].json()
    assert clinic.client.post("/api/v1/rlhf/feedback", headers=headers, json=body | {"rating": 5}).status_code == 422
    with clinic.store.read() as conn:
        (row,) = conn.execute(idempotency_keys.select()).all()
    assert "13800138000" not in str(row) and len(row.key) == 64


def test_axes_are_those_of_the_workspace_and_an_admin_sets_them(clinic: Clinic) -> None:
    body = {"session_id": "s1", "agent_name": "triage", "rating": 4}
    invented = clinic.call("dr-wu", "POST", "/rlhf/feedback", **body, axes={"patient_zhang_san": 4})
    assert invented.status_code == 422 and "safety" in invented.json()["hint"] and "zhang" not in invented.text
    choice = clinic.call("dr-wu", "POST", "/rlhf/preference", **CHOICE, preferred="a", axes={"bedside_manner": "a"})
    assert choice.status_code == 422
    clinic.sent("dr-wu", "feedback", **body, axes={"safety": 4, "clarity": 5, "risk": 4})
    set_axes(clinic.client.app.state.store, ["safety", "bedside_manner"], actor="t")
    clinic.sent("dr-wu", "feedback", **body, axes={"bedside_manner": 4})
    assert clinic.call("dr-wu", "POST", "/rlhf/feedback", **body, axes={"clarity": 4}).status_code == 422


def test_axes_that_the_workspace_does_not_use_cost_the_metrics_nothing(clinic: Clinic) -> None:
    shared = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "trace_id": "t1", "rating": 4}
    axes = {f"invented_{n}": 3 for n in range(500)} | {"safety": 4}
    records = [Feedback.model_validate({**shared, "axes": axes, "clinician_id": name}) for name in ("x", "y")]
    crud.add(clinic.store, records, actor="t")
    agreement = clinic.call("bot", "GET", "/rlhf/metrics").json()["agreement"]
    assert [row["name"] for row in agreement] == ["stars", "axis safety"]


def test_who_votes_and_what_a_vote_weighs_is_there_for_engineers(clinic: Clinic) -> None:
    for number in range(30):
        trace_id = clinic.trace(f"Question {number}?")
        for who, liked in (("dr-wu", number % 2 == 0), ("dr-li", number % 2 == 0), ("dr-xu", number % 4 < 2)):
            clinic.sent(who, "feedback", trace_id=trace_id, thumb="up" if liked else "down")
    weights = {row["name"]: row for row in clinic.call("bot", "GET", "/rlhf/raters").json()}
    assert weights["dr-wu"]["weight"] > 1.5 and weights["dr-wu"]["because"] == "evidence"
    assert weights["dr-xu"]["accuracy"] < 0.65 and (weights["ann"]["weight"], weights["ann"]["because"]) == (
        pytest.approx(0.847, abs=0.001),
        "role",
    )
    assert clinic.call("dr-wu", "GET", "/rlhf/raters").status_code == 403


def test_an_item_with_a_known_answer_measures_its_rater_and_nobody_is_told(clinic: Clinic) -> None:
    """Where a clinician flagged and corrected an answer, the correction is better: whoever says otherwise loses weight."""
    for number in range(4):
        trace_id = clinic.trace(f"My chest hurts, number {number}. What now?", f"Rest for {number} days.")
        clinic.sent("dr-wu", "feedback", trace_id=trace_id, critical=True)
        golden = f"Call an ambulance, house {number}."
        clinic.sent("dr-wu", "correction", trace_id=trace_id, golden=golden, consent=["training"])
        clinic.trace(f"My {PARTS[number]} itches, what helps?", "A cold pack.")
    before = {row["name"]: row["weight"] for row in clinic.call("bot", "GET", "/rlhf/raters").json()}
    assert fill_queue(clinic.settings, clinic.store, config=QueueConfig(check=0.5, raters=1)).checks >= 1
    assert clinic.call("dr-wu", "GET", "/queue/next?kind=compare").status_code == 204  # it is their own answer
    judged = 0
    while (held := clinic.call("ann", "GET", "/queue/next?kind=compare")).status_code == 200:
        body, shown = held.json(), held.json()["content"]
        assert "expected" not in held.text and body["reasons"] == {}
        wrong = "ab"[["ambulance" in answer for answer in shown["answers"]].index(False)]
        texts = {"prompt": shown["prompt"][-1]["content"], "response_a": shown["answers"][0], "response_b": shown["answers"][1]}
        choice = {"preferred": wrong, "shown_first": body["shown_first"], "trace_id": body["trace_id"], "consent": ["training"]}
        record_id = clinic.sent("ann", "preference", **texts, **choice)
        assert clinic.call("ann", "POST", f"/queue/{body['item_id']}/done", record_id=record_id).json()["state"] == "done"
        judged += 1
        (content,) = contents_shown_to(clinic.store, clinic.users["ann"].user_id, trace_id=body["trace_id"])
        assert content.answers == tuple(shown["answers"]) and None in content.traces
        seen = trace_shown_to(clinic.store, body["trace_id"], clinic.users["ann"].user_id)
        assert seen is not None and str(seen.answer).startswith("Rest for"), "the trace's own answer, on whichever side"
    after = {row["name"]: row for row in clinic.call("bot", "GET", "/rlhf/raters").json()}["ann"]
    assert (after["known"], after["right"]) == (judged, 0) and after["weight"] < before["ann"]
    assert {pair["metadata"]["from"] for pair in clinic.pairs()} == {"correction"}
