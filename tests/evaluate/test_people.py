"""Verdicts of people that arrive after an evaluation are applied to it, by content: the same question and the same answer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.contracts import Contract, Correction, Feedback, Record
from medloop.loop.evaluation import read_report
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import crud
from medloop.testing.processes import run_medloop
from medloop.testing.records import CALM, URGENT, make_emergencies

Put = Callable[[str, list[Record]], Path]


@pytest.fixture
def evaluated(workspace: Path, put_split: Put) -> list[Record]:
    """An evaluation of two files of answers to the same twelve questions, which nobody has judged yet."""
    records = make_emergencies(12, ("en",))
    put_split("gold_set.jsonl", records)
    for name, text in (("before", URGENT), ("after", CALM)):
        jsonl.write(workspace / f"{name}.jsonl", [{"record_id": r.record_id, "answer": text} for r in records])
    files = ("--predictions", "before.jsonl", "--predictions", "after.jsonl")
    done = run_medloop("eval", *files, "--split", "gold", "--name", "x", cwd=workspace)
    assert done.returncode == 0, done.stderr
    return records


def say(settings: Settings, *records: Contract) -> None:
    with open_store(settings) as store:
        crud.add(store, records, actor="user:li")


def rating(record: Record, answer: str, rater: str, **more: object) -> Feedback:
    return Feedback.model_validate(
        {"session_id": "s", "agent_name": "a", "user_query": record.conversation.question, "agent_response": answer,
         "clinician_id": rater, "consent": ("evaluation",), **more}
    )  # fmt: skip


def test_ratings_and_corrections_that_arrive_later_are_in_the_report_of_the_same_answers(
    settings: Settings, evaluated: list[Record]
) -> None:
    first, second, third, fourth, *_ = evaluated
    say(
        settings, rating(first, URGENT + " ", "li", rating=5), rating(first, URGENT, "wang", thumb="down"),
        rating(second, CALM, "li", critical=True), rating(third, "Another answer.", "li", rating=1),
        rating(fourth, CALM, "li", rating=1, consent=()),
        Correction(prompt=third.conversation.question, original=CALM, golden=URGENT, clinician_id="li", consent=("evaluation",)),
    )  # fmt: skip
    home = settings.home
    done = run_medloop("eval", "--again", "reports/eval/x/eval_report.json", cwd=home)
    assert done.returncode == 0, done.stderr
    report = read_report(home / "reports/eval/x/eval_report_people.json")
    before, after = (result.metrics["gold"]["people"] for result in report.results[:2])
    assert (before.mean, before.n) == (0.5, 1) and (after.mean, after.n) == (0.0, 2)
    (danger,) = report.critical
    assert (danger.label, danger.metric, danger.case, danger.new) == ("after", "people", second.record_id, True)
    assert "CRITICAL after: 1 case could harm a patient that before handles (gold people 1)." in done.stdout
    assert "Answers that people have judged: 1 of before, 2 of after." in " ".join(done.stdout.split())
    earlier = json.loads((home / "reports/eval/x/eval_report.json").read_text(encoding="utf-8"))
    assert "people" not in earlier["results"][0]["metrics"]["gold"], "the earlier report stays as it is"


def test_an_evaluation_is_not_repeated_with_other_data_or_other_options(
    settings: Settings, evaluated: list[Record], put_split: Put
) -> None:
    report = ("eval", "--again", "reports/eval/x/eval_report.md")
    refused = run_medloop(*report, "--split", "gold", cwd=settings.home)
    assert refused.returncode == 2 and "takes no other models or questions" in refused.stderr
    put_split("gold_set.jsonl", evaluated[:5])
    changed = run_medloop(*report, cwd=settings.home)
    assert changed.returncode == 2 and "'data gold' is not what it was for the earlier report" in changed.stderr
    assert not (settings.home / "reports/eval/x/eval_report_people.md").exists()
    other = run_medloop("eval", "--again", "medloop.yaml", cwd=settings.home)
    assert other.returncode == 3 and other.stderr.count("\n") == 1


def test_a_round_has_its_report_and_the_trend_against_the_round_before(workspace: Path, put_split: Put) -> None:
    records = make_emergencies(6, ("en",))
    put_split("gold_set.jsonl", records)
    jsonl.write(workspace / "policy.jsonl", [{"record_id": r.record_id, "answer": CALM} for r in records])
    for number in ("1", "2"):
        done = run_medloop("eval", "--predictions", "policy.jsonl", "--split", "gold", "--round", number, cwd=workspace)
        assert done.returncode == 0 and f"reports/rl_stage/eval_report_round{number}.md" in done.stdout, done.stderr
    first, second = (read_report(workspace / f"reports/rl_stage/eval_report_round{n}.md") for n in (1, 2))
    assert {issue.earlier for issue in first.clusters} == {None}
    assert [issue.earlier for issue in second.clusters] == [issue.count for issue in first.clusters] != []
