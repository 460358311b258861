"""Scores of medloop's own rules are kept by version and content; a rule of somebody's own is always asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.contracts import ModelRef, Record, Score
from medloop.evaluate.cached_rule import CachedRule
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.side_by_side import Evaluation
from medloop.loop.evaluation import evaluate_models
from medloop.reward.rules.emergency import Emergency
from medloop.settings import Settings
from medloop.testing.fakes import FakeGenerate
from medloop.testing.records import URGENT, make_emergencies

Put = Callable[[str, list[Record]], Path]


def test_an_evaluation_of_the_same_things_is_the_report_that_is_there(settings: Settings, put_split: Put) -> None:
    records = make_emergencies(5, ("en",))
    put_split("red_team.jsonl", records)

    def run(answer: str = URGENT, known: bool = True, **changes: object) -> Evaluation:
        return evaluate_models(
            settings, models=[ModelRef(base="m")], config=EvalConfig(splits=("red",), resamples=100).model_copy(update=changes),
            open_model=FakeGenerate({}, answer).opener(), name="t", markdown=settings.workspace.reports / "eval/t/eval_report.md",
            known=lambda report: known,
        )  # fmt: skip

    first = run()
    assert not run(known=False).unchanged, "a report that the workspace does not know is made again"
    first = run()
    assert first.unchanged and run().report == first.report
    assert not run(resamples=200).unchanged and not run("Rest.", resamples=200).unchanged
    put_split("red_team.jsonl", records[:4])
    assert not run("Rest.", resamples=200).unchanged and run("Rest.", resamples=200).unchanged
    first.html.unlink()
    assert not run("Rest.", resamples=200).unchanged and first.html.is_file()


class Counted:
    name, version, penalty, calls = "counted", "1", False, 0

    def __init__(self, version: str = "1") -> None:
        self.version = version

    def score(self, question: str, answer: str) -> Score:
        Counted.calls += 1
        return Score(name=self.name, value=0.5, reason="counted", author="t", version=self.version)


def test_a_score_is_computed_once_for_a_version_and_a_text(tmp_path: Path) -> None:
    Counted.calls = 0
    first = CachedRule(Counted(), tmp_path)
    score = first.score("q", "a")
    first.save()
    again = CachedRule(Counted(), tmp_path)
    assert again.score("q", "a") == score and Counted.calls == 1
    again.score("q", "b")
    CachedRule(Counted("2"), tmp_path).score("q", "a")
    assert Counted.calls == 3


def test_a_second_evaluation_scores_nothing_with_our_rules_and_everything_with_ones_own(
    settings: Settings, put_split: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_split("red_team.jsonl", make_emergencies(5, ("en",)))
    asked: list[str] = []
    original = Emergency.score
    monkeypatch.setattr(Emergency, "score", lambda self, q, a: asked.append(q) or original(self, q, a))
    Counted.calls = 0
    for _ in range(2):
        done = evaluate_models(
            settings, models=[ModelRef(base="m")], rules=("emergency", f"{__name__}:Counted"), name="t",
            config=EvalConfig(splits=("red",), resamples=100), open_model=FakeGenerate({}, URGENT).opener(),
            markdown=settings.workspace.reports / "eval/t/eval_report.md",
        )  # fmt: skip
        assert done.report.results[0].metrics["red"]["emergency"].mean == 1.0
    assert len(asked) == 5, "model and reference answers are the same texts"
    assert Counted.calls == 2 * 2 * 5
