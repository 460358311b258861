"""Ask a model questions that the embedded corpus never showed it, and measure how well the answers fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medloop.contracts import Completion, Message
from medloop.embedded.check import coherence
from medloop.embedded.corpus import TONGUES
from medloop.embedded.corpus import generate as made_up
from medloop.embedded.table import Tongue

Generate = Callable[..., list[Completion]]


@dataclass(frozen=True)
class Sampled:
    question: str
    answer: str
    language: Tongue
    coherence: float


def ask_unseen(generate: Generate, *, n: int, seed: int = 3, temperature: float = 0.0) -> Sequence[Sampled]:
    """`n` questions of the clinic part, both languages in turn, with the answers and how well they fit."""
    sources = [made_up(n, seed=seed, part="clinic", language=tongue) for tongue in TONGUES]
    rows = [next(sources[index % 2]) for index in range(n)]
    prompts = [tuple(Message(**m) for m in row["messages"][:-1]) for row in rows]
    answers = generate(prompts, max_new_tokens=256, temperature=temperature, seed=seed)
    return [_sampled(row, answer.text) for row, answer in zip(rows, answers, strict=True)]


def _sampled(row: dict[str, object], answer: str) -> Sampled:
    messages, condition, language = row["messages"], row["condition"], row["language"]
    assert isinstance(messages, list) and isinstance(condition, str) and language in TONGUES
    question: str = messages[-2]["content"]
    fit = coherence(answer, condition=condition, language=language, symptom_text=question)
    return Sampled(question=question, answer=answer, language=language, coherence=fit)
