"""Parts of a report that name single cases: critical failures of suites, and failures clustered into issues."""

from collections import Counter
from collections.abc import Iterator

from medloop.contracts import EvalReport, FailureCluster, ScoredSample
from medloop.contracts.suite import SuiteTable
from medloop.evaluate.markup import group_name, markdown_table, number, one_line
from medloop.evaluate.people import PEOPLE

CRITICAL = ("model", "suite", "metric", "case", "strata", "new")
ISSUES = ("model", "issue", "failures", "before", "in")
EXAMPLE = 160  # characters of an example's question


def metrics_of(report: EvalReport, split: str) -> list[str]:
    """The columns of a split: the rules, or the metrics of the suite of this name; and people's verdicts where there are any."""
    suite = next((suite for suite in report.suites if suite.suite == split), None)
    names = list(report.rules) if suite is None else [metric.name for metric in suite.metrics]
    return names + [PEOPLE] * any(PEOPLE in result.metrics.get(split, {}) for result in report.results)


def baseline_rows(report: EvalReport, split: str) -> list[tuple[str, list[str]]]:
    """What no model at all would get in a suite, by name; one cell per metric."""
    baselines = next((suite.baselines for suite in report.suites if suite.suite == split), {})
    names = dict.fromkeys(name for by_name in baselines.values() for name in by_name)
    return [(name, [number(baselines.get(metric, {}).get(name)) for metric in metrics_of(report, split)]) for name in names]


def critical_headlines(report: EvalReport) -> Iterator[str]:
    """One sentence per model: how many cases it fails that the first model does not, by suite and metric."""
    first = report.results[0].label
    for label in dict.fromkeys(failure.label for failure in report.critical if failure.new):
        new = Counter(f"{row.suite} {row.metric}" for row in report.critical if row.new and row.label == label)
        places = ", ".join(f"{name} {count}" for name, count in new.items())
        cases = "case" if new.total() == 1 else "cases"
        yield f"CRITICAL {label}: {new.total()} {cases} could harm a patient that {first} handles ({places})."


def critical_rows(report: EvalReport) -> list[list[str]]:
    """New failures first; then those that the first model has, too."""
    ordered = sorted(report.critical, key=lambda row: not row.new)
    return [
        [row.label, row.suite, row.metric, row.case, ", ".join((*row.strata, group_name(f"language:{row.language}"))),
         "yes" if row.new else "no"]
        for row in ordered
    ]  # fmt: skip


def suite_notes(report: EvalReport) -> list[str]:
    """What the suites could not measure, and what that costs."""
    return [
        f"{suite.suite}, {label}: {note}" for suite in report.suites for label, notes in suite.notes.items() for note in notes
    ]


def suite_tables(report: EvalReport) -> list[tuple[str, SuiteTable]]:
    """Tables that suites made, such as the triage matrix, each with a title that names suite and model."""
    return [
        (f"{suite.suite}, {label}: {table.title}", table)
        for suite in report.suites
        for label, tables in suite.tables.items()
        for table in tables
    ]


def suite_section(report: EvalReport) -> Iterator[str]:
    if not report.suites and not report.critical:
        return
    rows = [[one_line(cell) for cell in row] for row in critical_rows(report)]
    yield "## Critical failures\n"
    yield f"{markdown_table(CRITICAL, rows)}\n" if rows else "No case of a suite fails a critical metric.\n"
    yield from (f"- {one_line(note)}\n" for note in suite_notes(report))
    for title, table in suite_tables(report):
        cells = [[one_line(value) for value in row] for row in table.rows]
        yield f"### {one_line(title)}\n\n{markdown_table(table.columns, cells)}\n"


def issue_name(cluster: FailureCluster) -> str:
    """`risk: ibuprofen, pregnant (pregnancy, English)`."""
    groups = ", ".join(group_name(group) for group in cluster.groups)
    return f"{cluster.metric}: {', '.join(cluster.terms) or 'no words in common'}" + (f" ({groups})" if groups else "")


def trend(cluster: FailureCluster) -> str:
    """What an earlier report counted; empty where it cannot be compared."""
    return "" if cluster.earlier is None else "new" if cluster.earlier == 0 else str(cluster.earlier)


def issue_rows(report: EvalReport) -> list[tuple[str, str, int, str, str]]:
    return [
        (cluster.label, issue_name(cluster), cluster.count, trend(cluster),
         ", ".join(f"{split} {count}" for split, count in cluster.splits.items()))
        for cluster in report.clusters
    ]  # fmt: skip


def issue_section(report: EvalReport) -> Iterator[str]:
    """Every issue with its counts and the question of its worst examples; the answers are among the worst ones below."""
    if not report.clusters:
        return
    yield "## Issues: failures that look alike\n"
    yield f"{markdown_table(ISSUES, [[one_line(str(cell)) for cell in row] for row in issue_rows(report)])}\n"
    for cluster in report.clusters:
        examples = "\n".join(f"  - {_example(sample)}" for sample in cluster.examples)
        yield f"- **{one_line(issue_name(cluster))}**, {one_line(cluster.label)}, such as\n{examples}\n"


def _example(sample: ScoredSample) -> str:
    question = " ".join(sample.question.split())
    shown = question if len(question) <= EXAMPLE else f"{question[:EXAMPLE]}…"
    return f"{sample.split} {one_line(sample.prompt_id[:19])}: {one_line(shown)}"
