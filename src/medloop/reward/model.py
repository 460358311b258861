"""The trained reward model as one component of a reward: answers in, scores between 0 and 1 out.

    model = load_reward_model("first", settings)            # a name under models/reward, or a folder
    build_mix(config, given={"model": model})

The score is sigmoid((logit - mean) / std), with mean and std of the reference policy: 0.5 is an answer as it would give.
The same answer to the same question has the same score in any company. What cannot be read is missing, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import Message, Missing, Sample, Score
from medloop.models import runtime
from medloop.models.classify import Classifier, Encoded, Scoring, encode, open_classifier
from medloop.settings import Settings

BATCH = 32


@dataclass(frozen=True)
class RewardModel:
    """A component: `score(samples)`, batched. `version` names weights, base, tokenizer and centring by hash."""

    classifier: Classifier
    scoring: Scoring
    version: str
    name: str = "model"
    penalty: bool = False
    batch_size: int = BATCH

    @property
    def author(self) -> str:
        return f"reward model:{self.classifier.name}"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        """As many results as samples, in order."""
        read = [self._read(sample) for sample in samples]
        rows = [found.ids for found in read if isinstance(found, Encoded)]
        logits = iter(self.classifier.logits(rows, batch_size=self.batch_size))
        return [self._missing(found) if isinstance(found, str) else self._score(next(logits), found) for found in read]

    def _read(self, sample: Sample) -> Encoded | str:
        """The ids of question and answer, or why there is nothing to score."""
        if sample.answer is None:
            return sample.why_missing
        if not sample.answer.strip():
            return "the answer is empty"
        if not sample.question.strip():
            return "the question is empty"
        prompt = (Message(role="user", content=sample.question),)
        found = encode(self.classifier.tokenizer, prompt, sample.answer, max_length=self.scoring.max_length)
        return found or f"the answer leaves no room for the question in the {self.scoring.max_length} tokens the model reads"

    def _score(self, logit: float, row: Encoded) -> Score | Missing:
        if not math.isfinite(logit):
            return self._missing("the model's output is no number")
        away = (logit - self.scoring.mean) / self.scoring.std
        reason = f"logit {logit:+.2f}, {abs(away):.1f} spreads {'above' if away >= 0 else 'below'} the reference's mean"
        if row.cut_tokens:
            reason += f"; the first {row.cut_tokens} tokens of the question were cut"
        value = 0.5 * (1 + math.tanh(0.5 * away))  # sigmoid, without overflow
        return Score(name=self.name, value=value, reason=reason, author=self.author, version=self.version)

    def _missing(self, reason: str) -> Missing:
        return Missing(name=self.name, reason=reason, author=self.author, version=self.version)


def load_reward_model(model: str | Path, settings: Settings, *, batch_size: int = BATCH) -> RewardModel:
    """The reward model of a folder, or of that name under models/reward; checked to the last byte first."""
    device = runtime.device_of(settings, "reward.device")
    classifier, scoring = open_classifier(find_reward_model(model, settings), settings, device=device)
    return RewardModel(
        classifier, scoring, version=f"model-{classifier.sha256.removeprefix('sha256:')[:16]}", batch_size=batch_size
    )


def find_reward_model(model: str | Path, settings: Settings) -> Path:
    """Where it lies: as given, from the workspace, or by its name; the last guess is returned for the error to name."""
    given = Path(model).expanduser()
    places = (given, settings.home / given, settings.workspace.models / "reward" / given)
    return next((place for place in places if place.is_dir()), places[-1] if len(given.parts) == 1 else given)
