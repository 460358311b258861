"""Turns at the queue: seats, leases, disputes, and eight raters at once, on both databases."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from queue_desk import answer, chose, fill, item, rated
from sqlalchemy import select

from medloop.contracts import Feedback
from medloop.errors import InputError
from medloop.feedback.listing import Reader, RecordFilter, list_records
from medloop.feedback.review import queue
from medloop.feedback.review.queue import QueueConfig, agreed
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud
from medloop.store.records import review_queue as rows
from medloop.store.records.review_queue import LapsedError, UnknownItemError
from medloop.store.records.review_verdicts import TurnVerdict
from medloop.store.tables import audit_log, queue_items, queue_turns

T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
def desk(sqlite_settings: Settings) -> Iterator[Store]:
    """For what does not depend on the database."""
    with open_store(sqlite_settings) as opened:
        yield opened


def minutes_later(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def test_the_highest_priority_comes_first_and_stays_until_finished(store: Store) -> None:
    fill(store, item(1, priority=0.2), item(2, priority=0.9))
    first = queue.next_item(store, "ann")
    assert first is not None and first.content.prompt[0].content == "question 2"
    assert queue.next_item(store, "ann") is not None and queue.next_item(store, "ann").item_id == first.item_id  # type: ignore[union-attr]
    queue.finish(store, first.item_id, "ann", rated(store, "ann", first))
    second = queue.next_item(store, "ann")
    assert second is not None and second.content.prompt[0].content == "question 1"


def test_a_finished_item_never_comes_back_and_a_skipped_one_after_twelve_hours(desk: Store) -> None:
    fill(desk, item(1), item(2, raters=1))
    answer(desk, "ann", now=minutes_later(0))
    held = queue.next_item(desk, "ann", now=minutes_later(1))
    assert held is not None
    queue.skip(desk, held.item_id, "ann", now=minutes_later(2))
    assert queue.next_item(desk, "ann", now=minutes_later(12 * 60)) is None
    assert queue.next_item(desk, "ben", now=minutes_later(3)) is not None  # for others the seat is free again
    again = queue.next_item(desk, "ann", now=minutes_later(12 * 60 + 3))
    assert again is not None and again.item_id == held.item_id
    assert queue.finish(desk, again.item_id, "ann", rated(desk, "ann", again), now=minutes_later(12 * 60 + 4)) == "done"
    assert queue.next_item(desk, "ann", now=minutes_later(48 * 60)) is None


def test_an_answer_rated_outside_the_queue_is_not_asked_of_the_same_person(desk: Store) -> None:
    values = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "rating": 1, "trace_id": "t1"}
    crud.add(desk, [Feedback.model_validate({**values, "recorded_by": "ann"})], actor="ann")
    fill(desk, item(1, trace_id="t1"))
    assert queue.next_item(desk, "ann") is None and queue.next_item(desk, "ben") is not None


def test_no_more_raters_than_seats_and_a_lapsed_seat_is_free_again(store: Store) -> None:
    fill(store, item(1))
    assert queue.next_item(store, "ann", now=minutes_later(0)) and queue.next_item(store, "ben", now=minutes_later(1))
    assert queue.next_item(store, "cid", now=minutes_later(2)) is None
    assert queue.next_item(store, "cid", now=minutes_later(30.5)) is not None  # ann's half hour is over, ben's is not
    assert queue.next_item(store, "dan", now=minutes_later(30.6)) is None


def test_a_late_verdict_counts_while_the_seat_is_free_and_not_after(desk: Store) -> None:
    fill(desk, item(1, raters=1), item(2, raters=1, priority=0.4))
    held = queue.next_item(desk, "ann", now=minutes_later(0))
    assert held is not None
    assert queue.finish(desk, held.item_id, "ann", rated(desk, "ann", held), now=minutes_later(90)) == "done"
    late = queue.next_item(desk, "ann", now=minutes_later(100))
    assert late is not None
    answer(desk, "ben", now=minutes_later(200))
    with pytest.raises(LapsedError):
        queue.finish(desk, late.item_id, "ann", rated(desk, "ann", late), now=minutes_later(201))


def test_a_lapsed_item_comes_back_to_its_rater_only_when_nothing_new_is_left(desk: Store) -> None:
    fill(desk, item(1, priority=0.9), item(2, priority=0.1))
    first = queue.next_item(desk, "ann", now=minutes_later(0))
    second = queue.next_item(desk, "ann", now=minutes_later(40))
    assert first is not None and second is not None and first.item_id != second.item_id
    queue.skip(desk, second.item_id, "ann")
    again = queue.next_item(desk, "ann", now=minutes_later(80))
    assert again is not None and again.item_id == first.item_id


def test_where_others_are_at_work_they_get_a_lapsed_item_before_its_rater(store: Store) -> None:
    fill(store, item(1, raters=1))
    first = queue.next_item(store, "ann", now=minutes_later(0))
    assert first is not None and queue.next_item(store, "ben", now=minutes_later(1)) is None
    fill(store, item(2, "correct", raters=1))
    assert queue.next_item(store, "ben", kinds=["correct"], now=minutes_later(20)) is not None  # ben is at work
    assert queue.next_item(store, "ann", kinds=["rate"], now=minutes_later(31)) is None
    assert queue.next_item(store, "ben", kinds=["rate"], now=minutes_later(51)).item_id == first.item_id  # type: ignore[union-attr]


def test_a_lapsed_item_comes_back_after_another_lease_and_at_once_to_one_who_works_alone(desk: Store) -> None:
    fill(desk, item(1, raters=1))
    assert queue.next_item(desk, "ann", now=minutes_later(0)) and queue.next_item(
        desk, "ann", now=minutes_later(31)
    )  # nobody else is there
    fill(desk, item(2, "correct", raters=1))
    assert queue.next_item(desk, "ben", kinds=["correct"], now=minutes_later(40)) is not None
    assert queue.next_item(desk, "ann", kinds=["rate"], now=minutes_later(62)) is None
    assert queue.next_item(desk, "ann", kinds=["rate"], now=minutes_later(91)) is not None  # nobody wanted it


def test_agreement_ends_an_item_and_disagreement_disputes_it(store: Store) -> None:
    fill(store, item(1))
    assert answer(store, "ann", rating=4) == "open"
    assert answer(store, "ben", rating=5) == "done"
    fill(store, item(2))
    assert answer(store, "ann", rating=1) == "open"
    assert answer(store, "ben", rating=5) == "disputed"


def test_a_dispute_is_settled_by_a_senior_who_has_not_met_it(store: Store) -> None:
    fill(store, item(1))
    answer(store, "ann", rating=1)
    answer(store, "ben", rating=5)
    (name,) = [row.item_id for row in rows.list_items(store, state="disputed")]
    assert queue.next_item(store, "ann", senior=True) is None  # has met it
    assert queue.next_item(store, "cid") is None  # is no senior
    held = queue.next_item(store, "dr", senior=True)
    assert held is not None and held.adjudicates and held.item_id == name
    assert queue.next_item(store, "prof", senior=True) is None  # one settles it, not two
    assert queue.finish(store, name, "dr", rated(store, "dr", held, rating=2)) == "done"
    outcome = queue.outcome_of(store, name)
    assert (outcome.by, outcome.value, len(outcome.records)) == ("adjudication", -1, 3)


def test_a_verdict_must_be_a_record_of_the_rater_and_of_the_right_kind(desk: Store) -> None:
    fill(desk, item(1))
    held = queue.next_item(desk, "ann")
    assert held is not None
    for record in ("fb_unknown", rated(desk, "ben", held), chose(desk, "ann", "a", "a")):
        with pytest.raises(InputError):
            queue.finish(desk, held.item_id, "ann", record)
    with pytest.raises(UnknownItemError):
        queue.finish(desk, held.item_id, "ben", rated(desk, "ben", held))
    with pytest.raises(UnknownItemError):
        queue.skip(desk, "qi_none", "ann")


def test_one_record_is_the_verdict_on_one_item(desk: Store) -> None:
    fill(desk, item(1), item(2))
    first = queue.next_item(desk, "ann")
    assert first is not None
    record = rated(desk, "ann", first)
    queue.finish(desk, first.item_id, "ann", record)
    assert queue.finish(desk, first.item_id, "ann", record) == "open"  # said twice, counted once
    second = queue.next_item(desk, "ann")
    assert second is not None
    with pytest.raises(InputError):
        queue.finish(desk, second.item_id, "ann", record)


def test_comparisons_record_the_order_they_were_shown_in(desk: Store) -> None:
    fill(desk, *(item(n, "compare", raters=1) for n in range(16)))
    orders = Counter[str | None]()
    for _ in range(16):
        held = queue.next_item(desk, "ann", kinds=["compare"])
        assert held is not None
        other = "b" if held.shown_first == "a" else "a"
        with pytest.raises(InputError):
            queue.finish(desk, held.item_id, "ann", chose(desk, "ann", "a", other, held.content.exchange[0]))
        assert (
            queue.finish(desk, held.item_id, "ann", chose(desk, "ann", "b", held.shown_first, held.content.exchange[0])) == "done"
        )
        orders[held.shown_first] += 1
    assert set(orders) == {"a", "b"}  # all alike by chance: 2 ** -15


def test_no_stratum_starves_however_low_its_priorities(store: Store) -> None:
    fill(store, *(item(n, priority=0.9, stratum="emergency") for n in range(60)))
    fill(store, *(item(100 + n, priority=0.01, stratum="routine") for n in range(60)))
    config, given = QueueConfig(quotas={"emergency": 0.75, "routine": 0.25}), Counter[str]()
    for _ in range(40):
        held = queue.next_item(store, "ann", config=config)
        assert held is not None
        given[held.stratum] += 1
        queue.skip(store, held.item_id, "ann")
    assert given == {"emergency": 30, "routine": 10}


def test_texts_are_sealed_in_the_queue_and_every_reading_is_audited(desk: Store) -> None:
    fill(desk, item(1))
    assert queue.next_item(desk, "ann") is not None
    with desk.read() as conn:
        assert b"question 1" not in conn.execute(select(queue_items.c.content)).scalar_one()
        reads = conn.execute(select(audit_log.c.actor).where(audit_log.c.action == "queue_items.read")).scalars().all()
    assert reads == ["ann"]


def test_a_repeated_reading_is_audited_when_it_renews_the_lease(store: Store) -> None:
    fill(store, item(1))
    until = []
    for minute in (0, 1, 4, 6, 7, 13):
        held = queue.next_item(store, "ann", now=minutes_later(minute))
        assert held is not None
        until.append(held.until)
    assert until == [minutes_later(minute) for minute in (30, 30, 30, 36, 36, 43)]
    with store.read() as conn:
        reads = conn.execute(select(audit_log.c.actor).where(audit_log.c.action == "queue_items.read")).scalars().all()
    assert reads == ["ann"] * 3


def test_times_at_the_ends_of_the_calendar_are_filters_like_others(store: Store) -> None:
    ends = RecordFilter(since="0001-01-01T00:00:00Z", until="9999-12-31T23:59:59.999999Z")
    rated(store, "ann")
    assert len(list_records(store, Feedback, ends, Reader("u", own_only=False, texts=False)).items) == 1
    with pytest.raises(ValidationError, match="out of range"):
        RecordFilter(since="0001-01-01T00:00:00+14:00")


def test_the_same_question_is_queued_once(desk: Store) -> None:
    fill(desk, item(1))
    assert rows.add_items(desk, [item(1, priority=0.9), item(2)], actor="test") == 1


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [
        ([{"rating": 3}, {"rating": 4}], True),
        ([{"rating": 2}, {"rating": 4}], False),
        ([{"rating": 5}, {"rating": 5, "critical": True}], False),
        ([{"thumb": "up"}, {"rating": 5}], True),
        ([{"thumb": "up"}, {"rating": 2}], False),
        ([{"thumb": "up", "rating": 1}], False),
        ([{"thumb": "up", "rating": 1}, {"rating": 1}], False),
        ([{"thumb": "up", "rating": 4}, {"thumb": "down", "rating": 3}], False),
        ([{"thumb": "up", "rating": 4}, {"rating": 3}], True),
        ([{"feedback_type": "negative"}, {"thumb": "down"}], True),
        ([{"feedback_type": "negative"}, {"thumb": "up"}], False),
        ([{"preferred": "a"}, {"preferred": "b"}], False),
        ([{"preferred": "a"}, {"preferred": "b"}, {"preferred": "a"}], True),
        ([{"preferred": "tie"}, {"preferred": "tie"}], True),
        ([{"preferred": "tie"}, {"preferred": "both_bad"}], False),
        ([{"preferred": "a", "critical": ("b",)}, {"preferred": "a"}], False),
        ([{"preferred": "a", "critical": ("b",)}, {"preferred": "a", "critical": ("a",)}], False),
    ],
)
def test_when_verdicts_agree(ratings: list[dict[str, Any]], expected: bool) -> None:
    kind = "compare" if "preferred" in ratings[0] else "rate"
    assert agreed(kind, [TurnVerdict(rater=str(n), record_id=str(n), **values) for n, values in enumerate(ratings)]) is expected


def test_eight_raters_at_once_fill_every_seat_once(settings: Settings) -> None:
    many, names = 25, [f"r{n}" for n in range(8)]
    with open_store(settings, wait_s=60) as store:
        fill(store, *(item(n, raters=3) for n in range(many)))
    problems: list[BaseException] = []

    def work(rater: str) -> None:
        try:
            with open_store(settings, wait_s=60) as own:
                while (held := queue.next_item(own, rater)) is not None:
                    queue.finish(own, held.item_id, rater, rated(own, rater, held))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    with open_store(settings) as store, store.read() as conn:
        turns = conn.execute(select(queue_turns.c.item_id, queue_turns.c.rater, queue_turns.c.state)).all()
        states = conn.execute(select(queue_items.c.state)).scalars().all()
    assert set(states) == {"done"} and {state for *_, state in turns} == {"done"}
    seats = Counter(name for name, *_ in turns)
    assert len(seats) == many and set(seats.values()) == {3} and len({(i, r) for i, r, _ in turns}) == 3 * many
