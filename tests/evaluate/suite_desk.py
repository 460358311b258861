"""One suite on made-up models, through the door that `medloop eval` takes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medloop.contracts import Interval, ModelRef, SuiteCase, SuiteConfig, SuiteResult
from medloop.evaluate.answer_cache import AnswerCache
from medloop.evaluate.examined import ExaminedModel
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.side_by_side import Evaluation
from medloop.loop.evaluation import evaluate_models
from medloop.loop.suites import SuiteTools, load_suite, run_suite
from medloop.settings import Settings
from medloop.testing.fakes import FakeGenerate


def examine(settings: Settings, models: Mapping[str, FakeGenerate], spec: str) -> Evaluation:
    """The whole report of one suite on these models."""
    return evaluate_models(
        settings, models=[ModelRef(base=name) for name in models], suites=(spec,), name="t",
        config=EvalConfig(splits=(), resamples=200, n=1000), markdown=settings.workspace.reports / "eval/t/eval_report.md",
        open_model=lambda ref, s: models[ref.base].opener()(ref, s),
    )  # fmt: skip


def result_of(settings: Settings, model: FakeGenerate, spec: str) -> SuiteResult:
    """The suite's own result, case by case."""
    identity, load = model.opener()(ModelRef(base="m"), settings)
    examined = ExaminedModel("m", identity, load, AnswerCache(settings.home / "answers", identity))
    return run_suite(load_suite(spec, SuiteTools(settings)), examined, SuiteConfig(n=1000), lambda done, total: None)


def means(done: Evaluation, suite: str) -> list[dict[str, Interval]]:
    return [result.metrics[suite] for result in done.report.results]


def by_metric(case: SuiteCase) -> dict[str, Any]:
    """Values of a case by metric; the reason in words where one is missing, nothing where it does not apply."""
    rows = ((score.name, getattr(score, "value", score.reason)) for score in case.scores if getattr(score, "applies", True))
    return dict(rows)


def put_cases(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
