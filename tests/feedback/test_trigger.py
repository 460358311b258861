"""Triggers: counted once, on records that may be used, on evidence, and one job each."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from queue_desk import chose
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Consent, Correction, Feedback, Interval, utc_now
from medloop.data.feedback.build import FeedbackConfig
from medloop.errors import ConfigError
from medloop.feedback.trigger import RecordCounts, TriggerConfig, TriggerEvidence, check_trigger, trigger_if_due
from medloop.jobs import queue as jobs
from medloop.jobs.retrain import Retrainer, file_jobs
from medloop.loop.feedback import build_from_feedback
from medloop.settings import FeedbackSettings, Settings
from medloop.store.db import Store, open_store
from medloop.store.records import consents, crud, quarantine, triggers
from medloop.testing.feedback import PARTS, make_preference

TEN = TriggerConfig(every=10, cooldown_hours=0)


def feedback(**values: Any) -> Feedback:
    base = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "rating": 3, "consent": ("training",)}
    return Feedback.model_validate({**base, **values})


def add(store: Store, n: int, **values: Any) -> list[Feedback]:
    new = [feedback(**values) for _ in range(n)]
    crud.add(store, new, actor="test")
    return new


def test_enough_new_records_trigger_once(store: Store) -> None:
    add(store, 9)
    assert trigger_if_due(store, config=TEN) is None
    add(store, 1)
    trigger = trigger_if_due(store, config=TEN)
    assert trigger is not None and (trigger.trigger_id, trigger.reason, trigger.records) == ("retrain-1", "volume", 10)
    assert trigger_if_due(store, config=TEN) is None
    add(store, 10)
    assert trigger_if_due(store, config=TEN) is None  # the first one has no job yet
    triggers.set_jobs(store, trigger.trigger_id, ["train_1"], actor="t")
    again = trigger_if_due(store, config=TEN)
    assert again is not None and again.trigger_id == "retrain-2" and again.records == 10
    triggers.set_jobs(store, again.trigger_id, ["train_2"], actor="t")
    waits = check_trigger(store, TEN.model_copy(update={"cooldown_hours": 24})).waits
    assert (
        waits is not None
        and waits.ran == again.timestamp
        and f"retrain-2 ran on {again.timestamp:%Y-%m-%d at %H:%M} UTC" in waits.words
    )


def test_all_three_kinds_of_records_count(store: Store) -> None:
    add(store, 9)
    chose(store, "ann", "a", "a")  # without consent to training
    assert trigger_if_due(store, config=TEN) is None
    assert check_trigger(store, TEN).records == RecordCounts(usable=9, waiting_for_consent=1)


def test_only_usable_records_count(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        add(store, 4, consent=())
        add(store, 3, subject="sub_1")
        consents.add_consent(
            store, Consent(subject="sub_1", purposes=("training",), granted=False, text_version="1"), actor="t", recorded_by="t"
        )
        (old,) = add(store, 1)
        add(store, 1, supersedes=old.feedback_id)
        (held,) = add(store, 1)
        with store.write() as conn:
            quarantine.hold(conn, held.feedback_id, "rlhf_feedback", doubt=1.0, reasons=["name"], actor="t")
        check = check_trigger(store, TEN)
    assert (check.rows, check.trigger) == (10, None)
    assert check.records == RecordCounts(usable=1, waiting_for_consent=7, quarantined=1)


def test_critical_flags_are_reason_enough(store: Store) -> None:
    add(store, 2, critical=True)
    assert trigger_if_due(store) is None
    add(store, 1, critical=True)
    trigger = trigger_if_due(store)
    assert trigger is not None and trigger.reason == "critical" and trigger.evidence["critical"] == 3
    assert trigger_if_due(store) is None


def test_drift_and_a_fall_of_agreement_are_reasons(sqlite_settings: Settings) -> None:
    before, low = Interval(mean=0.7, low=0.6, high=0.8, n=90), Interval(mean=0.4, low=0.3, high=0.5, n=60)
    unsure = Interval(mean=0.5, low=0.1, high=0.9, n=5)
    with open_store(sqlite_settings) as store:
        assert check_trigger(store, evidence=TriggerEvidence(agreement=(("stars", before, unsure),))).reason is None
        assert check_trigger(store, evidence=TriggerEvidence(drifting=("ann",))).reason is None
        assert check_trigger(store, evidence=TriggerEvidence(drifting=("ann", "ben")), write=False).reason == "drift"
        check = check_trigger(store, evidence=TriggerEvidence(agreement=(("stars", before, low),)))
    assert check.trigger is not None and check.trigger.evidence["agreement"]["stars"]["after"] == 0.4


def test_the_number_comes_from_the_settings_and_zero_means_never(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        add(store, 5)
        assert trigger_if_due(store, sqlite_settings) is None
        assert trigger_if_due(store, sqlite_settings.model_copy(update={"feedback": FeedbackSettings(retrain_every=0)})) is None
        trigger = trigger_if_due(store, sqlite_settings.model_copy(update={"feedback": FeedbackSettings(retrain_every=5)}))
    assert trigger is not None and trigger.reason == "volume"


def test_a_dry_look_writes_nothing(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        add(store, 10)
        assert check_trigger(store, TEN, write=False).reason == "volume" and triggers.list_triggers(store) == []


def test_many_at_once_make_one_trigger(settings: Settings) -> None:
    with open_store(settings) as store:
        add(store, 12)
    results: list[Any] = []

    def ask() -> None:
        with open_store(settings, wait_s=30) as own:
            results.append(trigger_if_due(own, config=TEN))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and sum(result is not None for result in results) == 1


def pairs(settings: Settings) -> None:
    row = {"prompt": "q", "chosen": "good", "rejected": "bad"}
    (settings.workspace.preferences / "preferences.jsonl").write_text(json.dumps(row) + "\n")


def test_a_trigger_becomes_one_job_named_after_it(sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs(sqlite_settings)
    with open_store(sqlite_settings) as store:
        add(store, 10)
        trigger_if_due(store, config=TEN)
        with monkeypatch.context() as patch:  # killed after the job was filed, before it was noted
            patch.setattr(triggers, "set_jobs", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                file_jobs(store, sqlite_settings, actor="t")
        (filed,) = file_jobs(store, sqlite_settings, actor="t")
        assert file_jobs(store, sqlite_settings, actor="t") == []
        assert [entry.jobs for entry in triggers.list_triggers(store)] == [(filed.job_id,)]
    assert jobs.ids(sqlite_settings) == [filed.job_id]
    request = jobs.request_of(jobs.folder_of(filed.job_id, sqlite_settings))
    assert request.stage == "REWARD" and request.config["name"] == "retrain-1"


def test_a_job_that_cannot_be_filed_leaves_the_trigger_waiting(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        add(store, 10)
        trigger_if_due(store, config=TEN)
        with pytest.raises(ConfigError):  # there are no pairs to train on
            file_jobs(store, sqlite_settings, actor="t")
        assert [entry.jobs for entry in triggers.list_triggers(store, without_job=True)] == [()]
        (filed,) = file_jobs(store, sqlite_settings, actor="t", prepare=lambda trigger: pairs(sqlite_settings))
        assert filed.job_id in jobs.ids(sqlite_settings)


def test_the_job_of_a_trigger_runs_sft_as_well(sqlite_settings: Settings) -> None:
    """On what experts wrote and people liked; the reward model keeps the trigger's own name."""
    with open_store(sqlite_settings) as store:
        for n in range(10):
            fixed = Correction(prompt=f"My knee {n} hurts.", original="Run.", golden=f"Rest knee {n}.", consent=("training",))
            crud.add(store, [fixed], actor="test")
        trigger_if_due(store, config=TEN)

        def prepare(_: object) -> None:
            build_from_feedback(store, FeedbackConfig(), seed=7, actor="t")

        filed = file_jobs(store, sqlite_settings, actor="t", prepare=prepare)
        assert triggers.newest_trigger(store).jobs == tuple(job.job_id for job in filed)
    asked = [jobs.request_of(jobs.folder_of(job.job_id, sqlite_settings)) for job in filed]
    assert [(request.stage, request.config["name"]) for request in asked] == [("REWARD", "retrain-1"), ("SFT", "retrain-1-sft")]
    assert (sqlite_settings.home / asked[1].config["data"]).read_text().count("Rest knee") >= 5


