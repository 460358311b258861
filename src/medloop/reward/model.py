"""The trained reward model as one component of a reward: answers in, scores between 0 and 1 out.

    model = load_reward_model("first", settings)            # a name under models/reward, or a folder
    build_mix(config, given={"model": model})

The score is sigmoid((logit - mean) / std), with mean and std of the reference policy's answers: 0.5 is a typical answer of it.
The same answer to the same question has the same score in any batch. An answer that cannot be read is missing, never 0.
"""

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
    """A component: `score(samples)`, batched. `version` is the hash of weights, base, tokenizer and centring."""

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
        inputs = [self._encode(sample) for sample in samples]
        rows = [encoded.ids for encoded in inputs if isinstance(encoded, Encoded)]
        logits = iter(self.classifier.logits(rows, batch_size=self.batch_size))
        return [self._missing(row) if isinstance(row, str) else self._score(next(logits), row) for row in inputs]

    def _encode(self, sample: Sample) -> Encoded | str:
        """The ids of question and answer, or why there is nothing to score."""
        if sample.answer is None:
            return sample.why_missing
        if not sample.answer.strip():
            return "the answer is empty"
        if not sample.question.strip():
            return "the question is empty"
        prompt = (Message(role="user", content=sample.question),)
        encoded = encode(self.classifier.tokenizer, prompt, sample.answer, max_length=self.scoring.max_length)
        return encoded or f"the answer leaves no room for the question within the {self.scoring.max_length} tokens of the model"

    def _score(self, logit: float, row: Encoded) -> Score | Missing:
        if not math.isfinite(logit):
            return self._missing("the model's output is not a number")
        z = (logit - self.scoring.mean) / self.scoring.std
        reason = f"logit {logit:+.2f}, {abs(z):.1f} standard deviations {'above' if z >= 0 else 'below'} the reference mean"
        if row.dropped_tokens:
            reason += f"; the first {row.dropped_tokens} tokens of the question were truncated"
        value = 0.5 * (1 + math.tanh(0.5 * z))  # sigmoid, without overflow
        return Score(name=self.name, value=value, reason=reason, author=self.author, version=self.version)

    def _missing(self, reason: str) -> Missing:
        return Missing(name=self.name, reason=reason, author=self.author, version=self.version)


def load_reward_model(model: str | Path, settings: Settings, *, batch_size: int = BATCH) -> RewardModel:
    """The reward model of a folder, or of that name under models/reward; verified byte by byte first."""
    device = runtime.device_of(settings, "reward.device")
    classifier, scoring = open_classifier(find_reward_model(model, settings), settings, device=device)
    return RewardModel(
        classifier, scoring, version=f"model-{classifier.sha256.removeprefix('sha256:')[:16]}", batch_size=batch_size
    )


def find_reward_model(model: str | Path, settings: Settings) -> Path:
    """Its folder: as given, relative to the workspace, or by its name; the last guess is returned for the error message."""
    path = Path(model).expanduser()
    folders = (path, settings.home / path, settings.workspace.models / "reward" / path)
    return next((folder for folder in folders if folder.is_dir()), folders[-1] if len(path.parts) == 1 else path)
