"""From live traffic to a verdict, through the store: a better challenger, a harmful one, a broken split, an erasure."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import func, select
from traffic import CHALLENGER, CHAMPION, quick_judge, running, send, user_id

from medloop.bootstrap import wilson
from medloop.contracts import Completion, Feedback, Preference, utc_now
from medloop.errors import IntegrityError
from medloop.feedback.review.queue import finish, next_item
from medloop.loop import experiment as loop
from medloop.loop.erasure import erase_records
from medloop.loop.experiment_shadow import shadow
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud, experiments
from medloop.store.records.experiments import ExperimentStateError, NoSuchExperimentError
from medloop.store.tables import queue_items


def refreshed(store: Store, experiment_id: str, **more: object) -> loop.ExperimentReport:
    return loop.refresh(store, experiment_id, judge=quick_judge, **more)  # type: ignore[arg-type]


def test_a_better_challenger_is_found_stops_the_experiment_and_a_person_decides(store: Store) -> None:
    experiment = running(store)
    name = experiment.plan.experiment_id
    send(store, range(experiment.plan.planned_users), likes=lambda challenger, _: 0.95 if challenger else 0.55)
    report = refreshed(store, name)
    assert report.verdict is not None and report.verdict.outcome == "better" and report.state == "stopped"
    assert report.primary.low is not None and report.primary.low > 0 and report.curve
    assert {row.group for row in report.segments} == {"language: en", "language: zh", "stratum: routine"}
    assert loop.chooser(store)("sub_1", "e") == "champion"  # nobody is experimented on any more
    assert loop.decide(store, name, adopt=True, by="usr_9", reason="better").state == "decided"
    assert loop.report_of(store, name).decided_by == "usr_9"
    actions = [row["action"] for row in reversed(audit.page(store, limit=100_000))]
    assert [action for action in actions if action.startswith("experiments.")] == [
        "experiments.plan", "experiments.started", "experiments.stopped", "experiments.decided",
    ]  # fmt: skip


def test_alike_arms_end_without_evidence_or_as_not_better_and_cannot_be_adopted(store: Store) -> None:
    experiment = running(store)
    send(store, range(experiment.plan.planned_users + 60), likes=lambda _challenger, _rng: 0.7)
    report = refreshed(store, experiment.plan.experiment_id)
    assert report.verdict is not None and report.verdict.outcome in ("no_evidence", "not_better")
    assert sum(report.primary.users.values()) == experiment.plan.planned_users  # nothing counts past the planned end
    with pytest.raises(ExperimentStateError, match="cannot be adopted"):
        loop.decide(store, experiment.plan.experiment_id, adopt=True, by="usr_9", reason="hope")


def test_planted_harm_stops_the_experiment_and_withdraws_the_version(store: Store) -> None:
    experiment = running(store, min_effect=0.05)
    withdrawn: list[tuple[str, str]] = []

    def hook(_store: Store, plan: object, reason: str) -> str:
        withdrawn.append((plan.challenger, reason))  # type: ignore[attr-defined]
        return "rolled back"

    def answer(challenger: bool) -> str:
        return "That is harmless, stay at home." if challenger else "Call an ambulance now."

    send(store, range(60), likes=lambda challenger, _: 0.99 if challenger else 0.3, answer=answer)  # users love it
    report = refreshed(store, experiment.plan.experiment_id, on_guard_stop=hook)
    assert report.verdict is not None and (report.verdict.outcome, report.verdict.guard) == ("guard_stop", "unsafe")
    assert withdrawn[0][0] == CHALLENGER and "unsafe" in withdrawn[0][1]
    assert [event.event for event in report.events] == ["started", "stopped", "rolled_back"]
    assert all(loop.chooser(store)(f"sub_{n}", "e") == "champion" for n in range(50))


def test_a_withdrawal_that_fails_is_recorded_and_the_experiment_stays_stopped(store: Store) -> None:
    experiment = running(store, min_effect=0.05)

    def hook(_store: Store, _plan: object, _reason: str) -> str:
        raise NoSuchExperimentError("The server is away")

    send(store, range(80), likes=lambda _arm, _rng: 0.5, critical=lambda challenger, _rng: 0.9 if challenger else 0.0)
    report = refreshed(store, experiment.plan.experiment_id, on_guard_stop=hook)
    assert report.state == "stopped" and report.events[-1].event == "rollback_failed"
    assert "away" in report.events[-1].detail["reason"]


def test_many_ratings_of_one_user_count_as_one(store: Store) -> None:
    experiment = running(store)
    send(store, range(30), likes=lambda challenger, _: 1.0 if challenger else 0.0, ratings=20)
    report = refreshed(store, experiment.plan.experiment_id)
    assert sum(report.primary.users.values()) == 30 and report.verdict is None


def test_a_value_counts_once_its_window_is_over(store: Store) -> None:
    experiment = running(store, window_hours=24.0)
    send(store, range(40), likes=lambda _arm, _rng: 0.5)
    name = experiment.plan.experiment_id
    early = refreshed(store, name)
    assert (sum(early.primary.users.values()), early.primary.waiting) == (0, 40)
    late = refreshed(store, name, now=utc_now() + timedelta(hours=25))
    assert (sum(late.primary.users.values()), late.primary.waiting) == (40, 0)


def test_a_rating_that_is_dated_back_counts_when_the_server_got_it(store: Store) -> None:
    name, now = running(store).plan.experiment_id, utc_now()
    rating = Feedback(
        session_id="ses_1", agent_name="assistant", thumb="up", timestamp=now - timedelta(days=3), received=now
    )  # fmt: skip
    crud.add(store, [rating], actor="test")
    [row] = experiments.new_records(store, name, most=10).feedback
    assert row.timestamp == now


def test_a_broken_split_is_no_result(store: Store) -> None:
    experiment = running(store)
    choose = loop.chooser(store)
    users = [number for number in range(400) if choose(user_id(number), "e") == "challenger" or number % 4 == 0]
    for number in users:  # most answers of the champion were lost on their way
        send(store, range(number, number + 1), likes=lambda _arm, _rng: 0.5)
    report = refreshed(store, experiment.plan.experiment_id)
    assert report.ratio.suspect and report.verdict is not None and report.verdict.outcome == "invalid"


def test_erasing_a_person_removes_their_observations_and_the_report_says_so(store: Store) -> None:
    experiment = running(store)
    name = experiment.plan.experiment_id
    send(store, range(12), likes=lambda _arm, _rng: 0.5)
    before = refreshed(store, name)
    erase_records(store, ErasureRequest(subject=user_id(3), reason="asked for it"), actor="usr_1")
    after = loop.report_of(store, name)
    assert before.erased == 0 and after.erased in (
        4,
        5,
    )  # exposed, completion, quality; satisfaction, and a complaint if it was one
    assert sum(after.primary.users.values()) == sum(before.primary.users.values()) - 1
    rows = experiments.observations(store, name)
    assert user_id(3) not in {row.unit for row in rows}


def test_an_observation_changed_past_medloop_is_noticed(store: Store) -> None:
    experiment = running(store)
    send(store, range(3), likes=lambda _arm, _rng: 0.5)
    refreshed(store, experiment.plan.experiment_id)
    with closing(sqlite3.connect(store.engine.url.database or "")) as past, past:
        past.execute("UPDATE experiment_observations SET value = 0.25 WHERE metric = 'satisfaction'")
    with pytest.raises(IntegrityError):
        experiments.observations(store, experiment.plan.experiment_id)


def test_only_who_takes_part_is_observed_and_a_ramp_lets_more_in(store: Store) -> None:
    experiment = running(store, enrolled=0.2)
    name = experiment.plan.experiment_id
    send(store, range(100), likes=lambda _arm, _rng: 0.5)
    few = sum(refreshed(store, name).ratio.users.values())
    assert 5 < few < 40
    with pytest.raises(ExperimentStateError, match="take part already"):
        loop.ramp(store, name, enrolled=0.1, by="usr_1")
    loop.ramp(store, name, enrolled=1.0, by="usr_1")
    send(store, range(100), likes=lambda _arm, _rng: 0.5, seed=2)
    assert sum(refreshed(store, name).ratio.users.values()) == 100


def test_one_experiment_runs_at_a_site_and_another_at_the_next(store: Store) -> None:
    first = running(store)
    with pytest.raises(ExperimentStateError, match="is running at the site main"):
        running(store)
    second = running(store, site="ward 7")
    assert experiments.running(store, "ward 7") is not None
    assert {row.plan.site for row in experiments.every(store)} == {"main", "ward 7"}
    sites = loop.report_of(store, first.plan.experiment_id).sites
    assert [(row.group, row.alpha) for row in sites] == [("site: ward 7", 0.025), ("site: main", 0.025)]
    loop.stop(store, first.plan.experiment_id, by="usr_1", reason="")
    assert experiments.running(store, "main") is None and experiments.get(store, second.plan.experiment_id).state == "running"


def test_a_fallback_answer_counts_for_the_arm_that_was_drawn(store: Store) -> None:
    experiment = running(store)
    send(store, range(10), likes=lambda _arm, _rng: 0.5)
    loop.collect(store, experiment.plan.experiment_id, quick_judge)
    report = loop.report_of(store, experiment.plan.experiment_id)
    assert report.other_model == 0 and report.plan.champion == CHAMPION


def test_silent_answers_are_compared_blind_and_the_votes_are_counted(store: Store) -> None:
    experiment = running(store)
    plan = experiment.plan
    loop.stop(store, plan.experiment_id, by="usr_1", reason="")  # everybody gets the champion; its answers are compared
    send(store, range(6), likes=lambda _arm, _rng: 0.5)

    class Silent:
        def __call__(self, prompts: list[object], **_: object) -> list[Completion]:
            texts = ["Rest it." if number == 0 else f"Rest it {number} days." for number in range(len(prompts))]
            return [Completion(prompt_id=str(number), model="m", text=text) for number, text in enumerate(texts)]

    done = shadow(store, plan.experiment_id, Silent(), most=10, actor="usr_1")  # type: ignore[arg-type]
    assert (done.asked, done.same, done.queued) == (6, 1, 5)
    assert shadow(store, plan.experiment_id, Silent(), most=10, actor="usr_1").queued == 0  # type: ignore[arg-type]
    votes = []
    for rater in ("usr_a", "usr_b"):
        while (item := next_item(store, rater)) is not None:
            first, second = item.content.models
            assert {first, second} == {CHAMPION, CHALLENGER} and item.shown_first in ("a", "b")
            choice = "b" if second == CHALLENGER else "a"
            vote = Preference(
                prompt=item.content.prompt[-1].content, response_a=item.content.answers[0], response_b=item.content.answers[1],
                preferred=choice if len(votes) % 5 else "tie", shown_first=item.shown_first, model_a=first, model_b=second,
                recorded_by=rater,
            )  # type: ignore[arg-type]  # fmt: skip
            votes.append(vote)
            crud.add(store, [vote], actor=rater)
            finish(store, item.item_id, rater, vote.preference_id)
    report = loop.report_of(store, plan.experiment_id)
    assert report.shadow is not None and (report.shadow.challenger, report.shadow.ties) == (8, 2)
    assert report.shadow.reviewers == 2 and sum(report.shadow.shown_first.values()) == 10
    assert (report.shadow.share, report.shadow.low, report.shadow.high) == pytest.approx((0.9, *wilson(4.5, 5)))
    refreshed(store, plan.experiment_id)
    erase_records(store, ErasureRequest(subject=user_id(3), reason="asked for it"), actor="usr_1")
    with store.read() as conn:
        left = conn.execute(select(func.count()).select_from(queue_items)).scalar_one()
    assert left == 4  # the pair with the answer to the erased person is gone, too