def test_after_a_week_fewer_records_are_enough(sqlite_settings: Settings) -> None:
    week = TriggerConfig(days=7, least=5)
    with open_store(sqlite_settings) as store:
        add(store, 5, received=utc_now() - timedelta(days=6))
        assert trigger_if_due(store, config=week) is None
        assert trigger_if_due(store, config=TriggerConfig(days=5, least=6)) is None  # too few
        assert trigger_if_due(store, config=TriggerConfig(days=0, least=5)) is None  # never
        trigger = trigger_if_due(store, config=TriggerConfig(days=5, least=5))
        assert trigger is not None and (trigger.reason, trigger.records) == ("schedule", 5)
        add(store, 5)
        assert trigger_if_due(store, config=TriggerConfig(days=5, least=5)) is None  # the last trigger is new


def test_the_schedule_is_the_workspaces_and_zero_days_mean_never(sqlite_settings: Settings) -> None:
    """`feedback.retrain_days`, for the API that polls and for the command."""

    def command(days: int) -> str:
        words = [
            "--home",
            str(sqlite_settings.home),
            "--set",
            f"feedback.retrain_days={days}",
            "feedback",
            "trigger",
            "--dry-run",
        ]
        return CliRunner().invoke(app, words, catch_exceptions=False).output

    def polled(days: int) -> Any:
        settings = sqlite_settings.model_copy(update={"feedback": FeedbackSettings(retrain_days=days)})
        with open_store(settings) as store:
            return trigger_if_due(store, settings)

    with open_store(sqlite_settings) as store:
        add(store, 50, received=utc_now() - timedelta(days=3))
    assert "No reason yet" in command(4) and "No reason yet" in command(0) and polled(4) is None and polled(0) is None
    assert "Reason to retrain: schedule, 50 new usable records after 3 days" in command(3)
    assert polled(3).reason == "schedule"


