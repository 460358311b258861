"""A model that says and believes what a test tells it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from medloop.contracts import Completion, Message
from medloop.contracts.suite import LikelihoodPrompt, LogLikelihood, SuiteConfig


@dataclass
class ScriptedModel:
    """`likelihood` gives the log-likelihood of a continuation, `says` the answer to a question (None: it does not fit)."""

    likelihood: Callable[[LikelihoodPrompt, str], LogLikelihood | float] = lambda prompt, continuation: -1.0
    says: Callable[[str], str | None] = lambda question: ""
    label: str = "scripted"
    identity: dict[str, str | None] = field(default_factory=dict)

    def log_likelihoods(self, pairs: Sequence[tuple[LikelihoodPrompt, str]]) -> list[LogLikelihood]:
        values = [self.likelihood(*pair) for pair in pairs]
        return [
            value if isinstance(value, LogLikelihood) else LogLikelihood(total=value, tokens=len(text.split()), greedy=False)
            for value, (_, text) in zip(values, pairs, strict=True)
        ]

    def answer(
        self, prompts: Sequence[Sequence[Message]], config: SuiteConfig, passages: Sequence[Sequence[str]] = ()
    ) -> list[Completion]:
        texts = [self.says(prompt[-1].content) for prompt in prompts]
        return [
            Completion(prompt_id="p", model="scripted", text=text or "", finish_reason="error" if text is None else "stop")
            for text in texts
        ]
