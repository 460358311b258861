"""`eval_report.html`: the numbers of an evaluation as interval bars and tables, without scripts, in light and dark.

Answers are not in it: `eval_report.md` quotes the worst ones.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from medloop import plots
from medloop.contracts import EvalReport, Interval
from medloop.evaluate.markup import group_name, templates
from medloop.evaluate.report import (
    REFERENCE,
    REGRESSIONS,
    cell,
    headlines,
    judged_by,
    level_of,
    regression_rows,
    signed,
    splits_of,
    strata_note,
)
from medloop.evaluate.report_issues import (
    CRITICAL,
    ISSUES,
    baseline_rows,
    critical_rows,
    issue_rows,
    metrics_of,
    suite_notes,
    suite_tables,
)


@dataclass(frozen=True)
class IntervalPlot:
    """Interval bars of one metric, and the same numbers as rows."""

    title: str
    svg: Markup
    rows: list[tuple[str, str, int]]


def render_page(report: EvalReport) -> str:
    splits = {split: (list(_by_model(report, split)), list(_by_stratum(report, split))) for split in splits_of(report)}
    differences = [
        (
            f"{d.second} − {d.first}",
            d.split,
            d.metric,
            signed(d.difference),
            d.difference.n,
            "yes" if d.separated else "no",
            d.verdict,
            "yes" if d.holm else "no",
        )
        for d in report.differences
    ]
    return templates().get_template("eval.html").render(
        report=report, headlines=headlines(report), judged_by=judged_by(report), regressions=regression_rows(report),
        regression_head=REGRESSIONS,
        strata_note=strata_note(report), splits=splits, differences=differences, critical_head=CRITICAL,
        critical=critical_rows(report), notes=suite_notes(report), suite_tables=suite_tables(report), level=level_of(report),
        issue_head=ISSUES, issues=issue_rows(report),
        baselines={
            split: (["", *metrics_of(report, split)], [[name, *cells] for name, cells in baseline_rows(report, split)])
            for split in splits
        },
    )  # fmt: skip


def _by_model(report: EvalReport, split: str) -> Iterator[IntervalPlot]:
    """One plot per metric, one bar per model."""
    for metric in metrics_of(report, split):
        bars = {result.label: result.metrics.get(split, {}).get(metric) for result in report.results}
        yield from _plot(report, f"{split}: {metric}", metric, bars)


def _by_stratum(report: EvalReport, split: str) -> Iterator[IntervalPlot]:
    """One plot per metric, and in it one bar per stratum and model; the reference answers are in the plots above."""
    models = [result for result in report.results if result.label != REFERENCE] or list(report.results)
    names = {result.label: re.split(r"[+:/]", result.label)[-1] for result in models}
    if len(set(names.values())) < len(names):  # the last part of the labels does not tell the models apart
        names = {label: label for label in names}
    groups = sorted({group for result in report.results for group in result.by_stratum.get(split, {})})
    for metric in metrics_of(report, split):
        bars = {
            f"{group_name(group)} · {names[result.label]}": result.by_stratum.get(split, {}).get(group, {}).get(metric)
            for group in groups
            for result in models
        }
        yield from _plot(report, f"{split}: {metric} by stratum", metric, bars)


def _plot(report: EvalReport, title: str, metric: str, bars: dict[str, Interval | None]) -> Iterator[IntervalPlot]:
    """Nothing where nothing was measured."""
    known = {
        name: (bar.mean, bar.low, bar.high)
        for name, bar in bars.items()
        if bar is not None and bar.mean is not None and bar.low is not None and bar.high is not None
    }
    if not known:
        return
    direction = "lower is better" if metric in report.config.get("penalties", ()) else "higher is better"
    low, high = min(0.0, *(bar[1] for bar in known.values())), max(1.0, *(bar[2] for bar in known.values()))
    about = ", ".join(f"{name} {mean:.2f} ({lower:.2f} to {upper:.2f})" for name, (mean, lower, upper) in known.items())
    svg = plots.spans(known, title=f"{title} ({direction})", low=low, high=high, about=about)  # it escapes its texts itself
    rows = [(name, cell(bar), bar.n) for name, bar in bars.items() if bar is not None and bar.mean is not None]
    yield IntervalPlot(title, Markup(svg), rows)
