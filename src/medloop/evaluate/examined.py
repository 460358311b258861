"""A model under examination: it answers from the shared cache where it can, and is loaded only when an answer is missing.

model = ExaminedModel("embedded:tiny+sft", identity, load, cache)
model.answer(prompts, SuiteConfig())                  # for suites: greedy
model.complete(questions, sampling, batch_size=64)    # for the questions of the splits, with their context passages
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from medloop.contracts import Completion, LogLikelihood, Message, SuiteConfig
from medloop.contracts.suite import LikelihoodPrompt
from medloop.errors import ConfigError
from medloop.evaluate.answer_cache import AnswerCache, CachedAnswer, Identity, answer_key, likelihood_key, prompt_id
from medloop.models.codebook_prompt import PromptRules
from medloop.models.context_limits import ContextLimits

AT_ONCE = 4  # batches that a model gets in one call
SAVE_S = 10.0  # a slow model's answers are written after the first batch that ends this long after the last write

Progress = Callable[[int, int], None]  # answers so far, answers in all
OnAnswers = Callable[[Mapping[int, Completion]], None]  # the answers of a batch, by the index of their prompt
Pair = tuple[LikelihoodPrompt, str]  # prompt and continuation


class Generate(Protocol):
    """Prompts in, completions out, in the same order. `on_answers` gets the answers of each batch before all are there."""

    def with_passages(
        self, messages: Sequence[Message], passages: Sequence[str], limits: ContextLimits
    ) -> tuple[Sequence[Message], tuple[str, ...]]: ...

    def __call__(
        self, prompts: Sequence[Sequence[Message]], *, max_new_tokens: int, temperature: float, seed: int, batch_size: int,
        progress: Progress | None = None, on_answers: OnAnswers | None = None,
    ) -> list[Completion]: ...  # fmt: skip


@runtime_checkable
class GivesLikelihoods(Protocol):
    """A generator that can also say how likely a continuation is."""

    def log_likelihoods(self, pairs: Sequence[Pair]) -> list[LogLikelihood]: ...


@dataclass(frozen=True)
class AskedPrompt:
    """What a model is asked: the messages, and the context passages that stand before the last one."""

    messages: tuple[Message, ...]
    passages: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerSampling:
    """What determines an answer besides model and prompt."""

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    limits: ContextLimits | None = None

    def key_parts(self, prompt: AskedPrompt) -> dict[str, Any]:
        """The seed counts only where something is random, the limits only where there are passages."""
        seed = self.seed if self.temperature > 0 else None
        sampling = {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature, "seed": seed}
        if not prompt.passages or self.limits is None:
            return sampling
        return {**sampling, "context": prompt.passages[: self.limits.top_k], "max_prompt": self.limits.max_prompt}

    def shown(self, generate: Generate, prompt: AskedPrompt) -> Sequence[Message]:
        """The messages as the model reads them."""
        return (
            prompt.messages if self.limits is None else generate.with_passages(prompt.messages, prompt.passages, self.limits)[0]
        )


class ExaminedModel:
    """The `SuiteModel` that suites receive."""

    def __init__(
        self,
        label: str,
        identity: Identity,
        load: Callable[[], Generate],
        cache: AnswerCache,
        *,
        codebook: PromptRules | None = None,
        limits: ContextLimits | None = None,
    ) -> None:
        self.limits = limits or ContextLimits()
        self._label, self._identity, self._load, self.cache, self._codebook = label, identity, load, cache, codebook

    @property
    def label(self) -> str:
        return self._label

    @property
    def identity(self) -> Mapping[str, str | None]:
        return self._identity

    @cached_property
    def _generate(self) -> Generate:
        return self._load()

    def unload(self) -> None:
        """Free the memory; asked again, the model loads again."""
        self.__dict__.pop("_generate", None)

    def answer(
        self, prompts: Sequence[Sequence[Message]], config: SuiteConfig, passages: Sequence[Sequence[str]] = (),
        progress: Progress | None = None,
    ) -> list[Completion]:  # fmt: skip
        sampling = AnswerSampling(max_new_tokens=config.max_new_tokens, limits=self.limits)
        contexts = passages or [()] * len(prompts)
        asked = [AskedPrompt(tuple(prompt), tuple(context)) for prompt, context in zip(prompts, contexts, strict=True)]
        answers = self.complete(asked, sampling, batch_size=config.batch_size, progress=progress)
        return [
            Completion(
                prompt_id=answer.prompt_id, model=self.label, adapter=self.identity.get("adapter"), text=answer.text,
                finish_reason=answer.finish_reason, n_tokens=answer.n_tokens, error=answer.error,
            )
            for answer in answers
        ]  # fmt: skip

    def complete(
        self, prompts: Sequence[AskedPrompt], sampling: AnswerSampling, *, batch_size: int, progress: Progress | None = None
    ) -> list[CachedAnswer]:
        """One answer per prompt, in order. A failed one is asked again by the next call."""
        asked = [self._with_codebook(prompt) for prompt in prompts]
        keys = [answer_key(self.identity, prompt.messages, sampling.key_parts(prompt)) for prompt in asked]
        known = self.cache.answers
        missing = {
            key: prompt
            for key, prompt in zip(keys, asked, strict=True)
            if key not in known or known[key].error is not None
        }  # fmt: skip
        todo, step = list(missing.items()), batch_size * AT_ONCE
        told: Progress = progress or (lambda done, total: None)
        for start in range(0, len(todo), step):
            known_before = len(asked) - len(todo) + start
            told(known_before, len(asked))
            self._ask(todo[start : start + step], sampling, batch_size, partial(shifted, told, known_before, len(asked)))
        told(len(asked), len(asked))
        return [self._shown(self.cache.answers[key], prompt) for key, prompt in zip(keys, prompts, strict=True)]

    def _shown(self, answer: CachedAnswer, prompt: AskedPrompt) -> CachedAnswer:
        """The answer as a user would get it; the cache has the model's own words, so a changed guard counts at once."""
        if self._codebook is None or answer.finish_reason == "error":
            return answer
        return answer.model_copy(update={"text": self._codebook.shown(answer.text, prompt.messages)})

    def _with_codebook(self, prompt: AskedPrompt) -> AskedPrompt:
        return prompt if self._codebook is None else AskedPrompt(self._codebook.before(prompt.messages), prompt.passages)

    def _ask(
        self, part: Sequence[tuple[str, AskedPrompt]], sampling: AnswerSampling, batch_size: int, progress: Progress
    ) -> None:  # fmt: skip
        """Ask and store: all at once, but each batch of a slow model, and what is there when something stops it."""
        generate, written = self._generate, monotonic()
        waiting: dict[int, CachedAnswer] = {}
        stored: set[int] = set()

        def store() -> None:
            self.cache.add_answers([waiting[index] for index in sorted(waiting)])
            stored.update(waiting)
            waiting.clear()

        def on_answers(completions: Mapping[int, Completion]) -> None:
            nonlocal written
            waiting.update({index: _cached(*part[index], completion) for index, completion in completions.items()})
            if monotonic() - written >= SAVE_S:
                store()
                written = monotonic()

        try:
            completions = generate(
                [sampling.shown(generate, prompt) for _, prompt in part],
                max_new_tokens=sampling.max_new_tokens, temperature=sampling.temperature, seed=sampling.seed,
                batch_size=batch_size, progress=progress, on_answers=on_answers,
            )  # fmt: skip
            rows = enumerate(zip(part, completions, strict=True))
            waiting = {index: _cached(*row, completion) for index, (row, completion) in rows if index not in stored}
        finally:  # also when somebody stops it
            store()

    def log_likelihoods(self, pairs: Sequence[Pair]) -> list[LogLikelihood]:
        if self._codebook is not None:
            raise ConfigError(
                f"{self.label} has a codebook, and likelihoods are measured without one",
                "Leave the codebook out, or leave out the suites that read likelihoods",
            )
        keys = [likelihood_key(*pair) for pair in pairs]
        known = self.cache.likelihoods
        if missing := {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}:
            generate = self._generate
            if not isinstance(generate, GivesLikelihoods):
                raise ConfigError(
                    f"{self.label} gives no log-likelihoods", "Leave it out, or leave out the suites that read likelihoods"
                )
            self.cache.add_likelihoods(dict(zip(missing, generate.log_likelihoods(list(missing.values())), strict=True)))
        return [known[key] for key in keys]


def _cached(key: str, prompt: AskedPrompt, completion: Completion) -> CachedAnswer:
    return CachedAnswer(
        key=key, prompt_id=prompt_id(prompt.messages), text=completion.text, finish_reason=completion.finish_reason,
        n_tokens=completion.n_tokens, error=completion.error,
    )  # fmt: skip


def shifted(progress: Progress, start: int, total: int, done: int, _: int) -> None:
    """The progress of a part that begins at `start`, as that of the whole."""
    progress(start + done, total)
