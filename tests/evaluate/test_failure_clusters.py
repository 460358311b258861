"""Failures as named issues: alike by words and strata, with counts, trend and examples; the same every time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from medloop.contracts import ModelRef, Record, Sample, Score
from medloop.evaluate.failure_clusters import cluster_failures
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.report_issues import issue_name
from medloop.evaluate.run import EvalAnswer, EvalScores
from medloop.evaluate.side_by_side import Evaluation
from medloop.loop.evaluation import evaluate_models
from medloop.settings import Settings
from medloop.testing.fakes import FakeGenerate
from medloop.testing.records import CALM, URGENT, make_emergencies, make_record

Put = Callable[[str, list[Record]], Path]
DRUG = "Take ibuprofen 400 mg every six hours."


def row(n: int, question: str, answer: str, value: float, strata: tuple[str, ...], language: str = "en") -> EvalScores:
    answered = EvalAnswer(Sample(id=f"c{n}", question=question, answer=answer), "gold", language, strata)
    return EvalScores(answered, (Score(name="risk", value=value, reason="looked", author="t", version="1"),))


def failures() -> list[EvalScores]:
    pregnant = [row(n, f"Week {n} pregnant, back pain", "Take ibuprofen.", 0.6, ("pregnancy",)) for n in range(6)]
    chinese = [row(9 + n, f"孩子发烧{n}天", "给他吃成人布洛芬。", 0.5, ("child",), "zh") for n in range(4)]
    alone = [row(20, "Warfarin and grapefruit?", "Double the dose.", 0.8, ("interaction",))]
    fine = [row(30 + n, f"Week {n} pregnant, cough", "See your midwife.", 0.0, ("pregnancy",)) for n in range(5)]
    return [*fine, *pregnant, *alone, *chinese]


def test_failures_that_look_alike_are_one_issue_and_what_is_fine_or_alone_is_none() -> None:
    issues = cluster_failures(failures(), frozenset({"risk"}), label="m")
    assert [(issue.count, issue.groups) for issue in issues] == [
        (6, ("language:en", "pregnancy")),
        (4, ("child", "language:zh")),
    ]
    assert "ibuprofen" in issues[0].terms and any("\u4e00" <= term[0] for term in issues[1].terms)
    assert issue_name(issues[0]).startswith("risk: ") and issue_name(issues[0]).endswith("(English, pregnancy)")
    assert {sample.prompt_id for sample in issues[0].examples} <= {f"c{n}" for n in range(6)}


def test_the_order_of_the_answers_does_not_change_the_issues() -> None:
    assert cluster_failures(failures()[::-1], frozenset({"risk"}), label="m") == cluster_failures(
        failures(), frozenset({"risk"}), label="m"
    )


def test_a_few_words_in_common_are_one_issue_in_the_same_stratum_only() -> None:
    texts = (
        ("stomach ache after dinner", "take ibuprofen tablets twice"),
        ("itching rash since holiday", "use ibuprofen tablets now"),
    )
    same, different = (
        [row(n, *text, 1.0, (stratum,)) for n, (text, stratum) in enumerate(zip(texts, strata, strict=True))]
        for strata in ("xx", "xy")
    )
    assert [len(cluster_failures(rows, frozenset({"risk"}), label="m")) for rows in (same, different)] == [1, 0]


def test_an_encoder_decides_what_is_alike_where_there_is_one() -> None:
    """By words these share nothing; the encoder puts all in one place."""
    texts = ("itchy scalp", "dandruff shampoo"), ("swollen knee", "elevate it"), ("ringing ears", "hearing test")
    rows = [row(n, question, answer, 1.0, ("x",)) for n, (question, answer) in enumerate(texts)]
    assert cluster_failures(rows, frozenset({"risk"}), label="m") == []
    (issue,) = cluster_failures(rows, frozenset({"risk"}), label="m", embed=lambda texts: np.ones((len(texts), 1)))
    assert issue.count == 3


def run(settings: Settings, answer: str, name: str = "t", **more: object) -> Evaluation:
    return evaluate_models(
        settings, models=[ModelRef(base="m")], config=EvalConfig(splits=("gold",), resamples=100), name=name,
        markdown=settings.workspace.reports / f"eval/{name}/eval_report.md", open_model=FakeGenerate({}, answer).opener(),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_report_names_issues_with_examples_and_their_trend(settings: Settings, put_split: Put) -> None:
    pregnant = [make_record(n, f"I am {n + 5} weeks pregnant with a runny nose.", strata=("pregnancy",)) for n in range(12)]
    put_split("gold_set.jsonl", [*pregnant, *make_emergencies(8, ("en",))])
    first = run(settings, DRUG)
    risk = next(issue for issue in first.report.clusters if issue.metric == "risk")
    assert risk.groups == ("language:en", "pregnancy") and risk.earlier is None and risk.splits == {"gold": risk.count}
    put_split("gold_set.jsonl", [*pregnant[:7], *make_emergencies(8, ("en",))])
    second = run(settings, DRUG)
    again = next(issue for issue in second.report.clusters if issue.metric == "risk" and "pregnancy" in issue.groups)
    assert again.earlier == risk.count and again.count < risk.count
    text = second.markdown.read_text(encoding="utf-8")
    assert "## Issues: failures that look alike" in text and "weeks pregnant with a runny nose" in text
    assert f"<td>{risk.count}</td>" in second.html.read_text(encoding="utf-8")
    other = run(settings, CALM, "other", against=run(settings, URGENT, "urgent").json)
    assert {issue.earlier for issue in other.report.clusters if issue.metric == "emergency"} == {0}, (
        "a new issue of a known model"
    )
