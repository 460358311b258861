"""The trained reward model as one component of a reward: answers in, scores between 0 and 1 out.

    model = load_reward_model("first", settings)            # a name under models/reward, or a folder
    build_mix(config, given={"model": model})
    model.judge("Is it flu?", "It may be the flu.")         -> (reward, spread)

The score is sigmoid((logit - mean) / std), with mean and std of the reference policy's answers: 0.5 is a typical answer of it.
The logit is lowered where the model does not know: by the spread of its heads, and by how far the answer is from those it was
trained on (models/heads.py). The same answer to the same question has the same score in any batch. An answer that cannot be read
is missing, never 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import Message, Missing, Sample, Score
from medloop.models import runtime
from medloop.models.classify import Scoring
from medloop.models.find import find_reward_model
from medloop.models.preference_model import BATCH, JudgedAnswer, PreferenceModel, open_preference_model
from medloop.settings import Settings


@dataclass(frozen=True)
class RewardModel:
    """A component: `score(samples)`, batched. `version` is the hash of weights, base, tokenizer and centring."""

    model: PreferenceModel
    scoring: Scoring
    version: str
    name: str = "model"
    penalty: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run has to say first that uses it: that it is worse than a baseline, for example."""
        return tuple(f"Reward model {self.model.name}: {warning}" for warning in self.model.warnings)

    @property
    def author(self) -> str:
        return f"reward model:{self.model.name}"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        """As many results as samples, in order."""
        return [self._missing(result) if isinstance(result, str) else self._score(result) for result in self.judgements(samples)]

    def judge(self, question: str, answer: str) -> tuple[float, float] | None:
        """(reward, spread) of one answer, both between 0 and 1; None where it cannot be read."""
        result = self.judgements([Sample(id="one", question=question, answer=answer)])[0]
        if isinstance(result, str) or not math.isfinite(result.lowered):
            return None
        above, below = (self.squash(result.mean + sign * result.spread) for sign in (1, -1))
        return self.squash(result.lowered), (above - below) / 2

    def judgements(self, samples: Sequence[Sample]) -> list[JudgedAnswer | str]:
        """Mean, spread and distance of each answer, in logits; a reason where there is nothing to judge."""
        reasons = [_why_missing(sample) for sample in samples]
        readable = [
            ((Message(role="user", content=sample.question),), sample.answer or "")
            for sample, reason in zip(samples, reasons, strict=True) if reason is None
        ]  # fmt: skip
        results = iter(self.model.judge(readable))
        return [next(results) if reason is None else reason for reason in reasons]

    def squash(self, logit: float) -> float:
        z = (logit - self.scoring.mean) / self.scoring.std
        return 0.5 * (1 + math.tanh(0.5 * z))  # sigmoid, without overflow

    def _score(self, result: JudgedAnswer) -> Score | Missing:
        if not math.isfinite(result.lowered):
            return self._missing("the model's output is not a number")
        z = (result.lowered - self.scoring.mean) / self.scoring.std
        reason = (
            f"logit {result.lowered:+.2f}, {abs(z):.1f} standard deviations {'above' if z >= 0 else 'below'} the reference mean"
        )
        if result.lowered < result.mean:
            far = f" and distance {result.distance:.1f}" if result.distance else ""
            reason += f"; lowered by {result.mean - result.lowered:.2f} for a spread of {result.spread:.2f}{far}"
        if result.dropped_tokens:
            reason += f"; the first {result.dropped_tokens} tokens of the question were truncated"
        value = self.squash(result.lowered)
        return Score(name=self.name, value=value, reason=reason, author=self.author, version=self.version)

    def _missing(self, reason: str) -> Missing:
        return Missing(name=self.name, reason=reason, author=self.author, version=self.version)


def _why_missing(sample: Sample) -> str | None:
    if sample.answer is None:
        return sample.why_missing
    if not sample.answer.strip():
        return "the answer is empty"
    return None if sample.question.strip() else "the question is empty"


def load_reward_model(model: str | Path, settings: Settings, *, batch_size: int = BATCH) -> RewardModel:
    """The reward model of a folder, or of that name under models/reward; verified byte by byte first."""
    device = runtime.device_of(settings, "reward.device")
    folder = find_reward_model(model, settings)
    opened, scoring = open_preference_model(folder, settings, device=device, batch_size=batch_size)
    return RewardModel(opened, scoring, version=f"model-{opened.sha256.removeprefix('sha256:')[:16]}")
