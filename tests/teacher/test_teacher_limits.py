"""Money, tokens, pace and order: the limits hold to the request."""

import json
import time
from typing import Any

import pytest
from teacher_desk import items

from medloop.teacher import usage
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import judge_all
from medloop.teacher.judge_items import JudgeItem
from medloop.teacher.limits import RateLimit
from medloop.testing.teacher_server import TeacherServer


def test_the_budget_is_never_overdrawn(desk: Any) -> None:
    with TeacherServer() as server:
        run = desk.judge(server, 60, in_flight=8, budget_usd=0.005)
    assert 0 < len(run.judgements) < 60 and run.cost <= 0.005
    assert all("budget" in reason for reason in run.missing) and "budget" in run.degraded


def test_a_budget_too_small_for_one_request_sends_none(desk: Any) -> None:
    with TeacherServer() as server:
        run = desk.judge(server, 5, budget_usd=0.0)
    assert server.requests == 0 and run.missing.total() == 5


def test_the_day_has_a_budget_too(desk: Any) -> None:
    with TeacherServer() as server:
        spent = desk.judge(server, 10).cost
        run = desk.judge(server, 20, daily_usd=spent)
    assert server.requests == 10 and len(run.judgements) == 10  # the first ten come from the cache


def test_tokens_are_a_budget_too(desk: Any) -> None:
    with TeacherServer() as server:
        run = desk.judge(server, 40, budget_tokens=20_000)
    assert 0 < len(run.judgements) < 40
    log = next(desk.files.logs.glob("*.jsonl")).read_text().splitlines()
    assert sum(r["hit_tokens"] + r["miss_tokens"] + r["completion_tokens"] for r in map(json.loads, log)) <= 20_000


def test_what_a_job_asks_is_logged_with_the_job(desk: Any) -> None:
    with TeacherServer() as server:
        with usage.for_job("eval_1"):
            desk.judge(server, 2)
        desk.judge(server, 3)  # two come from the cache; nobody's job asks for the third
    rows = [json.loads(line) for line in next(desk.files.logs.glob("*.jsonl")).read_text().splitlines()]
    assert [row.get("job") for row in rows] == ["eval_1", "eval_1", None]
    assert usage.by_job(desk.files.logs)["eval_1"].requests == 2


def test_requests_keep_the_pace(desk: Any) -> None:
    with TeacherServer() as server:
        began = time.monotonic()
        desk.judge(server, 30, in_flight=30, requests_per_minute=600)
    assert time.monotonic() - began >= 1.8  # a second's worth at once, the rest ten a second


def test_pace_by_hand() -> None:
    now = [100.0]
    pace = RateLimit(60.0, clock=lambda: now[0])  # one a second
    assert [pace.reserve(1) for _ in range(4)] == [0.0, 0.0, 1.0, 2.0]
    now[0] += 10
    assert pace.reserve(5) == 0.0 and pace.reserve(1) == 4.0


def test_no_more_than_in_flight_at_once(desk: Any) -> None:
    with TeacherServer(latency_s=0.05) as server:
        desk.judge(server, 40, in_flight=7)
    assert server.most_in_flight == 7


def test_the_most_important_are_asked_first(desk: Any) -> None:
    some = [JudgeItem(f"p{n}", f"Question {n}?", f"Answer number {n}.", priority=9 - n) for n in range(10)]
    with TeacherServer() as server:
        judge_all(some, desk.config(server), key="k", files=desk.files)
        order = [body["messages"][-1]["content"].split("Question ")[1][0] for body in server.seen]
    assert order == list("9876543210")


@pytest.mark.parametrize(("day", "hour", "factor"), [(2, 2, 2.0), (2, 5, 1.0), (2, 9, 2.0), (7, 2, 1.0)])
def test_prices_double_in_the_busy_hours_of_weekdays(day: int, hour: int, factor: float) -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 11, day, hour, 30, tzinfo=UTC)  # the 2nd is a Monday, the 7th a Saturday
    # 1,000 * 0.003 + 2,000 * 0.15 + 500 * 0.60 = 603 millionths of a dollar
    assert TeacherConfig().cost(1000, 2000, 500, now) == pytest.approx(603e-6 * factor)


def test_equal_answers_are_asked_once(desk: Any) -> None:
    with TeacherServer() as server:
        run = judge_all([*items(3), *items(3)], desk.config(server, in_flight=4), key="k", files=desk.files)
    assert server.requests == 3 and len(run.judgements) == 6
