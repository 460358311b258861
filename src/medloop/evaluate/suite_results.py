"""Results of suites in a report: a suite is a split of its name, and a case that fails a critical metric is named.

scored = suite_scores(result)                         # like the scores of a split, so that everything compares them alike
"""

from collections.abc import Iterable, Mapping, Sequence

from medloop.contracts import CriticalFailure, Rule, Sample, Score, SuiteResult, SuiteSummary
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import ConfigError
from medloop.evaluate.run import EvalAnswer, EvalScores

Results = Mapping[str, Sequence[SuiteResult]]  # of each model, by label


def suite_scores(result: SuiteResult) -> tuple[EvalScores, ...]:
    """A case without an answer (the suite read likelihoods) has its scores all the same."""
    return tuple(
        EvalScores(
            EvalAnswer(
                Sample(id=case.id, question=case.question, answer=case.answer, why_missing="the suite asked for no answer"),
                result.suite, case.language, case.strata, case.truncated,
            ),
            case.scores,
        )
        for case in result.cases
    )  # fmt: skip


def summaries(results: Results) -> tuple[SuiteSummary, ...]:
    """Each suite once, with notes and tables of every model; baselines and inputs are those of the cases."""
    names = list(dict.fromkeys(result.suite for of_model in results.values() for result in of_model))
    return tuple(_summary(name, results) for name in names)


def _summary(name: str, results: Results) -> SuiteSummary:
    by_label = {label: result for label, of_model in results.items() for result in of_model if result.suite == name}
    first = next(iter(by_label.values()))
    return SuiteSummary(
        suite=name, version=first.version, metrics=first.metrics, baselines=first.baselines, inputs=first.inputs,
        notes={label: result.notes for label, result in by_label.items() if result.notes},
        tables={label: result.tables for label, result in by_label.items() if result.tables},
    )  # fmt: skip


def penalties_of(rules: Iterable[Rule], results: Results | None = None) -> frozenset[str]:
    """Names of the rules and of the suites' metrics whose high value is bad; a name has one direction in a report."""
    directions = {rule.name: rule.penalty for rule in rules}
    for metric in (metric for of_model in (results or {}).values() for result in of_model for metric in result.metrics):
        if directions.setdefault(metric.name, metric.penalty) != metric.penalty:
            raise ConfigError(
                f"The metric '{metric.name}' is a penalty in one place of this report and not in another",
                "Give the metric of your suite another name",
            )
    return frozenset(name for name, penalty in directions.items() if penalty)


def critical_failures(results: Results) -> tuple[CriticalFailure, ...]:
    """Every case that fails a critical metric. It is new where the first model does not fail it, or has no score for it."""
    baseline: set[tuple[str, str, str]] = set()
    failures = []
    for place, (label, of_model) in enumerate(results.items()):
        for result in of_model:
            critical = {metric.name: metric for metric in result.metrics if metric.critical}
            for case in result.cases:
                for score in case.scores:
                    if not isinstance(score, Score) or not score.applies or score.name not in critical:
                        continue
                    if not critical[score.name].fails(score.value):
                        continue
                    key = (result.suite, score.name, case.id)
                    if place == 0:
                        baseline.add(key)
                    failures.append(
                        CriticalFailure(
                            label=label, suite=result.suite, metric=score.name, case=case.id, language=case.language,
                            strata=case.strata, new=key not in baseline,
                        )
                    )  # fmt: skip
    return tuple(failures)


def check_result(result: SuiteResult, declared: str) -> SuiteResult:
    """What a suite returned, in the form that a report can hold: its own name, no split's; each case once; its own metrics."""
    if result.suite != declared or result.suite in SPLIT_FILES:
        raise ConfigError(
            f"The suite '{declared}' returned a result named '{result.suite}'", "A suite keeps its name, and no split has it"
        )
    ids = [case.id for case in result.cases]
    if len(set(ids)) < len(ids):
        raise ConfigError(f"The suite '{declared}' has two cases of the same id", "Give each case its own id")
    known = {metric.name for metric in result.metrics}
    if unknown := sorted({score.name for case in result.cases for score in case.scores} - known):
        raise ConfigError(f"The suite '{declared}' scored {unknown[0]}, which is not one of its metrics", "Declare it")
    return result
