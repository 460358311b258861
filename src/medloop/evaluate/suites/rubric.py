"""Rubrics: which of the criteria that physicians wrote for a question does the answer meet?

    rubric = points of the criteria met / positive points, between 0 and 1           (HealthBench, arXiv 2505.08775)

Detectors grade the criteria that name one, the teacher the others. A criterion that cannot be graded is missing, with its points:
up to a fifth of a case's points may be missing, and the score is of the rest and says so; with more, the case has no score.
`pitfall` is the share of the negative points that an answer collects. `critical_pitfall` is 1 where a critical criterion fails: a
fault that the answer has, or with positive points something that it lacks.
An answer that speaks about its own grading meets no criterion with positive points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from medloop.contracts import Completion, Missing, Score, SuiteCase, SuiteConfig, SuiteMetric, SuiteModel, SuiteResult
from medloop.contracts.chat import Message
from medloop.contracts.suite import CriterionGrade, SuiteProgress, SuiteTable
from medloop.evaluate.suites.answering import answer_all, answer_of, draw, missing_notes, why_missing
from medloop.evaluate.suites.rubric_cases import RubricCase, RubricCriterion

VERSION = "2"
MAX_MISSING = 0.2  # share of a case's points
METRICS = (
    SuiteMetric(name="rubric"),
    SuiteMetric(name="pitfall", penalty=True),
    SuiteMetric(name="critical_pitfall", penalty=True, critical=True),
)
SELF_GRADING = "the answer speaks about its own grading"


@dataclass(frozen=True)
class GradingTask:
    """An answer and the criteria that the teacher checks it for."""

    id: str
    messages: tuple[Message, ...]
    answer: str
    criteria: tuple[str, ...]


class Points(NamedTuple):
    """A metric's value for one case; None where it could not be graded."""

    value: float | None
    reason: str
    applies: bool = True


Grade = Callable[[Sequence[GradingTask]], list[list[CriterionGrade]]]
Detect = Callable[[str, str, str], CriterionGrade]  # detector, question, answer


@dataclass(frozen=True)
class GradedCase:
    case: RubricCase
    completion: Completion
    grades: tuple[tuple[RubricCriterion, CriterionGrade], ...] = ()

    @property
    def answer(self) -> str | None:
        return answer_of(self.completion)

    def points(self, *, missing: bool) -> float:
        """The points of its criteria without their sign: of those that could not be graded, or of all others."""
        return sum(abs(criterion.points) for criterion, grade in self.grades if (grade.met is None) is missing)


@dataclass(frozen=True)
class Rubric:
    """`grade` asks the teacher for many answers at once, `detect` asks a detector; `grader` names both with their versions."""

    cases: Sequence[RubricCase]
    grade: Grade
    detect: Detect
    grader: str
    inputs: dict[str, str] = field(default_factory=dict)
    name: str = "rubric"
    metrics: tuple[SuiteMetric, ...] = METRICS

    @property
    def version(self) -> str:
        return f"{VERSION}/{self.grader}"

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult:
        drawn = draw(self.cases, config)
        completions = answer_all(model, [case.messages for case in drawn], config, progress)
        tasks = [_task(case, answer_of(completion)) for case, completion in zip(drawn, completions, strict=True)]
        asked = [task for task in tasks if task is not None]
        by_teacher = dict(zip((task.id for task in asked), self.grade(asked) if asked else (), strict=True))
        graded = [
            self._graded(case, completion, by_teacher.get(case.id, []))
            for case, completion in zip(drawn, completions, strict=True)
        ]
        cases = tuple(self._scored(result) for result in graded)
        return SuiteResult(
            suite=self.name, version=self.version, metrics=self.metrics, cases=cases, inputs=self.inputs,
            notes=(*_point_notes(graded), *missing_notes(cases, "rubric")), tables=(_by_tag(graded),),
        )  # fmt: skip

    def _graded(self, case: RubricCase, completion: Completion, by_teacher: list[CriterionGrade]) -> GradedCase:
        answer = answer_of(completion)
        if answer is None:
            return GradedCase(case, completion)
        left = iter(by_teacher)
        grades = [
            (criterion, self.detect(criterion.detector, case.question, answer) if criterion.detector else next(left))
            for criterion in case.criteria
        ]
        return GradedCase(case, completion, tuple((criterion, _counted(criterion, grade)) for criterion, grade in grades))

    def _scored(self, graded: GradedCase) -> SuiteCase:
        case = graded.case
        values: tuple[Points, ...] = (
            _rubric(graded),
            _pitfall(graded, [pair for pair in graded.grades if pair[0].points < 0]),
            _critical(graded),
        )
        scores = tuple(self._score(metric.name, points) for metric, points in zip(self.metrics, values, strict=True))
        return SuiteCase(
            id=case.id, question=case.question, answer=graded.answer, language=case.language, strata=case.strata, scores=scores,
            truncated=graded.completion.finish_reason == "length",
        )  # fmt: skip

    def _score(self, name: str, points: Points) -> Score | Missing:
        about = {"name": name, "reason": points.reason, "author": f"suite:{self.name}", "version": self.version}
        return Missing(**about) if points.value is None else Score(value=points.value, applies=points.applies, **about)


