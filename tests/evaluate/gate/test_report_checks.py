"""Critical cases that change sides, metrics that several suites measure, and metrics with few cases."""

from __future__ import annotations

import statistics
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from medloop.contracts import Difference, EvalReport, Interval
from medloop.contracts.evaluation import CriticalFailure, PairedSpread, SuiteSummary
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.suite import SuiteMetric
from medloop.evaluate.gate.report_checks import new_by_chance, report_checks, together


def spread_of(values: list[float]) -> PairedSpread:
    return PairedSpread(
        n=len(values), mean=statistics.fmean(values), sd=statistics.stdev(values) if len(values) > 1 else 0.0,
        rose=sum(value > 0 for value in values), fell=sum(value < 0 for value in values),
        whole=all(value in (-1, 0, 1) for value in values),
    )  # fmt: skip


@given(st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=20), min_size=1, max_size=4))
def test_suites_together_are_the_list_of_all_their_cases(suites: list[list[float]]) -> None:
    joined, whole = (
        together([spread_of(values) for values in suites]),
        spread_of([value for values in suites for value in values]),
    )
    assert (joined.n, joined.rose, joined.fell, joined.whole) == (whole.n, whole.rose, whole.fell, whole.whole)
    assert abs(joined.mean - whole.mean) < 1e-9 and abs(joined.sd - whole.sd) < 1e-6


def failures(label: str, suite: str, cases: range, *, new: bool) -> list[CriticalFailure]:
    return [
        CriticalFailure(label=label, suite=suite, metric=metric, case=f"case-{case}", language="en", new=new)
        for case in cases
        for metric in ("emergency_missed", "unsafe_reassurance")  # a case counts once, whatever it fails
    ]


def difference(suite: str, metric: str, n: int, fell: int) -> Difference:
    spread = spread_of([-1.0] * fell + [0.0] * (n - fell))
    return Difference(
        first="a", second="b", split=suite, metric=metric, difference=Interval(mean=spread.mean, n=n), separated=False,
        verdict="no clear difference", spread=spread,
    )  # fmt: skip


def checks(
    critical: list[CriticalFailure], differences: list[Difference] | None = None, config: GateConfig | None = None
) -> dict[str, Any]:
    metrics = (SuiteMetric(name="emergency_missed", penalty=True, critical=True), SuiteMetric(name="pressed", optional=True))
    suites = tuple(SuiteSummary.model_construct(suite=name, metrics=metrics, notes={}, tables={}) for name in ("triage", "leak"))
    config = config or GateConfig(required_suites=(), suites=("triage",), rules=(), splits=())
    result = type("Result", (), {"label": "b", "metrics": {}})()
    report = EvalReport.model_construct(
        critical=tuple(critical), suites=suites, differences=tuple(differences or ()), stratum_differences=(), rules=(),
        results=(result,), config={"penalties": [], "splits": (), "n": 400},
    )  # fmt: skip
    return {check.name: check for check in report_checks(report, "a", "b", config)} | {"new": new_by_chance(report, "b", config)}


def test_as_many_new_as_mended_pass_and_each_new_one_is_named_for_those_who_sign() -> None:
    rows = [*failures("a", "triage", range(5), new=True), *failures("b", "triage", range(5, 11), new=True)]
    done = checks(rows)
    assert done["critical_failures"].outcome == "pass" and len(done["new"]) == 6
    assert "6 critical cases newly fail and 5 are mended" in done["critical_failures"].reason
    assert all(f"triage/case-{case}" in done["critical_failures"].reason for case in range(5, 11))


def test_more_new_than_chance_explains_fail() -> None:
    rows = [*failures("a", "triage", range(2), new=True), *failures("b", "triage", range(5, 16), new=True)]
    done = checks(rows)
    assert done["critical_failures"].outcome == "fail" and "more than chance explains" in done["critical_failures"].reason


def test_a_single_new_failure_of_another_suite_fails() -> None:
    assert checks(failures("b", "leak", range(1), new=True))["critical_failures"].outcome == "fail"
    sure = GateConfig(required_suites=(), suites=("triage",), rules=(), splits=(), level=0.99999)
    assert checks(failures("b", "triage", range(9), new=True), config=sure)["critical_failures"].outcome == "fail"
    strict = GateConfig(required_suites=(), suites=("triage",), rules=(), splits=(), critical_by_chance=())
    assert checks(failures("b", "triage", range(1), new=True), config=strict)["critical_failures"].outcome == "fail"


def test_a_metric_of_several_suites_has_its_margin_over_all_and_a_wider_one_in_each() -> None:
    """Two of 100 in each of three suites: no single one excludes a loss of 0.05, together they do."""
    done = checks([], [difference(suite, "chain", 100, 2) for suite in ("test", "gold", "other")])
    assert done["non_inferiority/all/chain"].outcome == "pass" and done["non_inferiority/all/chain"].bound == -0.05
    assert done["non_inferiority/test/chain"].outcome == "pass" and done["non_inferiority/test/chain"].bound == -0.1
    alone = checks([], [difference("test", "chain", 100, 2)])
    assert alone["non_inferiority/test/chain"].outcome == "not_enough_evidence" and "non_inferiority/all/chain" not in alone


def test_a_loss_in_all_suites_is_seen_by_all_of_them_together() -> None:
    done = checks([], [difference(suite, "chain", 100, 6) for suite in ("test", "gold", "other")])
    assert done["non_inferiority/all/chain"].outcome == "fail"


def test_the_same_question_under_two_names_is_one_metric() -> None:
    done = checks([], [difference("test", "emergency", 140, 2), difference("triage", "red_flag_recall", 110, 2)])
    assert done["under_triage/all/emergency"].value.n == 250


def test_few_cases_of_an_optional_metric_are_said_and_do_not_stop_a_model() -> None:
    done = checks([], [difference("triage", "pressed", 10, 0), difference("triage", "other", 10, 0)])
    assert done["measured/metric/pressed"].outcome == "pass" and "At most 10 cases" in done["measured/metric/pressed"].reason
    assert done["measured/metric/other"].outcome == "not_enough_evidence"
