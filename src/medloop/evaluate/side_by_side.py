"""Several sets of answers to the same questions, scored by the same rules, against the first of them; written as a report."""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from medloop.contracts import EvalReport, ModelRef, Rule, SuiteResult, utc_now
from medloop.errors import ConfigError
from medloop.evaluate.broken_text import broken_text
from medloop.evaluate.compare import compare, degraded, with_holm
from medloop.evaluate.failure_clusters import Embed, cluster_failures, with_trend
from medloop.evaluate.people import PEOPLE, Verdicts, called_dangerous, with_people
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.report import CHAIN, REFERENCE, render
from medloop.evaluate.report_page import render_page
from medloop.evaluate.run import EvalAnswer, EvalScores, score_answers, summarise
from medloop.evaluate.suite_results import critical_failures, penalties_of, suite_scores, summaries
from medloop.store.files.atomic import atomic_write, file_sha256

CHAIN_MARK = "think>"  # of <think> and </think>, which a template may have opened


@dataclass(frozen=True)
class ModelAnswers:
    """The answers of a model or of a file of predictions, under the label it has in the report."""

    label: str
    answers: Sequence[EvalAnswer]
    model: ModelRef | None = None
    alarms: tuple[str, ...] = ()
    """Of the training run that made it."""
    suites: tuple[SuiteResult, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """A report and its files; `unchanged` if they were there already, made of the same data, models, rules and settings."""

    report: EvalReport
    markdown: Path
    html: Path
    json: Path
    unchanged: bool = False


def score_models(models: Sequence[ModelAnswers], rules: Sequence[Rule]) -> dict[str, tuple[EvalScores, ...]]:
    """The answers of each model scored by the rules, and the cases of its suites as the suites scored them."""
    return {
        model.label: (
            *score_answers(model.answers, rules),
            *(scores for result in model.suites for scores in suite_scores(result)),
        )
        for model in models
    }


def side_by_side(
    models: Sequence[ModelAnswers],
    rules: Sequence[Rule],
    scored: Mapping[str, Sequence[EvalScores]],
    *,
    inputs: Mapping[str, str],
    config: EvalConfig,
    name: str,
    markdown: Path,
    trust: Mapping[str, Mapping[str, str]] | None = None,
    earlier: EvalReport | None = None,
    embed: Embed | None = None,
    people: Verdicts | None = None,
    spec: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """Compare with the first model, and write `markdown`, with the HTML and the JSON beside it.

    `trust` says for each rule how far it agrees with people: verdict, reason, and the version of the card. The trend of the
    issues is against the `earlier` report; `embed` finds what failures are alike better than their words. `people` are verdicts
    on answers, by content; `spec` is how rules, suites and prediction files were named.
    """
    scored = {label: with_people(rows, people or {}) for label, rows in scored.items()}
    examined = {model.label: model.suites for model in models if model.suites}
    penalties = penalties_of(rules, examined)
    results = {
        model.label: summarise(
            scored[model.label], penalties=penalties, label=model.label, model=model.model, seed=config.seed,
            resamples=config.resamples, level=config.level,
        )
        for model in models
    }  # fmt: skip
    first, *others = [model.label for model in models if model.label != REFERENCE]
    pairs = combinations((first, *others), 2) if config.all_pairs else ((first, other) for other in others)
    rows = [
        row
        for one, other in pairs
        for row in compare(
            results[one], scored[one], results[other], scored[other], penalties=penalties, seed=config.seed,
            resamples=config.resamples, level=config.level,
        )
    ]  # fmt: skip
    compared = with_holm(rows, config.level)
    issues = [
        issue for label in (first, *others) for issue in cluster_failures(scored[label], penalties, label=label, embed=embed)
    ]
    report = EvalReport(
        name=name,
        results=tuple(results.values()),
        differences=tuple(row for row in compared if row.stratum is None),
        stratum_differences=tuple(row for row in compared if row.stratum is not None),
        suites=summaries(examined),
        critical=(
            *critical_failures(examined),
            *called_dangerous({label: scored[label] for label in (first, *others)}, people or {}),
        ),
        clusters=with_trend(issues, earlier),
        inputs=dict(inputs),
        rules={rule.name: rule.version for rule in rules},
        config={
            **config.model_dump(mode="json", exclude_none=True),
            **_early_stop(config, scored[first]),
            **({} if people is None else {"judged_by_people": _judged(scored, (first, *others))}),
            "spec": {what: list(names) for what, names in (spec or {}).items()},
            "issues_by": "words" if embed is None else "embedding",
            "penalties": sorted(penalties),
            "cut_off": _truncated(models),
            **({"no_chain": True} if _no_chain(scored) else {}),
            "answers": _answer_files(models, markdown),
            "alarms": _alarms(models),
            "trust": {name: dict(row) for name, row in (trust or {}).items()},
        },
        timestamp=utc_now(),
    )
    worse = {label: degraded(scored[first], scored[label], penalties) for label in others}
    atomic_write(markdown.with_suffix(".json"), report.model_dump_json(indent=2, exclude_none=True) + "\n")
    atomic_write(markdown.with_suffix(".html"), render_page(report))
    atomic_write(markdown, render(report, worse))
    return Evaluation(report, markdown, markdown.with_suffix(".html"), markdown.with_suffix(".json"))


def same_report(
    markdown: Path,
    *,
    inputs: Mapping[str, str],
    config: EvalConfig,
    rules: Sequence[Rule],
    name: str,
    trust: Mapping[str, Mapping[str, str]],
    spec: Mapping[str, Sequence[str]],
) -> Evaluation | None:
    """The report that is there, if everything that decides it is what it was."""
    paths = [markdown, markdown.with_suffix(".html"), markdown.with_suffix(".json")]
    if not all(path.is_file() for path in paths):
        return None
    try:
        report = EvalReport.from_json(paths[2].read_text(encoding="utf-8"))
    except ValueError:
        return None
    now = {
        **config.model_dump(mode="json", exclude_none=True),
        "trust": trust,
        "spec": {what: list(s) for what, s in spec.items()},
    }
    before = {what: report.config.get(what) for what in now}
    versions = {rule.name: rule.version for rule in rules}
    if (report.name, report.inputs, report.rules, before) != (name, dict(inputs), versions, now):
        return None
    return Evaluation(report, markdown, paths[1], paths[2], unchanged=True)


def _judged(scored: Mapping[str, Sequence[EvalScores]], labels: Sequence[str]) -> dict[str, int]:
    return {label: sum(row.value(PEOPLE) is not None for row in scored[label]) for label in labels}


def _early_stop(config: EvalConfig, scored: Sequence[EvalScores]) -> dict[str, Any]:
    """At which of the declared looks the evaluation ended; the largest split says it."""
    if config.precision is None:
        return {}
    counts = Counter(scores.answer.split for scores in scored)
    return {"looks": list(config.looks), "asked": max(counts.values(), default=0), "level": config.level}


def _answer_files(models: Sequence[ModelAnswers], markdown: Path) -> dict[str, str]:
    """The files of answers beside the report, by hash, so that others are not taken for them later."""
    paths = {model.label: predictions_path(markdown, model.label) for model in models if model.model is not None}
    return {label: file_sha256(path) for label, path in paths.items() if path.is_file()}


def _no_chain(scored: Mapping[str, Sequence[EvalScores]]) -> bool:
    """Whether the rule of chains scored answers, and none of them has a chain."""
    answers = [row.answer.sample.answer or "" for rows in scored.values() for row in rows if row.value(CHAIN) is not None]
    return bool(answers) and not any(CHAIN_MARK in answer for answer in answers)


def _truncated(models: Sequence[ModelAnswers]) -> dict[str, int]:
    return {model.label: count for model in models if (count := sum(answer.truncated for answer in model.answers))}


def _alarms(models: Sequence[ModelAnswers]) -> dict[str, list[str]]:
    """Why the scores of a model must not be taken for good answers, by label."""
    alarms = {
        model.label: [*broken_text(model.answers), *(f"Its training raised an alarm: {alarm}" for alarm in model.alarms[:1])]
        for model in models if model.label != REFERENCE
    }  # fmt: skip
    return {label: sentences for label, sentences in alarms.items() if sentences}


def label_models(models: Sequence[ModelRef]) -> dict[str, ModelRef]:
    """Models by short name; by their full path where two share the short one."""
    short = [ref.label for ref in models]
    named = {ref.label if short.count(ref.label) == 1 else ref.spec: ref for ref in models}
    if len(named) < len(models):
        raise ConfigError("The same model is named twice", "Name each model once")
    return named


def label_files(files: Sequence[Path], *, taken: Container[str] = ()) -> dict[str, Path]:
    """Prediction files by their stem; by their path where the stem is taken."""
    stems = [path.stem for path in files]
    unique = {p.stem if stems.count(p.stem) == 1 and p.stem not in taken and p.stem != REFERENCE else str(p): p for p in files}
    if len(unique) < len(files):
        raise ConfigError("The same predictions file is named twice", "Name each file once")
    return unique


def file_name(label: str) -> str:
    """A label as part of a file name."""
    return re.sub(r"[^\w.+-]+", "_", label).strip("_.")


def predictions_path(markdown: Path, label: str) -> Path:
    """`predictions_<label>.jsonl` beside the report; with the report's own name where several share a folder."""
    prefix = "" if markdown.name == "eval_report.md" else f"{markdown.stem}_"
    return markdown.with_name(f"{prefix}predictions_{file_name(label)}.jsonl")