@pytest.mark.slow  # two trainings of the embedded model: half a minute
def test_the_jobs_of_a_trigger_run_to_their_end_and_the_model_answers(sqlite_settings: Settings) -> None:
    """From feedback to a reward model and an adapter, with three commands; the dev loss falls on held-out answers."""
    home = sqlite_settings.home

    def medloop(*words: str) -> str:
        done = CliRunner().invoke(app, ["--home", str(home), "--set", "offline=true", *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    with open_store(sqlite_settings) as store:
        for n, part in enumerate(PARTS[:12]):
            question = f"My {part} has hurt since I went running {n + 2} days ago. What should I do?"
            golden = f"Rest your {part}, cool it, and see a doctor if it swells or does not get better within a week."
            crud.add(store, [Correction(prompt=question, original="Run.", golden=golden, consent=("training",))], actor="t")
            liked = feedback(
                user_query=f"How long may a cough last, case {n}?", agent_response=f"Three weeks {n}.", thumb="up", rating=5
            )
            crud.add(store, [liked], actor="t")
    assert medloop("feedback", "trigger", "--every", "20", "--submit").count("Submitted train_") == 2
    assert medloop("jobs", "work").count("is succeeded") == 2
    card = json.loads((home / "models/lora/retrain-1-sft/card.json").read_text())["metrics"]
    assert card["examples"] >= 12 and card["dev_loss_after"] < card["dev_loss_before"]
    assert (home / "models/reward/retrain-1/card.json").is_file()
    (home / "q.jsonl").write_text(json.dumps({"id": "q", "question": "My knee hurts."}) + "\n")
    assert "1 answered" in medloop("predict", str(home / "q.jsonl"), "-o", str(home / "a.jsonl"), "--adapter", "retrain-1-sft")


class Child:
    """A process that is still running (None) or has ended with a code."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code


def test_beside_the_api_each_reason_is_filed_once_and_a_failure_after_a_rest(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"feedback": FeedbackSettings(retrain_every=10)})
    started: list[Child] = []

    def file(_: Settings) -> Any:
        started.append(Child(None))
        return started[-1]

    with open_store(settings) as store:
        watch = Retrainer(store, settings, every_s=0.05, start=file)
        add(store, 9)
        watch.poll()
        assert not started
        add(store, 1)
        for _ in range(3):
            watch.poll()
        assert len(started) == 1 and len(triggers.list_triggers(store)) == 1  # one at a time
        started[0].code = 1
        watch.poll()
        assert len(started) == 1  # it failed: a rest first
        time.sleep(0.25)
        watch.poll()
        assert len(started) == 2
        triggers.set_jobs(store, "retrain-1", ["job"], actor="t")
        started[1].code = 0
        watch.poll()
        assert len(started) == 2 and watch.failed == 0


def test_the_process_that_files_builds_the_data_and_leaves_a_job(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"feedback": FeedbackSettings(retrain_every=10)})
    with open_store(settings) as store:
        for n in range(10):
            vote_on = make_preference(n, f"rest {n}", f"run {n}", "a", preference_id=f"pref_{n}")
            crud.add(store, [vote_on], actor="test")
        with Retrainer(store, settings, every_s=0.05).running():
            deadline = time.monotonic() + 120
            while not (stored := triggers.list_triggers(store)) or not stored[0].jobs:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    assert set(stored[0].jobs) <= set(jobs.ids(settings)) and stored[0].reason == "volume"
    assert (settings.home / "data/preferences/preferences.jsonl").is_file()
