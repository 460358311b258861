"""The teacher as a part of a reward: samples in, scores out, one budget for the whole run.

    part = TeacherPart(config, key=key, files=TeacherFiles.of(workspace))
    part.score(samples)          # a Component: Score or Missing for each, in order; may be called repeatedly
    part.views["risk"]           # `teacher.risk`: one entry of the same verdicts as a part of its own, without another request

With `mode: group` the score comes from the rank among all answers to the same question; a question with one answer has none.
The scores of a judge that praises empty answers, or that ranks by place, are not used: they are missing, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from medloop.contracts import Missing, Sample, Score
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import NULL_CEILING, JudgeRun, TeacherFiles, judge_all, position_alarm
from medloop.teacher.judge_items import JudgeItem
from medloop.teacher.judge_work import JudgeResult, Progress, scoring_version, template_of
from medloop.teacher.verdict import RUBRIC_PARTS


@dataclass
class TeacherPart:
    """A Component. `spent` (USD), `calls`, `tokens` and `degraded` are totals of the run so far."""

    config: TeacherConfig
    key: str
    files: TeacherFiles
    progress: Progress | None = None
    priority: Callable[[Sample], int] = lambda sample: 0
    spent: float = 0.0
    calls: int = 0
    tokens: int = 0
    degraded: str = ""
    agreements: list[float] = field(default_factory=list)
    name: Literal["teacher"] = "teacher"
    penalty: Literal[False] = False
    _judged: tuple[tuple[Sample, ...], list[JudgeResult]] = ((), [])

    @property
    def version(self) -> str:
        """What determines a score: the model, the prompt, the fence, and how a verdict becomes a number."""
        template = template_of(self.config)
        return f"{self.config.model}/{scoring_version(template.name, template.version)}"

    @property
    def compares(self) -> bool:
        """Whether a score depends on the other answers to the same question."""
        return self.config.mode == "group"

    @property
    def views(self) -> Mapping[str, RubricPart]:
        """The entries of a verdict that a mix may take as `teacher.NAME`; a ranking has only `risk`."""
        return {name: RubricPart(self, name) for name in (("risk",) if self.compares else RUBRIC_PARTS)}

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [result.score() for result in self.judge(samples)]

    def judge(self, samples: Sequence[Sample]) -> list[JudgeResult]:
        """The results in order; the same samples again, for another part of the verdict, cause no request."""
        if self._judged[0] != tuple(samples):
            self._judged = (tuple(samples), self._judge(samples))
        return self._judged[1]

    def _judge(self, samples: Sequence[Sample]) -> list[JudgeResult]:
        items = [JudgeItem(s.id, s.question, s.answer, s.context, self.priority(s), s.group) for s in samples]
        run = judge_all(items, self._remaining_budget(), key=self.key, files=self.files, progress=self.progress)
        self.spent += run.cost
        self.calls += run.calls
        self.tokens += run.tokens
        self.agreements += run.agreements
        reasons = [reason for reason, _ in run.missing.most_common(1)]
        self.degraded = run.degraded or next(iter(reasons), "") or self.degraded
        if alarm := self._alarm(run):
            self.degraded = alarm
            return [replace(result, judgement=None, missing=f"not trusted: {alarm}") for result in run.results]
        return list(run.results)

    def _alarm(self, run: JudgeRun) -> str:
        if run.null_mean is not None and run.null_mean > NULL_CEILING:
            return f"empty answers scored {run.null_mean:.2f} (at most {NULL_CEILING} is acceptable)"
        return position_alarm(self.agreements, self.config)

    def _remaining_budget(self) -> TeacherConfig:
        """The configuration with what is left of the run's budget for the next call."""
        tokens = self.config.budget_tokens and max(1, self.config.budget_tokens - self.tokens)
        left = max(0.0, self.config.budget_usd - self.spent)
        return self.config.model_copy(update={"budget_usd": left, "budget_tokens": tokens})

    @property
    def notes(self) -> tuple[str, ...]:
        """For the objective of a run."""
        return (RELATIVE,) if self.compares else ()


RELATIVE = (
    "The teacher ranks the answers to each question. Held-out checks do without it: ranks of two checks cannot be compared."
)


@dataclass(frozen=True)
class RubricPart:
    """One entry of the teacher's verdicts as a Component: `teacher.urgency`, `teacher.risk`, …"""

    teacher: TeacherPart
    part: str

    @property
    def name(self) -> str:
        return f"teacher.{self.part}"

    @property
    def compares(self) -> bool:
        return self.teacher.compares

    @property
    def penalty(self) -> bool:
        return RUBRIC_PARTS[self.part][1]

    @property
    def version(self) -> str:
        return f"{self.teacher.version}/{self.part}"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [self._of(result) for result in self.teacher.judge(samples)]

    def _of(self, result: JudgeResult) -> Score | Missing:
        whole, judgement = result.score(), result.judgement
        if not isinstance(whole, Score) or judgement is None:
            return whole.model_copy(update={"name": self.name})
        entry, _ = RUBRIC_PARTS[self.part]
        is_present = judgement.rubric.get(entry, False) or (entry == "dangerous_advice" and judgement.safety_flag)
        quote = judgement.evidence.get(entry)
        words = f"{entry}: {'yes' if is_present else 'no'}" + (f", “{quote}”" if quote else "")
        update = {"name": self.name, "value": float(is_present), "reason": words, "suggested_answer": None}
        return whole.model_copy(update=update)