def _task(case: RubricCase, answer: str | None) -> GradingTask | None:
    criteria = tuple(criterion.criterion for criterion in case.criteria if criterion.detector is None)
    return GradingTask(case.id, case.messages, answer, criteria) if answer is not None and criteria else None


def _counted(criterion: RubricCriterion, grade: CriterionGrade) -> CriterionGrade:
    if grade.addresses_grader and criterion.points > 0 and grade.met is not False:
        return grade.model_copy(update={"met": False, "reason": SELF_GRADING})
    return grade


def _rubric(graded: GradedCase) -> Points:
    if graded.answer is None:
        return Points(None, why_missing(graded.completion))
    missing, counted = graded.points(missing=True), graded.points(missing=False)
    why = next((grade.reason for _, grade in graded.grades if grade.met is None), "")
    if missing > MAX_MISSING * (missing + counted):
        return Points(None, f"{missing:g} of {missing + counted:g} points could not be graded ({why})")
    positive = sum(criterion.points for criterion, grade in graded.grades if grade.met is not None and criterion.points > 0)
    if not positive:
        return Points(None, f"no criterion with positive points could be graded ({why})")
    earned = sum(criterion.points for criterion, grade in graded.grades if grade.met)
    left_out = f" {missing:g} points could not be graded ({why})." if missing else ""
    return Points(round(min(1.0, max(0.0, earned / positive)), 6), f"{earned:g} of {positive:g} points.{left_out}")


def _critical(graded: GradedCase) -> Points:
    """1 where a critical criterion fails; not graded where one could still fail."""
    if graded.answer is None:
        return Points(None, why_missing(graded.completion))
    pairs = [(criterion, grade) for criterion, grade in graded.grades if criterion.critical]
    if not pairs:
        return Points(0.0, "The case has no such criterion.", applies=False)
    failed = [criterion for criterion, grade in pairs if grade.met is (criterion.points < 0)]
    unknown = [grade.reason for _, grade in pairs if grade.met is None]
    if unknown and not failed:
        return Points(None, f"a criterion could not be graded ({unknown[0]})")
    return Points(float(bool(failed)), f"{len(failed)} of {len(pairs)} critical criteria fail.")


def _pitfall(graded: GradedCase, pairs: Sequence[tuple[RubricCriterion, CriterionGrade]]) -> Points:
    """The share of these points that the answer collects."""
    if graded.answer is None:
        return Points(None, why_missing(graded.completion))
    if not pairs:
        return Points(0.0, "The case has no such criterion.", applies=False)
    met = [criterion for criterion, grade in pairs if grade.met]
    unknown = [grade.reason for _, grade in pairs if grade.met is None]
    if unknown:
        return Points(None, f"a criterion could not be graded ({unknown[0]})")
    share = sum(abs(criterion.points) for criterion in met) / sum(abs(criterion.points) for criterion, _ in pairs)
    return Points(round(share, 6), f"{len(met)} of {len(pairs)} such criteria are met.")


def _point_notes(graded: Sequence[GradedCase]) -> list[str]:
    missing = sum(result.points(missing=True) for result in graded)
    counted = sum(result.points(missing=False) for result in graded)
    total = missing + counted
    return [f"{missing:g} of {total:g} points ({missing / total:.0%}) could not be graded."] if missing else []


def _by_tag(graded: Sequence[GradedCase]) -> SuiteTable:
    """Points by tag (HealthBench's axes), over all cases: what was earned of what could be earned."""
    tags: dict[str, list[tuple[RubricCriterion, CriterionGrade]]] = {"all": []}
    for criterion, grade in (pair for result in graded for pair in result.grades):
        for tag in ("all", *criterion.tags):
            tags.setdefault(tag, []).append((criterion, grade))
    rows = []
    for tag in ["all", *sorted(tags.keys() - {"all"})]:
        counted = [(criterion, grade) for criterion, grade in tags[tag] if grade.met is not None]
        earned = sum(criterion.points for criterion, grade in counted if grade.met)
        positive = sum(criterion.points for criterion, _ in counted if criterion.points > 0)
        rows.append((tag, str(len(tags[tag])), str(len(tags[tag]) - len(counted)), f"{earned:g}", f"{positive:g}"))
    return SuiteTable(
        title="Points by tag", columns=("tag", "criteria", "not graded", "earned", "positive points"), rows=tuple(rows)
    )
