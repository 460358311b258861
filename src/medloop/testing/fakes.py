"""Stand-ins with the same face as the real thing, for tests and for trying a pipeline without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from medloop.contracts import Completion, Message, Missing, ModelRef, Reward, Sample, Score, canonical_json, sha256_id
from medloop.models.context_limits import ContextLimits
from medloop.settings import Settings


class FakeGenerate:
    """Answers from a dictionary by the last thing the user said; `calls` counts the prompts it was asked."""

    def __init__(self, answers: Mapping[str, str], default: str | None = None, name: str = "fake") -> None:
        self.answers = dict(answers)
        self.default = default
        self.name = name
        self.calls = 0

    def with_passages(
        self, messages: Sequence[Message], passages: Sequence[str], limits: ContextLimits
    ) -> tuple[Sequence[Message], tuple[str, ...]]:
        """Its answers are by question, so it reads no passages."""
        return messages, ()

    def __call__(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        batch_size: int = 16,
        progress: Callable[[int, int], None] | None = None,
        on_answers: Callable[[Mapping[int, Completion]], None] | None = None,
    ) -> list[Completion]:
        """A question it has no answer to ends in `finish_reason="error"`, like a prompt that does not fit."""
        completions: list[Completion] = []
        for start in range(0, len(prompts), batch_size):
            new = [self._answer(prompt, temperature) for prompt in prompts[start : start + batch_size]]
            self.calls += len(new)
            completions += new
            if on_answers is not None:
                on_answers(dict(enumerate(new, start)))
            if progress is not None:
                progress(len(completions), len(prompts))
        return completions

    def _answer(self, prompt: Sequence[Message], temperature: float) -> Completion:
        question = next(message.content for message in reversed(prompt) if message.role == "user")
        text = self.answers.get(question, self.default)
        name = sha256_id(canonical_json([message.model_dump() for message in prompt]))
        reason = "error" if text is None else "stop"
        return Completion.model_validate(
            {"prompt_id": name, "model": self.name, "text": text or "", "finish_reason": reason, "temperature": temperature}
        )

    def opener(self) -> Callable[[ModelRef, Settings], tuple[Mapping[str, str | None], Callable[[], FakeGenerate]]]:
        """What `loop.evaluate_models` takes as `open_model`; the identity is the hash of the answers."""
        identity = {"base": sha256_id(canonical_json([self.answers, self.default])), "adapter": None}
        return lambda ref, settings: (identity, lambda: self)


class FakeScorer:
    """A Scorer that judges by a function of your own; None is a missing reward. `seen` counts the samples."""

    objective = None  # it does not say what it rewards

    def __init__(self, judge: Callable[[Sample], float | None], version: str = "fake-1") -> None:
        self.judge = judge
        self.version = version
        self.seen = 0

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        self.seen += len(samples)
        return [self._reward(sample) for sample in samples]

    def _reward(self, sample: Sample) -> Reward:
        value = self.judge(sample)
        if value is None:
            part: Score | Missing = Missing(name="fake", reason="not judged", author="fake", version=self.version)
            return Reward(value=None, parts=(part,), weights={}, version=self.version, reason="fake: not judged")
        part = Score(name="fake", value=min(1.0, max(0.0, value)), reason="judged", author="fake", version=self.version)
        return Reward(value=value, parts=(part,), weights={"fake": 1.0}, version=self.version)
