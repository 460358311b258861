"""Score answers with rules and summarise them per split, risk stratum and language, with intervals.

    scored = score_answers(answers, rules)
    result = summarise(scored, penalties=penalties_of(rules), label="sft", seed=42)

An answer that the model did not give is `Missing` for every rule: counted, never scored as 0. A rule that does not apply to a
question (it names no red flag) leaves it out of its average.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from medloop.bootstrap import LEVEL, RESAMPLES, interval
from medloop.contracts import Interval, Missing, ModelRef, ModelResult, Rule, Sample, Score, ScoredSample

WORST = 5


@dataclass(frozen=True)
class EvalAnswer:
    """A sample and what the report groups it by. A `truncated` answer reached the token limit; it is scored and counted."""

    sample: Sample
    split: str
    language: str
    strata: tuple[str, ...]
    truncated: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.split, self.sample.id

    @property
    def groups(self) -> tuple[str, ...]:
        return (*self.strata, f"language:{self.language}")


@dataclass(frozen=True)
class EvalScores:
    """One answer with one score per rule."""

    answer: EvalAnswer
    scores: tuple[Score | Missing, ...]

    def value(self, metric: str) -> float | None:
        """The value of one rule, or None when it is missing or does not apply."""
        score = next((score for score in self.scores if score.name == metric), None)
        return score.value if isinstance(score, Score) and score.applies else None

    def contract(self) -> ScoredSample:
        sample = self.answer.sample
        return ScoredSample(
            prompt_id=sample.id, split=self.answer.split, question=sample.question, answer=sample.answer or "",
            scores=self.scores,
        )  # fmt: skip


def score_answers(answers: Iterable[EvalAnswer], rules: Sequence[Rule]) -> tuple[EvalScores, ...]:
    return tuple(EvalScores(answer, tuple(_score(answer.sample, rule) for rule in rules)) for answer in answers)


def _score(sample: Sample, rule: Rule) -> Score | Missing:
    if sample.answer is None:
        return Missing(name=rule.name, reason=sample.why_missing, author=f"rule:{rule.name}", version=rule.version)
    return rule.score(sample.question, sample.answer)


def summarise(
    scored: Sequence[EvalScores],
    *,
    penalties: frozenset[str] = frozenset(),
    label: str,
    model: ModelRef | None = None,
    seed: int,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> ModelResult:
    """One model on all splits. The same scores and seed give the same result, whatever else is evaluated beside it."""
    metrics: dict[str, dict[str, Interval]] = {}
    by_group: dict[str, dict[str, dict[str, Interval]]] = {}
    for split in dict.fromkeys(scores.answer.split for scores in scored):
        of_split = [scores for scores in scored if scores.answer.split == split]
        metrics[split] = _intervals(of_split, split, seed, resamples, level)
        groups = sorted({group for scores in of_split for group in scores.answer.groups})
        by_group[split] = {
            group: _intervals([s for s in of_split if group in s.answer.groups], f"{split}/{group}", seed, resamples, level)
            for group in groups
        }
    return ModelResult(label=label, model=model, metrics=metrics, by_stratum=by_group, worst=worst(scored, penalties))


def _intervals(scored: Sequence[EvalScores], name: str, seed: int, resamples: int, level: float) -> dict[str, Interval]:
    intervals: dict[str, Interval] = {}
    for metric in dict.fromkeys(score.name for s in scored for score in s.scores):
        values = [value for s in scored if (value := s.value(metric)) is not None]
        missing = sum(isinstance(score, Missing) for s in scored for score in s.scores if score.name == metric)
        intervals[metric] = interval(
            values, seed=seed, name=f"{name}/{metric}", missing=missing, resamples=resamples, level=level
        )
    return intervals


def worst(scored: Sequence[EvalScores], penalties: frozenset[str], count: int = WORST) -> tuple[ScoredSample, ...]:
    """The answers that lose most over all rules, worst first; flawless ones are left out."""
    ranked = sorted(scored, key=lambda scores: (-loss(scores, penalties), *scores.answer.key))
    return tuple(scores.contract() for scores in ranked[:count] if loss(scores, penalties) > 0)


def loss(scores: EvalScores, penalties: frozenset[str]) -> float:
    """How far an answer is from perfect, summed over the rules that apply; missing scores do not count."""
    values = ((score.name, scores.value(score.name)) for score in scores.scores)
    return sum(value if name in penalties else 1 - value for name, value in values if value is not None)
