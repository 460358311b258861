"""The teacher as a part of a reward: samples in, scores out, one budget for the whole run.

    part = TeacherPart(config, key=key, files=TeacherFiles.of(workspace))
    part.score(samples)          # a Component: Score or Missing for each, in order; may be called repeatedly

The scores of a judge that praises empty answers are not used: they are missing, with the reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from medloop.contracts import Missing, Sample, Score
from medloop.teacher import prompt_templates
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import NULL_CEILING, Progress, TeacherFiles, judge_all, scoring_version
from medloop.teacher.judge_items import JudgeItem


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
    name: Literal["teacher"] = "teacher"
    penalty: Literal[False] = False

    @property
    def version(self) -> str:
        """What determines a score: the model, the prompt, the fence, and how a verdict becomes a number."""
        template = prompt_templates.load(self.config.template)
        return f"{self.config.model}/{scoring_version(template.name, template.version)}"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        items = [JudgeItem(s.id, s.question, s.answer, s.context, self.priority(s)) for s in samples]
        run = judge_all(items, self._remaining_budget(), key=self.key, files=self.files, progress=self.progress)
        self.spent += run.cost
        self.calls += run.calls
        self.tokens += run.tokens
        self.degraded = run.degraded or self.degraded
        if run.null_mean is not None and run.null_mean > NULL_CEILING:
            self.degraded = f"empty answers scored {run.null_mean:.2f} (at most {NULL_CEILING} is acceptable)"
            reason = f"not trusted: {self.degraded}"
            return [Missing(name="teacher", reason=reason, author="teacher", version=self.version)] * len(items)
        return [result.score() for result in run.results]

    def _remaining_budget(self) -> TeacherConfig:
        """The configuration with what is left of the run's budget for the next call."""
        tokens = self.config.budget_tokens and max(1, self.config.budget_tokens - self.tokens)
        left = max(0.0, self.config.budget_usd - self.spent)
        return self.config.model_copy(update={"budget_usd": left, "budget_tokens": tokens})
