"""What suites share: which cases are drawn, the model's answers to them, and notes on what has no score."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from medloop.contracts import Completion, Message, Missing, SuiteCase, SuiteConfig, SuiteModel
from medloop.contracts.suite import SuiteProgress
from medloop.evaluate.examined import ExaminedModel, shifted

AT_ONCE = 2  # batches between two reports of progress
NO_ANSWER = "the question does not fit into the model"


class IdentifiedCase(Protocol):
    @property
    def id(self) -> str: ...


C = TypeVar("C", bound=IdentifiedCase)


def draw(cases: Iterable[C], config: SuiteConfig) -> list[C]:
    """`config.n` cases by the hash of their id and the seed: the same ones in any order of the file."""
    ordered = sorted(cases, key=lambda case: hashlib.sha256(f"{config.seed}:{case.id}".encode()).digest())
    return ordered[: config.n]


def answer_all(
    model: SuiteModel,
    prompts: Sequence[Sequence[Message]],
    config: SuiteConfig,
    progress: SuiteProgress,
    passages: Sequence[Sequence[str]] = (),
) -> list[Completion]:
    step, completions = config.batch_size * AT_ONCE, list[Completion]()
    for start in range(0, len(prompts), step):
        progress(start, len(prompts))
        answer = model.answer
        if isinstance(model, ExaminedModel):  # it also says how far it is within these batches
            answer = partial(model.answer, progress=partial(shifted, progress, start, len(prompts)))
        completions += answer(prompts[start : start + step], config, passages[start : start + step])
    progress(len(prompts), len(prompts))
    return completions


def answer_of(completion: Completion) -> str | None:
    """The text of an answer; None where the model could not give one."""
    return None if completion.finish_reason == "error" else completion.text


def why_missing(completion: Completion) -> str:
    """Why a completion has no text."""
    return completion.error or NO_ANSWER


def missing_notes(cases: Sequence[SuiteCase], metric: str) -> list[str]:
    """How many cases have no score of this metric, by reason."""
    missing = (score for case in cases for score in case.scores if isinstance(score, Missing) and score.name == metric)
    reasons = Counter(score.reason for score in missing)
    return [f"{count} of {len(cases)} cases have no {metric}: {reason}." for reason, count in reasons.most_common()]
