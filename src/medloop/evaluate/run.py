"""Score answers with rules and sum them up: per split, per stratum, per language, with intervals.

    scored = score_samples(samples, rules)
    result = summarise(scored, label="sft", seed=42)        # or both at once: evaluate(samples, rules, ...)

An answer that could not be had is `Missing` for every rule: counted, never scored as 0. A rule that does not apply to a
question (no red flag asked) leaves it out of its average. Works on answers; where they come from is not its business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from medloop.bootstrap import RESAMPLES, interval
from medloop.contracts import Interval, Missing, ModelRef, ModelResult, Rule, Score, ScoredSample

WORST = 5


@dataclass(frozen=True)
class Sample:
    """One question and one model's answer; `answer=None` says with `why_missing` that there is none.

    `cut_off`: the answer ran into the token limit. It is scored as it stands, and counted.
    """

    prompt_id: str
    split: str
    language: str
    strata: tuple[str, ...]
    question: str
    answer: str | None
    why_missing: str = "no answer"
    cut_off: bool = False


@dataclass(frozen=True)
class Scored:
    sample: Sample
    scores: tuple[Score | Missing, ...]

    def value(self, metric: str) -> float | None:
        """The number of one rule, or None when it is missing or does not apply."""
        found = next((s for s in self.scores if s.name == metric), None)
        return found.value if isinstance(found, Score) and found.applies else None

    def contract(self) -> ScoredSample:
        s = self.sample
        return ScoredSample(prompt_id=s.prompt_id, split=s.split, question=s.question, answer=s.answer or "", scores=self.scores)


def evaluate(
    samples: Iterable[Sample],
    rules: Sequence[Rule],
    *,
    label: str = "model",
    model: ModelRef | None = None,
    seed: int = 42,
    resamples: int = RESAMPLES,
) -> ModelResult:
    """Score and sum up in one go."""
    scored = score_samples(samples, rules)
    return summarise(scored, penalties=penalties_of(rules), label=label, model=model, seed=seed, resamples=resamples)


def score_samples(samples: Iterable[Sample], rules: Sequence[Rule]) -> tuple[Scored, ...]:
    return tuple(Scored(sample, tuple(_score(sample, rule) for rule in rules)) for sample in samples)


def _score(sample: Sample, rule: Rule) -> Score | Missing:
    if sample.answer is None:
        return Missing(name=rule.name, reason=sample.why_missing, author=f"rule:{rule.name}", version=rule.version)
    return rule.score(sample.question, sample.answer)


def penalties_of(rules: Iterable[Rule]) -> frozenset[str]:
    """Names of the rules of which a high value is bad."""
    return frozenset(rule.name for rule in rules if rule.penalty)


def summarise(
    scored: Sequence[Scored],
    *,
    penalties: frozenset[str] = frozenset(),
    label: str,
    model: ModelRef | None = None,
    seed: int,
    resamples: int = RESAMPLES,
) -> ModelResult:
    """One model on all splits. The same scores and seed give the same result, whatever else is evaluated beside it."""
    metrics: dict[str, dict[str, Interval]] = {}
    parts: dict[str, dict[str, dict[str, Interval]]] = {}
    for split in dict.fromkeys(s.sample.split for s in scored):
        here = [s for s in scored if s.sample.split == split]
        metrics[split] = _intervals(here, f"{split}", seed, resamples)
        names = sorted({name for s in here for name in _parts_of(s.sample)})
        parts[split] = {
            name: _intervals([s for s in here if name in _parts_of(s.sample)], f"{split}/{name}", seed, resamples)
            for name in names
        }
    return ModelResult(label=label, model=model, metrics=metrics, by_stratum=parts, worst=worst(scored, penalties))


def _parts_of(sample: Sample) -> tuple[str, ...]:
    return (*sample.strata, f"language:{sample.language}")


def _intervals(scored: Sequence[Scored], name: str, seed: int, resamples: int) -> dict[str, Interval]:
    found: dict[str, Interval] = {}
    for metric in dict.fromkeys(score.name for s in scored for score in s.scores):
        values = [value for s in scored if (value := s.value(metric)) is not None]
        missing = sum(isinstance(score, Missing) for s in scored for score in s.scores if score.name == metric)
        found[metric] = interval(values, seed=seed, name=f"{name}/{metric}", missing=missing, resamples=resamples)
    return found


def worst(scored: Sequence[Scored], penalties: frozenset[str], count: int = WORST) -> tuple[ScoredSample, ...]:
    """The answers that lose most over all rules, worst first; flawless ones are left out."""
    ranked = sorted(scored, key=lambda s: (-loss(s, penalties), s.sample.split, s.sample.prompt_id))
    return tuple(s.contract() for s in ranked[:count] if loss(s, penalties) > 0)


def loss(scored: Scored, penalties: frozenset[str]) -> float:
    """How much a sample lacks to perfection, summed over the rules that apply; missing scores count nothing."""
    values = ((score.name, scored.value(score.name)) for score in scored.scores)
    return sum(value if name in penalties else 1 - value for name, value in values if value is not None)
