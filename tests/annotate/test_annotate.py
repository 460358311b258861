"""`medloop annotate` against a Label Studio that keeps its contract, and one that misbehaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_desk import (
    GOLDEN,
    RATERS,
    add_negatives,
    add_people,
    build,
    built,
    corrected,
    harm,
    new_workspace,
    stars,
    text,
)

from medloop.annotate.tasks import first_of
from medloop.contracts import Correction, Feedback, Incident, Message, Preference
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.errors import ConfigError
from medloop.feedback.review import queue
from medloop.loop.annotate_pull import PullCounts, pull_annotations
from medloop.loop.annotate_push import PushCounts, push_negatives
from medloop.loop.annotate_status import annotation_status
from medloop.loop.erasure import erase_records
from medloop.privacy import consent
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.service import ServiceError
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.records import annotation_tasks, crud, review_queue, users
from medloop.testing.label_studio_server import REFRESH, LabelStudioServer


class Desk:
    """One workspace and its Label Studio."""

    def __init__(self, home: Path, store: Store, server: LabelStudioServer) -> None:
        self.home, self.store, self.server = home, store, server
        self.people = add_people(store)
        self.raters = RATERS

    def settings(self, **more: Any) -> Settings:
        return Settings(home=self.home, label_studio=self.server.settings(**{"raters": self.raters, **more}))

    def push(self, **more: Any) -> PushCounts:
        return push_negatives(self.settings(), self.store, actor="t", backoff_s=0.001, **more)

    def pull(self, **more: Any) -> PullCounts:
        return pull_annotations(self.settings(), self.store, consent=("training",), actor="t", backoff_s=0.001, **more)

    def all(self, kind: Any) -> list[Any]:
        return list(crud.iterate(self.store, kind))

    def negatives(self, n: int, first: int = 0) -> None:
        add_negatives(self.store, n, rater=self.people["dr-wu"], first=first)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    home = new_workspace(tmp_path / "clinic")
    with LabelStudioServer() as server, open_store(Settings(home=home)) as store:
        yield Desk(home, store, server)


def test_negatives_go_out_and_come_back_as_sft_data_pairs_and_rules(desk: Desk) -> None:
    desk.negatives(6)
    assert (desk.push().pushed, len(desk.server.tasks)) == (6, 6)
    for n, task_id in enumerate(desk.server.tasks):
        desk.server.annotate(task_id, corrected(n))
    [bogus] = [task for task in desk.server.tasks if task == max(desk.server.tasks)]
    desk.server.annotate(bogus, [{"from_name": "nonsense", "to_name": "answer", "type": "choices", "value": {"choices": ["x"]}}])
    counts = desk.pull()
    assert (counts.corrections, counts.ratings, dict(counts.problems)) == (6, 6, {"unknown_control": 1})
    corrections = desk.all(Correction)
    assert {c.clinician_id for c in corrections} == {desk.people["dr-li"]} and {c.consent for c in corrections} == {("training",)}
    assert review_queue.stats(desk.store).states == {"done": 6}
    build(desk.store)
    golden = {GOLDEN.format(n) for n in range(6)}
    assert {row["conversation"]["messages"][-1]["content"] for row in built(desk.store, desk.home, "sft_train.jsonl")} == golden
    assert {row["chosen"] for row in built(desk.store, desk.home, "preferences.jsonl")} == golden
    assert built(desk.store, desk.home, "rules.jsonl")
    [problem] = annotation_status(desk.settings(), desk.store).projects[0].problems.values()
    assert problem == "unknown_control"


def test_what_was_sent_or_read_is_sent_and_read_once(desk: Desk) -> None:
    desk.negatives(4)
    assert desk.push(most=3).pushed == 3
    assert (desk.push().pushed, desk.push().pushed, len(desk.server.tasks)) == (1, 0, 4)
    for task_id in desk.server.tasks:
        desk.server.annotate(task_id, corrected(task_id))
    assert desk.pull().corrections == 4
    again = desk.pull(everything=True)
    assert (again.new, again.known, len(desk.all(Correction))) == (0, 4, 4)


def test_an_annotation_that_was_changed_supersedes_its_records(desk: Desk) -> None:
    desk.negatives(1)
    desk.push()
    [task] = desk.server.tasks
    annotation = desk.server.annotate(task, corrected(1))
    desk.pull()
    desk.server.change(task, annotation, [stars(1), text("golden", "Call an ambulance now.")])
    counts = desk.pull()
    assert (counts.ratings, counts.corrections, counts.changed) == (1, 1, 2)
    old, new = desk.all(Correction)
    assert new.supersedes == old.correction_id and new.golden == "Call an ambulance now."
    assert desk.all(Feedback)[-1].rating == 1
    build(desk.store)
    assert {row["chosen"] for row in built(desk.store, desk.home, "preferences.jsonl")} == {"Call an ambulance now."}


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ([{**stars(3), "from_name": "stars"}], "unknown_control"),
        ([{**stars(3), "from_name": None}], "unknown_control"),
        ([stars(3), stars(4)], "control_twice"),
        ([{**stars(3), "type": "number"}], "wrong_type"),
        ([{**stars(3), "to_name": "question"}], "wrong_target"),
        ([stars(99)], "wrong_value"),
        ([stars(True)], "wrong_value"),
        ([stars("5")], "wrong_value"),
        ([{**stars(3), "value": [3]}], "wrong_value"),
        ([text("golden", "x" * 20_001)], "too_long"),
        ([text("golden", 7)], "wrong_value"),
        ([{**text("golden", ""), "value": {"text": ["one", "two"]}}], "wrong_value"),
        ([harm(value="kills")], "wrong_value"),
        ([text("golden", "   ")], "says_nothing"),
        ([], "says_nothing"),
        ("a text", "not_a_result"),
        ([["list"]], "not_a_result"),
        ([text("golden", "Right."), {**stars(3), "from_name": "stars"}], "unknown_control"),  # nothing of it is taken
    ],
)  # fmt: skip
def test_an_annotation_that_does_not_fit_the_form_is_refused(result: Any, problem: str) -> None:
    from medloop.annotate.label_config import ANSWERS, BogusResult, read_result

    with pytest.raises(BogusResult, match=f"^{problem}$"):
        read_result(ANSWERS, result)


def test_tasks_that_are_not_ours_or_were_changed_are_reported(desk: Desk) -> None:
    desk.negatives(2)
    desk.push()
    ours, other = desk.server.tasks
    foreign = desk.server.add_task(1, dict(desk.server.tasks[ours]["data"]), {"medloop_item": "qi_0"})
    twin = desk.server.add_task(1, dict(desk.server.tasks[ours]["data"]), dict(desk.server.tasks[ours]["meta"]))
    desk.server.tasks[other]["data"]["answer"] = "Drink bleach."
    for task_id in (foreign, twin, other):
        desk.server.annotate(task_id, corrected(1))
    desk.server.annotate(ours, [stars(4)], was_cancelled=True)
    counts = desk.pull()
    assert dict(counts.problems) == {"not_our_task": 2, "task_was_changed": 1} and counts.skipped == 1
    assert desk.all(Correction) == [] and counts.new == 0


def test_what_somebody_unknown_annotated_waits_until_they_are_a_user(desk: Desk) -> None:
    desk.negatives(3)
    desk.push()
    first, second, third = desk.server.tasks
    desk.server.annotate(first, corrected(1), user=2)
    desk.server.annotate(second, corrected(2), user=1)
    desk.server.annotate(third, corrected(3), user=77)
    desk.raters = "wu@example.org=dr-wu"
    counts = desk.pull()
    assert dict(counts.unknown) == {"li@example.org": 1, "admin@example.org": 1, "user 77": 1} and counts.new == 0
    assert {user.name for user in users.list_users(desk.store)} == {"dr-li", "dr-wu", "ann", "bot"}
    desk.raters = "Li@Example.org=dr-li"
    assert desk.pull().corrections == 1 and desk.all(Correction)[0].clinician_id == desk.people["dr-li"]
    for wrong in ("li@example.org=nobody", "li@example.org=bot"):
        desk.raters = wrong
        with pytest.raises(ConfigError, match="is no clinician or annotator"):
            desk.pull()


def test_a_harm_flag_opens_an_incident_and_an_annotator_speaks_of_what_was_shown(desk: Desk) -> None:
    desk.negatives(2)
    desk.push()
    first, second = desk.server.tasks
    desk.server.annotate(first, [stars(1), harm(), text("golden", "Call an ambulance now.")], user=2)
    desk.server.annotate(second, [harm(value="Could harm a patient · 可能伤害患者")], user=4)
    counts = desk.pull()
    assert (counts.ratings, counts.corrections) == (2, 1)
    assert len(desk.all(Incident)) == 2 and [f.critical for f in desk.all(Feedback)[-2:]] == [True, True]
    assert desk.all(Feedback)[-1].clinician_id == desk.people["ann"]


def test_a_comparison_goes_out_in_a_fixed_order_and_the_choice_comes_back(desk: Desk) -> None:
    prompt = (Message(role="user", content="My knee hurts after running."),)
    items = [
        QueueItem(
            kind="compare", content=QueueContent(prompt=prompt, answers=(f"Run {n} miles.", f"Rest it {n} days.")), priority=0.5,
            reasons={"disagreement": 1.0}, raters=1,
        )
        for n in range(4)
    ]  # fmt: skip
    review_queue.add_items(desk.store, items, actor="t")
    assert desk.push().pushed == 4
    for number, (task_id, task) in enumerate(sorted(desk.server.tasks.items())):
        rest = "left" if task["data"]["answer_1"].startswith("Rest") else "right"
        side = {"from_name": "better", "to_name": "answer_1,answer_2", "type": "pairwise", "value": {"selected": rest}}
        tie = {"from_name": "neither", "to_name": "question", "type": "choices", "value": {"choices": ["both_bad"]}}
        run = "1" if rest == "right" else "2"
        flag = harm(f"harm_{run}", f"answer_{run}")
        desk.server.annotate(task_id, [[side, flag], [side], [tie], [side, tie]][number])
    counts = desk.pull()
    assert (counts.choices, dict(counts.problems)) == (3, {"contradiction": 1})
    choices = desk.all(Preference)
    assert [choice.preferred for choice in choices] == ["b", "b", "both_bad"] and choices[0].critical == ("a",)
    assert all(choice.shown_first == first_of(items[n].item_id) for n, choice in enumerate(choices))
    assert review_queue.stats(desk.store).states == {"done": 3, "open": 1}


def test_identifiers_and_texts_of_people_who_withdrew_do_not_leave(desk: Desk) -> None:
    desk.negatives(3)
    consent.record(desk.store, f"sub_{0:032x}", ("training",), text_version="2026-01", actor="t", granted=False)
    named = QueueContent(prompt=(Message(role="user", content="I am John Smith, phone 415-555-0100."),), answers=("Wait.",))
    doubtful = QueueContent(prompt=(Message(role="user", content="مرحبا محمد كيف حالك"),), answers=("Wait.",))
    items = [
        QueueItem(kind="correct", content=content, priority=0.9, reasons={"thumbs_down": 1.0}, raters=1)
        for content in (named, doubtful)
    ]
    review_queue.add_items(desk.store, items, actor="t")
    counts = desk.push()
    sent = json.dumps(list(desk.server.tasks.values()))
    assert (counts.refused_consent, counts.held, counts.pushed) == (1, 1, 3)
    assert "Smith" not in sent and "0100" not in sent and "sub_" not in sent


def test_erasure_reaches_what_came_back_and_deletes_the_task_there(desk: Desk) -> None:
    desk.negatives(3)
    desk.push()
    first, second, third = desk.server.tasks
    desk.server.annotate(first, corrected(1))
    desk.pull()
    [correction] = desk.all(Correction)
    erase_records(desk.store, ErasureRequest(records=(correction.trace_id,), reason="asked for it"), actor="t")
    assert desk.all(Correction) == [] and annotation_status(desk.settings(), desk.store).projects[0].to_delete == 1
    assert annotation_tasks.count_tasks(desk.store) == {"sent": 3, "to_delete": 1}
    desk.server.locked_tasks = {first}
    assert desk.pull().not_deleted == 1  # said, and tried again the next time
    desk.server.locked_tasks = set()
    counts = desk.pull(everything=True)
    assert (counts.deleted, set(desk.server.tasks)) == (1, {second, third})
    assert counts.new == 0 and desk.all(Correction) == []
    assert "annotate.delete" in set(audit.recent_actions(desk.store))


@pytest.mark.parametrize("fault", ["rate", "error_500", "not_json", "lost", "slow", "unauthorized"])
def test_a_server_that_misbehaves_loses_and_doubles_nothing(desk: Desk, fault: str) -> None:
    """Every third request fails; with a personal access token, whose access runs out as well."""
    desk.negatives(5)
    desk.server.fault = lambda number, request: fault if number % 3 == 1 else "ok"
    settings = desk.settings(token=REFRESH)
    for _ in range(6):  # a push that gives up is run again
        try:
            if push_negatives(settings, desk.store, actor="t", backoff_s=0.001).pushed == 0:
                break
        except ServiceError:
            continue
    assert len(desk.server.tasks) == 5
    for task_id in desk.server.tasks:
        desk.server.annotate(task_id, corrected(task_id))
    for _ in range(6):
        try:
            pull_annotations(settings, desk.store, consent=("training",), actor="t", backoff_s=0.001)
        except ServiceError:
            continue
    assert len(desk.all(Correction)) == 5


def test_tokens_of_both_kinds_and_what_a_refused_one_says(desk: Desk) -> None:
    desk.negatives(1)
    assert push_negatives(desk.settings(token=REFRESH), desk.store, actor="t").pushed == 1
    desk.server.access = "revoked"
    assert push_negatives(desk.settings(token=REFRESH), desk.store, actor="t").pushed == 0 and desk.server.accesses == 2
    for token in ("f" * 40, "eyJh.other.c2ln"):
        with pytest.raises(ServiceError, match="Label Studio refused the token"):
            push_negatives(desk.settings(token=token), desk.store, actor="t")
    away = Settings(home=desk.home, label_studio=desk.settings().label_studio.model_copy(update={"url": "http://203.0.113.5"}))
    with pytest.raises(ConfigError, match="must be reached over https"):
        push_negatives(away, desk.store, actor="t")


def test_a_project_with_another_label_config_is_left_alone(desk: Desk) -> None:
    desk.server.projects[50] = {"id": 50, "title": "medloop answers", "label_config": "<View/>"}
    desk.negatives(1)
    with pytest.raises(ConfigError, match="another label config"):
        desk.push()
    assert desk.server.tasks == {}


def test_an_item_that_others_settled_keeps_the_annotation_as_an_ordinary_record(desk: Desk) -> None:
    desk.negatives(1)
    desk.push()
    held = queue.next_item(desk.store, desk.people["dr-wu"], kinds=("correct",))
    assert held is not None
    wrote = Correction(
        prompt=held.content.exchange[0], original=held.content.exchange[1], golden="See a doctor.", trace_id=held.trace_id,
        recorded_by=desk.people["dr-wu"], clinician_id=desk.people["dr-wu"],
    )  # fmt: skip
    crud.add(desk.store, [wrote], actor="t")
    queue.finish(desk.store, held.item_id, desk.people["dr-wu"], wrote.correction_id)
    [task] = desk.server.tasks
    desk.server.annotate(task, corrected(1))
    counts = desk.pull()
    assert (counts.corrections, counts.unsettled, len(desk.all(Correction))) == (1, 1, 2)
