"""Sample a model's answers to questions that it was not trained on, and measure how coherent they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medloop.contracts import Completion, Message
from medloop.embedded import corpus
from medloop.embedded.check import coherence
from medloop.embedded.table import Language

Generate = Callable[..., list[Completion]]


@dataclass(frozen=True)
class SampledAnswer:
    """`coherence` is the share of sentences that fit the question."""

    question: str
    answer: str
    language: Language
    coherence: float


def sample_answers(generate: Generate, *, n: int, seed: int = 3, temperature: float = 0.0) -> Sequence[SampledAnswer]:
    """Answers to `n` questions of the clinic part, both languages in turn."""
    sources = [corpus.generate(n, seed=seed, part="clinic", language=language) for language in corpus.LANGUAGES]
    rows = [next(sources[number % 2]) for number in range(n)]
    prompts = [tuple(Message(**m) for m in row["messages"][:-1]) for row in rows]
    answers = generate(prompts, max_new_tokens=256, temperature=temperature, seed=seed)
    return [_sampled(row, answer.text) for row, answer in zip(rows, answers, strict=True)]


def _sampled(row: dict[str, object], answer: str) -> SampledAnswer:
    messages, condition, language = row["messages"], row["condition"], row["language"]
    assert isinstance(messages, list) and isinstance(condition, str) and language in corpus.LANGUAGES
    question: str = messages[-2]["content"]
    fit = coherence(answer, condition=condition, language=language, symptom_text=question)
    return SampledAnswer(question=question, answer=answer, language=language, coherence=fit)
